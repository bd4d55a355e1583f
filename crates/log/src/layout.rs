//! The files in the log's directory: kinds, names and headers.
//!
//! Every file begins with 64 bytes: magic (8), format version (u16), zeros (2), kind-specific bytes (48), CRC32C of
//! the 60 bytes before (u32). All integers in all files are little endian.

use std::path::{Path, PathBuf};

use millstream_types::TopicId;

use crate::{Error, File};

/// Size of the header of every file.
pub(crate) const FILE_HEADER_BYTES: usize = 64;
/// Size of the header in front of each block of a segment.
pub(crate) const BLOCK_HEADER_BYTES: usize = 64;
/// The newest version of each format; there is only one.
pub(crate) const FORMAT_VERSION: u16 = 1;

const OWN_BYTES: usize = 48;

/// The kinds of file in the log's directory. `LOCK` has no kind: it holds only a process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// `meta` and `meta.copy`: the contents of the directory when the journal was last brought to the segments.
    ///
    /// - Owner: the writeback thread. Replaced as a whole: a new file is written, synced and
    ///   renamed over the old one.
    /// - Header: size of the body (u64), CRC32C of the body (u32). Body: see `meta.rs`.
    Meta,
    /// `journal/<slot, 8 digits>.journal`: accepted batches that may not be anywhere else yet.
    ///
    /// - Owner: the appender writes it, the sync thread syncs it. It has its full length from the start, and
    ///   its header is written once. Frames begin at multiples of 512 bytes and are overwritten when the
    ///   file is reused. See `frame.rs`.
    /// - Header: slot (u64).
    Journal,
    /// `topics/<topic id, 32 hex digits>/<partition>/<base offset, 20 digits>.segment`: batches of one partition.
    ///
    /// - Owner: the writeback thread. It grows by blocks and never changes once closed. See `segment.rs`.
    /// - Header: topic id (u128), partition (u32), base offset (u64), zeros (8), generation (u64).
    /// - Generation 0 holds batches as appended. Compaction replaces its sources by a segment of a higher generation,
    ///   `<base>-<generation, 10 digits>`; the compaction thread writes it as a whole before `meta` names it.
    Segment,
    /// `… .index` beside a closed segment: the positions of its blocks, so that opening it needs no scan.
    ///
    /// - Owner: the writeback thread. Written when the segment is closed, and again if it
    ///   is found damaged. See `index.rs`.
    /// - Header: as the segment, then number of entries (u32), CRC32C of the entries (u32).
    Index,
}

impl FileKind {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Meta => *b"MSTRMETA",
            Self::Journal => *b"MSTRJRNL",
            Self::Segment => *b"MSTRSEGM",
            Self::Index => *b"MSTRINDX",
        }
    }

    /// The header of a file of this kind; `own` is the kind-specific part, at most 48 bytes.
    pub(crate) fn header(self, own: &[u8]) -> [u8; FILE_HEADER_BYTES] {
        let mut header = [0; FILE_HEADER_BYTES];
        header[..8].copy_from_slice(&self.magic());
        header[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[12..12 + own.len()].copy_from_slice(own);
        let crc = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Checks the header of `file` and returns its kind-specific part.
    pub(crate) fn read_header(self, file: &dyn File, path: &Path) -> Result<[u8; OWN_BYTES], Error> {
        let mut header = [0; FILE_HEADER_BYTES];
        let read = file.read_at(&mut header, 0).map_err(|e| Error::io("read", path, e))?;
        let corrupt = |what| Err(Error::CorruptFile { path: path.to_owned(), at: 0, what });
        if read < FILE_HEADER_BYTES {
            return corrupt("it is shorter than its header");
        }
        if header[..8] != self.magic() {
            return corrupt("it does not begin with the magic of its kind");
        }
        if crc32c::crc32c(&header[..60]).to_le_bytes() != header[60..] {
            return corrupt("the checksum of its header does not match");
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version == 0 || version > FORMAT_VERSION {
            return Err(Error::UnknownVersion { path: path.to_owned(), version, known: FORMAT_VERSION });
        }
        let mut own = [0; OWN_BYTES];
        own.copy_from_slice(&header[12..60]);
        Ok(own)
    }
}

/// The paths in a log's directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("LOCK")
    }

    pub(crate) fn meta(&self) -> PathBuf {
        self.dir.join("meta")
    }

    pub(crate) fn meta_copy(&self) -> PathBuf {
        self.dir.join("meta.copy")
    }

    pub(crate) fn new_meta(&self) -> PathBuf {
        self.dir.join("meta.new")
    }

    pub(crate) fn journal_dir(&self) -> PathBuf {
        self.dir.join("journal")
    }

    pub(crate) fn journal(&self, slot: u64) -> PathBuf {
        self.journal_dir().join(format!("{slot:08}.journal"))
    }

    pub(crate) fn topics_dir(&self) -> PathBuf {
        self.dir.join("topics")
    }

    pub(crate) fn topic_dir(&self, topic: TopicId) -> PathBuf {
        self.topics_dir().join(topic.to_string())
    }

    pub(crate) fn partition_dir(&self, topic: TopicId, partition: u32) -> PathBuf {
        self.topic_dir(topic).join(partition.to_string())
    }
}

/// The slot in the name of a journal file.
pub(crate) fn journal_slot(name: &str) -> Option<u64> {
    name.strip_suffix(".journal")?.parse().ok()
}

/// The file name of a segment.
pub(crate) fn segment_name(base: u64, generation: u64) -> String {
    format!("{}.segment", stem(base, generation))
}

/// The file name of a segment's index.
pub(crate) fn index_name(base: u64, generation: u64) -> String {
    format!("{}.index", stem(base, generation))
}

fn stem(base: u64, generation: u64) -> String {
    match generation {
        0 => format!("{base:020}"),
        _ => format!("{base:020}-{generation:010}"),
    }
}
