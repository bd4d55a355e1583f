//! The thread that keeps the files: writes generations, merges small files, samples old ones, deletes what is asked or too old.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_log::{Log, stand_back};
use millstream_types::{MonotonicClock, TenantId, WallClock};

use crate::Error;
use crate::catalog::{Catalog, Directory, Edit, KeptFile};
use crate::catalog_record::{Erasure, PositionRecord};
use crate::config::Rules;
use crate::flush::flush;
use crate::generation::Generation;
use crate::merge::{choose, merge};
use crate::sampling::Sampling;
use crate::shared::{ErasureAsked, Shared};

/// How often it looks whether something is due.
const TURN: Duration = Duration::from_millis(500);
/// How often files are looked through for what is too old to stay, or to stay whole.
const RETENTION_INTERVAL: Duration = Duration::from_secs(10);
/// How long it waits after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// Directories that one generation may have points for: so many files fit into one append.
const DIRECTORIES_MAX: usize = 4_096;
const WRITING: &str = "writing files";

/// Keeps the files.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) catalog: Catalog,
    pub(crate) rules: Arc<Rules>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) limits: KeeperLimits,
    /// Ended, and not in files yet.
    pub(crate) ended: Option<Arc<Generation>>,
    /// Directories in which there may be something to merge.
    pub(crate) changed: BTreeSet<Directory>,
    /// Directories in which there may be something to sample.
    pub(crate) old: BTreeSet<Directory>,
    /// Files that are being sampled.
    pub(crate) sampling: Option<Sampling>,
    pub(crate) flushed_at: Duration,
    pub(crate) retained_at: Duration,
}

/// What of the configuration concerns files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeeperLimits {
    pub(crate) generation_max_bytes: usize,
    pub(crate) flush_interval: Duration,
    pub(crate) files_max: usize,
    pub(crate) merge_max_bytes: u64,
}

impl Keeper {
    /// Works until the process stops, and writes what is left then.
    pub(crate) fn run(mut self) {
        stand_back();
        // A panic is a mistake in the program; it must not go unseen.
        if catch_unwind(AssertUnwindSafe(|| self.work_until_stopped())).is_err() {
            self.shared.fail(WRITING, "the thread panicked; restart the server");
        }
        for asked in std::mem::take(&mut *self.shared.erasures.lock()) {
            // Who asked may have left.
            let _ = asked.answer.send(Err(Error::Stopped));
        }
    }

    fn work_until_stopped(&mut self) {
        loop {
            // Read before the turn: what was applied before the stop is written by the turn after it.
            let is_last = self.shared.is_stopping();
            match self.turn(is_last) {
                Ok(has_worked) => {
                    self.shared.recover(WRITING);
                    if is_last {
                        return;
                    }
                    if !has_worked {
                        self.shared.keeper_bell.wait(TURN);
                    }
                }
                Err(error) => {
                    self.shared.fail(WRITING, &error.to_string());
                    if is_last {
                        return;
                    }
                    self.shared.keeper_bell.wait(RETRY);
                }
            }
        }
    }

    /// Does what is due, at most one merge or a piece of a sampling. Whether there is more to do.
    fn turn(&mut self, is_last: bool) -> Result<bool, Error> {
        let asked = std::mem::take(&mut *self.shared.erasures.lock());
        if self.is_flush_due(!asked.is_empty() || is_last)
            && let Err(error) = self.flush()
        {
            self.shared.erasures.lock().extend(asked);
            return Err(error);
        }
        asked.into_iter().for_each(|asked| self.erase(asked));
        if is_last {
            return Ok(false);
        }
        let now = self.clock.now();
        if now.saturating_sub(self.retained_at) >= RETENTION_INTERVAL {
            self.retained_at = now;
            self.retain()?;
            self.find_old();
        }
        Ok(self.carry_out_one_erasure()? || self.merge_one()? || self.sample()?)
    }

    fn is_flush_due(&self, is_wanted: bool) -> bool {
        let current = self.shared.current.lock().clone();
        let (bytes, directories, is_empty) =
            current.read(|content| (content.bytes, content.directories, content.positions.is_empty()));
        let is_old = self.clock.now().saturating_sub(self.flushed_at) >= self.limits.flush_interval;
        let is_full = bytes >= self.limits.generation_max_bytes || directories >= DIRECTORIES_MAX;
        self.ended.is_some() || is_full || (!is_empty && (is_wanted || is_old))
    }

    /// Writes the current generation to files.
    fn flush(&mut self) -> Result<(), Error> {
        // What comes from now on is in no file, however long writing takes.
        let begun = self.clock.now();
        let generation = match self.ended.take() {
            Some(generation) => generation,
            None => self.shared.end_generation(),
        };
        self.ended = Some(generation.clone());
        // Whoever waits for room may go on.
        self.shared.follower_bell.ring();
        let now_ms = self.wall.now_ms();
        let flushed = generation.read(|content| flush(&mut self.catalog, content, self.limits.files_max, now_ms))?;
        let positions = generation.read(|content| {
            let record =
                |(source, (name, position)): (&_, &(millstream_types::TopicName, millstream_types::Position))| {
                    let (topic, partition) = *source;
                    let record =
                        PositionRecord { topic: name.to_string(), epoch: position.epoch.0, offset: position.offset.0 };
                    (topic, partition, record)
                };
            content.positions.iter().map(record).collect::<Vec<_>>()
        });
        self.changed.extend(
            flushed
                .files
                .iter()
                .map(|file| -> Directory { (file.tenant.as_str().into(), file.kind.as_str().into(), file.day) }),
        );
        let topics = self.log.topics();
        let is_gone = |source: &&(_, _)| !topics.iter().any(|topic| topic.id == source.0);
        let ended = self.catalog.sources.keys().filter(is_gone).copied().collect();
        let covered: Vec<_> = positions
            .iter()
            .map(|(topic, partition, record)| ((*topic, *partition), millstream_types::Offset(record.offset)))
            .collect();
        self.catalog.commit(Edit { added: flushed.files, positions, ended, ..Edit::default() })?;
        self.shared.show(self.catalog.table.clone(), Some(&generation));
        self.shared.pass_over(flushed.passed_over);
        self.shared.in_files.lock().extend(covered);
        self.ended = None;
        self.flushed_at = begun;
        self.shared.follower_bell.ring();
        Ok(())
    }

    /// Notes a deletion; everything that it concerns is in files.
    fn erase(&mut self, asked: ErasureAsked) {
        let erasure = Erasure { number: self.catalog.number(), ..asked.erasure };
        let noted = self.catalog.commit(Edit { erased: Some(erasure), ..Edit::default() });
        self.shared.show(self.catalog.table.clone(), None);
        // Who asked may have left.
        let _ = asked.answer.send(noted);
    }

    /// Rewrites one file of which something was deleted; once there is none, forgets the deletions.
    fn carry_out_one_erasure(&mut self) -> Result<bool, Error> {
        if self.catalog.table.erasures.is_empty() {
            return Ok(false);
        }
        let table = &self.catalog.table;
        let concerned = table.files().find(|file| table.erasures_of(&file.record).next().is_some()).cloned();
        match concerned {
            Some(file) => self.replace(vec![file])?,
            None => {
                let carried_out = table.erasures.iter().map(|erasure| erasure.number).collect();
                self.catalog.commit(Edit { carried_out, ..Edit::default() })?;
                self.shared.show(self.catalog.table.clone(), None);
            }
        }
        Ok(true)
    }

    fn merge_one(&mut self) -> Result<bool, Error> {
        while let Some(directory) = self.changed.first().cloned() {
            match self.catalog.table.siblings(&directory).and_then(|files| choose(files, self.limits.merge_max_bytes)) {
                Some(files) => return self.replace(files).map(|()| true),
                None => drop(self.changed.remove(&directory)),
            }
        }
        Ok(false)
    }

    fn replace(&mut self, files: Vec<Arc<KeptFile>>) -> Result<(), Error> {
        let added = merge(&mut self.catalog, &files)?.into_iter().collect();
        self.catalog.commit(Edit { added, removed: files, ..Edit::default() })?;
        self.shared.show(self.catalog.table.clone(), None);
        self.shared.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes what is too old, and the oldest days of what is too much.
    fn retain(&mut self) -> Result<(), Error> {
        let now_ms = self.wall.now_ms();
        let mut removed: Vec<Arc<KeptFile>> = Vec::new();
        // By tenant and type, the newest day first.
        let mut directories: Vec<_> = self.catalog.table.directories().collect();
        directories.reverse();
        for of_kind in directories.chunk_by(|(a, _), (b, _)| (&a.0, &a.1) == (&b.0, &b.1)) {
            let Some(((tenant, kind, _), _)) = of_kind.first() else { continue };
            let Ok(tenant) = TenantId::new(tenant) else { continue };
            let age_max_ms = self.rules.retention_ms(&tenant, kind).map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
            let bytes_max = self.rules.retention_bytes(&tenant, kind).unwrap_or(u64::MAX);
            let mut bytes = 0_u64;
            for file in of_kind.iter().flat_map(|(_, siblings)| siblings.iter()) {
                bytes += file.record.bytes;
                let is_old = age_max_ms.is_some_and(|max| now_ms.saturating_sub(file.record.kept_ms) > max);
                if is_old || bytes > bytes_max {
                    removed.push(file.clone());
                }
            }
        }
        if removed.is_empty() {
            return Ok(());
        }
        self.catalog.commit(Edit { removed, ..Edit::default() })?;
        self.shared.show(self.catalog.table.clone(), None);
        Ok(())
    }
}
