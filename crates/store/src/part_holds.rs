//! Holds of readers: the parts of a large value stay while somebody reads them.
//!
//! A reader takes its hold first and then looks whether the manifest that it has read is still the key's newest; if not, it
//! reads again. The removal of an upload's records begins after the manifest has been replaced in the table, and asks for
//! holds then. So it sees the hold of every reader whose look was successful, and no lock spans both.
//!
//! Holds are in memory alone: readers do not survive a restart either.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The bytes of an upload's id.
type UploadKey = [u8; 16];

/// The holds on one upload.
#[derive(Debug)]
struct UploadHolds {
    readers: u32,
    /// When the last of them began.
    newest: Instant,
}

/// The holds on the uploads of a bucket.
#[derive(Debug, Default)]
pub(crate) struct PartHolds(Mutex<HashMap<UploadKey, UploadHolds>>);

impl PartHolds {
    /// Holds the parts of `uploads` until the hold is dropped.
    pub(crate) fn take(self: &Arc<Self>, uploads: Vec<UploadKey>) -> PartHold {
        let (mut held, newest) = (self.0.lock(), Instant::now());
        for upload in &uploads {
            let holds = held.entry(*upload).or_insert(UploadHolds { readers: 0, newest });
            holds.readers += 1;
            holds.newest = newest;
        }
        PartHold { holds: Arc::clone(self), uploads }
    }

    /// `true` if a reader holds the upload that began less than `max` ago.
    pub(crate) fn has(&self, upload: UploadKey, max: Duration) -> bool {
        self.0.lock().get(&upload).is_some_and(|holds| holds.newest.elapsed() < max)
    }
}

/// The claim of one reader on the parts that it reads.
#[derive(Debug)]
pub(crate) struct PartHold {
    holds: Arc<PartHolds>,
    uploads: Vec<UploadKey>,
}

impl Drop for PartHold {
    fn drop(&mut self) {
        let mut held = self.holds.0.lock();
        for upload in &self.uploads {
            if let Some(holds) = held.get_mut(upload) {
                holds.readers -= 1;
                if holds.readers == 0 {
                    held.remove(upload);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_held_until_its_last_reader_has_gone_or_its_time_is_up() {
        let (holds, hour) = (Arc::new(PartHolds::default()), Duration::from_secs(3_600));
        let [one, other] = [[1; 16], [2; 16]];
        let first = holds.take(vec![one, other]);
        let second = holds.take(vec![one]);
        assert!(holds.has(one, hour) && holds.has(other, hour));
        assert!(!holds.has(one, Duration::ZERO), "a hold lasts for a bounded time");
        drop(first);
        assert!(holds.has(one, hour) && !holds.has(other, hour));
        drop(second);
        assert!(holds.0.lock().is_empty());
    }
}
