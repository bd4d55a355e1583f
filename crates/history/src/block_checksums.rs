//! Checksums of a file's blocks: computed while the file is written, and verified before any byte of a block is used.
//! The catalog keeps them. Files of versions without checksums have none, and are read unverified until they are rewritten, which a start begins in the background.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_log::{File, Files};

use crate::Error;
use crate::catalog_record::FileRecord;

const BLOCK_BYTES: usize = 1 << 20;
const REMEDY: &str = "restore it from a backup, or give its points up with 'millstream log repair --yes'";
/// The damage of a file that is not there.
pub(crate) const MISSING: &str =
    "the file is missing; restore it from a backup, or give its points up with 'millstream log repair --yes'";

/// The CRC-32C of each block, one MiB and the last one less, of bytes that come in any pieces.
#[derive(Debug, Clone, Default)]
pub struct BlockChecksums {
    complete: Vec<u32>,
    current: u32,
    current_bytes: usize,
}

impl BlockChecksums {
    /// Adds the next bytes.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.current_bytes));
            self.current = crc32c::crc32c_append(self.current, part);
            self.current_bytes += part.len();
            if self.current_bytes == BLOCK_BYTES {
                self.complete.push(std::mem::take(&mut self.current));
                self.current_bytes = 0;
            }
            bytes = rest;
        }
    }

    /// Returns the checksums of all bytes so far.
    pub fn all(&self) -> Vec<u32> {
        let last = (self.current_bytes > 0).then_some(self.current);
        self.complete.iter().copied().chain(last).collect()
    }
}

/// A file whose blocks are verified when they are read for the first time.
pub(crate) struct VerifiedFile {
    file: Arc<dyn File>,
    pub(crate) bytes: u64,
    checksums: Vec<u32>,
    is_verified: Vec<AtomicBool>,
}

impl VerifiedFile {
    /// # Errors
    /// [`Error::Io`] if it cannot be opened, [`Error::File`] if it has another size than the catalog says.
    pub(crate) fn open(files: &dyn Files, path: &Path, record: &FileRecord) -> Result<Self, Error> {
        let file = files.open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::IsADirectory => Error::file(path, &MISSING),
            _ => Error::io("open", path, error),
        })?;
        let bytes = file.size().map_err(|error| Error::io("look at", path, error))?;
        if bytes != record.bytes {
            let reason = format!("it has {bytes} bytes instead of {}; {REMEDY}", record.bytes);
            return Err(Error::file(path, &reason));
        }
        let is_verified = record.checksums.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Self { file, bytes, checksums: record.checksums.clone(), is_verified })
    }

    pub(crate) fn has_checksums(&self) -> bool {
        !self.checksums.is_empty()
    }

    /// Verifies all blocks.
    pub(crate) fn verify_all(&self) -> io::Result<()> {
        (0..self.checksums.len()).try_for_each(|number| self.verify(number))
    }

    /// Reads bytes of verified blocks.
    pub(crate) fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let block = |at: u64| usize::try_from(at / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
        let end = at.saturating_add(into.len() as u64).min(self.bytes);
        if at < end && !self.checksums.is_empty() {
            (block(at)..=block(end - 1)).try_for_each(|number| self.verify(number))?;
        }
        self.file.read_at(into, at)
    }

    fn verify(&self, number: usize) -> io::Result<()> {
        let damaged = |reason: &str| {
            let reason = format!("block {number} {reason}: the file is damaged; {REMEDY}");
            io::Error::new(ErrorKind::InvalidData, reason)
        };
        let (Some(expected), Some(is_verified)) = (self.checksums.get(number), self.is_verified.get(number)) else {
            return Err(damaged("has no checksum"));
        };
        if is_verified.load(Ordering::Acquire) {
            return Ok(());
        }
        let begin = number * BLOCK_BYTES;
        let mut bytes = vec![0; BLOCK_BYTES.min(usize::try_from(self.bytes).unwrap_or(usize::MAX) - begin)];
        if self.file.read_at(&mut bytes, begin as u64)? < bytes.len() || crc32c::crc32c(&bytes) != *expected {
            return Err(damaged("does not match its checksum"));
        }
        is_verified.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn checksums_are_those_of_blocks_however_the_bytes_are_written(sizes in prop::collection::vec(0_usize..900_000, 0..6)) {
            let bytes: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect();
            let (mut written, mut rest) = (BlockChecksums::default(), &bytes[..]);
            for size in sizes {
                let (part, after) = rest.split_at(size);
                written.add(part);
                rest = after;
            }
            let expected: Vec<u32> = bytes.chunks(BLOCK_BYTES).map(crc32c::crc32c).collect();
            prop_assert_eq!(written.all(), expected);
        }
    }
}
