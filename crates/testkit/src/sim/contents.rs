//! The bytes of one file: as readers see them, as they are on the medium, and the changes in between.

use super::power_loss::PowerLoss;
use super::rng::Rng;

/// A medium writes in sectors; any sectors of an unsynced write may have arrived, in any order.
const SECTOR_BYTES: u64 = 512;

#[derive(Debug, Clone)]
pub(super) enum FileChange {
    Write { at: u64, bytes: Vec<u8> },
    Size(u64),
}

#[derive(Debug, Clone)]
struct PendingChange {
    moment: u64,
    change: FileChange,
}

/// Invariant: `now` is `durable` with all of `pending` applied, unless a failed sync has dropped changes.
#[derive(Debug, Clone, Default)]
pub(super) struct FileContents {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<PendingChange>,
}

impl FileContents {
    /// A file after a crash: all of it is durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self { now: bytes.clone(), durable: bytes, pending: Vec::new() }
    }

    pub(super) fn now(&self) -> &[u8] {
        &self.now
    }

    pub(super) fn change(&mut self, moment: u64, change: FileChange) {
        apply(&mut self.now, &change);
        self.pending.push(PendingChange { moment, change });
    }

    /// Makes every change before `moment` durable.
    pub(super) fn sync(&mut self, moment: u64) {
        for pending in self.take_before(moment) {
            apply(&mut self.durable, &pending.change);
        }
    }

    /// Simulates a failed sync: readers still see the changes, they never become durable, and the next sync succeeds.
    pub(super) fn forget(&mut self, moment: u64) {
        drop(self.take_before(moment));
    }

    fn take_before(&mut self, moment: u64) -> Vec<PendingChange> {
        let taken = self.pending.iter().take_while(|p| p.moment < moment).count();
        self.pending.drain(..taken).collect()
    }

    pub(super) fn flip_bit(&mut self, bit: u64) {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        for image in [&mut self.now, &mut self.durable] {
            if let Some(byte) = image.get_mut(byte) {
                *byte ^= mask;
            }
        }
    }

    pub(super) fn after_power_loss(&self, loss: PowerLoss, stopped_at: Option<u64>, rng: &mut Rng) -> Vec<u8> {
        match (loss, stopped_at) {
            (PowerLoss::DropAll, _) => self.durable.clone(),
            (PowerLoss::Torn, Some(moment)) => {
                self.torn_after(self.pending.iter().take_while(|p| p.moment < moment).count(), rng)
            }
            (PowerLoss::Torn, None) if rng.chance(50) => {
                self.torn_after(rng.below(self.pending.len() as u64 + 1) as usize, rng)
            }
            (PowerLoss::Torn, None) => self.sectors_at_random(rng),
        }
    }

    /// The first `kept` changes, and the next one up to a random byte.
    fn torn_after(&self, kept: usize, rng: &mut Rng) -> Vec<u8> {
        let mut image = self.durable.clone();
        for pending in &self.pending[..kept] {
            apply(&mut image, &pending.change);
        }
        if let Some(PendingChange { change: FileChange::Write { at, bytes }, .. }) = self.pending.get(kept) {
            let arrived = rng.below(bytes.len() as u64 + 1) as usize;
            apply(&mut image, &FileChange::Write { at: *at, bytes: bytes[..arrived].to_vec() });
        }
        image
    }

    /// Each sector and the size after a random number of changes: changes reach the medium in any order.
    fn sectors_at_random(&self, rng: &mut Rng) -> Vec<u8> {
        let changes = self.pending.len() as u64;
        let touched = self.pending.iter().map(|p| p.change.end()).max().unwrap_or(0).div_ceil(SECTOR_BYTES);
        let survives: Vec<u64> = (0..touched).map(|_| rng.below(changes + 1)).collect();
        let size_survives = rng.below(changes + 1);

        let mut image = self.durable.clone();
        let mut size = image.len() as u64;
        for (index, PendingChange { change, .. }) in (0..).zip(&self.pending) {
            match change {
                FileChange::Write { at, bytes } => {
                    for (at, piece) in sectors(*at, bytes) {
                        if index < survives[(at / SECTOR_BYTES) as usize] {
                            apply(&mut image, &FileChange::Write { at, bytes: piece.to_vec() });
                        }
                    }
                    if index < size_survives {
                        size = size.max(change.end());
                    }
                }
                FileChange::Size(bytes) if index < size_survives => {
                    apply(&mut image, change);
                    size = *bytes;
                }
                FileChange::Size(_) => {}
            }
        }
        image.resize(size as usize, 0);
        image
    }
}

impl FileChange {
    fn end(&self) -> u64 {
        match self {
            Self::Write { at, bytes } => at + bytes.len() as u64,
            Self::Size(bytes) => *bytes,
        }
    }

    /// Bytes by which the change extends a file of `size`.
    pub(super) fn growth(&self, size: u64) -> u64 {
        self.end().saturating_sub(size)
    }
}

fn apply(image: &mut Vec<u8>, change: &FileChange) {
    match change {
        FileChange::Write { at, bytes } if !bytes.is_empty() => {
            let at = *at as usize;
            if image.len() < at + bytes.len() {
                image.resize(at + bytes.len(), 0);
            }
            image[at..at + bytes.len()].copy_from_slice(bytes);
        }
        FileChange::Write { .. } => {}
        FileChange::Size(bytes) => image.resize(*bytes as usize, 0),
    }
}

/// Splits a write at sector boundaries.
fn sectors(at: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = bytes;
    let mut at = at;
    std::iter::from_fn(move || {
        let here = rest.len().min((SECTOR_BYTES - at % SECTOR_BYTES) as usize);
        let (piece, after) = rest.split_at(here);
        let piece_at = at;
        at += here as u64;
        rest = after;
        (here > 0).then_some((piece_at, piece))
    })
}
