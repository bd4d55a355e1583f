//! A task of the sockets' runtime that writes the log's journal.
//!
//! A message must be in the journal before it is acknowledged. Waking the log's own thread for it, and being woken
//! again, would cost as much as the message itself. So this task writes once its thread is idle or has run several
//! dozen tasks; one write then covers the appends of these tasks, and their waiters are answered immediately.

use std::sync::Arc;

use millstream_log::Embedded;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};

/// Starts the task. Other runtimes' threads leave the writing to the log, as all threads do once the task has ended.
pub(crate) fn start(log: &Arc<Embedded>) -> JoinHandle<()> {
    let waiting = Arc::new(Notify::new());
    let told = Arc::clone(&waiting);
    log.prompt_with(move || {
        let is_task = tokio::task::try_id().is_some();
        if is_task {
            told.notify_one();
        }
        is_task
    });
    let log = Arc::clone(log);
    tokio::spawn(async move {
        loop {
            waiting.notified().await;
            // Resumes after the tasks that are ready have run.
            yield_now().await;
            log.write_accepted();
        }
    })
}
