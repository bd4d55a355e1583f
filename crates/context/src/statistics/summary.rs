//! Periodic summaries in the log: Orion's `-logSummary`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::Error;
use crate::statistics::alarms::{Alarm, AlarmCounts, Alarms};

/// Totals since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    requests: u64,
    alarms: [AlarmCounts; Alarm::ALL.len()],
}

impl Sums {
    /// Logs the difference from `before`.
    fn tell(&self, before: &Self) {
        tracing::info!(total = self.requests, new = self.requests - before.requests, "summary of transactions");
        for ((alarm, now), before) in Alarm::ALL.into_iter().zip(self.alarms).zip(before.alarms) {
            tracing::info!(
                alarm = alarm.name(),
                active = now.active,
                raised = now.raised,
                raised_new = now.raised - before.raised,
                released = now.released,
                released_new = now.released - before.released,
                "summary of alarms"
            );
        }
    }
}

/// The thread that writes summaries; `None` if they are off.
pub(crate) struct Summary(Mutex<Option<(Sender<()>, JoinHandle<()>)>>);

impl Summary {
    /// Starts to write a summary every `every`. `requests` counts answered requests.
    pub(crate) fn start(every: Duration, requests: Arc<AtomicU64>, alarms: Arc<Alarms>) -> Result<Self, Error> {
        let (end, ended) = channel::<()>();
        let run = move || {
            let mut before = Sums::default();
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let now = Sums { requests: requests.load(Ordering::Relaxed), alarms: alarms.tally() };
                now.tell(&before);
                before = now;
            }
        };
        let thread = std::thread::Builder::new().name("context-summary".to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Thread(Arc::new(source)))?;
        Ok(Self(Mutex::new(Some((end, thread)))))
    }

    pub(crate) fn stop(&self) {
        let Some((end, thread)) = self.0.lock().take() else { return };
        drop(end);
        if thread.join().is_err() {
            tracing::error!("the thread that sums up what happened panicked");
        }
    }
}

impl Drop for Summary {
    fn drop(&mut self) {
        self.stop();
    }
}
