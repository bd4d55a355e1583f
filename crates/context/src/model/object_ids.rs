//! Ids of subscriptions and registrations: 24 hexadecimal digits, ascending by creation, as those of Orion's database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Digits of an id.
const DIGITS: usize = 24;

/// The ids that a process hands out: each has its own millisecond.
#[derive(Debug, Default)]
pub(crate) struct ObjectIds {
    /// The millisecond in the newest id.
    last_ms: AtomicU64,
}

impl ObjectIds {
    pub(crate) fn next(&self, now_ms: i64) -> Arc<str> {
        let now_ms = now_ms.max(0) as u64;
        let next = |last: u64| Some(now_ms.max(last + 1));
        let last = self.last_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        format!("{:012x}{:012x}", now_ms.max(last + 1) & 0xffff_ffff_ffff, fastrand::u64(..) >> 16).into()
    }
}

/// The text has the form of an id.
pub(crate) fn is_object_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}
