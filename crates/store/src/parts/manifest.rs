//! The manifest of a large value: the pieces that it consists of, in order.
//!
//! Version 1: `01`, number of uploads (2 bytes), their ids (16 bytes each), number of pieces (4 bytes), then of each
//! piece: the index of its upload (2 bytes; `ffff` for zeros), slot (4), bytes of the part that are skipped (8), size
//! (8), 1 if its CRC32C is known (1), CRC32C (4). Numbers are big endian.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::{CHUNK_BYTES, UploadId};

const VERSION: u8 = 1;
const PIECE_BYTES: usize = 27;
const ZEROS: u16 = u16::MAX;

/// Most pieces of a value; their manifest still fits a record.
pub(super) const PIECES_MAX: usize = 16_384;
/// Most uploads of a value.
pub(super) const UPLOADS_MAX: usize = 1_024;

/// The source of a piece's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A part, from `skip` bytes on.
    Part {
        /// The upload that wrote it.
        upload: UploadId,
        /// The slot of the part in its upload.
        slot: u32,
        /// Bytes at the part's beginning that do not belong to the value.
        skip: u64,
    },
    /// A gap that was never written; it reads as zero bytes.
    Zeros,
}

/// A stretch of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The part that holds the bytes, or zeros for a gap.
    pub source: Source,
    /// Length of the piece in bytes.
    pub size: u64,
    /// CRC32C of its bytes; `None` for a piece of a part.
    pub crc: Option<u32>,
}

impl Piece {
    /// A part of `range` of this piece, counted from its beginning.
    fn cut(&self, range: Range<u64>) -> Option<Self> {
        let size = range.end.saturating_sub(range.start);
        let source = match self.source {
            Source::Part { upload, slot, skip } => Source::Part { upload, slot, skip: skip + range.start },
            Source::Zeros => Source::Zeros,
        };
        let crc = self.crc.filter(|_| size == self.size);
        (size > 0).then_some(Self { source, size, crc })
    }
}

/// The pieces of a large value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// In the order of the value.
    pub pieces: Vec<Piece>,
}

/// A stretch of bytes that one read brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stretch {
    Chunk { upload: UploadId, slot: u32, chunk: u32, bytes: Range<usize> },
    Zeros(usize),
}

impl Manifest {
    /// Length of the value in bytes: the sum of its pieces.
    pub fn size(&self) -> u64 {
        self.pieces.iter().fold(0, |size, piece| size.saturating_add(piece.size))
    }

    /// The uploads that wrote its parts, each once.
    pub fn uploads(&self) -> Vec<UploadId> {
        let mut uploads: Vec<UploadId> = Vec::new();
        let of_pieces = self.pieces.iter().filter_map(|piece| match piece.source {
            Source::Part { upload, .. } => Some(upload),
            Source::Zeros => None,
        });
        for upload in of_pieces {
            // Neighbours mostly have the same one.
            if uploads.last() != Some(&upload) && !uploads.contains(&upload) {
                uploads.push(upload);
            }
        }
        uploads
    }

    /// `true` if a record can hold it.
    pub(super) fn fits(&self) -> bool {
        self.pieces.len() <= PIECES_MAX && self.uploads().len() <= UPLOADS_MAX
    }

    /// Puts `pieces` at `at` over what is there. A gap before them becomes zeros.
    pub fn splice(&mut self, at: u64, pieces: &[Piece]) {
        let written: u64 = pieces.iter().map(|piece| piece.size).sum();
        let size = self.size();
        let mut spliced = Vec::with_capacity(self.pieces.len() + pieces.len() + 2);
        let keep = |spliced: &mut Vec<Piece>, wanted: Range<u64>| {
            let mut begin = 0;
            for piece in &self.pieces {
                let end = begin + piece.size;
                let (from, to) = (wanted.start.clamp(begin, end), wanted.end.clamp(begin, end));
                spliced.extend(piece.cut(from - begin..to - begin));
                begin = end;
            }
        };
        keep(&mut spliced, 0..at);
        if at > size {
            spliced.push(Piece { source: Source::Zeros, size: at - size, crc: None });
        }
        spliced.extend(pieces.iter().filter(|piece| piece.size > 0));
        keep(&mut spliced, at.saturating_add(written)..u64::MAX);
        self.pieces = spliced;
    }

    /// The reads that bring the bytes of `range`, in order.
    pub(super) fn stretches(&self, range: Range<u64>) -> impl Iterator<Item = Stretch> + use<> {
        let mut begin = 0;
        let mut wanted = Vec::new();
        for piece in &self.pieces {
            let end = begin + piece.size;
            let (from, to) = (range.start.clamp(begin, end), range.end.clamp(begin, end));
            wanted.extend(piece.cut(from - begin..to.max(from) - begin));
            begin = end;
        }
        wanted.into_iter().flat_map(stretches_of)
    }

    /// Encodes the manifest as the value of its record.
    pub fn encode(&self) -> Bytes {
        let uploads = self.uploads();
        let mut bytes = BytesMut::with_capacity(7 + uploads.len() * 16 + self.pieces.len() * PIECE_BYTES);
        bytes.put_u8(VERSION);
        bytes.put_u16(uploads.len() as u16);
        uploads.iter().for_each(|upload| bytes.put_slice(&upload.0));
        bytes.put_u32(self.pieces.len() as u32);
        for piece in &self.pieces {
            let (index, slot, skip) = match piece.source {
                Source::Part { upload, slot, skip } => {
                    let index = uploads.iter().position(|known| *known == upload);
                    (index.map_or(ZEROS, |index| index as u16), slot, skip)
                }
                Source::Zeros => (ZEROS, 0, 0),
            };
            bytes.put_u16(index);
            bytes.put_u32(slot);
            bytes.put_u64(skip);
            bytes.put_u64(piece.size);
            bytes.put_u8(u8::from(piece.crc.is_some()));
            bytes.put_u32(piece.crc.unwrap_or_default());
        }
        bytes.freeze()
    }

    /// Reads a manifest; says what is wrong with one that is none.
    ///
    /// # Errors
    /// The error names the fault, as a sentence.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = bytes;
        let short = || format!("a manifest of {} bytes is too short", bytes.len());
        let [version] = *take::<1>(&mut rest).ok_or_else(short)?;
        if version != VERSION {
            return Err(format!("a manifest of version {version}"));
        }
        let count = u16::from_be_bytes(*take(&mut rest).ok_or_else(short)?);
        let ids = (0..count).map(|_| take(&mut rest).map(|id| UploadId(*id)));
        let uploads = ids.collect::<Option<Vec<_>>>().ok_or_else(short)?;
        let count = u32::from_be_bytes(*take(&mut rest).ok_or_else(short)?);
        let mut pieces = Vec::new();
        for _ in 0..count {
            let index = u16::from_be_bytes(*take(&mut rest).ok_or_else(short)?);
            let slot = u32::from_be_bytes(*take(&mut rest).ok_or_else(short)?);
            let skip = u64::from_be_bytes(*take(&mut rest).ok_or_else(short)?);
            let size = u64::from_be_bytes(*take(&mut rest).ok_or_else(short)?);
            let [has_crc] = *take::<1>(&mut rest).ok_or_else(short)?;
            let crc = u32::from_be_bytes(*take(&mut rest).ok_or_else(short)?);
            let source = match (index, uploads.get(usize::from(index))) {
                (_, Some(upload)) => Source::Part { upload: *upload, slot, skip },
                (ZEROS, None) => Source::Zeros,
                (index, None) => return Err(format!("a manifest names upload {index} of {}", uploads.len())),
            };
            pieces.push(Piece { source, size, crc: (has_crc != 0).then_some(crc) });
        }
        Ok(Self { pieces })
    }
}

/// The reads of one piece.
fn stretches_of(piece: Piece) -> impl Iterator<Item = Stretch> {
    let mut left = piece.size;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let done = piece.size - left;
        Some(match piece.source {
            Source::Part { upload, slot, skip } => {
                let at = skip + done;
                let (chunk, begin) = ((at / CHUNK_BYTES as u64) as u32, (at % CHUNK_BYTES as u64) as usize);
                let length = left.min((CHUNK_BYTES - begin) as u64);
                left -= length;
                Stretch::Chunk { upload, slot, chunk, bytes: begin..begin + length as usize }
            }
            Source::Zeros => {
                let length = left.min(CHUNK_BYTES as u64);
                left -= length;
                Stretch::Zeros(length as usize)
            }
        })
    })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn part(upload: u8, slot: u32, size: u64) -> Piece {
        Piece { source: Source::Part { upload: UploadId([upload; 16]), slot, skip: 0 }, size, crc: Some(slot) }
    }

    #[test]
    fn a_manifest_of_version_1_is_written_byte_for_byte() {
        let mut manifest = Manifest { pieces: vec![part(b'a', 258, 10), part(b'b', 1, 3)] };
        manifest.splice(15, &[part(b'a', 2, 1)]);
        let expected = b"\x01\0\x02aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbb\0\0\0\x04\
            \0\0\0\0\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0a\x01\0\0\x01\x02\
            \0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\x01\0\0\0\x01\
            \xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\
            \0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\0\0\0\x02";
        assert_eq!(manifest.encode(), &expected[..]);
        assert_eq!(Manifest::decode(expected).unwrap(), manifest);
        for short in 0..expected.len() {
            assert!(Manifest::decode(&expected[..short]).is_err(), "{short}");
        }
        assert_eq!(Manifest::decode(b"\x02").unwrap_err(), "a manifest of version 2");
        let names_none = [&expected[..39], b"\0\x05", &expected[41..]].concat();
        assert_eq!(Manifest::decode(&names_none).unwrap_err(), "a manifest names upload 5 of 2");
    }

    /// The bytes that the reads of a range bring.
    fn read(manifest: &Manifest, parts: &HashMap<u32, Vec<u8>>, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for stretch in manifest.stretches(range) {
            match stretch {
                Stretch::Zeros(length) => bytes.resize(bytes.len() + length, 0),
                Stretch::Chunk { slot, chunk, bytes: within, .. } => {
                    assert!(within.end <= CHUNK_BYTES);
                    let begin = chunk as usize * CHUNK_BYTES;
                    bytes.extend_from_slice(&parts[&slot][begin + within.start..begin + within.end]);
                }
            }
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn spliced_pieces_read_like_a_plain_vector(
            writes in proptest::collection::vec((0..3_000_000_u64, 0..1_500_000_usize, any::<u8>()), 1..8),
            ranges in proptest::collection::vec((0..4_500_000_u64, 0..4_500_000_u64), 1..6),
        ) {
            let (mut manifest, mut parts, mut expected) = (Manifest::default(), HashMap::new(), Vec::new());
            for (slot, (at, length, seed)) in writes.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|n| (n / 7) as u8 ^ seed).collect();
                let end = at as usize + length;
                manifest.splice(at, &[part((slot % 3) as u8, slot as u32, length as u64)]);
                expected.resize(expected.len().max(at as usize).max(end), 0);
                expected[at as usize..end].copy_from_slice(&bytes);
                parts.insert(slot as u32, bytes);
            }
            prop_assert_eq!(manifest.size(), expected.len() as u64);
            let again = Manifest::decode(&manifest.encode()).unwrap();
            prop_assert_eq!(&again, &manifest);
            for (from, to) in ranges {
                let (from, to) = (from.min(expected.len() as u64), to.min(expected.len() as u64));
                let wanted = &expected[from as usize..to.max(from) as usize];
                prop_assert!(read(&again, &parts, from..to) == wanted, "{from}..{to}");
            }
        }
    }
}
