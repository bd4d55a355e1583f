//! A directory of backups of one log.
//!
//! ```text
//!   DIR/LOCK                                         the id of the log
//!   DIR/files/log/topics/…, DIR/files/history/…      files that several backups share; segments grow, nothing else changes
//!   DIR/moments/<moment>/manifest, …/log/…           one backup each, with the files that it alone has
//!   DIR/incomplete/…                                 a backup that is being received
//! ```
//!
//! Invariants
//! - A moment appears by a rename, when all that its manifest names is durable.
//! - A shared file that a manifest names keeps the bytes that it names, at least until the moment is removed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::manifest::{ManifestEntry, ManifestHead};

const MANIFEST: &str = "manifest";

/// A directory of backups. `LOCK` is locked for as long as this lives, unless it is only listed.
pub(crate) struct BackupDirectory {
    path: PathBuf,
    _lock: Option<File>,
}

/// A complete backup.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    /// The time at which it was taken, as the name of a directory.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Moment {
    pub(crate) fn head(&self) -> anyhow::Result<ManifestHead> {
        ManifestHead::read(&self.path.join(MANIFEST))
    }

    pub(crate) fn entries(&self) -> anyhow::Result<Vec<ManifestEntry>> {
        Ok(ManifestHead::read_all(&self.path.join(MANIFEST))?.1)
    }
}

impl BackupDirectory {
    /// Opens a directory that has backups, to list them.
    pub(crate) fn list(path: &Path) -> anyhow::Result<Self> {
        if !path.join("moments").is_dir() {
            bail!(
                "there are no backups in {}; name the directory that 'millstream backup --to' was given",
                path.display()
            );
        }
        Ok(Self { path: path.to_owned(), _lock: None })
    }

    /// Opens a directory that has backups, to read them. None is added or removed meanwhile.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let _lock = Some(lock(path, File::try_lock_shared)?);
        Ok(Self { _lock, ..Self::list(path)? })
    }

    /// Opens a directory of backups, or makes it.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot make {}", path.display());
        fs::create_dir_all(path).with_context(failed)?;
        if !names(path).with_context(failed)?.is_empty() && !path.join("LOCK").is_file() {
            bail!("{} has other files than backups; name an empty directory or one with backups", path.display());
        }
        let directory = Self { path: path.to_owned(), _lock: Some(lock(path, File::try_lock)?) };
        // Others may have made it, with other rights.
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).with_context(failed)?;
        for part in ["files", "moments"] {
            fs::create_dir_all(path.join(part)).with_context(failed)?;
        }
        Ok(directory)
    }

    /// Checks that the directory is for backups of this log; from the first backup on it is.
    pub(super) fn claim(&self, log: &str) -> anyhow::Result<()> {
        let path = self.path.join("LOCK");
        let failed = || format!("cannot read or write {}", path.display());
        let claimed = fs::read_to_string(&path).with_context(failed)?;
        if claimed.is_empty() {
            // Through another descriptor: the lock stays.
            fs::write(&path, log).with_context(failed)?;
            return File::open(&path).and_then(|file| file.sync_all()).with_context(failed);
        }
        if claimed != log {
            bail!(
                "{} is for backups of another log: {claimed} there, {log} here; name another directory \
                 (a restored server begins a log of its own)",
                self.path.display()
            );
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The place of a file of a backup.
    pub(crate) fn place(&self, moment: &Moment, entry: &ManifestEntry) -> PathBuf {
        if entry.own { moment.path.join(&entry.path) } else { self.shared(&entry.shared_path()) }
    }

    /// The place of a file that several backups share.
    pub(super) fn shared(&self, below: &Path) -> PathBuf {
        self.path.join("files").join(below)
    }

    /// The complete backups, the oldest first.
    pub(crate) fn moments(&self) -> anyhow::Result<Vec<Moment>> {
        let dir = self.path.join("moments");
        let failed = || format!("cannot list {}", dir.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&dir).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && path.join(MANIFEST).is_file()
            {
                found.push(Moment { name: name.to_owned(), path: path.clone() });
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// The backup of that name; the last one if none is given.
    pub(crate) fn moment(&self, name: Option<&str>) -> anyhow::Result<Moment> {
        let moments = self.moments()?;
        let found = match name {
            Some(name) => moments.into_iter().find(|moment| moment.name == name),
            None => moments.into_iter().next_back(),
        };
        found.with_context(|| match name {
            Some(name) => format!(
                "there is no backup '{name}' in {}; 'millstream backup list' shows those there are",
                self.path.display()
            ),
            None => format!("there is no complete backup in {}", self.path.display()),
        })
    }

    /// Makes the place of a backup that is being received, and drops an earlier one that was cut off.
    pub(super) fn begin(&self) -> anyhow::Result<PathBuf> {
        let dir = self.path.join("incomplete");
        remove(&dir, fs::remove_dir_all)?;
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// A name for a backup that was taken at `taken`, which no other has.
    pub(super) fn name(&self, taken: &str) -> String {
        // Colons are no part of names on all file systems.
        let name = taken.replace(':', "-");
        let is_free = |name: &String| !self.path.join("moments").join(name).exists();
        let later = (2..).map(|number| format!("{name}_{number}"));
        std::iter::once(name.clone()).chain(later).find(is_free).unwrap_or(name)
    }

    /// Completes the backup in `incomplete`: everything becomes durable, then the manifest, then the backup is there.
    pub(super) fn complete(
        &self,
        incomplete: &Path,
        head: &ManifestHead,
        entries: &[ManifestEntry],
    ) -> anyhow::Result<()> {
        let failed = || format!("cannot sync {}", self.path.display());
        // One call for all files and names: a sync of each costs hours where there are many.
        sync_all(&self.path).with_context(failed)?;
        head.write(entries, &incomplete.join(MANIFEST))?;
        sync_dir(incomplete)?;
        let moments = self.path.join("moments");
        let place = moments.join(&head.moment);
        fs::rename(incomplete, &place).with_context(|| format!("cannot make {}", place.display()))?;
        sync_dir(&moments)?;
        sync_dir(&self.path)
    }

    /// Removes all backups but the last `keep`, and files that no backup has. Returns the names of the removed ones.
    pub(super) fn prune(&self, keep: usize) -> anyhow::Result<Vec<String>> {
        let mut moments = self.moments()?;
        let kept = moments.split_off(moments.len().saturating_sub(keep));
        let mut named = HashSet::new();
        for moment in &kept {
            named.extend(moment.entries()?.into_iter().filter(|entry| !entry.own).map(|entry| entry.shared_path()));
        }
        for moment in &moments {
            // First the manifest: what is left without one is no backup.
            remove(&moment.path.join(MANIFEST), fs::remove_file)?;
            sync_dir(&moment.path)?;
            remove(&moment.path, fs::remove_dir_all)?;
        }
        remove_unnamed(&self.path.join("files"), Path::new(""), &named)?;
        Ok(moments.into_iter().map(|moment| moment.name).collect())
    }
}

/// Removes files that are not in `named`, and directories that become empty. `true` if the directory is empty now.
fn remove_unnamed(files: &Path, below: &Path, named: &HashSet<PathBuf>) -> anyhow::Result<bool> {
    let dir = files.join(below);
    let failed = || format!("cannot list {}", dir.display());
    let mut is_empty = true;
    for entry in fs::read_dir(&dir).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let path = below.join(entry.file_name());
        if entry.file_type().with_context(failed)?.is_dir() {
            match remove_unnamed(files, &path, named)? {
                true => remove(&entry.path(), fs::remove_dir)?,
                false => is_empty = false,
            }
        } else if named.contains(&path) {
            is_empty = false;
        } else {
            remove(&entry.path(), fs::remove_file)?;
        }
    }
    Ok(is_empty)
}

/// Removes by `by`, which may find nothing.
fn remove(path: &Path, by: fn(PathBuf) -> io::Result<()>) -> anyhow::Result<()> {
    match by(path.to_owned()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The names in a directory, without the one that each file system of Linux has at its top.
pub(crate) fn names(path: &Path) -> io::Result<Vec<OsString>> {
    let all = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
    all.filter(|name| name.as_ref().map_or(true, |name| name != "lost+found")).collect()
}

fn lock(path: &Path, by: impl Fn(&File) -> Result<(), TryLockError>) -> anyhow::Result<File> {
    let failed = || format!("cannot lock {}", path.display());
    let options = File::options().read(true).write(true).create(true).truncate(false).open(path.join("LOCK"));
    let lock = options.with_context(failed)?;
    match by(&lock) {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            bail!("{} is in use by another 'millstream backup' or 'restore'; wait until it has ended", path.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(failed),
    }
}

/// Makes everything durable on the file system of `path`.
pub(crate) fn sync_all(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> anyhow::Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).with_context(|| format!("cannot sync {}", path.display()))
}
