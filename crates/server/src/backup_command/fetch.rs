//! Takes a backup: receives from a running server what the directory lacks, and completes it with a manifest.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{IsTerminal as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hyper::Method;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use millstream_cli::{Server, encoded, show};
use millstream_history::BlockChecksums;
use millstream_log::{StoredImage, StoredSegment, SystemFiles};
use ring::digest::{Context as Sha256, SHA256};
use serde::Deserialize;

use super::directory::BackupDirectory;
use super::manifest::{ManifestEntry, ManifestHead, hex, relative, shared_path};
use super::pace::Pace;
use super::ranges::{FileRange, RangedBytes};
use super::verify::add_bytes;

/// A backup as the server shows it.
#[derive(Debug, Deserialize)]
struct BegunBackup {
    backup: String,
    log: String,
    version: String,
    taken: String,
    files: usize,
}

/// A file of the server's list.
#[derive(Debug, Deserialize)]
struct ListedFile {
    path: String,
    bytes: u64,
    #[serde(default)]
    own: bool,
    modified: Option<String>,
    /// The checksums of the blocks of a file of history.
    #[serde(default)]
    crc32c: Vec<u32>,
}

impl ListedFile {
    /// Its path below the directory of files that backups share.
    fn shared_path(&self) -> PathBuf {
        shared_path(&self.path, self.modified.as_deref())
    }
}

/// The bytes of a backup by how they came.
#[derive(Debug, Default)]
struct BackupCounts {
    received: u64,
    files_received: u64,
    kept: u64,
}

pub(super) async fn backup(
    server: &Server,
    directory: &BackupDirectory,
    rate: Option<u32>,
    keep: Option<usize>,
) -> anyhow::Result<()> {
    let begun = server.answered(Method::POST, "/api/backups", String::new()).await?;
    let begun: BegunBackup = serde_json::from_slice(&begun).context("the server sent no description of a backup")?;
    let path = format!("/api/backups/{}", encoded(&begun.backup));
    let received = receive(server, directory, &begun, &path, rate).await;
    // Whatever became of it; without this the server waits for a minute.
    let released = server.answered(Method::DELETE, &path, String::new()).await;
    let (head, counts) = received?;
    if let Err(error) = released {
        eprintln!("millstream: the server was not told that the backup has ended: {error:#}");
    }
    show(&format!(
        "backup {} is complete: {} files, {}; {} in {} files received, {} kept\n",
        head.moment,
        head.files,
        HumanBytes(head.bytes),
        HumanBytes(counts.received),
        counts.files_received,
        HumanBytes(counts.kept),
    ))?;
    if let Some(keep) = keep {
        for removed in directory.prune(keep)? {
            show(&format!("backup {removed} is removed\n"))?;
        }
    }
    Ok(())
}

async fn receive(
    server: &Server,
    directory: &BackupDirectory,
    begun: &BegunBackup,
    path: &str,
    rate: Option<u32>,
) -> anyhow::Result<(ManifestHead, BackupCounts)> {
    directory.claim(&begun.log)?;
    let known = KnownFiles::of(directory)?;
    let listed = list(server, path, begun.files).await?;
    let mut fetch = Fetch {
        directory,
        incomplete: directory.begin()?,
        ranges: RangedBytes::new(server, path, Pace::new(rate)),
        segments: HashMap::new(),
        counts: BackupCounts::default(),
        bar: None,
    };
    let mut head = ManifestHead::new(&directory.name(&begun.taken), &begun.log, &begun.version, &begun.taken);
    let (own, shared): (Vec<_>, Vec<_>) = listed.iter().enumerate().partition(|(_, file)| file.own);
    let mut entries = Vec::with_capacity(listed.len());
    for (number, file) in own {
        entries.push(fetch.own(number, file).await?);
    }
    let meta = fetch.incomplete.join("log").join(StoredImage::meta_path());
    let image = StoredImage::read(&SystemFiles, &meta)?;
    head.topics = image.topics().count() as u64;
    fetch.segments = image.segments().map(|segment| (PathBuf::from("log").join(&segment.path), segment)).collect();
    shared.iter().try_for_each(|(_, file)| known.check(file))?;
    let lacking: u64 = shared.iter().map(|(_, file)| file.bytes - known.bytes_of(file).min(file.bytes)).sum();
    fetch.begin_progress(&head.moment, lacking)?;
    for (number, file) in shared {
        let entry = match known.same(file) {
            Some(entry) if fetch.has(file) => {
                fetch.counts.kept += file.bytes;
                entry.clone()
            }
            _ => fetch.shared(number, file, &image).await?,
        };
        entries.push(entry);
        fetch.ranges.touch().await?;
    }
    if let Some(bar) = fetch.bar.take() {
        bar.finish_and_clear();
    }
    head.files = entries.len() as u64;
    head.bytes = entries.iter().map(|entry| entry.bytes).sum();
    directory.complete(&fetch.incomplete, &head, &entries)?;
    Ok((head, fetch.counts))
}

async fn list(server: &Server, path: &str, count: usize) -> anyhow::Result<Vec<ListedFile>> {
    let mut listed: Vec<ListedFile> = Vec::with_capacity(count.min(1 << 20));
    while listed.len() < count {
        let page = server.answered(Method::GET, &format!("{path}/files?from={}", listed.len()), String::new()).await?;
        let page: Vec<ListedFile> = serde_json::from_slice(&page).context("the server sent no list of files")?;
        if page.is_empty() {
            bail!("the server lists {} files of {count}", listed.len());
        }
        for file in &page {
            relative(&file.path)?;
            relative(&file.shared_path().to_string_lossy())?;
        }
        listed.extend(page);
    }
    Ok(listed)
}

/// The shared files that complete backups in the directory have, each with its longest entry.
struct KnownFiles(HashMap<PathBuf, ManifestEntry>);

impl KnownFiles {
    fn of(directory: &BackupDirectory) -> anyhow::Result<Self> {
        let mut known: HashMap<PathBuf, ManifestEntry> = HashMap::new();
        for moment in directory.moments()? {
            let entries = moment.entries().unwrap_or_else(|damage| {
                eprintln!("millstream: {damage:#}; files of this backup alone are received again");
                Vec::new()
            });
            for entry in entries.into_iter().filter(|entry| !entry.own) {
                let path = entry.shared_path();
                if known.get(&path).is_none_or(|shorter| shorter.bytes < entry.bytes) {
                    known.insert(path, entry);
                }
            }
        }
        Ok(Self(known))
    }

    /// The entry of this file, whose beginning is the same.
    fn entry(&self, file: &ListedFile) -> Option<&ManifestEntry> {
        self.0.get(&file.shared_path())
    }

    /// Files of a log only grow.
    fn check(&self, file: &ListedFile) -> anyhow::Result<()> {
        match self.entry(file) {
            Some(known) if known.bytes > file.bytes => bail!(
                "{} has {} bytes on the server and {} in an earlier backup; name another directory",
                file.path,
                file.bytes,
                known.bytes
            ),
            _ => Ok(()),
        }
    }

    fn same(&self, file: &ListedFile) -> Option<&ManifestEntry> {
        self.entry(file).filter(|entry| entry.bytes == file.bytes)
    }

    fn bytes_of(&self, file: &ListedFile) -> u64 {
        self.entry(file).map_or(0, |entry| entry.bytes)
    }
}

struct Fetch<'a> {
    directory: &'a BackupDirectory,
    incomplete: PathBuf,
    ranges: RangedBytes<'a>,
    segments: HashMap<PathBuf, StoredSegment>,
    counts: BackupCounts,
    /// Shown on a terminal.
    bar: Option<ProgressBar>,
}

impl Fetch<'_> {
    fn begin_progress(&mut self, moment: &str, lacking: u64) -> anyhow::Result<()> {
        if std::io::stdout().is_terminal() {
            let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar = Some(ProgressBar::new(lacking).with_style(style));
            return Ok(());
        }
        show(&format!("backup {moment} has begun: {} to receive\n", HumanBytes(lacking)))
    }

    /// `true` if the shared file is there with as many bytes.
    fn has(&self, file: &ListedFile) -> bool {
        let path = self.directory.shared(&file.shared_path());
        path.metadata().is_ok_and(|metadata| metadata.len() >= file.bytes)
    }

    /// Receives a file of this backup alone.
    async fn own(&mut self, number: usize, file: &ListedFile) -> anyhow::Result<ManifestEntry> {
        let path = self.incomplete.join(relative(&file.path)?);
        self.write(number, file, &path, 0, Sha256::new(&SHA256)).await
    }

    /// Receives what lacks of a file that backups share.
    async fn shared(&mut self, number: usize, file: &ListedFile, image: &StoredImage) -> anyhow::Result<ManifestEntry> {
        let below = relative(&file.path)?;
        let path = self.directory.shared(&file.shared_path());
        let segment = self.segments.get(below).cloned();
        let (from, sum) = match &segment {
            Some(segment) => intact(&path, segment, image)?,
            None => (0, Sha256::new(&SHA256)),
        };
        self.counts.kept += from;
        let entry = self.write(number, file, &path, from, sum).await?;
        if let Some(segment) = &segment
            && let Some(damage) = image.check_segment(&SystemFiles, segment, &path)?
        {
            bail!(
                "the server's file {} is damaged at byte {}: {}; it holds {}; nothing of this backup counts; \
                 stop the server and see what 'millstream log check' says",
                file.path,
                damage.at,
                damage.what,
                damage.loses
            );
        }
        Ok(entry)
    }

    /// Writes a file from `from` on; `sum` has the bytes before.
    async fn write(
        &mut self,
        number: usize,
        file: &ListedFile,
        path: &Path,
        from: u64,
        mut sum: Sha256,
    ) -> anyhow::Result<ManifestEntry> {
        let failed = || format!("cannot write {}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(failed)?;
        }
        let mut out = File::options().write(true).create(true).truncate(false).open(path).with_context(failed)?;
        out.set_len(from).with_context(failed)?;
        out.seek(SeekFrom::Start(from)).with_context(failed)?;
        if from < file.bytes {
            self.ranges.push(FileRange { file: number, from, to: file.bytes });
        }
        let mut blocks = BlockChecksums::default();
        let mut at = from;
        while at < file.bytes {
            let piece = self.ranges.take(file.bytes - at).await.with_context(|| format!("receiving {}", file.path))?;
            out.write_all(&piece).with_context(failed)?;
            sum.update(&piece);
            blocks.add(&piece);
            at += piece.len() as u64;
            self.bar.iter().for_each(|bar| bar.inc(piece.len() as u64));
        }
        if from == 0 && !file.crc32c.is_empty() && blocks.all() != file.crc32c {
            drop(fs::remove_file(path));
            bail!(
                "the server's file {} is damaged: its checksums do not match; nothing of this backup counts; restore the \
                 file from an earlier backup, or give its points up: stop the server and run 'millstream log repair --yes'",
                file.path
            );
        }
        self.counts.received += at - from;
        self.counts.files_received += u64::from(at > from);
        let (path, modified) = (file.path.clone(), file.modified.clone());
        Ok(ManifestEntry { path, bytes: file.bytes, sha256: hex(sum), own: file.own, modified })
    }
}

/// The length of the intact beginning of a segment that is here, with its checksum. Earlier backups may name some of it;
/// what lies behind that was left by a backup that was cut off.
fn intact(path: &Path, segment: &StoredSegment, image: &StoredImage) -> anyhow::Result<(u64, Sha256)> {
    let mut sum = Sha256::new(&SHA256);
    let Some(mut file) = opened(path)? else { return Ok((0, sum)) };
    let intact = image.check_segment(&SystemFiles, segment, path)?.map_or(segment.size_bytes, |damage| damage.at);
    let is_whole = add_bytes(&mut sum, &mut file, intact).with_context(|| format!("cannot read {}", path.display()))?;
    if is_whole { Ok((intact, sum)) } else { Ok((0, Sha256::new(&SHA256))) }
}

fn opened(path: &Path) -> anyhow::Result<Option<std::io::BufReader<File>>> {
    match File::open(path) {
        Ok(file) => Ok(Some(std::io::BufReader::with_capacity(1 << 16, file))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
