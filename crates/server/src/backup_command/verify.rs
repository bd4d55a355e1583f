//! Reads a backup and compares every checksum: of whole files, and of the log's blocks and batches in them.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use millstream_log::{Files, StoredImage, StoredSegment, SystemFiles};
use ring::digest::{Context as Sha256, SHA256};

use super::directory::{BackupDirectory, Moment};
use super::manifest::{ManifestEntry, ManifestHead, hex};
use crate::backups::log_id;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Files with their lengths that have been read already, as several backups share them.
pub(crate) type SeenFiles = HashSet<(PathBuf, u64)>;

/// Adds the next `bytes` of a file to `sum`. `false` if there are fewer.
pub(super) fn add_bytes(sum: &mut Sha256, file: &mut impl Read, mut bytes: u64) -> io::Result<bool> {
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(PIECE_BYTES)).max(1)];
    while bytes > 0 {
        let wanted = piece.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        let read = file.read(&mut piece[..wanted])?;
        if read == 0 {
            return Ok(false);
        }
        sum.update(&piece[..read]);
        bytes -= read as u64;
    }
    Ok(true)
}

/// The checksum of the first `bytes` of a file; `None` if it has fewer or is missing.
pub(crate) fn hash_file(path: &Path, bytes: u64) -> anyhow::Result<Option<String>> {
    let failed = || format!("cannot read {}", path.display());
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(failed)?,
    };
    let mut sum = Sha256::new(&SHA256);
    let is_whole = add_bytes(&mut sum, &mut file, bytes).with_context(failed)?;
    Ok(is_whole.then(|| hex(sum)))
}

/// Reads all files of a backup. Returns a sentence for each damage.
pub(crate) fn verify_moment(
    directory: &BackupDirectory,
    moment: &Moment,
    seen: &mut SeenFiles,
) -> anyhow::Result<Vec<String>> {
    let (head, entries) = match ManifestHead::read_all(&moment.path.join("manifest")) {
        Ok(read) => read,
        Err(damage) => return Ok(vec![format!("{damage:#}; the list of all files of backup {}", moment.name)]),
    };
    let meta = moment.path.join("log").join(StoredImage::meta_path());
    let image = match StoredImage::read(&SystemFiles, &meta) {
        Ok(image) => image,
        Err(damage) => {
            return Ok(vec![format!("{damage}; it holds the list of topics and positions of backup {}", moment.name)]);
        }
    };
    let mut damages = Vec::new();
    if log_id(image.salt()) != head.log {
        damages.push(format!("{} is of another log than its manifest says", meta.display()));
    }
    let segments: HashMap<PathBuf, StoredSegment> =
        image.segments().map(|segment| (PathBuf::from("log").join(&segment.path), segment)).collect();
    let named: HashSet<PathBuf> = entries.iter().map(ManifestEntry::below).collect();
    for missing in segments.keys().filter(|path| !named.contains(*path)) {
        damages.push(format!("the manifest of backup {} lacks {}", moment.name, missing.display()));
    }
    for entry in &entries {
        let path = directory.place(moment, entry);
        if seen.insert((path.clone(), entry.bytes)) {
            damages.extend(verify_file(&image, segments.get(&entry.below()), entry, &path)?);
        }
    }
    Ok(damages)
}

/// Reads one file. Returns what is wrong with it.
fn verify_file(
    image: &StoredImage,
    segment: Option<&StoredSegment>,
    entry: &ManifestEntry,
    path: &Path,
) -> anyhow::Result<Option<String>> {
    let files: &dyn Files = &SystemFiles;
    if let Some(segment) = segment
        && let Some(damage) = image.check_segment(files, segment, path)?
    {
        let millstream_log::Damage { path, at, what, loses } = damage;
        return Ok(Some(format!("{} is damaged at byte {at}: {what}; it holds {loses}", path.display())));
    }
    let holds = match segment {
        Some(_) => "records of a topic".to_owned(),
        None => holds(&entry.below()),
    };
    match hash_file(path, entry.bytes)? {
        Some(sum) if sum == entry.sha256 => {}
        Some(_) => {
            return Ok(Some(format!("{} is damaged: its checksum does not match; it holds {holds}", path.display())));
        }
        None => return Ok(Some(format!("{} is missing or cut short; it holds {holds}", path.display()))),
    }
    if entry.below() == Path::new("log").join(StoredImage::journal_path())
        && let Err(damage) = image.check_journal(files, path)
    {
        return Ok(Some(format!("{damage}; it holds {holds}")));
    }
    Ok(None)
}

/// A description of a file that is no segment.
fn holds(below: &Path) -> String {
    match below.strip_prefix("history") {
        Ok(file) => {
            let folder = file.parent().unwrap_or(file).display().to_string();
            format!("history of entities, {}", folder.replace('/', ", "))
        }
        Err(_) if below == Path::new("log").join(StoredImage::journal_path()) => {
            "the newest records of all topics".to_owned()
        }
        Err(_) => "the list of topics and positions".to_owned(),
    }
}
