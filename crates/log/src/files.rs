//! The file layer: all disk access of the engine goes through here, so that tests can simulate a power loss.
//!
//! The layer promises exactly as much as the operating system: bytes are durable after [`File::sync`], and names
//! (created, renamed, removed) after [`Files::sync_dir`] of their directory.

use std::any::Any;
use std::fmt;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags};

/// Most buffers that Linux accepts in one write (`IOV_MAX`).
const PARTS_MAX: usize = 1024;
/// Background writes are split into pieces of this size. Fresh pages of the page cache may cost microseconds each,
/// and a kernel without preemption keeps the core until the call ends, while client threads wait.
const PIECE_BYTES: usize = 64 << 10;

/// A file system. Methods return the errors of the operating system.
pub trait Files: Send + Sync + 'static {
    /// Creates `dir` and its parents; no error if it exists.
    ///
    /// # Errors
    /// The error of the operating system.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Lists the names in `dir`, sorted.
    ///
    /// # Errors
    /// The error of the operating system.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, or another error of the operating system.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Creates an empty file, or empties an existing one.
    ///
    /// # Errors
    /// The error of the operating system.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Renames a file, which replaces the target.
    ///
    /// # Errors
    /// The error of the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes the file at `path`.
    ///
    /// # Errors
    /// The error of the operating system.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all that is in it.
    ///
    /// # Errors
    /// The error of the operating system.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// The error of the operating system.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Free bytes of the disk behind `dir`; unlimited by default.
    ///
    /// # Errors
    /// The error of the operating system.
    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Locks the file `path` (created if needed) for this process, until the guard is dropped or the process ends.
    ///
    /// # Errors
    /// The error of the operating system.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
}

/// The outcome of a call of [`Files::lock`].
pub enum Lock {
    /// The lock is held for as long as this guard lives.
    Held(Box<dyn Any + Send + Sync>),
    /// Another process holds the lock.
    Taken {
        /// The process id that the owner wrote into the file.
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

/// An open file with positional reads and writes.
pub trait File: Send + Sync {
    /// Fills `buf` from `at` on; reads less only at the end of the file.
    ///
    /// # Errors
    /// The error of the operating system.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Fills all of `buf` from `at` on without waiting for the disk. Returns `false`, with anything in `buf`, if the page
    /// cache does not have all of it.
    ///
    /// # Errors
    /// The error of the operating system.
    fn read_cached_at(&self, buf: &mut [u8], at: u64) -> io::Result<bool> {
        Ok(self.read_at(buf, at)? == buf.len())
    }
    /// Writes all of `parts`, one after the other, from `at` on.
    ///
    /// # Errors
    /// The error of the operating system.
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()>;
    /// Makes the contents and the length durable.
    ///
    /// # Errors
    /// The error of the operating system; it is unknown then which bytes are durable.
    fn sync(&self) -> io::Result<()>;
    /// Size of the file in bytes.
    ///
    /// # Errors
    /// The error of the operating system.
    fn size(&self) -> io::Result<u64>;
    /// Sets the size: cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// The error of the operating system.
    fn set_size(&self, bytes: u64) -> io::Result<()>;
    /// The descriptor, to send bytes to a socket without a copy; `None` for a simulated file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Writes all of `parts` and yields the core after each piece.
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

/// The files of the operating system.
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
        // Some file systems do not report their size.
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

/// Unlocks its file when dropped. Closing the file would not be enough: a process that is being spawned briefly has a
/// copy of the descriptor, and with it the lock.
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

    fn read_cached_at(&self, buf: &mut [u8], at: u64) -> io::Result<bool> {
        match rustix::io::preadv2(self, &mut [IoSliceMut::new(buf)], at, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(read == buf.len()),
            // Nothing is cached, or neither this kernel nor this file system can tell.
            Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
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
                Err(Errno::INTR) => {}
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
    fn a_read_without_the_disk_gives_all_bytes_or_none() {
        let file = tempfile::tempfile().unwrap();
        write_in_pieces(&file, &[IoSlice::new(b"0123456789")], 0).unwrap();
        let (mut some, mut beyond) = ([0; 4], [0; 11]);
        // Whether a file system can do it is its own matter.
        if File::read_cached_at(&file, &mut some, 3).unwrap() {
            assert_eq!(&some, b"3456");
        }
        assert!(!File::read_cached_at(&file, &mut beyond, 0).unwrap());
    }

    #[test]
    fn a_write_in_pieces_writes_the_given_bytes() {
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
