//! How an append is answered: a callback, or a future that a callback fulfils.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::Error;

enum Told<T> {
    Nobody,
    Callback(Box<dyn FnOnce(Result<T, Error>) + Send>),
    Reply(oneshot::Sender<Result<T, Error>>),
}

/// Told once how an append ended. Called on an engine's thread: hand over and return, do not work or block in it.
#[must_use = "a `Done` that is dropped answers nobody"]
pub struct Done<T>(Told<T>);

impl<T> Done<T> {
    /// Nobody wants to know (and nothing is allocated).
    pub fn ignore() -> Self {
        Self(Told::Nobody)
    }

    /// Calls `callback`.
    pub fn call(callback: impl FnOnce(Result<T, Error>) + Send + 'static) -> Self {
        Self(Told::Callback(Box::new(callback)))
    }

    /// Whether nobody wants to know.
    pub fn is_ignored(&self) -> bool {
        matches!(self.0, Told::Nobody)
    }

    /// Answers.
    pub fn finish(self, result: Result<T, Error>) {
        match self.0 {
            Told::Nobody => {}
            Told::Callback(callback) => callback(result),
            // Whoever no longer listens does not mind.
            Told::Reply(sender) => drop(sender.send(result)),
        }
    }
}

impl<T> fmt::Debug for Done<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Done(ignored: {})", self.is_ignored())
    }
}

/// The answer that belongs to a [`Done`]: await it, or [`Reply::wait`] on a plain thread.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Receiver<Result<T, Error>>);

/// A callback and the future that it fulfils.
pub fn reply<T: Send + 'static>() -> (Done<T>, Reply<T>) {
    let (sender, receiver) = oneshot::channel();
    (Done(Told::Reply(sender)), Reply(receiver))
}

impl<T> Reply<T> {
    /// Blocks until the answer is there.
    ///
    /// # Errors
    /// What the append ended with; [`Error::Stopped`] if the engine went away first.
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
