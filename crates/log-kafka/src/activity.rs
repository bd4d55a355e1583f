//! The part of this process in the work of its installation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_log::Error;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::config::EngineConfig;

/// A process of the installation, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveProcess {
    /// The id of its data directory: two processes with the same one do not run at the same time.
    pub node: String,
    /// The name of its machine.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// When it took over: milliseconds since 1970-01-01T00:00:00Z.
    pub since_ms: i64,
    /// This run of it.
    pub(crate) run: Uuid,
}

impl ActiveProcess {
    /// This process, with the id of its data directory.
    pub fn new(node: String, host: String) -> Self {
        Self { node, host, pid: std::process::id(), since_ms: 0, run: Uuid::new_v4() }
    }

    /// An id for a data directory that has none.
    pub fn new_node() -> String {
        Uuid::new_v4().to_string()
    }
}

impl std::fmt::Display for ActiveProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// The state of this process among those of its installation.
#[derive(Debug)]
pub(crate) struct Activity {
    works: AtomicBool,
    /// The log is being closed.
    is_closing: AtomicBool,
    /// The process that has taken over from this one.
    successor: watch::Sender<Option<ActiveProcess>>,
    looks: Looks,
}

/// Looks at what other processes claim.
#[derive(Debug, Default)]
struct Looks {
    begun: AtomicU64,
    /// The last one that has found no other process.
    ended: watch::Sender<u64>,
    asked: Notify,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            works: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            successor: watch::Sender::new(None),
            looks: Looks::default(),
        }
    }
}

impl Activity {
    /// This process has claimed that it works.
    pub(crate) fn begin(&self) {
        self.works.store(true, Ordering::Release);
    }

    /// This process ends, or another one has taken over.
    pub(crate) fn end(&self, successor: Option<ActiveProcess>) {
        if self.works.swap(false, Ordering::AcqRel) && successor.is_some() {
            self.successor.send_replace(successor);
        }
    }

    /// A look at what others claim begins. Returns its number.
    pub(crate) fn begin_look(&self) -> u64 {
        self.looks.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A look has found no other process.
    pub(crate) fn end_look(&self, number: u64) {
        self.looks.ended.send_replace(number);
    }

    /// Resolves once a look is asked for.
    pub(crate) async fn look_asked(&self) {
        self.looks.asked.notified().await;
    }

    /// Waits for a look that begins from now on and finds that no other process has taken over.
    ///
    /// # Errors
    /// [`Error::Unreachable`]; [`Error::Fenced`] if another one has.
    pub(crate) async fn confirm(&self, config: &EngineConfig) -> Result<(), Error> {
        let before = self.looks.begun.load(Ordering::Acquire);
        self.looks.asked.notify_one();
        let (mut ended, mut successor) = (self.looks.ended.subscribe(), self.successor.subscribe());
        let looked = async {
            tokio::select! {
                _ = ended.wait_for(|ended| *ended > before) => {}
                _ = successor.wait_for(Option::is_some) => {}
            }
        };
        if tokio::time::timeout(config.delivery_timeout, looked).await.is_err() {
            let why = "it is not known whether another process has taken over".to_owned();
            return Err(Error::Unreachable { brokers: config.brokers.join(", "), why });
        }
        self.check()
    }

    /// Refuses appends from now on.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// `true` while this process tells others that it works.
    pub(crate) fn works(&self) -> bool {
        self.works.load(Ordering::Acquire)
    }

    /// `true` once another process is known to have taken over.
    pub(crate) fn is_over(&self) -> bool {
        self.successor.borrow().is_some()
    }

    /// Checks that the log is open, and that no other process is known to have taken over.
    ///
    /// # Errors
    /// [`Error::Stopped`]; [`Error::Fenced`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_closing.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        if self.is_over() {
            return Err(Error::Fenced { writer: "of this process".to_owned() });
        }
        Ok(())
    }

    /// The process that has taken over, once there is one.
    pub(crate) async fn taken_over(&self) -> ActiveProcess {
        let mut successor = self.successor.subscribe();
        loop {
            if let Some(successor) = &*successor.borrow_and_update() {
                return successor.clone();
            }
            if successor.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
