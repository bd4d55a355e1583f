//! Removes the journal's files while no server runs: the last copies of records that compaction or a deletion has removed.
//!
//! A log that was closed in order has all of its records in segments, and its journal only what was written there before.

use std::path::Path;

use crate::layout::Layout;
use crate::meta::Meta;
use crate::repair::lock;
use crate::{Error, Files};

/// Removes the journal of the log in `dir`, which was closed in order; a later start makes it anew. Returns the bytes that its
/// files took. Durable on return; repeated, it finds nothing.
///
/// # Errors
/// [`Error::InUse`] if a server runs on it; [`Error::NotClosed`] if its last end was a crash; [`Error::CorruptFile`] if `meta`
/// and its copy are damaged; [`Error::UnknownVersion`]; [`Error::Io`].
pub fn clear_journal(files: &dyn Files, dir: &Path) -> Result<u64, Error> {
    let layout = Layout::new(dir);
    let _lock = lock(files, &layout)?;
    // A directory without `meta` has never had a record.
    if !Meta::read(files, &layout)?.is_none_or(|meta| meta.clean) {
        return Err(Error::NotClosed { path: dir.to_owned() });
    }
    let journal = layout.journal_dir();
    let names = match files.list(&journal) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(Error::io("list", &journal, e)),
    };
    let mut bytes = 0;
    for name in names {
        let path = journal.join(name);
        let file = files.open(&path).map_err(|e| Error::io("open", &path, e))?;
        bytes += file.size().map_err(|e| Error::io("read the size of", &path, e))?;
        files.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
    }
    files.sync_dir(&journal).map_err(|e| Error::io("sync", &journal, e))?;
    Ok(bytes)
}
