//! SLOWLOG: the latest commands of the tenant that took long.

use bytes::Bytes;

use super::RespSession;
use crate::resp::context::{Fault, Outcome};
use crate::resp::number::integer;

/// Entries that SLOWLOG GET returns, if it is not told.
const LATEST: usize = 10;

pub(crate) fn help(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    super::help::reply(
        session,
        "SLOWLOG",
        &[
            (
                "GET [<count>]",
                "Return the latest slow commands (10, or all with -1): number, time, microseconds, command, client.",
            ),
            ("LEN", "Count the slow commands that are kept."),
            ("RESET", "Forget them."),
        ],
    );
    Ok(())
}

pub(crate) fn get(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let count = match &arguments[2..] {
        [] => LATEST,
        [count] => match integer(count) {
            Some(-1) => usize::MAX,
            count => count
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(Fault::error("ERR count should be greater than or equal to -1"))?,
        },
        _ => return Err(Fault::arity("slowlog|get")),
    };
    let entries = session.tenant.as_ref().map(|tenant| tenant.slow_log.latest(count)).unwrap_or_default();
    let mut reply = session.reply();
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.integer(entry.id);
        reply.integer(entry.time_ms / 1_000);
        reply.integer(i64::try_from(entry.took.as_micros()).unwrap_or(i64::MAX));
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(entry.peer.as_bytes());
        reply.bulk(&entry.client_name);
    }
    Ok(())
}

pub(crate) fn len(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let length = session.tenant.as_ref().map_or(0, |tenant| tenant.slow_log.len());
    session.reply().count(length);
    Ok(())
}

pub(crate) fn reset(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    if let Some(tenant) = &session.tenant {
        tenant.slow_log.clear();
    }
    session.reply().ok();
    Ok(())
}
