//! Claims of registered readers on records that retention would remove.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millstream_types::Offset;
use parking_lot::Mutex;

use crate::Hold;

/// The claims on one partition.
#[derive(Debug, Default)]
pub struct Holds(Mutex<Vec<Weak<HeldOffset>>>);

#[derive(Debug)]
struct HeldOffset {
    reader: String,
    from: AtomicU64,
}

impl Holds {
    /// Adds the claim of `reader` on the records from `from` on; it ends when it is dropped.
    pub fn add(&self, reader: &str, from: Offset) -> Box<dyn Hold> {
        let claim = Arc::new(HeldOffset { reader: reader.to_owned(), from: AtomicU64::new(from.0) });
        let mut claims = self.0.lock();
        claims.retain(|claim| claim.strong_count() > 0);
        claims.push(Arc::downgrade(&claim));
        Box::new(ReaderHold(claim))
    }

    /// The lowest offset that a reader still needs, with the reader's name.
    pub fn lowest(&self) -> Option<(u64, String)> {
        let claims = self.0.lock();
        let held = claims.iter().filter_map(Weak::upgrade);
        held.map(|claim| (claim.from.load(Ordering::Acquire), claim.reader.clone())).min()
    }
}

struct ReaderHold(Arc<HeldOffset>);

impl Hold for ReaderHold {
    fn advance(&self, from: Offset) {
        self.0.from.fetch_max(from.0, Ordering::AcqRel);
    }
}
