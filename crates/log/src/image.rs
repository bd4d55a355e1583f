//! Images: the log at one moment, as files that a copy of them starts from.
//!
//! ```text
//!   image = `meta`, as a turn of the writeback thread has just written it
//!         + of each segment that it names, the bytes up to the size that it names
//!         + the journal's frames behind it, as one journal file
//! ```
//!
//! This is what a crash at the last of these frames leaves, so a start on a copy is a start after that crash, and every
//! rule of recovery holds: atomic appends, transactions and positions are whole or absent, over all partitions.
//!
//! Invariants
//! - An image holds everything that was accepted before it was asked for.
//! - Segments only grow, and bytes below a size that `meta` has named never change. While an [`ImageHold`] lives, the
//!   writeback thread removes no file; so an image is read beside appends, retention and compaction.

mod check;
mod stored;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;

pub use self::stored::{StoredImage, StoredSegment};
use crate::flush_queue::ImageParts;
use crate::journal::IMAGE_SLOT;
use crate::layout::Layout;
use crate::meta::Meta;
use crate::segment::SegmentRecord;
use crate::shared::EngineShared;
use crate::{Embedded, Error};

const CUT_SHORT: &str = "it is shorter than was synced";

/// One hold of [`ImageHolds`], which ends when it is dropped.
struct ImageHold {
    shared: Arc<EngineShared>,
    number: u64,
}

impl Drop for ImageHold {
    fn drop(&mut self) {
        self.shared.images.release(self.number);
    }
}

/// A file of an image.
#[derive(Debug, Clone)]
pub struct ImageFile {
    /// Its path below the log's directory.
    pub path: PathBuf,
    /// The bytes that belong to the image; the file may have more.
    pub size_bytes: u64,
    /// Its content, if it is this image's alone; otherwise a later image may have the same file, perhaps longer.
    content: Option<Bytes>,
}

impl ImageFile {
    /// `true` if the file is this image's alone.
    pub fn is_own(&self) -> bool {
        self.content.is_some()
    }
}

/// The log at one moment. The files of the image stay for as long as this lives.
pub struct LogImage {
    shared: Arc<EngineShared>,
    hold: ImageHold,
    files: Vec<ImageFile>,
}

impl std::fmt::Debug for LogImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogImage({} files of {})", self.files.len(), self.shared.layout.dir().display())
    }
}

impl Embedded {
    /// Takes an image of the log with everything that has been accepted so far. Blocks on the disk.
    ///
    /// # Errors
    /// The errors that end an append, [`Error::DiskFull`], and [`Error::Io`] if the journal cannot be read.
    pub fn image(&self) -> Result<LogImage, Error> {
        self.shared.check_open()?;
        self.acceptor.control(None, Vec::new())?;
        let hold = ImageHold { number: self.shared.images.hold(), shared: self.shared.clone() };
        let (sender, receiver) = sync_channel(1);
        self.queues.flush.ask_image(sender);
        let ImageParts { meta, journal } = self.shared.answer(&receiver)?;
        let layout = Layout::new(std::path::Path::new(""));
        let own = |path, content: Bytes| ImageFile { path, size_bytes: content.len() as u64, content: Some(content) };
        let mut files = vec![own(layout.meta(), meta.file_bytes().into()), own(layout.journal(IMAGE_SLOT), journal)];
        files.extend(segments(&meta).map(|(topic, partition, segment)| ImageFile {
            path: segment_path(&layout, meta.topics[topic].0.id, partition, segment),
            size_bytes: segment.size_bytes,
            content: None,
        }));
        Ok(LogImage { shared: self.shared.clone(), hold, files })
    }
}

impl LogImage {
    /// All files of the image.
    pub fn files(&self) -> &[ImageFile] {
        &self.files
    }

    /// The secret number that a log has from its beginning on; a copy of it that was opened has another.
    pub fn salt(&self) -> u64 {
        self.shared.salt
    }

    /// Reads from a file of the image, less than `max_bytes` only at its end. Blocks on the disk.
    ///
    /// # Errors
    /// [`Error::ImageReleased`]; [`Error::CorruptFile`] if the file is too short; [`Error::Io`].
    pub fn read(&self, file: &ImageFile, at: u64, max_bytes: usize) -> Result<Bytes, Error> {
        let length = file.size_bytes.saturating_sub(at).min(max_bytes as u64) as usize;
        if let Some(content) = &file.content {
            let at = usize::try_from(at).unwrap_or(usize::MAX).min(content.len());
            return Ok(content.slice(at..at + length));
        }
        if !self.shared.images.is_held(self.hold.number) {
            return Err(Error::ImageReleased);
        }
        let path = self.shared.layout.dir().join(&file.path);
        let opened = self.shared.files.open(&path).map_err(|e| Error::io("open", &path, e))?;
        let mut bytes = vec![0; length];
        let read = opened.read_at(&mut bytes, at).map_err(|e| Error::io("read", &path, e))?;
        match read < length {
            true => Err(Error::CorruptFile { path, at: at + read as u64, what: CUT_SHORT }),
            false => Ok(bytes.into()),
        }
    }
}

/// The segments that `meta` names, with the index of their topic and the number of their partition.
fn segments(meta: &Meta) -> impl Iterator<Item = (usize, u32, &SegmentRecord)> {
    meta.topics.iter().enumerate().flat_map(|(topic, (_, partitions))| {
        (0..)
            .zip(partitions)
            .flat_map(move |(number, partition)| partition.segments.iter().map(move |segment| (topic, number, segment)))
    })
}

fn segment_path(layout: &Layout, topic: millstream_types::TopicId, partition: u32, segment: &SegmentRecord) -> PathBuf {
    layout.partition_dir(topic, partition).join(crate::layout::segment_name(segment.base, segment.generation))
}
