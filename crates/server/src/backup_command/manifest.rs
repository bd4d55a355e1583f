//! The manifest of one backup: a line of JSON about it, one for each file, and one with the checksum of the lines before.
//!
//! It is written last, when all files are durable, so that a backup with a manifest is complete. A file may have more
//! bytes than an entry says, which a later backup has added; the checksum is that of the entry's bytes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use ring::digest::{Context as Sha256, SHA256};
use serde::{Deserialize, Serialize};

/// The version of the format.
const FORMAT: u32 = 1;

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ManifestHead {
    pub(crate) format: u32,
    pub(crate) moment: String,
    /// Names the log, see [`crate::backups::log_id`].
    pub(crate) log: String,
    /// The version of the server.
    pub(crate) version: String,
    pub(crate) taken: String,
    pub(crate) topics: u64,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// A file of the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ManifestEntry {
    /// Its path below the data directory.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// No other backup has the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) own: bool,
    /// The time of its last write, if its path is not enough to know it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<String>,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
struct ManifestEnd {
    manifest_sha256: String,
}

pub(crate) fn hex(sum: Sha256) -> String {
    sum.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The path of a file that backups share, below their directory. Two files may have had the same path on the server.
pub(crate) fn shared_path(path: &str, modified: Option<&str>) -> PathBuf {
    PathBuf::from(modified.map_or_else(|| path.to_owned(), |modified| format!("{path}.{modified}")))
}

/// A path of a manifest or of a server's list, if it stays below the directory that it is relative to.
pub(crate) fn relative(path: &str) -> anyhow::Result<&Path> {
    let below = Path::new(path);
    let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    match is_plain
        && matches!(below.components().next(), Some(Component::Normal(first)) if first == "log" || first == "history")
    {
        true => Ok(below),
        false => bail!("'{path}' is not the path of a file below log/ or history/"),
    }
}

impl ManifestHead {
    pub(crate) fn new(moment: &str, log: &str, version: &str, taken: &str) -> Self {
        let [moment, log, version, taken] = [moment, log, version, taken].map(str::to_owned);
        Self { format: FORMAT, moment, log, version, taken, topics: 0, files: 0, bytes: 0 }
    }

    /// Writes the manifest to `path`, durably.
    pub(crate) fn write(&self, entries: &[ManifestEntry], path: &Path) -> anyhow::Result<()> {
        let part = path.with_extension("part");
        let failed = || format!("cannot write {}", part.display());
        let file = File::create(&part).with_context(failed)?;
        let (mut out, mut sum) = (BufWriter::new(file), Sha256::new(&SHA256));
        let mut line = |text: String| {
            sum.update(text.as_bytes());
            sum.update(b"\n");
            writeln!(out, "{text}").with_context(failed)
        };
        line(serde_json::to_string(self)?)?;
        entries.iter().try_for_each(|entry| line(serde_json::to_string(entry)?))?;
        let end = serde_json::to_string(&ManifestEnd { manifest_sha256: hex(sum) })?;
        writeln!(out, "{end}").with_context(failed)?;
        out.into_inner().map_err(|error| error.into_error()).and_then(|file| file.sync_all()).with_context(failed)?;
        std::fs::rename(&part, path).with_context(failed)
    }

    /// Reads the first line of a manifest.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot read {}", path.display());
        let mut lines = BufReader::new(File::open(path).with_context(failed)?).lines();
        Self::parse(&lines.next().transpose().with_context(failed)?.unwrap_or_default(), path)
    }

    fn parse(line: &str, path: &Path) -> anyhow::Result<Self> {
        let damaged = || format!("{} is damaged in line 1", path.display());
        let head: Self = serde_json::from_str(line).with_context(damaged)?;
        if head.format != FORMAT {
            bail!("{} has format {}, this program reads {FORMAT}; use a newer millstream", path.display(), head.format);
        }
        Ok(head)
    }

    /// Reads a whole manifest and checks its checksum.
    pub(crate) fn read_all(path: &Path) -> anyhow::Result<(Self, Vec<ManifestEntry>)> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (mut sum, mut head, mut entries) = (Sha256::new(&SHA256), None, Vec::new());
        for (number, line) in (1..).zip(BufReader::new(file).lines()) {
            let damaged = || format!("{} is damaged in line {number}", path.display());
            let line = line.with_context(damaged)?;
            match (&head, serde_json::from_str::<ManifestEnd>(&line)) {
                (None, _) => head = Some(Self::parse(&line, path)?),
                (Some(head), Ok(end)) => {
                    if end.manifest_sha256 != hex(sum) {
                        bail!("{} is damaged: its lines do not have the checksum in the last one", path.display());
                    }
                    return Ok((head.clone(), entries));
                }
                (Some(_), Err(_)) => {
                    let entry: ManifestEntry = serde_json::from_str(&line).with_context(damaged)?;
                    relative(&entry.path).with_context(damaged)?;
                    relative(&entry.shared_path().to_string_lossy()).with_context(damaged)?;
                    entries.push(entry);
                }
            }
            sum.update(line.as_bytes());
            sum.update(b"\n");
        }
        bail!("{} is cut short", path.display())
    }
}

impl ManifestEntry {
    /// Its path below the data directory.
    pub(crate) fn below(&self) -> PathBuf {
        PathBuf::from(&self.path)
    }

    /// Its path below the directory of files that backups share.
    pub(crate) fn shared_path(&self) -> PathBuf {
        shared_path(&self.path, self.modified.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (ManifestHead, Vec<ManifestEntry>) {
        let entry = |path: &str, own, modified: Option<&str>| ManifestEntry {
            path: path.to_owned(),
            bytes: 7,
            sha256: "ab".to_owned(),
            own,
            modified: modified.map(str::to_owned),
        };
        let entries = vec![entry("log/meta", true, None), entry("history/tenant=a/1.parquet", false, Some("12"))];
        (ManifestHead::new("m", "l", "1.0.0", "2026-05-01T00:00:00Z"), entries)
    }

    #[test]
    fn a_manifest_reads_back_and_one_with_any_byte_changed_or_cut_off_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifest");
        let (head, entries) = example();
        head.write(&entries, &path).unwrap();
        assert_eq!(ManifestHead::read_all(&path).unwrap().1, entries);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() - 1 {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(ManifestHead::read_all(&path).is_err(), "byte {at} changed");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(ManifestHead::read_all(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn paths_stay_below_the_data_directory() {
        for (path, is_taken) in [
            ("log/meta", true),
            ("history/tenant=a/type=b/day=2026-05-01/000000000001.parquet", true),
            ("log/../../etc/passwd", false),
            ("/log/meta", false),
            ("views/x", false),
            ("", false),
        ] {
            assert_eq!(relative(path).is_ok(), is_taken, "{path}");
        }
    }
}
