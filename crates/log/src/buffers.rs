//! Reusable memory for blocks that are read from segments.
//!
//! Fresh memory costs a page fault for each 4 KiB and must be cleared first. Together that costs more than reading a
//! block from the page cache.

use std::io;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Idle buffers that are kept for the next reads: 4 MiB.
const KEPT_MAX: usize = 16;

/// A pool of buffers of one size.
pub(crate) struct Buffers {
    size_bytes: usize,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    pub(crate) fn of(size_bytes: usize) -> Arc<Self> {
        Arc::new(Self { size_bytes, kept: Mutex::default() })
    }

    /// Returns `length` bytes, or fewer if `fill` fills less.
    pub(crate) fn filled(
        self: &Arc<Self>,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Bytes> {
        let mut lent = self.lend(length);
        let filled = fill(&mut lent.bytes[..length])?;
        let bytes = Bytes::from_owner(lent);
        Ok(bytes.slice(..filled.min(length)))
    }

    /// A much smaller or larger request gets its own memory, since a slice keeps the whole buffer alive.
    fn lend(self: &Arc<Self>, length: usize) -> Lent {
        if !(self.size_bytes / 2..=self.size_bytes).contains(&length) {
            return Lent { bytes: vec![0; length], home: Weak::new() };
        }
        let kept = self.kept.lock().pop();
        Lent { bytes: kept.unwrap_or_else(|| vec![0; self.size_bytes]), home: Arc::downgrade(self) }
    }
}

/// A buffer that returns to the pool when its last reader drops it.
struct Lent {
    bytes: Vec<u8>,
    home: Weak<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        let mut kept = home.kept.lock();
        if kept.len() < KEPT_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &Arc<Buffers>, length: usize, with: u8) -> Bytes {
        let fill = |bytes: &mut [u8]| {
            bytes.fill(with);
            Ok(bytes.len())
        };
        buffers.filled(length, fill).unwrap()
    }

    #[test]
    fn a_buffer_is_used_again_once_its_last_slice_has_gone() {
        let buffers = Buffers::of(100);
        let first = filled(&buffers, 80, 1);
        let slice = first.slice(10..20);
        let place = first.as_ptr();
        drop(first);
        assert_ne!(filled(&buffers, 90, 2).as_ptr(), place);
        assert_eq!(slice[..], [1; 10]);
        drop(slice);
        let again = filled(&buffers, 60, 3);
        assert_eq!((again.as_ptr(), &again[..]), (place, &[3; 60][..]));
    }

    #[test]
    fn the_unfilled_part_of_a_buffer_is_not_shown() {
        let buffers = Buffers::of(100);
        drop(filled(&buffers, 100, 1));
        assert_eq!(buffers.filled(100, |_| Ok(7)).unwrap()[..], [1; 7]);
        assert!(buffers.filled(100, |_| Err(io::ErrorKind::Other.into())).is_err());
    }

    #[test]
    fn no_more_are_kept_than_may_and_none_of_another_size() {
        let buffers = Buffers::of(100);
        let all: Vec<_> = (0..2 * KEPT_MAX).map(|_| filled(&buffers, 100, 1)).collect();
        drop((all, filled(&buffers, 49, 1), filled(&buffers, 101, 1)));
        let kept = buffers.kept.lock();
        assert_eq!((kept.len(), kept.iter().all(|buffer| buffer.len() == 100)), (KEPT_MAX, true));
    }
}
