//! LATENCY: commands that were slow, and histograms of all.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::RespSession;
use crate::resp::command::{CommandId, Registry};
use crate::resp::context::{Outcome, shown};
use crate::resp::latency_monitor::{LatencyHistory, LatencySample};

pub(crate) fn help(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    super::help::reply(
        session,
        "LATENCY",
        &[
            ("DOCTOR", "Tell about slow events."),
            ("HISTOGRAM [<command> ...]", "Return how long commands take."),
            ("HISTORY <event>", "Return the latest times of an event."),
            ("LATEST", "Return the latest sample of each slow event."),
            ("RESET [<event> ...]", "Forget slow events."),
        ],
    );
    Ok(())
}

/// The slow events of the tenant.
fn slow_events(session: &RespSession) -> BTreeMap<&'static str, LatencyHistory> {
    session.tenant.as_ref().map(|tenant| tenant.latency.events()).unwrap_or_default()
}

pub(crate) fn latest(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let events = slow_events(session);
    let mut reply = session.reply();
    reply.array(events.len());
    for (name, event) in events {
        // An event begins with a sample.
        let last = event.samples.back().copied().unwrap_or(LatencySample { time_s: 0, took_ms: 0 });
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.integer(last.time_s);
        reply.integer(last.took_ms.cast_signed());
        reply.integer(event.longest_ms.cast_signed());
    }
    Ok(())
}

pub(crate) fn history(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let event = slow_events(session).remove(&*shown(&arguments[2])).unwrap_or_default();
    let mut reply = session.reply();
    reply.array(event.samples.len());
    for LatencySample { time_s, took_ms } in event.samples {
        reply.array(2);
        reply.integer(time_s);
        reply.integer(took_ms.cast_signed());
    }
    Ok(())
}

pub(crate) fn reset(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let forgotten = session.tenant.as_ref().map_or(0, |tenant| tenant.latency.reset(&arguments[2..]));
    session.reply().count(forgotten);
    Ok(())
}

pub(crate) fn doctor(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let mut text = String::new();
    for (name, event) in slow_events(session) {
        let (count, longest_ms) = (event.samples.len(), event.longest_ms);
        text.push_str(&format!("{name}: slow in {count} seconds, at most {longest_ms} ms. See SLOWLOG GET.\n"));
    }
    if text.is_empty() {
        text.push_str("Nothing was slower than latency-monitor-threshold, or it is 0: then nothing is watched.\n");
    }
    session.reply().verbatim(&text);
    Ok(())
}

pub(crate) fn histogram(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let wanted: Vec<CommandId> = match &arguments[2..] {
        [] => Registry::all().collect(),
        names => names.iter().filter_map(|name| Registry::find_full(name)).collect(),
    };
    let calls = |id: &CommandId| session.shared.statistics.of(*id).calls.load(Relaxed);
    let rows: Vec<(CommandId, u64)> =
        wanted.into_iter().map(|id| (id, calls(&id))).filter(|(_, calls)| *calls > 0).collect();
    let shared = session.shared.clone();
    let mut reply = session.reply();
    reply.map(rows.len());
    for (id, calls) in rows {
        let (mut sum, mut cumulative) = (0, Vec::new());
        for (power, bucket) in shared.statistics.of(id).histogram.iter().enumerate() {
            let count = bucket.load(Relaxed);
            sum += count;
            if count > 0 {
                cumulative.push((1u64 << power, sum));
            }
        }
        reply.bulk(id.full_name().as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(calls.cast_signed());
        reply.bulk(b"histogram_usec");
        reply.map(cumulative.len());
        for (microseconds, count) in cumulative {
            reply.integer(microseconds.cast_signed());
            reply.integer(count.cast_signed());
        }
    }
    Ok(())
}
