//! The baseline of the log: one thread that writes the same bytes, without queue, checksum or replies.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use millstream_log::LogConfig;

const BLOCK_BYTES: u64 = 256 << 10;

/// Files like those of a log with the default configuration.
#[derive(Debug)]
pub(crate) struct BareLoop {
    dir: PathBuf,
    /// Journal files, filled with zeros like those of the log.
    journal: Vec<File>,
    journal_file_bytes: u64,
    /// The log brings records to segments when half of its journal is used.
    flush_bytes: u64,
    /// Segments that are written in turn.
    segments: u32,
}

/// The bytes and syncs of the log, for a loop that does the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogWrites {
    /// Bytes of the journal's frames.
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    pub(crate) syncs: u64,
    /// Bytes that were brought to segments.
    pub(crate) segment_bytes: u64,
}

/// Times that the baseline needed for the bytes of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BareLoopTime {
    /// Time of the journal's writes and syncs.
    pub(crate) journal: Duration,
    /// Time of journal and segments.
    pub(crate) all: Duration,
}

impl BareLoop {
    /// Makes the files; `segments` is the number of partitions of the log's topic.
    pub(crate) fn in_dir(dir: &Path, segments: u32) -> anyhow::Result<Self> {
        let LogConfig { journal_file_bytes, journal_max_bytes, .. } = LogConfig::default();
        let journal = (0..journal_max_bytes / journal_file_bytes)
            .map(|number| file(dir, &format!("journal-{number}"), journal_file_bytes))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { dir: dir.to_owned(), journal, journal_file_bytes, flush_bytes: journal_max_bytes / 2, segments })
    }

    /// Writes as much as the log: bytes, writes, syncs and files. `None` if the log wrote nothing.
    pub(crate) fn write_like(&self, writes: LogWrites) -> anyhow::Result<Option<BareLoopTime>> {
        if writes.frames == 0 {
            return Ok(None);
        }
        let segments = (0..self.segments).map(|number| file(&self.dir, &format!("segment-{number}"), 0));
        let segments = segments.collect::<anyhow::Result<Vec<_>>>()?;
        let start = Instant::now();
        self.write_journal(writes).context("cannot write the bare journal")?;
        let journal = start.elapsed();
        self.write_segments(&segments, writes.segment_bytes).context("cannot write the bare segments")?;
        let all = start.elapsed();
        segments.iter().try_for_each(|segment| segment.set_len(0)).context("cannot empty the bare segments")?;
        // Syncs now, so that the next case does not wait for it.
        self.journal.iter().try_for_each(File::sync_data).context("cannot sync the bare journal")?;
        Ok(Some(BareLoopTime { journal, all }))
    }

    /// Makes writes of equal size and spreads the syncs evenly over them.
    fn write_journal(&self, writes: LogWrites) -> std::io::Result<()> {
        let LogWrites { bytes, frames, syncs, .. } = writes;
        let write_bytes = bytes.div_ceil(frames).clamp(1, self.journal_file_bytes);
        let data = vec![b'v'; write_bytes as usize];
        let (mut file, mut at) = (0, 0);
        for number in 0..frames {
            if at + write_bytes > self.journal_file_bytes {
                (file, at) = ((file + 1) % self.journal.len(), 0);
            }
            self.journal[file].write_all_at(&data, at)?;
            at += write_bytes;
            if (number + 1) * syncs / frames > number * syncs / frames {
                self.journal[file].sync_data()?;
            }
        }
        Ok(())
    }

    fn write_segments(&self, segments: &[File], bytes: u64) -> std::io::Result<()> {
        let block = vec![b'v'; BLOCK_BYTES as usize];
        let mut left = bytes;
        while left > 0 {
            let mut round = left.min(self.flush_bytes);
            left -= round;
            for mut segment in segments.iter().cycle() {
                let part = round.min(BLOCK_BYTES);
                segment.write_all(&block[..part as usize])?;
                round -= part;
                if round == 0 {
                    break;
                }
            }
            segments.iter().try_for_each(File::sync_data)?;
        }
        Ok(())
    }
}

/// Creates a file of zeros and syncs it.
fn file(dir: &Path, name: &str, size_bytes: u64) -> anyhow::Result<File> {
    let path = dir.join(name);
    let make = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        let zeros = vec![0; size_bytes as usize];
        file.write_all(&zeros)?;
        file.sync_all()?;
        Ok::<_, std::io::Error>(file)
    };
    make().with_context(|| format!("cannot write {}", path.display()))
}
