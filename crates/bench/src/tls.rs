//! Suite `tls`: the server's CPU time for a handshake, beside nginx, and for a message, beside one without TLS.
//!
//! Figures per core are counts divided by the CPU time of the server process, so that they hold whatever the generator's speed.
//! Server and peer run in turn, because the speed of a machine varies within seconds.

mod certificate;
mod handshakes;
mod messages;
mod nginx;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use crate::cores::Cores;
use crate::findings::Findings;
use crate::machine::Machine;
use crate::{Length, Report};

/// Rounds and times of the suite.
#[derive(Debug, Clone, Copy)]
struct TlsWorkload {
    rounds: usize,
    /// Measured time of a case in a round; whole seconds.
    time: Duration,
    /// Warm-up of messages, in which connections open.
    warm_up: Duration,
}

impl TlsWorkload {
    fn of(length: Length) -> Self {
        let s = Duration::from_secs;
        match length {
            Length::Quick => Self { rounds: 1, time: s(1), warm_up: s(1) },
            Length::Default => Self { rounds: 5, time: s(3), warm_up: s(2) },
            Length::Full => Self { rounds: 5, time: s(10), warm_up: s(3) },
        }
    }
}

/// State that all cases share.
struct TlsBench<'a> {
    plan: TlsWorkload,
    machine: Machine,
    cores: Cores,
    dir: &'a Path,
}

pub(super) fn measure(length: Length) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let bench = TlsBench {
        plan: TlsWorkload::of(length),
        machine: Machine::with_files_in(dir.path()),
        cores: Cores::apart()?,
        dir: dir.path(),
    };
    let mut findings = Findings::default();
    handshakes::measure(&bench, &mut findings)?;
    messages::measure(&bench, &mut findings)?;
    let Findings { cases, notes } = findings;
    Ok(Report { heading: bench.heading(), cases, notes: bench.machine.warning().into_iter().chain(notes).collect() })
}

impl TlsBench<'_> {
    fn heading(&self) -> String {
        let TlsWorkload { rounds, time, warm_up } = self.plan;
        format!(
            "Over sockets, to a server process of its own that logs errors only; {}.\n{}.\n\
             {rounds} rounds of {} s a case, ours and the peer's in turn, summed up. Handshakes: `openssl s_time -new`, one \
             connection at a time, against both with the same certificate; nginx has one process and its default settings of \
             TLS. Messages: {} bytes, after {} s of warm-up or more, in the closed loop and then at {:.0} % of the rate that it has over TLS. \
             CPU time is the server's, until it is at rest again.",
            self.cores,
            self.machine,
            time.as_secs(),
            messages::PAYLOAD_BYTES,
            warm_up.as_secs(),
            messages::PART_OF_RATE * 100.0,
        )
    }
}
