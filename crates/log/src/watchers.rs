//! The bells of readers that watch for changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Bell;

/// The bells that watch one thing of an engine: a partition, or all topics. They are held weakly.
#[derive(Debug, Default)]
pub struct Watchers {
    bells: Mutex<Vec<Weak<Bell>>>,
    /// `false` if there is certainly no bell.
    any: AtomicBool,
}

impl Watchers {
    /// Rings `bell` from now on, for as long as it lives.
    pub fn add(&self, bell: &Arc<Bell>) {
        let mut bells = self.bells.lock();
        bells.push(Arc::downgrade(bell));
        self.any.store(true, Ordering::Release);
    }

    /// `true` if a living bell belongs to a consumer.
    pub fn have_consumer(&self) -> bool {
        self.any.load(Ordering::Acquire)
            && self.bells.lock().iter().filter_map(Weak::upgrade).any(|bell| bell.is_of_consumer())
    }

    /// Rings the bells that live. Call it without a lock: a bell wakes its listener at once.
    pub fn ring(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut bells = self.bells.lock();
        bells.retain(|bell| bell.upgrade().inspect(|bell| bell.ring()).is_some());
        self.any.store(!bells.is_empty(), Ordering::Release);
    }
}
