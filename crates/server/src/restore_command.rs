//! `millstream restore`: puts a backup into an empty data directory.
//!
//! Everything is read and checked first. The files are then put into `.restoring` in the data directory, where the log is
//! opened once: it recovers to the moment of the backup, and becomes a log of its own. At last the files move to their
//! places, the log last. A server does not start on a directory in which a restore was cut off.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use indicatif::HumanBytes;
use millstream_cli::show;
use millstream_log::{Embedded, LogConfig, StoredImage, SystemFiles};
use millstream_types::SystemClock;

use crate::backup_command::{
    BackupDirectory, ManifestEntry, Moment, hash_file, names, sync_all, sync_dir, verify_moment,
};
use crate::data_dir::RESTORING;
use crate::serve;

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// The directory of the backups
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The data directory to fill: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The backup, as 'millstream backup list' names it [default: the last one]
    #[arg(long, value_name = "MOMENT")]
    at: Option<String>,
}

pub(crate) fn run(arguments: &RestoreArgs) -> anyhow::Result<()> {
    serve::keep_files_private();
    let RestoreArgs { from, data_dir, at } = arguments;
    let directory = BackupDirectory::read(from)?;
    let moment = directory.moment(at.as_deref())?;
    let building = prepare(data_dir)?;
    let damages = verify_moment(&directory, &moment, &mut Default::default())?;
    if !damages.is_empty() {
        damages.iter().for_each(|damage| eprintln!("millstream: {damage}"));
        bail!("backup {} is damaged, nothing is restored; 'millstream backup list' shows others", moment.name);
    }
    show(&format!("backup {} reads without damage\n", moment.name))?;
    let failed = || format!("cannot make {}", building.display());
    fs::create_dir_all(&building).with_context(failed)?;
    let entries = moment.entries()?;
    put(&directory, &moment, &entries, &building)?;
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    show(&format!("{} files are put into place, {}\n", entries.len(), HumanBytes(bytes)))?;
    open_log(&building.join("log"))?;
    finish(data_dir, &building)?;
    show(&format!(
        "{} is restored; start the server with 'millstream serve --data-dir {}'\n",
        moment.name,
        data_dir.display()
    ))
}

/// Checks that the data directory is empty, apart from a restore that was cut off, and returns the place to build in.
fn prepare(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let building = data_dir.join(RESTORING);
    let failed = || format!("cannot list {}", data_dir.display());
    let names = match names(data_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(building),
        names => names.with_context(failed)?,
    };
    let is_cut_off = names.iter().any(|name| name == RESTORING);
    let is_of_restore = |name: &std::ffi::OsString| name == RESTORING || (is_cut_off && name == "history");
    if let Some(other) = names.iter().find(|name| !is_of_restore(name)) {
        bail!(
            "{} is not empty: it has {}; name an empty directory, or one that does not exist",
            data_dir.display(),
            other.display()
        );
    }
    for name in names {
        let path = data_dir.join(name);
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(building)
}

/// Copies the files of a backup, and compares their checksums again on the way.
fn put(directory: &BackupDirectory, moment: &Moment, entries: &[ManifestEntry], building: &Path) -> anyhow::Result<()> {
    for entry in entries {
        let (from, to) = (directory.place(moment, entry), building.join(&entry.path));
        let failed = || format!("cannot copy {} to {}", from.display(), to.display());
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).with_context(failed)?;
        }
        let copy = || -> io::Result<()> {
            let mut source = io::Read::take(File::open(&from)?, entry.bytes);
            let mut target = File::options().write(true).create_new(true).open(&to)?;
            io::copy(&mut source, &mut target).map(drop)
        };
        copy().with_context(failed)?;
        if hash_file(&to, entry.bytes)?.as_ref() != Some(&entry.sha256) {
            bail!("{} has changed while it was copied; verify the backup and try again", from.display());
        }
    }
    let image = StoredImage::read(&SystemFiles, &building.join("log").join(StoredImage::meta_path()))?;
    for segment in image.segments() {
        let path = building.join("log").join(&segment.path);
        if !image.write_index(&SystemFiles, &segment, &path)? {
            bail!("{} has changed while it was copied; verify the backup and try again", path.display());
        }
    }
    sync_all(building).with_context(|| format!("cannot sync {}", building.display()))
}

/// Opens the log once, which recovers it, and closes it.
fn open_log(dir: &Path) -> anyhow::Result<()> {
    let clock = Arc::new(SystemClock::default());
    // The server's own limits hold from its start on.
    let config = LogConfig { dir: dir.to_owned(), memory_topics_max_bytes: usize::MAX, ..LogConfig::default() };
    let log = Embedded::open_copy(config, Arc::new(SystemFiles), clock.clone(), clock)
        .context("the log of the backup cannot be opened")?;
    log.close().context("the restored log cannot be closed")
}

/// Moves everything from `building` to its place, the log last.
fn finish(data_dir: &Path, building: &Path) -> anyhow::Result<()> {
    for part in ["history", "log"] {
        let (from, to) = (building.join(part), data_dir.join(part));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && part == "history" => {}
            moved => moved.with_context(|| format!("cannot move {} to {}", from.display(), to.display()))?,
        }
        sync_dir(data_dir)?;
    }
    fs::remove_dir(building).with_context(|| format!("cannot remove {}", building.display()))?;
    sync_dir(data_dir)?;
    match data_dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        _ => sync_dir(Path::new(".")),
    }
}
