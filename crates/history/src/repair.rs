//! Takes damaged and missing files out of the catalog while no server runs. A damaged file is kept in `set-aside` below the
//! directory of history.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_log::{Files, Log};
use millstream_types::{StateTopic, TopicName, iso_time};

use crate::Error;
use crate::block_checksums::MISSING;
use crate::catalog::{CatalogEdit, FileCatalog};
use crate::file_table::DataFile;

const SET_ASIDE: &str = "set-aside";

/// A file that a repair has taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostFile {
    /// Its path while it was in use.
    pub path: PathBuf,
    /// The fault that was found, in words.
    pub reason: String,
    /// The points that are lost with it, in words.
    pub loses: String,
}

impl fmt::Display for LostFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; loses {}", self.path.display(), self.reason, self.loses)
    }
}

/// Reads all files of history below `dir`, and takes out those that are missing or damaged.
///
/// # Errors
/// [`Error`] if the catalog cannot be read or written, or a file cannot be moved.
pub fn repair(log: &Arc<dyn Log>, dir: &Path, files: &Arc<dyn Files>) -> Result<Vec<LostFile>, Error> {
    if log.topic(&TopicName::internal(StateTopic::History)).is_none() {
        return Ok(Vec::new());
    }
    let mut catalog = FileCatalog::open(dir, files.clone(), log)?;
    let mut lost = Vec::new();
    let mut removed = Vec::new();
    for file in catalog.table.files() {
        let reason = match file.verify() {
            Err(Error::File { reason, .. }) => reason,
            verified => {
                verified?;
                continue;
            }
        };
        if !file.is_damaged() {
            set_aside(&**files, dir, file)?;
        }
        lost.push(LostFile { path: file.path.clone(), reason: in_past(&reason), loses: loses(file) });
        removed.push(file.clone());
    }
    if !removed.is_empty() {
        catalog.commit(CatalogEdit { removed, ..CatalogEdit::default() })?;
    }
    Ok(lost)
}

/// Leaves out the advice that has been followed.
fn in_past(reason: &str) -> String {
    let reason = if reason == MISSING { "the file is missing" } else { reason };
    reason.split("; restore it from a backup").next().unwrap_or(reason).to_owned()
}

fn set_aside(files: &dyn Files, dir: &Path, file: &DataFile) -> Result<(), Error> {
    let aside = dir.join(SET_ASIDE);
    files.create_dir_all(&aside).map_err(|error| Error::io("create", &aside, error))?;
    // Tools that read all `.parquet` below the directory must not find it.
    let to = aside.join(format!("{:012}.damaged", file.record.number));
    files.rename(&file.path, &to).map_err(|error| Error::io("move", &file.path, error))?;
    files.sync_dir(&aside).map_err(|error| Error::io("sync", &aside, error))
}

fn loses(file: &DataFile) -> String {
    let record = &file.record;
    let (first, last) = record.observed_ms;
    format!(
        "{} points of the type {} of the tenant {}, observed from {} to {}",
        record.rows,
        record.kind,
        record.tenant,
        iso_time(first),
        iso_time(last)
    )
}
