//! The thread that sends the requests of all jobs.

use std::future::Future;

use millstream_log::run_as_batch;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use super::outgoing::HttpAccess;

/// The thread, and the rules for its requests.
pub(crate) struct HttpThread {
    pub(super) outgoing: HttpAccess,
    runtime: Mutex<Option<Runtime>>,
}

impl HttpThread {
    pub(crate) fn new(outgoing: HttpAccess) -> Self {
        Self { outgoing, runtime: Mutex::default() }
    }

    /// Runs `work` on the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn run(&self, work: impl Future<Output = ()> + Send + 'static) -> std::io::Result<AbortHandle> {
        let mut runtime = self.runtime.lock();
        if runtime.is_none() {
            let started = Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("flow-http")
                .on_thread_start(run_as_batch)
                .enable_all()
                .build()?;
            *runtime = Some(started);
        }
        let Some(runtime) = &*runtime else { return Err(std::io::Error::other("the thread has stopped")) };
        Ok(runtime.spawn(work).abort_handle())
    }

    pub(crate) fn stop(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}
