//! Threads for calls that wait for a disk, so that no worker does.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use millstream_log::run_in_background;
use parking_lot::Mutex;

/// Number of threads.
const THREADS: usize = 2;

type Call = Box<dyn FnOnce() + Send>;

/// The threads. A connector has at most one call of each partition or file in them, which bounds the queue.
pub(crate) struct Blocking {
    calls: Mutex<Option<Sender<Call>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Blocking {
    /// Starts threads of this name.
    pub(crate) fn start(name: &str) -> std::io::Result<Arc<Self>> {
        let (sender, receiver) = channel::<Call>();
        let receiver = Arc::new(Mutex::new(receiver));
        let spawn = |number: usize| {
            let receiver = Arc::clone(&receiver);
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
                run_in_background();
                while let Some(call) = next(&receiver) {
                    call();
                }
            })
        };
        let threads = (0..THREADS).map(spawn).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { calls: Mutex::new(Some(sender)), threads: Mutex::new(threads) }))
    }

    /// Runs `call` on one of the threads; it is dropped if they have stopped.
    pub(crate) fn run(&self, call: impl FnOnce() + Send + 'static) {
        if let Some(calls) = &*self.calls.lock() {
            // The receiver lives as long as the threads, which end after the sender is gone.
            let _ = calls.send(Box::new(call));
        }
    }

    pub(crate) fn stop(&self) {
        self.calls.lock().take();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that reads for jobs panicked");
            }
        }
    }
}

fn next(calls: &Mutex<Receiver<Call>>) -> Option<Call> {
    calls.lock().recv().ok()
}
