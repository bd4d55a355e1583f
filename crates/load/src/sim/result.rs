//! What a simulation has shown.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::fleet::Tally;
use super::worker::{Finished, Run};
use super::{MessageKind, Method, Pacing, Protocol, SimArgs, between};
use crate::table::{grouped, measured};
use crate::{FailureKind, LatencyMs, Table};

/// Above this share of a core's time a generator thread sets the pace instead of the server.
const BOTTLENECK_SHARE: f64 = 0.9;

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimReport {
    /// Under which the figures hold.
    pub conditions: Conditions,
    /// Seconds from the end of the warm-up to the last answer.
    pub elapsed_s: f64,
    /// Messages that were sent, or that could not be for want of a connection.
    pub sent: u64,
    /// Those answered with a 2xx status, or confirmed.
    pub accepted: u64,
    /// All others, by what was answered or happened.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Messages that were due and not sent; open loop only.
    pub backlog: Backlog,
    /// Accepted messages per second.
    pub rate_per_s: f64,
    /// Latency of the accepted messages: from sending in the closed loop, from being due in the open loop. At QoS 0 over
    /// MQTT of every Nth of a device, where N may be in flight.
    pub latency_ms: LatencyMs,
    /// What the simulator itself needed.
    pub generator: Generator,
}

/// What was simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conditions {
    /// What devices spoke.
    pub protocol: Protocol,
    /// Where devices sent to, or waited for commands.
    pub devices_url: String,
    /// Number of devices.
    pub devices: u64,
    /// Number of connections; of the application where commands are sent.
    pub connections: usize,
    /// Time between two messages of a device.
    pub period_ms: f64,
    /// Which loop.
    #[serde(rename = "loop")]
    pub pacing: Pacing,
    /// Which method; HTTP only.
    pub method: Option<Method>,
    /// Messages of a device that may be unconfirmed at once.
    pub in_flight: usize,
    /// What kind of message.
    pub kind: MessageKind,
    /// Telemetry's quality of service; events always have 1.
    pub qos: u8,
    /// Size of the payload; `null` when a template made it.
    pub payload_bytes: Option<u64>,
    /// Time at the start that is not in the figures.
    pub warm_up_s: f64,
}

/// Messages that were due and not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Backlog {
    /// When the sending ended; these are in no other figure. A few are usual: those that came due within the last
    /// 2 ms, which timers do not tell apart.
    pub at_end: u64,
    /// At the worst of the moments when it was looked at, ten times a second.
    pub max: u64,
}

/// What the simulator needed for itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Generator {
    /// Number of threads.
    pub threads: usize,
    /// Share of a core's time that the busiest thread used, 0 to 1.
    pub busiest_thread: f64,
    /// Whether that was so much that the server could have done more.
    pub bottleneck: bool,
}

impl Generator {
    fn new(threads: usize, busiest_thread: f64) -> Self {
        Self { threads, busiest_thread, bottleneck: busiest_thread > BOTTLENECK_SHARE }
    }
}

impl SimReport {
    pub(super) fn new(args: &SimArgs, run: &Run, tally: Tally, threads: &[Finished], backlog: Backlog) -> Self {
        let last = threads.iter().filter_map(|thread| thread.at).max().unwrap_or(run.measured_from);
        let elapsed_s = between(run.measured_from, last).as_secs_f64();
        let share = |part: f64| if elapsed_s > 0.0 { part / elapsed_s } else { 0.0 };
        let busiest_thread = threads.iter().map(|thread| share(thread.cpu.as_secs_f64())).fold(0.0, f64::max);
        Self {
            conditions: Conditions {
                protocol: args.protocol,
                devices_url: args.devices_url().to_owned(),
                devices: args.devices,
                connections: args.connections(),
                period_ms: args.period.as_secs_f64() * 1000.0,
                pacing: args.pacing,
                method: (args.protocol == Protocol::Http).then_some(args.method),
                in_flight: args.in_flight(),
                kind: args.kind,
                qos: args.qos(),
                payload_bytes: args.template.is_none().then_some(args.payload_bytes),
                warm_up_s: args.warm_up.as_secs_f64(),
            },
            elapsed_s,
            sent: tally.sent(),
            accepted: tally.accepted,
            rate_per_s: share(tally.accepted as f64),
            latency_ms: tally.latencies.summary(),
            failures: tally.failures,
            backlog,
            generator: Generator::new(threads.len(), busiest_thread),
        }
    }

    /// Messages that were not accepted.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::with_head(["result", ""]);
        table.row(["elapsed s".to_owned(), measured(self.elapsed_s)]);
        table.row(["sent".to_owned(), grouped(self.sent)]);
        table.row(["accepted".to_owned(), grouped(self.accepted)]);
        table.row(["accepted/s".to_owned(), measured(self.rate_per_s)]);
        table.row(["failed".to_owned(), grouped(self.failed())]);
        for (kind, count) in &self.failures {
            table.row([format!("  {kind}"), grouped(*count)]);
        }
        if self.conditions.pacing == Pacing::Open {
            table.row(["backlog at end".to_owned(), grouped(self.backlog.at_end)]);
            table.row(["backlog max".to_owned(), grouped(self.backlog.max)]);
        }
        for (name, value) in self.latency_ms.columns() {
            table.row([format!("{name} ms"), value.map_or_else(|| "–".to_owned(), measured)]);
        }
        write!(f, "{table}")?;
        if self.generator.bottleneck {
            let percent = self.generator.busiest_thread * 100.0;
            writeln!(
                f,
                "The simulator was the bottleneck: its busiest thread used {percent:.0} % of a core. Try --threads."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SimReport {
        SimReport {
            conditions: Conditions {
                protocol: Protocol::Http,
                devices_url: "http://127.0.0.1:8080".to_owned(),
                devices: 2000,
                connections: 500,
                period_ms: 1000.0,
                pacing: Pacing::Open,
                method: Some(Method::Put),
                in_flight: 1,
                kind: MessageKind::Telemetry,
                qos: 0,
                payload_bytes: Some(64),
                warm_up_s: 5.0,
            },
            elapsed_s: 30.04,
            sent: 60_000,
            accepted: 59_871,
            failures: [(FailureKind::Timeout, 4), (FailureKind::Status(503), 120), (FailureKind::Status(429), 5)]
                .into(),
            backlog: Backlog { at_end: 0, max: 1_234 },
            rate_per_s: 1993.04,
            latency_ms: LatencyMs { p50: 0.213, p90: Some(0.9), p98: Some(2.04), p99: 3.1, p99_9: 41.0, max: 812.3 },
            generator: Generator { threads: 1, busiest_thread: 0.93, bottleneck: true },
        }
    }

    #[test]
    fn the_table_shows_failures_by_code_and_names_the_bottleneck() {
        insta::assert_snapshot!(report().to_string());
    }

    #[test]
    fn a_thread_that_uses_more_than_nine_tenths_of_a_core_is_the_bottleneck() {
        for (busiest_thread, bottleneck) in [(0.0, false), (0.9, false), (0.91, true), (1.0, true)] {
            assert_eq!(Generator::new(1, busiest_thread).bottleneck, bottleneck, "{busiest_thread}");
        }
    }

    #[test]
    fn the_closed_loop_has_no_backlog_to_show() {
        let conditions = Conditions { pacing: Pacing::Closed, ..report().conditions };
        let text = SimReport { conditions, ..report() }.to_string();
        assert!(!text.contains("backlog"), "{text}");
    }

    #[test]
    fn json_carries_conditions_and_figures() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&report()).unwrap());
    }
}
