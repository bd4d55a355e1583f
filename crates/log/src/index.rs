//! The index of a segment: one entry per block, in memory and, for a closed segment, in a file beside it.
//!
//! The file holds the header (see `layout.rs`) and entries of 36 bytes: first offset (u64), end (u64), largest event
//! time (i64), position (u64), payload size (u32).

use std::path::Path;

use crate::layout::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FileKind};
use crate::wire::{WireReader, WireWriter};
use crate::{Error, Files};

const ENTRY_BYTES: usize = 36;
const COUNT_AT: usize = 28;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub(crate) first: u64,
    /// The offset after its last record.
    pub(crate) end: u64,
    /// Largest event time of its records.
    pub(crate) max_timestamp_ms: i64,
    /// Position of its header in the file.
    pub(crate) at: u64,
    /// Size of the batches after the header.
    pub(crate) payload_bytes: u32,
}

impl BlockEntry {
    /// Size of the block, header included.
    pub(crate) fn size_bytes(&self) -> usize {
        BLOCK_HEADER_BYTES + self.payload_bytes as usize
    }

    /// Position of the next block.
    pub(crate) fn ends_at(&self) -> u64 {
        self.at + self.size_bytes() as u64
    }
}

/// Writes and syncs the index of a segment. `own` is the kind-specific part of the segment's header (28 bytes).
pub(crate) fn write(files: &dyn Files, path: &Path, own: &[u8], entries: &[BlockEntry]) -> Result<(), Error> {
    let mut body = Vec::with_capacity(entries.len() * ENTRY_BYTES);
    for entry in entries {
        body.put_u64(entry.first);
        body.put_u64(entry.end);
        body.put_i64(entry.max_timestamp_ms);
        body.put_u64(entry.at);
        body.put_u32(entry.payload_bytes);
    }
    let mut header = own.to_vec();
    header.put_u32(u32::try_from(entries.len()).expect("a segment has fewer than 2^32 blocks"));
    header.put_u32(crc32c::crc32c(&body));
    let header = FileKind::Index.header(&header);
    let file = files.create(path).map_err(|e| Error::io("create", path, e))?;
    let parts = [std::io::IoSlice::new(&header), std::io::IoSlice::new(&body)];
    file.write_at(&parts, 0).map_err(|e| Error::io("write", path, e))?;
    file.sync().map_err(|e| Error::io("sync", path, e))
}

/// Reads an index. The error says what is wrong, for the operator.
pub(crate) fn read(files: &dyn Files, path: &Path, own: &[u8]) -> Result<Vec<BlockEntry>, String> {
    let file = files.open(path).map_err(|e| e.to_string())?;
    let header = FileKind::Index.read_header(&*file, path).map_err(|e| e.to_string())?;
    if header[..COUNT_AT] != *own {
        return Err("it belongs to another segment".to_owned());
    }
    let mut reader = WireReader::new(&header[COUNT_AT..]);
    let (Some(count), Some(crc)) = (reader.u32(), reader.u32()) else {
        return Err("its header is cut short".to_owned());
    };
    let size = file.size().map_err(|e| e.to_string())?;
    let expected = FILE_HEADER_BYTES as u64 + u64::from(count) * ENTRY_BYTES as u64;
    if size != expected {
        return Err(format!("it has {size} bytes, its header says {expected}"));
    }
    let mut body = vec![0; count as usize * ENTRY_BYTES];
    let read = file.read_at(&mut body, FILE_HEADER_BYTES as u64).map_err(|e| e.to_string())?;
    if read < body.len() || crc32c::crc32c(&body) != crc {
        return Err("the checksum of its entries does not match".to_owned());
    }
    let mut reader = WireReader::new(&body);
    let entries = (0..count).map_while(|_| entry(&mut reader)).collect::<Vec<_>>();
    if entries.len() < count as usize { Err("its entries are cut short".to_owned()) } else { Ok(entries) }
}

fn entry(from: &mut WireReader<'_>) -> Option<BlockEntry> {
    Some(BlockEntry {
        first: from.u64()?,
        end: from.u64()?,
        max_timestamp_ms: from.i64()?,
        at: from.u64()?,
        payload_bytes: from.u32()?,
    })
}
