//! Who writes the log's journal while sockets are served: their own threads.
//!
//! A message that its device wants acknowledged has to be in the journal first. To wake the log's thread for it, and to be
//! woken by that, would cost as much as the message. So a task of the sockets' runtime writes once the thread that it
//! runs on has nothing more to do or has gone through several dozen tasks; what these have appended is then written at
//! once, and whoever waits for it is answered on the spot.

use std::sync::Arc;

use millstream_log::Embedded;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};

/// Starts the task. Threads that are none of this runtime's leave writing to the log, as all do once the task has ended.
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
            // Comes back when the tasks that are ready have had their turn.
            yield_now().await;
            log.write_accepted();
        }
    })
}
