//! The images that are being copied: while there are any, the writeback thread removes no file.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The images that keep files from being removed.
#[derive(Default)]
pub(crate) struct ImageHolds(Mutex<HeldImages>);

#[derive(Default)]
struct HeldImages {
    held: BTreeSet<u64>,
    next: u64,
}

impl ImageHolds {
    pub(crate) fn hold(&self) -> u64 {
        let mut images = self.0.lock();
        images.next += 1;
        let number = images.next;
        images.held.insert(number);
        number
    }

    pub(crate) fn is_held(&self, number: u64) -> bool {
        self.0.lock().held.contains(&number)
    }

    pub(crate) fn release(&self, number: u64) {
        self.0.lock().held.remove(&number);
    }

    pub(crate) fn are_held(&self) -> bool {
        !self.0.lock().held.is_empty()
    }

    /// Ends all holds, since the disk needs the room.
    pub(crate) fn release_all(&self) {
        let released = std::mem::take(&mut self.0.lock().held).len();
        if released > 0 {
            tracing::warn!(backups = released, "the disk has no room: the files that backups hold are released");
        }
    }
}
