//! Memory of idle queries.

use millstream_load::report::{BenchCase, Peer};
use serde_json::{Map, Value, json};

use super::delivery::QuerySession;
use super::server::QueryServer;
use super::{QueryBench, verdict};
use crate::process;

/// Largest memory of an idle query.
const BYTES_MAX: f64 = 1024.0;

impl QueryBench {
    /// Starts as many queries as B5, each for a different value, without records, and measures the increase
    /// of the server's resident memory.
    pub(super) fn wait_for_nothing(&self) -> anyhow::Result<(BenchCase, String)> {
        let place = QueryServer::open()?;
        let pid = place.server.pid();
        let mut session = QuerySession::open(place.applications, self.begin)?;
        process::rest(pid)?;
        let before_mib = process::rss_mib(pid)?;
        let queries = self.distinct(self.plan.queries).queries;
        let live_after = session.ask_all(&queries)?;
        process::rest(pid)?;
        let more_mib = process::rss_mib(pid)? - before_mib;
        let bytes = more_mib * f64::from(1 << 20) / queries.len() as f64;
        let note = format!(
            "Memory of an idle query at most {BYTES_MAX:.0} bytes, its client's connection included: {}: {bytes:.0} bytes, {more_mib:.1} MiB for {} \
             queries of different values on one WebSocket, live after {:.2} s.",
            verdict(bytes <= BYTES_MAX),
            queries.len(),
            live_after.as_secs_f64(),
        );
        let mut conditions: Map<String, Value> = self.machine.conditions();
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "queries": queries.len(),
            "query": queries.first(),
            "bytes_per_query": bytes,
            "rss_before_mib": before_mib,
            "live_after_s": live_after.as_secs_f64(),
        });
        if let Value::Object(own) = own {
            conditions.extend(own);
        }
        let case = BenchCase {
            suite: "query".to_owned(),
            case: format!("Memory of {} idle queries", queries.len()),
            conditions,
            rate_per_s: queries.len() as f64 / live_after.as_secs_f64(),
            per_core_per_s: None,
            latency_ms: None,
            errors: 0,
            rss_mib: Some(process::rss_peak_mib(pid)?),
            cpu_s_per_million: Some(place.server.cpu_s()? / queries.len() as f64 * 1e6),
            peer: None::<Peer>,
            ratio: None,
            generator_bottleneck: false,
        };
        Ok((case, note))
    }
}
