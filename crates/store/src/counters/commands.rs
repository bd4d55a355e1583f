//! Counts of the commands of each protocol.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_http::{Begun, Ended, Mark, Observer};
use parking_lot::RwLock;

/// Most commands of all protocols together.
const COMMANDS_MAX: usize = 1_024;
/// Counts the commands beyond that.
const OTHERS: &str = "(others)";

/// The counts of one command.
#[derive(Debug, Default)]
pub struct CommandCounts {
    successes: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
    time_us: AtomicU64,
}

/// The figures of one command since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandFigures {
    /// Number of commands that succeeded.
    pub successes: u64,
    /// Number of commands that did not succeed.
    pub failures: u64,
    /// Bytes that the client sent and received with them.
    pub bytes: u64,
    /// Time from each command to its answer, in microseconds.
    pub time_us: u64,
}

impl CommandCounts {
    /// Counts a command with the bytes that it moved and the time that it took.
    pub fn count(&self, is_success: bool, bytes: u64, took: Duration) {
        let outcome = if is_success { &self.successes } else { &self.failures };
        outcome.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.time_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    fn figures(&self) -> CommandFigures {
        CommandFigures {
            successes: self.successes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            time_us: self.time_us.load(Ordering::Relaxed),
        }
    }
}

/// The counts of all commands, by protocol and name.
#[derive(Debug, Default)]
pub struct DoorCounters(RwLock<BTreeMap<(&'static str, String), Arc<CommandCounts>>>);

impl DoorCounters {
    /// The counter of a command, to keep by the code that counts it.
    pub fn command(&self, protocol: &'static str, name: &str) -> Arc<CommandCounts> {
        let mut all = self.0.write();
        let is_full = all.len() >= COMMANDS_MAX && !all.contains_key(&(protocol, name.to_owned()));
        let name = if is_full { OTHERS } else { name };
        Arc::clone(all.entry((protocol, name.to_owned())).or_default())
    }

    /// The figures of all commands, by protocol and name.
    pub fn figures(&self) -> Vec<(&'static str, String, CommandFigures)> {
        let all = self.0.read();
        all.iter().map(|((protocol, name), counts)| (*protocol, name.clone(), counts.figures())).collect()
    }
}

/// Counts the requests of the HTTP routes.
pub(crate) struct CountedRoutes {
    doors: Arc<DoorCounters>,
    /// The counters that were met, so that a request allocates nothing.
    met: RwLock<Vec<(String, String, Arc<CommandCounts>)>>,
}

impl CountedRoutes {
    pub(crate) fn over(doors: &Arc<DoorCounters>) -> Arc<Self> {
        Arc::new(Self { doors: Arc::clone(doors), met: RwLock::default() })
    }

    fn counts(&self, method: &str, route: &str) -> Arc<CommandCounts> {
        let is_it = |(of, path, _): &&(String, String, Arc<CommandCounts>)| of == method && path == route;
        if let Some((_, _, counts)) = self.met.read().iter().find(is_it) {
            return Arc::clone(counts);
        }
        let counts = self.doors.command("http", &format!("{method} {route}"));
        self.met.write().push((method.to_owned(), route.to_owned(), Arc::clone(&counts)));
        counts
    }
}

impl Observer for CountedRoutes {
    fn begun(&self, request: &Begun<'_>) -> Mark {
        Mark { number: 0, client: request.peer.ip() }
    }

    fn ended(&self, _: Mark, answer: &Ended<'_>) {
        let bytes = answer.request_bytes + answer.answer_bytes;
        self.counts(answer.method.as_str(), answer.route).count(answer.status < 400, bytes, answer.took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_protocol_and_name_and_bounded() {
        let doors = DoorCounters::default();
        doors.command("resp", "GET").count(true, 10, Duration::from_micros(7));
        doors.command("resp", "GET").count(false, 1, Duration::from_micros(3));
        let expected = CommandFigures { successes: 1, failures: 1, bytes: 11, time_us: 10 };
        assert_eq!(doors.figures(), [("resp", "GET".to_owned(), expected)]);
        for number in 0..2 * COMMANDS_MAX {
            doors.command("resp", &number.to_string()).count(true, 0, Duration::ZERO);
        }
        let figures = doors.figures();
        assert_eq!(figures.len(), COMMANDS_MAX + 1);
        let others = figures.iter().find(|(_, name, _)| name == OTHERS).unwrap();
        assert_eq!(others.2.successes as usize, COMMANDS_MAX + 1);
    }
}
