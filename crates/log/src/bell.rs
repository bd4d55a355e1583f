//! Wakes readers, on plain threads and in async tasks alike.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// Rung when something has changed; remembers one ring that nobody has heard yet, so none is missed.
///
/// One listener per bell. A ring says *look again*, not what has changed.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    tasks: Notify,
    is_of_consumer: bool,
    /// Where it hangs.
    hung: Option<Box<dyn Ring>>,
}

impl Bell {
    /// The bell of somebody outside who reads what arrives: where it watches a partition, there is a consumer
    /// ([`crate::Partition::has_consumer`]).
    pub fn of_consumer() -> Self {
        Self { is_of_consumer: true, ..Self::default() }
    }

    pub(crate) fn is_of_consumer(&self) -> bool {
        self.is_of_consumer
    }

    /// Rings.
    pub fn ring(&self) {
        if let Some(hung) = &self.hung {
            return hung.ring();
        }
        *self.rung.lock() = true;
        self.heard.notify_one();
        self.tasks.notify_one();
    }

    /// Blocks until it rings, or `timeout` has passed. Whether it rang.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            self.heard.wait_for(&mut rung, timeout);
        }
        std::mem::take(&mut *rung)
    }

    /// Waits in a task until it rings.
    pub async fn rung(&self) {
        self.tasks.notified().await;
        *self.rung.lock() = false;
    }
}

/// Tells one listener which of many bells have rung, so that he looks at what these stand for and not at everything.
///
/// He waits for the one bell that the board was made with. Nobody waits for those that hang on it.
#[derive(Debug)]
pub struct Board<K> {
    rung: Mutex<HashSet<K>>,
    bell: Arc<Bell>,
}

impl<K: Eq + Hash + Clone + Debug + Send + Sync + 'static> Board<K> {
    /// A board that rings `bell` when one of its own rings.
    pub fn new(bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { rung: Mutex::default(), bell })
    }

    /// Hangs up a bell that stands for `key`. It rings for as long as it is kept.
    pub fn hang(self: &Arc<Self>, key: K) -> Arc<Bell> {
        let hung = Hung { board: Arc::clone(self), key };
        Arc::new(Bell { hung: Some(Box::new(hung)), ..Bell::default() })
    }

    /// What those stand for that have rung since this was last asked, in no order.
    pub fn take(&self) -> Vec<K> {
        self.rung.lock().drain().collect()
    }
}

/// Where a bell rings that nobody waits for.
trait Ring: Debug + Send + Sync {
    fn ring(&self);
}

#[derive(Debug)]
struct Hung<K> {
    board: Arc<Board<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone + Debug + Send + Sync> Ring for Hung<K> {
    fn ring(&self) {
        // Whoever has been told that it has rung, and has not asked which, need not be told again.
        if self.board.rung.lock().insert(self.key.clone()) {
            self.board.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_tells_which_have_rung_each_once() {
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
    fn a_ring_between_waking_and_asking_is_told() {
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
