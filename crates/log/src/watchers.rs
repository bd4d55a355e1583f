//! The bells of those who want to know that something moved.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Bell;

/// Bells, each for as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    bells: Mutex<Vec<Weak<Bell>>>,
    /// Whether anybody may listen.
    any: AtomicBool,
}

impl Watchers {
    pub(crate) fn add(&self, bell: &Arc<Bell>) {
        let mut bells = self.bells.lock();
        bells.push(Arc::downgrade(bell));
        self.any.store(true, Ordering::Release);
    }

    /// Whether one that lives is of a consumer.
    pub(crate) fn have_consumer(&self) -> bool {
        self.any.load(Ordering::Acquire)
            && self.bells.lock().iter().filter_map(Weak::upgrade).any(|bell| bell.is_of_consumer())
    }

    pub(crate) fn ring(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut bells = self.bells.lock();
        bells.retain(|bell| bell.upgrade().inspect(|bell| bell.ring()).is_some());
        self.any.store(!bells.is_empty(), Ordering::Release);
    }
}
