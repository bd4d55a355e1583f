//! A log in Kafka, and the data directory beside it.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use millstream_log::{Error, Files as _, Lock, LogConfig, SystemFiles};
use millstream_log_kafka::{ActiveProcess, OnKafka};

/// The file by which a process owns a data directory whose log is elsewhere.
const LOCK_FILE: &str = "lock";
/// The file with the id of a data directory. Another process with this id has ended, as one process at a time has the directory.
const NODE_FILE: &str = "node";

pub(crate) struct LogOnKafka {
    pub(crate) log: Arc<OnKafka>,
    /// Held as long as the directory is in use.
    _data_dir: Lock,
}

impl LogOnKafka {
    /// Opens the log, and waits until no other process works with it.
    pub(crate) fn open(data_dir: &Path, log: LogConfig) -> anyhow::Result<Self> {
        if log.dir.exists() {
            bail!(
                "log.engine = kafka, and {} holds a log of the built-in engine; choose another --data-dir, or log.engine = embedded",
                log.dir.display()
            );
        }
        let locked = lock(data_dir)?;
        let log = OnKafka::open(log)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        log.take_over(ActiveProcess::new(node_of(data_dir)?, host))?;
        Ok(Self { log, _data_dir: locked })
    }
}

/// Takes a data directory for this process.
fn lock(data_dir: &Path) -> anyhow::Result<Lock> {
    std::fs::create_dir_all(data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let file = data_dir.join(LOCK_FILE);
    match SystemFiles.lock(&file).with_context(|| format!("cannot lock {}", file.display()))? {
        Lock::Taken { by } => Err(Error::InUse { path: data_dir.to_owned(), pid: by }.into()),
        held => Ok(held),
    }
}

/// The id of a data directory, which is made with it.
fn node_of(data_dir: &Path) -> anyhow::Result<String> {
    let file = data_dir.join(NODE_FILE);
    match std::fs::read_to_string(&file) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error)
                .with_context(|| format!("cannot read {}; remove it, and another id is made", file.display()));
        }
        // An empty one is what a full disk or a loss of power has left.
        _ => {}
    }
    let id = ActiveProcess::new_node();
    std::fs::write(&file, format!("{id}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(id)
}
