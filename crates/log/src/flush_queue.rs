//! Requests to the writeback thread.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use bytes::Bytes;

use crate::Error;
use crate::meta::Meta;

/// Smallest amount that is worth one sync of a segment. A turn is due once each segment of the last turn would get as
/// much. Smaller turns block the journal for a shorter time and need less memory.
const SYNC_WORTH_BYTES: u64 = 512 << 10;
/// Requests to the writeback thread.
#[derive(Default)]
pub(crate) struct FlushQueue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    wake: bool,
    /// Approximate bytes in the journal that are not in the segments.
    behind_bytes: u64,
    /// A turn is due at this many bytes.
    worth_bytes: u64,
    asked: FlushCallers,
    stop: bool,
}

impl State {
    /// Begins a turn.
    fn begin(&mut self) -> FlushRequest {
        self.wake = false;
        self.behind_bytes = 0;
        match std::mem::take(&mut self.asked) {
            asked if asked.is_empty() && self.stop => FlushRequest::Stop,
            asked => FlushRequest::Flush(asked),
        }
    }
}

/// The parts of an image of the log beside the segments.
#[derive(Clone)]
pub(crate) struct ImageParts {
    pub(crate) meta: Arc<Meta>,
    /// A journal file with the frames behind `meta`.
    pub(crate) journal: Bytes,
}

/// The threads that wait for a turn.
#[derive(Default)]
pub(crate) struct FlushCallers {
    pub(crate) turns: Vec<SyncSender<Result<(), Error>>>,
    /// Those that want an image of the log after it.
    pub(crate) images: Vec<SyncSender<Result<ImageParts, Error>>>,
}

impl FlushCallers {
    fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.images.is_empty()
    }
}

pub(crate) enum FlushRequest {
    Flush(FlushCallers),
    Stop,
}

impl FlushQueue {
    /// Requests a turn because the journal fills up.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.wake {
            state.wake = true;
            self.arrived.notify_one();
        }
    }

    /// Counts bytes that were synced in the journal; requests a turn once enough have come together.
    pub(crate) fn behind(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.behind_bytes += bytes;
        if state.behind_bytes >= state.worth_bytes.max(SYNC_WORTH_BYTES) && !state.wake {
            state.wake = true;
            self.arrived.notify_one();
        }
    }

    /// Requests a turn if that many unsynced bytes are worth one; the turn takes them over. `true` if it did.
    pub(crate) fn is_worth(&self, bytes: u64) -> bool {
        let is_worth = bytes >= self.state.lock().worth_bytes.max(SYNC_WORTH_BYTES);
        if is_worth {
            self.wake();
        }
        is_worth
    }

    /// Adjusts the threshold after a turn that synced that many segments.
    pub(crate) fn turned(&self, segments: usize) {
        self.state.lock().worth_bytes = SYNC_WORTH_BYTES * segments as u64;
    }

    /// Requests a turn now; `sender` gets its result.
    pub(crate) fn ask(&self, sender: SyncSender<Result<(), Error>>) {
        self.state.lock().asked.turns.push(sender);
        self.arrived.notify_one();
    }

    /// Requests a turn now, and an image of the log as of its end. After [`FlushQueue::stop`] `sender` is dropped.
    pub(crate) fn ask_image(&self, sender: SyncSender<Result<ImageParts, Error>>) {
        let mut state = self.state.lock();
        // Nobody would take it any more: the caller's receiver ends.
        if !state.stop {
            state.asked.images.push(sender);
            self.arrived.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.arrived.notify_one();
    }

    pub(crate) fn wait(&self, interval: Duration) -> FlushRequest {
        let mut state = self.state.lock();
        if !state.wake && state.asked.is_empty() && !state.stop {
            self.arrived.wait_for(&mut state, interval);
        }
        state.begin()
    }

    /// Like [`FlushQueue::wait`], for a caller that does not wait: `None` if no turn is due. `is_late` says that the
    /// interval has passed.
    pub(crate) fn take_now(&self, is_late: bool) -> Option<FlushRequest> {
        let mut state = self.state.lock();
        (state.wake || !state.asked.is_empty() || state.stop || is_late).then(|| state.begin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_due_once_there_is_enough_for_each_segment_of_the_last_one() {
        let queue = FlushQueue::default();
        queue.turned(3);
        queue.behind(3 * SYNC_WORTH_BYTES - 1);
        assert!(!queue.state.lock().wake);
        queue.behind(1);
        assert!(queue.state.lock().wake);
        assert!(matches!(queue.wait(Duration::MAX), FlushRequest::Flush(asked) if asked.is_empty()));
        assert_eq!(queue.state.lock().behind_bytes, 0);
    }
}
