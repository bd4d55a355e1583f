//! The bells of readers that watch for changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Bell;

/// The registered bells, held weakly.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    bells: Mutex<Vec<Weak<Bell>>>,
    /// `false` if there is certainly no bell.
    any: AtomicBool,
}

impl Watchers {
    pub(crate) fn add(&self, bell: &Arc<Bell>) {
        let mut bells = self.bells.lock();
        bells.push(Arc::downgrade(bell));
        self.any.store(true, Ordering::Release);
    }

    /// `true` if a living bell belongs to a consumer.
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
