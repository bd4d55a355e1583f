//! Backups that are being read: each is an image of the log and the files of history, kept in place while it lasts.
//!
//! ```text
//!   POST /api/backups ──► history's files are held ──► image of the log ──► list of all files, at one moment
//!   GET …/files, …/bytes (any number of times)     DELETE, or a minute without a request ──► released
//! ```
//!
//! The order makes the copy complete: the log's image names files of history that existed when it was taken, and none of
//! them goes before the backup ends. Files that the image does not name do no harm, as a start removes them.

mod routes;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use millstream_history::HeldFiles;
use millstream_log::{Embedded, Error, ImageFile, LogImage};
use millstream_types::{MonotonicClock, WallClock};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

pub(crate) use self::routes::routes;

/// Backups at a time.
const BACKUPS_MAX: usize = 4;
/// Time without a request after which a backup ends.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// All backups that are being read.
pub(crate) struct Backups {
    /// The log, if it is on this machine.
    log: Option<Arc<Embedded>>,
    hold_history: Box<dyn Fn() -> HeldFiles + Send + Sync>,
    clock: Arc<dyn MonotonicClock>,
    wall: Arc<dyn WallClock>,
    running: Mutex<BTreeMap<String, Arc<RunningBackup>>>,
}

/// The server at one moment.
pub(crate) struct RunningBackup {
    id: String,
    /// Tells copies of different logs apart; see [`log_id`].
    log: String,
    taken_ms: i64,
    image: LogImage,
    history: HeldFiles,
    files: Vec<BackupFile>,
    used_at_ms: AtomicU64,
}

/// A file of a backup.
struct BackupFile {
    /// Its path below the data directory.
    path: PathBuf,
    size_bytes: u64,
    content: BackupContent,
}

enum BackupContent {
    OfLog(ImageFile),
    /// A file of history, which its path and the time of its last write identify.
    OfHistory {
        below: PathBuf,
        modified_ns: u64,
        checksums: Vec<u32>,
    },
}

/// The reason why no backup begins.
#[derive(Debug)]
enum NotBegun {
    TooMany,
    /// The log is in Kafka.
    Elsewhere,
    Failed(Error),
}

/// A public name of the log with this salt.
pub(crate) fn log_id(salt: u64) -> String {
    let hash = digest(&SHA256, &[b"millstream log ", &salt.to_le_bytes()[..]].concat());
    hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Backups {
    pub(crate) fn new(
        log: Option<Arc<Embedded>>,
        hold_history: Box<dyn Fn() -> HeldFiles + Send + Sync>,
        clock: Arc<dyn MonotonicClock>,
        wall: Arc<dyn WallClock>,
    ) -> Arc<Self> {
        Arc::new(Self { log, hold_history, clock, wall, running: Mutex::default() })
    }

    /// Begins a backup of everything that has been acknowledged so far. Blocks on the disk.
    fn begin(&self) -> Result<Arc<RunningBackup>, NotBegun> {
        if self.running.lock().len() >= BACKUPS_MAX {
            return Err(NotBegun::TooMany);
        }
        let log = self.log.as_ref().ok_or(NotBegun::Elsewhere)?;
        let history = (self.hold_history)();
        let image = log.image().map_err(NotBegun::Failed)?;
        let listed = history.list().map_err(|source| {
            let path = history.dir().to_owned();
            NotBegun::Failed(Error::Io { action: "list", path, source: Arc::new(source) })
        })?;
        let of_log = image.files().iter().map(|file| BackupFile {
            path: PathBuf::from("log").join(&file.path),
            size_bytes: file.size_bytes,
            content: BackupContent::OfLog(file.clone()),
        });
        let of_history = listed.into_iter().map(|file| BackupFile {
            path: PathBuf::from("history").join(&file.path),
            size_bytes: file.size_bytes,
            content: BackupContent::OfHistory {
                below: file.path,
                modified_ns: file.modified_ns,
                checksums: file.checksums,
            },
        });
        let files = of_log.chain(of_history).collect();
        let backup = Arc::new(RunningBackup {
            id: format!("{:032x}", u128::from_ne_bytes(random())),
            log: log_id(image.salt()),
            taken_ms: self.wall.now_ms(),
            image,
            history,
            files,
            used_at_ms: AtomicU64::new(self.now_ms()),
        });
        let mut running = self.running.lock();
        if running.len() >= BACKUPS_MAX {
            return Err(NotBegun::TooMany);
        }
        running.insert(backup.id.clone(), backup.clone());
        tracing::info!(backup = backup.id, files = backup.files.len(), bytes = backup.size_bytes(), "a backup begins");
        Ok(backup)
    }

    fn find(&self, id: &str) -> Option<Arc<RunningBackup>> {
        let backup = self.running.lock().get(id).cloned()?;
        backup.used_at_ms.store(self.now_ms(), Ordering::Relaxed);
        Some(backup)
    }

    /// Ends a backup. Returns `None` if there is none of this id.
    fn end(&self, id: &str) -> Option<Arc<RunningBackup>> {
        let ended = self.running.lock().remove(id)?;
        tracing::info!(backup = id, "a backup ends");
        Some(ended)
    }

    /// Ends the backups that nobody has read for a minute. The caller drops them where it may block.
    pub(crate) fn take_idle(&self) -> Vec<Arc<RunningBackup>> {
        let now_ms = self.now_ms();
        let is_idle = |_: &String, backup: &mut Arc<RunningBackup>| {
            now_ms.saturating_sub(backup.used_at_ms.load(Ordering::Relaxed)) > IDLE_MAX.as_millis() as u64
        };
        let idle: Vec<_> = self.running.lock().extract_if(.., is_idle).map(|(_, backup)| backup).collect();
        for backup in &idle {
            tracing::warn!(backup = backup.id, "a backup that nobody has read for a minute ends");
        }
        idle
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().as_millis() as u64
    }
}

fn random() -> [u8; 16] {
    use ring::rand::{SecureRandom as _, SystemRandom};
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

impl RunningBackup {
    fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// Reads from a file, less than `max_bytes` only at its end. Blocks on the disk.
    fn read(&self, file: &BackupFile, at: u64, max_bytes: usize) -> Result<Bytes, Error> {
        let below = match &file.content {
            BackupContent::OfLog(file) => return self.image.read(file, at, max_bytes),
            BackupContent::OfHistory { below, .. } => below,
        };
        let path = self.history.dir().join(below);
        let failed = |action, source| Error::Io { action, path: path.clone(), source: Arc::new(source) };
        let opened = std::fs::File::open(&path).map_err(|source| failed("open", source))?;
        let mut bytes = vec![0; file.size_bytes.saturating_sub(at).min(max_bytes as u64) as usize];
        opened.read_exact_at(&mut bytes, at).map_err(|source| failed("read", source))?;
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use millstream_history::{Dependencies, History, HistoryConfig, NoTenantRules};
    use millstream_http::Metrics;
    use millstream_log::{Log, LogConfig, SystemFiles};
    use millstream_types::{ManualClock, SystemClock};

    use super::*;

    #[test]
    fn a_backup_that_nobody_reads_for_a_minute_ends_and_makes_room_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
        let dependencies = Dependencies {
            log: log.clone() as Arc<dyn Log>,
            dir: &dir.path().join("history"),
            files: Arc::new(SystemFiles),
            tenant_rules: Arc::new(NoTenantRules),
            clock: clock.clone(),
            wall: clock,
        };
        let history = History::open(&dependencies, &HistoryConfig::default(), &Metrics::default()).unwrap();
        let time = Arc::new(ManualClock::at(0));
        let backups = Backups::new(Some(log.clone()), Box::new(history.file_holds()), time.clone(), time.clone());
        let begun: Vec<_> = (0..BACKUPS_MAX).map(|_| backups.begin().unwrap().id.clone()).collect();
        assert!(matches!(backups.begin(), Err(NotBegun::TooMany)));
        time.advance(Duration::from_secs(40));
        assert!(backups.find(&begun[0]).is_some());
        assert!(backups.take_idle().is_empty());
        time.advance(Duration::from_secs(40));
        assert_eq!(backups.take_idle().len(), BACKUPS_MAX - 1);
        assert!(backups.find(&begun[0]).is_some() && backups.find(&begun[1]).is_none());
        assert!(backups.begin().is_ok());
        assert!(backups.end(&begun[0]).is_some() && backups.end(&begun[0]).is_none());
        history.stop();
        log.close().unwrap();
    }
}
