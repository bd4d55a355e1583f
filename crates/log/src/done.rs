//! Answers of appends: a callback, or a future that a callback completes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::Error;

enum ReplyTarget<T> {
    Nobody,
    Callback(Box<dyn FnOnce(Result<T, Error>) + Send>),
    Reply(oneshot::Sender<Result<T, Error>>),
}

/// Receives the outcome of an append once. It runs on an engine thread: hand over and return; do not work or block.
#[must_use = "a `Done` that is dropped answers nobody"]
pub struct Done<T> {
    target: ReplyTarget<T>,
    fails_on_full_disk: bool,
}

impl<T> Done<T> {
    fn new(target: ReplyTarget<T>) -> Self {
        Self { target, fails_on_full_disk: false }
    }

    /// Discards the outcome, without an allocation.
    pub fn ignore() -> Self {
        Self::new(ReplyTarget::Nobody)
    }

    /// Passes the outcome to `callback`.
    pub fn call(callback: impl FnOnce(Result<T, Error>) + Send + 'static) -> Self {
        Self::new(ReplyTarget::Callback(Box::new(callback)))
    }

    /// Delivers [`Error::WaitsForDisk`] if the disk gets full after the append was accepted and before it is in the
    /// journal. Without this the outcome comes once there is room: for callers whose state depends on it.
    pub fn failing_on_full_disk(self) -> Self {
        Self { fails_on_full_disk: true, ..self }
    }

    /// `true` if the outcome is discarded.
    pub fn is_ignored(&self) -> bool {
        matches!(self.target, ReplyTarget::Nobody)
    }

    pub(crate) fn fails_on_full_disk(&self) -> bool {
        self.fails_on_full_disk
    }

    /// Delivers the outcome of the append.
    pub fn finish(self, result: Result<T, Error>) {
        match self.target {
            ReplyTarget::Nobody => {}
            ReplyTarget::Callback(callback) => callback(result),
            // A receiver that is gone needs no answer.
            ReplyTarget::Reply(sender) => drop(sender.send(result)),
        }
    }
}

impl<T> fmt::Debug for Done<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Done(ignored: {})", self.is_ignored())
    }
}

/// The future that belongs to a [`Done`]: await it, or call [`Reply::wait`] on a plain thread.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Receiver<Result<T, Error>>);

/// A callback and the future that it completes.
pub fn reply<T: Send + 'static>() -> (Done<T>, Reply<T>) {
    let (sender, receiver) = oneshot::channel();
    (Done::new(ReplyTarget::Reply(sender)), Reply(receiver))
}

impl<T> Reply<T> {
    /// Blocks until the append has ended.
    ///
    /// # Errors
    /// The error that ended the append; [`Error::Stopped`] if the engine is gone.
    ///
    /// # Panics
    /// When called on an async thread.
    pub fn wait(self) -> Result<T, Error> {
        self.0.blocking_recv().unwrap_or(Err(Error::Stopped))
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.unwrap_or(Err(Error::Stopped)))
    }
}
