//! Claims of registered readers on records that retention would take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millstream_types::Offset;
use parking_lot::Mutex;

use crate::Hold;

/// The claims on one partition.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<Vec<Weak<Claim>>>);

#[derive(Debug)]
struct Claim {
    reader: String,
    from: AtomicU64,
}

impl Holds {
    pub(crate) fn add(&self, reader: &str, from: Offset) -> Box<dyn Hold> {
        let claim = Arc::new(Claim { reader: reader.to_owned(), from: AtomicU64::new(from.0) });
        let mut claims = self.0.lock();
        claims.retain(|claim| claim.strong_count() > 0);
        claims.push(Arc::downgrade(&claim));
        Box::new(Held(claim))
    }

    /// The lowest offset that somebody still needs, and who.
    pub(crate) fn lowest(&self) -> Option<(u64, String)> {
        let claims = self.0.lock();
        let held = claims.iter().filter_map(Weak::upgrade);
        held.map(|claim| (claim.from.load(Ordering::Acquire), claim.reader.clone())).min()
    }
}

struct Held(Arc<Claim>);

impl Hold for Held {
    fn advance(&self, from: Offset) {
        self.0.from.fetch_max(from.0, Ordering::AcqRel);
    }
}
