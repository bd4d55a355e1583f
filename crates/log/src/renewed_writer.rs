//! A writer that goes on after a commit that failed, for commits that do not build on one another.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{AckLevel, Appended, AtomicAppend, Done, Error, Log, Writer};

/// Pause before the name is asked for again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A name, and its writer at the moment. After a commit whose failure has ended the writer, the next call takes the name again,
/// as [`Writer`] asks for; until then calls are refused.
///
/// For callers that keep no state which follows from their commits: whether the failed one was stored is for them to bear.
pub struct RenewedWriter {
    name: String,
    log: Arc<dyn Log>,
    current: Arc<Mutex<Current>>,
}

enum Current {
    Writes(Arc<dyn Writer>),
    Begins,
}

impl RenewedWriter {
    /// Begins the next writer of a name.
    ///
    /// # Errors
    /// Those of [`Log::writer`].
    pub fn begin(log: Arc<dyn Log>, name: &str) -> Result<Self, Error> {
        let current = Current::Writes(log.writer(name)?);
        Ok(Self { name: name.to_owned(), log, current: Arc::new(Mutex::new(current)) })
    }

    /// As [`Writer::commit`].
    ///
    /// # Errors
    /// Those of [`Writer::commit`]; [`Error::WriterBegins`] in place of [`Error::OutcomeUnknown`]. Nothing is committed.
    pub fn commit(&self, append: &AtomicAppend<'_>, level: AckLevel, done: Done<Vec<Appended>>) -> Result<(), Error> {
        let begins = || Error::WriterBegins { writer: self.name.clone() };
        let writer = match &*self.current.lock() {
            Current::Writes(writer) => Arc::clone(writer),
            Current::Begins => return Err(begins()),
        };
        match writer.commit(append, level, done) {
            Err(Error::OutcomeUnknown { .. }) => {
                self.renew(writer);
                Err(begins())
            }
            outcome => outcome,
        }
    }

    /// Takes the name again on a thread of its own, unless another caller does.
    fn renew(&self, ended: Arc<dyn Writer>) {
        {
            let mut current = self.current.lock();
            match &*current {
                Current::Writes(writer) if Arc::ptr_eq(writer, &ended) => *current = Current::Begins,
                _ => return,
            }
        }
        let (log, current, name) = (Arc::downgrade(&self.log), Arc::clone(&self.current), self.name.clone());
        let kept = Arc::clone(&ended);
        let take = move || {
            // The call after one that fails takes the name again.
            let mut next = ended;
            while let Some(log) = log.upgrade() {
                match log.writer(&name) {
                    Ok(writer) => next = writer,
                    Err(error) if error.is_retryable() => {
                        drop(log);
                        thread::sleep(RETRY_AFTER);
                        continue;
                    }
                    Err(error) => tracing::error!(writer = name, %error, "a writer cannot begin anew"),
                }
                break;
            }
            *current.lock() = Current::Writes(next);
        };
        if thread::Builder::new().name("writer-begins".to_owned()).spawn(take).is_err() {
            *self.current.lock() = Current::Writes(kept);
        }
    }
}

impl std::fmt::Debug for RenewedWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RenewedWriter({})", self.name)
    }
}
