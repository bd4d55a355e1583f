//! The last lives of this process, if each ended soon after its start and not in order: the sign of work that brings the
//! server down each time it comes back.
//!
//! ```text
//!   start ──► its time is added to the file ──► a minute later, or at an orderly end: the file is removed
//!                                          └──► a start that is refused: its time is taken out again
//! ```
//!
//! The file `starts` of the data directory has three parts: a line with its kind and version; a line for each of these
//! lives, which is its start in milliseconds since 1970-01-01T00:00:00Z; a line with the CRC-32C of the lines before.
//! It is no state of anybody: without it, or where it is damaged, the server starts as after an orderly end.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A life of this length has not ended soon after its start.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(60);
const FILE: &str = "starts";
const HEAD: &str = "millstream starts 1\n";
/// Most lives that are remembered.
const LIVES_MAX: usize = 100;

/// This life, which counts as ended out of order until it is settled or dropped.
#[derive(Debug)]
pub(crate) struct Life {
    file: PathBuf,
    /// The starts of those before it, oldest first.
    pub(crate) short_lives_ms: Vec<i64>,
    is_settled: bool,
}

impl Life {
    /// Notes the start of a life. One that cannot be noted, as on a full disk, does not count; the server starts all the same.
    pub(crate) fn begin(data_dir: &Path, now_ms: i64) -> Self {
        let file = data_dir.join(FILE);
        let mut short_lives_ms = read(&file).unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "ignored: how earlier starts ended is not known");
            Vec::new()
        });
        short_lives_ms.drain(..short_lives_ms.len().saturating_sub(LIVES_MAX));
        let life = Self { file, short_lives_ms, is_settled: false };
        if let Err(error) = life.write(life.short_lives_ms.iter().chain([&now_ms])) {
            tracing::warn!(file = %life.file.display(), %error, "this start is not noted, and does not count if the server goes down");
        }
        life
    }

    /// This life ends in order, or is no short one any more.
    pub(crate) fn settle(&mut self) {
        if !self.is_settled {
            self.is_settled = true;
            self.warn(remove(&self.file));
        }
    }

    fn write<'a>(&self, starts_ms: impl Iterator<Item = &'a i64>) -> io::Result<()> {
        let unfinished = self.file.with_extension("new");
        let mut file = File::create(&unfinished)?;
        file.write_all(render(starts_ms).as_bytes())?;
        file.sync_all()?;
        fs::rename(unfinished, &self.file)
    }

    fn warn(&self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::warn!(file = %self.file.display(), %error, "this start counts as one of a server that goes down");
        }
    }
}

/// A start that was refused, such as on a port that is taken: nothing has brought the server down.
impl Drop for Life {
    fn drop(&mut self) {
        if !self.is_settled && !std::thread::panicking() {
            self.warn(match self.short_lives_ms.is_empty() {
                true => remove(&self.file),
                false => self.write(self.short_lives_ms.iter()),
            });
        }
    }
}

/// The starts in `file`; none if there is no file.
fn read(file: &Path) -> io::Result<Vec<i64>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let damaged = || io::Error::new(ErrorKind::InvalidData, "the file is damaged, or of another version");
    parse(&text).ok_or_else(damaged)
}

fn render<'a>(starts_ms: impl Iterator<Item = &'a i64>) -> String {
    let lines: String = starts_ms.map(|start_ms| format!("{start_ms}\n")).collect();
    let checked = format!("{HEAD}{lines}");
    let end = checksum_line(&checked);
    checked + &end
}

/// The starts in a text that [`render`] made; `None` if it has changed since.
fn parse(text: &str) -> Option<Vec<i64>> {
    let last_line = text.strip_suffix('\n')?.rfind('\n')? + 1;
    let (checked, end) = text.split_at(last_line);
    if end != checksum_line(checked) {
        return None;
    }
    checked.strip_prefix(HEAD)?.lines().map(|line| line.parse().ok()).collect()
}

fn checksum_line(checked: &str) -> String {
    format!("crc32c {:08x}\n", crc32c::crc32c(checked.as_bytes()))
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A crash drops nothing in order.
    fn crash(life: Life) {
        std::mem::forget(life);
    }

    #[test]
    fn lives_count_until_one_is_settled_and_refused_starts_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let begin = |now_ms| Life::begin(dir.path(), now_ms);
        crash(begin(1));
        crash(begin(2));
        let refused = begin(3);
        assert_eq!(refused.short_lives_ms, [1, 2]);
        drop(refused);
        crash(begin(4));
        let mut long = begin(5);
        assert_eq!(long.short_lives_ms, [1, 2, 4]);
        long.settle();
        crash(long);
        assert!(begin(6).short_lives_ms.is_empty());
        assert!(!dir.path().join(FILE).exists(), "a refused first start leaves nothing");
    }

    #[test]
    fn a_file_with_any_byte_changed_or_cut_off_is_ignored_with_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join(FILE), dir.path().join("log"));
        crash(Life::begin(dir.path(), 1_793_000_000_000));
        crash(Life::begin(dir.path(), 1_793_000_050_000));
        let whole = fs::read(&file).unwrap();
        assert_eq!(read(&file).unwrap(), [1_793_000_000_000, 1_793_000_050_000]);

        let flipped = (0..whole.len()).map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            bytes
        });
        let cut = (0..whole.len()).map(|bytes| whole[..bytes].to_vec());
        let longer = [&b"0"[..], b"\n", b"1\n"].map(|more| [&whole[..], more].concat());
        let without_checksum = [b"1793000000000\n".to_vec()];
        let damages: Vec<_> = flipped.chain(cut).chain(longer).chain(without_checksum).collect();

        let lines =
            tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::new(File::create(&log).unwrap())).finish();
        tracing::subscriber::with_default(lines, || {
            for damage in &damages {
                fs::write(&file, damage).unwrap();
                let life = Life::begin(dir.path(), 1);
                assert!(life.short_lives_ms.is_empty(), "{:?}", String::from_utf8_lossy(damage));
                crash(life);
            }
        });
        let log = fs::read_to_string(log).unwrap();
        let warnings = log.lines().filter(|line| line.contains(" WARN ") && line.contains("starts ended is not known"));
        assert_eq!(warnings.count(), damages.len(), "{log}");
    }

    #[test]
    fn old_lives_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        for now_ms in 0..=LIVES_MAX as i64 + 5 {
            crash(Life::begin(dir.path(), now_ms));
        }
        let life = Life::begin(dir.path(), 0);
        assert_eq!((life.short_lives_ms.len(), life.short_lives_ms[0]), (LIVES_MAX, 6));
    }

    #[test]
    fn a_start_that_cannot_be_noted_is_no_reason_not_to_start() {
        let dir = tempfile::tempdir().unwrap();
        // A directory in the place of the file takes no bytes, as a full disk.
        fs::create_dir(dir.path().join("starts.new")).unwrap();
        crash(Life::begin(dir.path(), 1));
        assert!(Life::begin(dir.path(), 2).short_lives_ms.is_empty());
    }
}
