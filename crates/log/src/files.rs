//! The file layer: everything the engine does to a disk goes through here, so that tests can lose power.
//!
//! What a crash leaves is the operating system's promise and nothing more: bytes are durable after
//! [`File::sync`], names (created, renamed, removed) after [`Files::sync_dir`] of their directory.

use std::any::Any;
use std::fmt;
use std::fs;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Most parts that Linux takes in one write (`IOV_MAX`).
const PARTS_MAX: usize = 1024;
/// What nobody waits for is written in pieces of this size. Fresh pages of the page cache may cost microseconds each, and a
/// kernel that is not preempted within a call keeps whoever answers clients waiting for the core until it is through.
const PIECE_BYTES: usize = 64 << 10;

/// A directory tree.
pub trait Files: Send + Sync + 'static {
    /// Creates `dir` and its parents; no error if it exists.
    ///
    /// # Errors
    /// What the system says.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Names in `dir`, sorted.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens an existing file to read and write.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Creates an empty file, or empties an existing one.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Renames a file over another.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all that is in it.
    ///
    /// # Errors
    /// What the system says.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that the disk behind `dir` still takes; by default no limit is known.
    ///
    /// # Errors
    /// What the system says.
    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Makes this process the only owner of the lock file `path` (created if need be), until the guard is dropped or
    /// the process ends.
    ///
    /// # Errors
    /// What the system says.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
}

/// What came of [`Files::lock`].
pub enum Lock {
    /// It is ours for as long as this guard lives.
    Held(Box<dyn Any + Send + Sync>),
    /// Another process has it.
    Taken {
        /// What the owner wrote into the file: its process id.
        by: String,
    },
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(_) => f.write_str("Held"),
            Self::Taken { by } => write!(f, "Taken(by: {by})"),
        }
    }
}

/// An open file, read and written by position.
pub trait File: Send + Sync {
    /// Fills `buf` from `at` on; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of `parts`, one after the other, from `at` on.
    ///
    /// # Errors
    /// What the system says.
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()>;
    /// Makes the contents and the length durable.
    ///
    /// # Errors
    /// What the system says; then nobody knows what is durable.
    fn sync(&self) -> io::Result<()>;
    /// Size in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> io::Result<u64>;
    /// Cuts or extends (with zeros).
    ///
    /// # Errors
    /// What the system says.
    fn set_size(&self, bytes: u64) -> io::Result<()>;
    /// The operating system's name for it, by which bytes go from it to a socket without a copy; `None` where it has none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Writes all of `parts`, and gives way to others after each piece.
pub(crate) fn write_in_pieces(file: &dyn File, parts: &[IoSlice<'_>], mut at: u64) -> io::Result<()> {
    let (mut piece, mut piece_bytes) = (Vec::with_capacity(parts.len()), 0);
    for part in parts {
        let mut rest = &part[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PIECE_BYTES - piece_bytes));
            piece.push(IoSlice::new(now));
            (piece_bytes, rest) = (piece_bytes + now.len(), later);
            if piece_bytes == PIECE_BYTES {
                file.write_at(&piece, at)?;
                std::thread::yield_now();
                at += PIECE_BYTES as u64;
                piece.clear();
                piece_bytes = 0;
            }
        }
    }
    if piece.is_empty() { Ok(()) } else { file.write_at(&piece, at) }
}

/// The operating system's files.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(fs::OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(dir)?;
        // Some file systems do not tell their size.
        Ok(if disk.f_blocks == 0 { u64::MAX } else { disk.f_bavail.saturating_mul(disk.f_frsize) })
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let mut file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                file.write_all_at(std::process::id().to_string().as_bytes(), 0)?;
                Ok(Lock::Held(Box::new(SystemLock(file))))
            }
            Err(fs::TryLockError::WouldBlock) => {
                let mut by = String::new();
                file.read_to_string(&mut by)?;
                Ok(Lock::Taken { by })
            }
            Err(fs::TryLockError::Error(e)) => Err(e),
        }
    }
}

/// Gives its lock free when dropped. To close the file would not be enough: a process that is being started has a copy of
/// it for a moment, and with it the lock.
struct SystemLock(fs::File);

impl Drop for SystemLock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "a directory cannot be unlocked; it is free once this process has ended");
        }
    }
}

impl File for fs::File {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match FileExt::read_at(self, &mut buf[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        let mut at = at;
        let mut parts: Vec<IoSlice<'_>> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        let mut left = &mut parts[..];
        while !left.is_empty() {
            let count = left.len().min(PARTS_MAX);
            match rustix::io::pwritev(self, &left[..count], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_free_when_it_is_dropped_though_somebody_has_a_copy_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let lock = || fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        let held = SystemLock(lock());
        held.0.try_lock().unwrap();
        let copy = held.0.try_clone().unwrap();
        assert!(lock().try_lock().is_err());
        drop(held);
        lock().try_lock().unwrap();
        drop(copy);
    }

    #[test]
    fn what_is_written_in_pieces_is_what_was_given() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..5 * PIECE_BYTES).map(|at| (at % 251) as u8).collect();
        for lengths in
            [&[][..], &[0, 1], &[PIECE_BYTES], &[PIECE_BYTES - 1, 2, 0, PIECE_BYTES], &[10, 3 * PIECE_BYTES, 7]]
        {
            let mut rest = &bytes[..];
            let mut part = |length: &usize| {
                let (now, later) = rest.split_at(*length);
                rest = later;
                IoSlice::new(now)
            };
            let parts: Vec<_> = lengths.iter().map(&mut part).collect();
            file.set_len(0).unwrap();
            write_in_pieces(&file, &parts, 5).unwrap();
            let length = lengths.iter().sum::<usize>();
            let mut written = vec![0; length + 1];
            assert_eq!(File::read_at(&file, &mut written, 5).unwrap(), length);
            assert_eq!(written[..length], bytes[..length], "{lengths:?}");
        }
    }
}
