//! The result of a simulation, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::fleet::MessageCounts;
use super::run::SimRun;
use super::worker::ThreadResult;
use super::{MessageKind, Method, Pacing, Protocol, SimArgs};
use crate::table::{grouped, measured};
use crate::{Error, FailureKind, LatencyMs, TextTable};

/// Share of a core above which a generator thread, not the server, limits the rate.
const BOTTLENECK_SHARE: f64 = 0.9;

/// The figures of one simulation run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimReport {
    /// Conditions under which the figures hold.
    pub conditions: Conditions,
    /// Seconds from the end of the warm-up to the last answer.
    pub elapsed_s: f64,
    /// Messages that were sent, and messages that failed for lack of a connection.
    pub sent: u64,
    /// Messages answered with a 2xx status, or confirmed over MQTT.
    pub accepted: u64,
    /// Failed messages by status code or kind of failure.
    pub failures: BTreeMap<FailureKind, u64>,
    /// Messages that were due and not sent; open loop only.
    pub backlog: Backlog,
    /// Accepted messages per second of wall-clock time.
    pub rate_per_s: f64,
    /// Latency of the accepted messages, from sending in the closed loop and from the due time in the open loop. At QoS 0
    /// over MQTT it covers one message of each window of `in_flight` messages.
    pub latency_ms: LatencyMs,
    /// CPU use of the simulator itself.
    pub generator: Generator,
}

/// Settings of the simulated devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conditions {
    /// Protocol that the devices spoke.
    pub protocol: Protocol,
    /// URL to which devices sent or at which they waited for commands.
    pub devices_url: String,
    /// Number of devices in the run.
    pub devices: u64,
    /// Number of connections; for commands, those of the application.
    pub connections: usize,
    /// Time between two messages of a device.
    pub period_ms: f64,
    /// Open or closed loop of the senders.
    #[serde(rename = "loop")]
    pub pacing: Pacing,
    /// Method of the requests; HTTP only.
    pub method: Option<Method>,
    /// Largest number of unconfirmed messages of a device.
    pub in_flight: usize,
    /// Kind of the messages that are sent.
    pub kind: MessageKind,
    /// Quality of service of telemetry; events always have 1.
    pub qos: u8,
    /// Size of the payload; `null` if it is JSON.
    pub payload_bytes: Option<u64>,
    /// Time at the start that the figures leave out.
    pub warm_up_s: f64,
}

/// Messages that were due and not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Backlog {
    /// Backlog at the end of sending; no other figure includes it. A few are usual: messages that came due within the last
    /// 2 ms, the tolerance of timers.
    pub at_end: u64,
    /// Largest backlog of all samples, ten a second.
    pub max: u64,
}

/// CPU use of the simulator itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Generator {
    /// Number of threads of the simulator.
    pub threads: usize,
    /// Share of a core's time that the busiest thread used, 0 to 1.
    pub busiest_thread: f64,
    /// True if the simulator, not the server, limited the rate.
    pub bottleneck: bool,
}

impl Generator {
    fn new(threads: usize, busiest_thread: f64) -> Self {
        Self { threads, busiest_thread, bottleneck: busiest_thread > BOTTLENECK_SHARE }
    }
}

impl SimReport {
    pub(super) fn new(
        args: &SimArgs,
        run: &SimRun,
        tally: MessageCounts,
        threads: &[ThreadResult],
        backlog: Backlog,
    ) -> Self {
        let last = threads.iter().filter_map(|thread| thread.at).max().unwrap_or(run.measured_from);
        let elapsed_s = last.saturating_duration_since(run.measured_from).as_secs_f64();
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
                payload_bytes: args.payload_bytes.filter(|_| args.template.is_none()),
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

    /// # Errors
    /// [`Error::NoneAccepted`] if messages failed and none was accepted.
    pub(super) fn ensure_some_accepted(&self) -> Result<(), Error> {
        let most = self.failures.iter().max_by_key(|(_, count)| **count).filter(|_| self.accepted == 0);
        most.map_or(Ok(()), |(kind, count)| {
            Err(Error::NoneAccepted { sent: self.sent, kind: *kind, count: *count, remedy: kind.remedy() })
        })
    }
}

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = TextTable::with_head(["result", ""]);
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
    fn a_run_without_an_accepted_message_is_an_error_with_a_remedy() {
        assert!(report().ensure_some_accepted().is_ok());
        let failures = [(FailureKind::Status(401), 9), (FailureKind::Timeout, 1)].into();
        let error = SimReport { accepted: 0, sent: 10, failures, ..report() }.ensure_some_accepted().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("none of 10 messages") && text.contains("--register"), "{text}");
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
