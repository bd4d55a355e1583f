//! Wakes tasks when a partition of the log has news.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_log::{Bell, Board, run_as_batch};
use parking_lot::Mutex;

use super::Waker;

/// The thread ends soon after it is told to; otherwise it sleeps until a bell rings.
const SLEEP: Duration = Duration::from_secs(3600);

/// One thread that hears all bells of all jobs.
pub(crate) struct Bells {
    bell: Arc<Bell>,
    board: Arc<Board<u64>>,
    wakers: Mutex<HashMap<u64, Waker>>,
    next: AtomicU64,
    is_stopped: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A bell that wakes a task for as long as it lives.
pub(crate) struct HungBell {
    pub(crate) bell: Arc<Bell>,
    key: u64,
    bells: Arc<Bells>,
}

impl Drop for HungBell {
    fn drop(&mut self) {
        self.bells.wakers.lock().remove(&self.key);
    }
}

impl Bells {
    pub(crate) fn start() -> std::io::Result<Arc<Self>> {
        let bell = Arc::new(Bell::default());
        let bells = Arc::new(Self {
            board: Board::new(Arc::clone(&bell)),
            bell,
            wakers: Mutex::default(),
            next: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            thread: Mutex::default(),
        });
        let listener = Arc::clone(&bells);
        let thread = std::thread::Builder::new().name("flow-wake".to_owned()).spawn(move || {
            run_as_batch();
            listener.listen();
        })?;
        *bells.thread.lock() = Some(thread);
        Ok(bells)
    }

    fn listen(&self) {
        while !self.is_stopped.load(Ordering::Acquire) {
            self.bell.wait(SLEEP);
            for key in self.board.take() {
                let waker = self.wakers.lock().get(&key).cloned();
                if let Some(waker) = waker {
                    waker();
                }
            }
        }
    }

    /// A bell that calls `waker` whenever it rings.
    pub(crate) fn hang(self: &Arc<Self>, waker: Waker) -> HungBell {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.wakers.lock().insert(key, waker);
        HungBell { bell: self.board.hang(key), key, bells: Arc::clone(self) }
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.bell.ring();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that wakes jobs panicked");
        }
    }
}
