//! How an append is answered: a callback, or a future that a callback fulfils.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::Error;

type Callback<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// Told once how an append ended. Called on an engine's thread: hand over and return, do not work or block in it.
#[must_use = "a `Done` that is dropped answers nobody"]
pub struct Done<T>(Option<Callback<T>>);

impl<T> Done<T> {
    /// Nobody wants to know (and nothing is allocated).
    pub fn ignore() -> Self {
        Self(None)
    }

    /// Calls `callback`.
    pub fn call(callback: impl FnOnce(Result<T, Error>) + Send + 'static) -> Self {
        Self(Some(Box::new(callback)))
    }

    /// Whether nobody wants to know.
    pub fn is_ignored(&self) -> bool {
        self.0.is_none()
    }

    /// Answers.
    pub fn finish(self, result: Result<T, Error>) {
        if let Some(callback) = self.0 {
            callback(result);
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
    (Done::call(move |result| drop(sender.send(result))), Reply(receiver))
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
