//! Wakes readers on plain threads and in async tasks.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// A wake-up signal that remembers one ring, so that no change is missed.
///
/// One listener per bell. A ring means *look again*; it does not say what has changed.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    tasks: Notify,
    is_of_consumer: bool,
    /// The board that this bell belongs to.
    hung: Option<Box<dyn Ring>>,
}

impl Bell {
    /// A bell of an outside consumer: [`crate::Partition::has_consumer`] is true for the partitions that it watches.
    pub fn of_consumer() -> Self {
        Self { is_of_consumer: true, ..Self::default() }
    }

    pub(crate) fn is_of_consumer(&self) -> bool {
        self.is_of_consumer
    }

    /// Wakes the listener, now or at its next wait.
    pub fn ring(&self) {
        if let Some(hung) = &self.hung {
            return hung.ring();
        }
        *self.rung.lock() = true;
        self.heard.notify_one();
        self.tasks.notify_one();
    }

    /// Blocks until the bell rings or `timeout` has passed. `true` if it rang.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            self.heard.wait_for(&mut rung, timeout);
        }
        std::mem::take(&mut *rung)
    }

    /// Waits in a task until the bell rings.
    pub async fn rung(&self) {
        self.tasks.notified().await;
        *self.rung.lock() = false;
    }
}

/// Tells one listener which of many bells have rung, so that it looks only at the things that changed.
///
/// The listener waits for the board's own bell. Nobody waits for the bells that hang on the board.
#[derive(Debug)]
pub struct Board<K> {
    rung: Mutex<HashSet<K>>,
    bell: Arc<Bell>,
}

impl<K: Eq + Hash + Clone + Debug + Send + Sync + 'static> Board<K> {
    /// A board that rings `bell` when one of its bells rings.
    pub fn new(bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { rung: Mutex::default(), bell })
    }

    /// Hangs up a bell for `key`. It works for as long as the caller keeps it.
    pub fn hang(self: &Arc<Self>, key: K) -> Arc<Bell> {
        let hung = BoardBell { board: Arc::clone(self), key };
        Arc::new(Bell { hung: Some(Box::new(hung)), ..Bell::default() })
    }

    /// As [`Board::hang`], with a bell of an outside consumer (see [`Bell::of_consumer`]).
    pub fn hang_of_consumer(self: &Arc<Self>, key: K) -> Arc<Bell> {
        let hung = BoardBell { board: Arc::clone(self), key };
        Arc::new(Bell { hung: Some(Box::new(hung)), ..Bell::of_consumer() })
    }

    /// Takes the keys that have rung since the last call, in no order.
    pub fn take(&self) -> Vec<K> {
        self.rung.lock().drain().collect()
    }
}

/// Receives the rings of a bell that nobody waits for.
trait Ring: Debug + Send + Sync {
    fn ring(&self);
}

#[derive(Debug)]
struct BoardBell<K> {
    board: Arc<Board<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone + Debug + Send + Sync> Ring for BoardBell<K> {
    fn ring(&self) {
        // A listener that was told and has not asked for the keys needs no second ring.
        if self.board.rung.lock().insert(self.key.clone()) {
            self.board.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bells_of_consumers_hang_on_boards_too() {
        let board = Board::new(Arc::default());
        assert!(board.hang_of_consumer(1).is_of_consumer() && !board.hang(2).is_of_consumer());
    }

    #[test]
    fn a_board_tells_once_which_bells_have_rung() {
        let bell = Arc::new(Bell::default());
        let board = Board::new(Arc::clone(&bell));
        let bells: Vec<_> = (0..3).map(|number| board.hang(number)).collect();
        assert!(!bell.wait(Duration::ZERO) && board.take().is_empty());
        bells[2].ring();
        bells[0].ring();
        bells[2].ring();
        assert!(bell.wait(Duration::ZERO));
        let mut rung = board.take();
        rung.sort_unstable();
        assert_eq!(rung, [0, 2]);
        assert!(!bell.wait(Duration::ZERO) && board.take().is_empty());
        bells[0].ring();
        assert!(bell.wait(Duration::ZERO), "what has been told may ring again");
    }

    #[test]
    fn a_ring_between_waking_and_asking_is_reported() {
        let bell = Arc::new(Bell::default());
        let board = Board::new(Arc::clone(&bell));
        let (first, second) = (board.hang(1), board.hang(2));
        first.ring();
        assert!(bell.wait(Duration::ZERO));
        first.ring();
        second.ring();
        assert_eq!(board.take().len(), 2);
    }
}
