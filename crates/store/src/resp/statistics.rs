//! Statistics of commands: how often they ran, how long they took, and which errors they answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::resp::command::{CommandId, Registry};

/// Buckets of a histogram of times: powers of two from 1 µs on, as LATENCY HISTOGRAM has them.
const HISTOGRAM_BUCKETS: usize = 32;
/// Codes of errors that are counted apart.
const ERROR_CODES_MAX: usize = 128;

/// The counters of one command, for INFO commandstats and latencystats.
#[derive(Debug, Default)]
pub(crate) struct CommandCounters {
    pub(crate) calls: AtomicU64,
    pub(crate) microseconds: AtomicU64,
    /// Calls that were refused before they ran.
    pub(crate) rejected: AtomicU64,
    /// Calls that ran and answered an error.
    pub(crate) failed: AtomicU64,
    pub(crate) histogram: [AtomicU64; HISTOGRAM_BUCKETS],
}

impl CommandCounters {
    fn all(&self) -> impl Iterator<Item = &AtomicU64> {
        [&self.calls, &self.microseconds, &self.rejected, &self.failed].into_iter().chain(&self.histogram)
    }
}

/// Counters of a listener since its start, or since CONFIG RESETSTAT.
#[derive(Debug)]
pub(crate) struct Statistics {
    commands: Vec<CommandCounters>,
    errors: Mutex<BTreeMap<String, u64>>,
    pub(crate) error_replies: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    pub(crate) rejected_connections: AtomicU64,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            commands: Registry::all().map(|_| CommandCounters::default()).collect(),
            errors: Mutex::default(),
            error_replies: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            rejected_connections: AtomicU64::new(0),
        }
    }
}

impl Statistics {
    pub(crate) fn of(&self, command: CommandId) -> &CommandCounters {
        &self.commands[command.index()]
    }

    /// Counts a command that ran, with its reply.
    pub(crate) fn ran(&self, command: CommandId, took: Duration, reply: &[u8]) {
        let counters = self.of(command);
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        counters.calls.fetch_add(1, Relaxed);
        counters.microseconds.fetch_add(microseconds, Relaxed);
        let bucket = (64 - microseconds.leading_zeros()) as usize;
        counters.histogram[bucket.min(HISTOGRAM_BUCKETS - 1)].fetch_add(1, Relaxed);
        if let [b'-', error @ ..] = reply {
            counters.failed.fetch_add(1, Relaxed);
            self.error(error);
        }
    }

    /// Counts a command that was refused before it ran; unknown ones have no counters of their own.
    pub(crate) fn rejected(&self, command: Option<CommandId>, error: &[u8]) {
        if let Some(command) = command {
            self.of(command).rejected.fetch_add(1, Relaxed);
        }
        self.error(error);
    }

    fn error(&self, text: &[u8]) {
        self.error_replies.fetch_add(1, Relaxed);
        let code = text.split(|byte| matches!(byte, b' ' | b'\r')).next().unwrap_or_default();
        let code = String::from_utf8_lossy(code);
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(&*code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into_owned(), 1);
        }
    }

    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Calls of all commands together.
    pub(crate) fn calls(&self) -> u64 {
        self.commands.iter().map(|counters| counters.calls.load(Relaxed)).sum()
    }

    pub(crate) fn reset(&self) {
        let others = [&self.error_replies, &self.input_bytes, &self.output_bytes, &self.rejected_connections];
        let commands = self.commands.iter().flat_map(CommandCounters::all);
        commands.chain(others).for_each(|counter| counter.store(0, Relaxed));
        self.errors.lock().clear();
    }
}
