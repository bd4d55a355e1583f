//! The thread that owns the files: flushes memtables, merges small files, samples old ones, and deletes what
//! requests or retention rules remove.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millstream_log::{Log, run_in_background};
use millstream_types::{MonotonicClock, TenantId, WallClock};

use crate::Error;
use crate::catalog::{CatalogEdit, FileCatalog};
use crate::catalog_record::{Erasure, FileRecord, PositionRecord};
use crate::file_period::{FileDirectory, FilePeriod};
use crate::file_table::DataFile;
use crate::flush::flush;
use crate::memtable::Memtable;
use crate::merge::{FAN_IN, choose, merge};
use crate::roll_up::{self, RollUp, RollUpRules};
use crate::rules::RuleSet;
use crate::sampling_job::SamplingJob;
use crate::state::{ErasureRequest, HistoryState};

/// The wait between two checks for due work.
const TURN: Duration = Duration::from_millis(500);
/// The interval of retention and sampling checks.
const RETENTION_INTERVAL: Duration = Duration::from_secs(10);
/// The wait after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// Limit of directories per memtable, so that the records of their files fit into one append, twice.
const DIRECTORIES_MAX: usize = 2_048;
/// Bytes of files that get their copies in one commit, beside the first of them.
const COPIED_AT_ONCE_BYTES: u64 = 32 << 20;
const WRITING: &str = "writing files";
const FILES: &str = "number of files";

/// Owns the catalog and the files.
pub(crate) struct Compactor {
    pub(crate) state: Arc<HistoryState>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) catalog: FileCatalog,
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) clock: Arc<dyn MonotonicClock>,
    pub(crate) wall: Arc<dyn WallClock>,
    pub(crate) limits: CompactorLimits,
    /// A sealed memtable that is not in files yet.
    pub(crate) ended: Option<Arc<Memtable>>,
    /// Directories to check for merges.
    pub(crate) changed: BTreeSet<FileDirectory>,
    /// Directories to check for sampling.
    pub(crate) old: BTreeSet<FileDirectory>,
    /// The sampling job in progress.
    pub(crate) sampling: Option<SamplingJob>,
    /// `true` if there may be files to move to longer periods.
    pub(crate) may_roll_up: bool,
    /// `true` if there are nearly `files_max` files.
    pub(crate) is_crowded: bool,
    /// `true` if there may be files without checksums.
    pub(crate) may_lack_checksums: bool,
    /// `true` if there may be files without copies in a log on other machines.
    pub(crate) may_lack_copies: bool,
    /// `true` if there may be files to fetch from their copies.
    pub(crate) may_lack_files: bool,
    pub(crate) flushed_at: Duration,
    pub(crate) retained_at: Duration,
}

/// The settings that concern files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompactorLimits {
    pub(crate) memtable_max_bytes: usize,
    pub(crate) flush_interval: Duration,
    pub(crate) files_max: usize,
    pub(crate) merge_max_bytes: u64,
}

impl Compactor {
    /// Works until history stops, and flushes the last points then.
    pub(crate) fn run(mut self) {
        run_in_background();
        // A panic is a mistake in the program; it must not go unseen.
        if catch_unwind(AssertUnwindSafe(|| self.work_until_stopped())).is_err() {
            self.state.fail(WRITING, "the thread panicked; restart the server");
        }
        for request in std::mem::take(&mut *self.state.erasures.lock()) {
            // The caller may be gone.
            let _ = request.answer.send(Err(Error::Stopped));
        }
    }

    fn work_until_stopped(&mut self) {
        self.look_at_room();
        loop {
            // Read before the turn, so that the last turn flushes everything applied before the stop.
            let is_last = self.state.is_stopping();
            match self.turn(is_last) {
                Ok(has_worked) => {
                    self.state.recover(WRITING);
                    if is_last {
                        return;
                    }
                    if !has_worked {
                        self.state.compactor_bell.wait(TURN);
                    }
                }
                Err(error) => {
                    self.state.fail(WRITING, &error.to_string());
                    if is_last {
                        return;
                    }
                    self.rest();
                }
            }
        }
    }

    /// Waits after a failure. Followers that wait for room, and callers that ask for an erasure, ring meanwhile.
    fn rest(&self) {
        let until = Instant::now() + RETRY;
        while !self.state.is_stopping()
            && let Some(left) = until.checked_duration_since(Instant::now())
        {
            self.state.compactor_bell.wait(left);
        }
    }

    /// Does the due work, at most one merge or one piece of a sampling job; returns whether more is due.
    fn turn(&mut self, is_last: bool) -> Result<bool, Error> {
        let requests = std::mem::take(&mut *self.state.erasures.lock());
        if self.is_flush_due(!requests.is_empty() || is_last)
            && let Err(error) = self.flush()
        {
            self.state.erasures.lock().extend(requests);
            return Err(error);
        }
        requests.into_iter().for_each(|request| self.erase(request));
        if is_last {
            return Ok(false);
        }
        let now = self.clock.now();
        if now.saturating_sub(self.retained_at) >= RETENTION_INTERVAL {
            self.retained_at = now;
            self.retain()?;
            self.find_old();
            self.may_lack_files = true;
            self.look_at_room();
        }
        Ok(self.carry_out_one_erasure()?
            || self.merge_one()?
            || self.sample()?
            || self.roll_up_one()?
            || self.add_checksums()?
            || self.add_copies()?
            || self.fetch_one()?)
    }

    fn is_flush_due(&self, is_wanted: bool) -> bool {
        let current = self.state.current.lock().clone();
        let (bytes, directories, is_empty) =
            current.read(|content| (content.bytes, content.directories, content.positions.is_empty()));
        let is_old = self.clock.now().saturating_sub(self.flushed_at) >= self.limits.flush_interval;
        let is_full = bytes >= self.limits.memtable_max_bytes || directories >= DIRECTORIES_MAX;
        self.ended.is_some() || is_full || (!is_empty && (is_wanted || is_old))
    }

    /// Flushes the current memtable to files.
    fn flush(&mut self) -> Result<(), Error> {
        // Points that arrive from now on belong to the next flush.
        let begun = self.clock.now();
        let memtable = match self.ended.take() {
            Some(memtable) => memtable,
            None => self.state.seal_memtable(),
        };
        self.ended = Some(memtable.clone());
        // The follower may wait for room.
        self.state.follower_bell.ring();
        self.check_room(memtable.read(|content| content.bytes) as u64)?;
        let now_ms = self.wall.now_ms();
        let flushed = memtable.read(|content| flush(&mut self.catalog, content, &self.rules, now_ms))?;
        let positions = memtable.read(|content| {
            let record =
                |(source, (name, position)): (&_, &(millstream_types::TopicName, millstream_types::Position))| {
                    let (topic, partition) = *source;
                    let record =
                        PositionRecord { topic: name.to_string(), epoch: position.epoch.0, offset: position.offset.0 };
                    (topic, partition, record)
                };
            content.positions.iter().map(record).collect::<Vec<_>>()
        });
        self.changed.extend(flushed.iter().map(FileRecord::directory));
        self.may_roll_up = true;
        let topics = self.log.topics();
        let is_gone = |source: &&(_, _)| !topics.iter().any(|topic| topic.id == source.0);
        let ended = self.catalog.sources.keys().filter(is_gone).copied().collect();
        let covered: Vec<_> = positions
            .iter()
            .map(|(topic, partition, record)| ((*topic, *partition), millstream_types::Offset(record.offset)))
            .collect();
        self.catalog.commit(CatalogEdit { added: flushed, positions, ended, ..CatalogEdit::default() })?;
        self.state.show(self.catalog.table.clone(), Some(&memtable));
        self.state.in_files.lock().extend(covered);
        self.ended = None;
        self.flushed_at = begun;
        self.state.follower_bell.ring();
        Ok(())
    }

    /// Commits a deletion; the caller has flushed all points that it concerns.
    fn erase(&mut self, request: ErasureRequest) {
        let erasure = Erasure { number: self.catalog.number(), ..request.erasure };
        let noted = self.catalog.commit(CatalogEdit { erased: Some(erasure), ..CatalogEdit::default() });
        self.state.show(self.catalog.table.clone(), None);
        // The caller may be gone.
        let _ = request.answer.send(noted);
    }

    /// Rewrites one file that has erased points; if there is none, drops the erasures from the catalog.
    fn carry_out_one_erasure(&mut self) -> Result<bool, Error> {
        if self.catalog.table.erasures.is_empty() {
            return Ok(false);
        }
        let table = &self.catalog.table;
        let is_concerned = |file: &&Arc<DataFile>| table.erasures_of(&file.record).next().is_some();
        let concerned = table.files().find(|file| !file.is_damaged() && is_concerned(file)).cloned();
        match concerned {
            Some(file) => {
                let period = file.record.period();
                self.replace(vec![file], period)?;
            }
            None => {
                // A damaged file may be restored, with the points that were erased.
                let damaged: Vec<_> = table.files().filter(is_concerned).collect();
                let is_needed = |erasure: &&Erasure| damaged.iter().any(|file| erasure.may_concern(&file.record));
                let carried_out: Vec<u64> =
                    table.erasures.iter().filter(|erasure| !is_needed(erasure)).map(|erasure| erasure.number).collect();
                if carried_out.is_empty() {
                    return Ok(false);
                }
                self.catalog.commit(CatalogEdit { carried_out, ..CatalogEdit::default() })?;
                self.state.show(self.catalog.table.clone(), None);
            }
        }
        Ok(true)
    }

    fn merge_one(&mut self) -> Result<bool, Error> {
        while let Some(directory) = self.changed.first().cloned() {
            let fan_in = if self.is_crowded { 2 } else { FAN_IN };
            let siblings = self.catalog.table.siblings(&directory);
            match siblings.and_then(|files| choose(files, fan_in, self.limits.merge_max_bytes)) {
                Some(files) => return self.replace(files, directory.2).map(|()| true),
                None => drop(self.changed.remove(&directory)),
            }
        }
        Ok(false)
    }

    /// Moves some files to a longer period.
    fn roll_up_one(&mut self) -> Result<bool, Error> {
        if !std::mem::take(&mut self.may_roll_up) {
            return Ok(false);
        }
        let Some(RollUp { files, period }) = self.choose_roll_up() else { return Ok(false) };
        self.may_roll_up = true;
        let moved = files.first().map(|file| (&file.record.tenant, &file.record.kind));
        self.changed.extend(moved.map(|(tenant, kind)| (tenant.as_str().into(), kind.as_str().into(), period)));
        self.replace(files, period).map(|()| true)
    }

    fn choose_roll_up(&self) -> Option<RollUp> {
        let directories: Vec<_> = self.catalog.table.directories().collect();
        directories.chunk_by(|(a, _), (b, _)| (&a.0, &a.1) == (&b.0, &b.1)).find_map(|of_kind| {
            let (tenant, kind, _) = of_kind.first()?.0;
            let tenant = TenantId::new(tenant).ok()?;
            let bytes_max = self.rules.retention_bytes(&tenant, kind).map_or(u64::MAX, |bytes| bytes / 10);
            let rules = RollUpRules {
                now_ms: self.wall.now_ms(),
                coarsest: self.rules.coarsest(&tenant, kind),
                max_bytes: self.limits.merge_max_bytes.min(bytes_max),
                is_crowded: self.is_crowded,
                sampling: self.rules.sampling(&tenant, kind),
            };
            roll_up::choose(of_kind, &rules)
        })
    }

    /// Warns if there are many files; then smaller merges make fewer of them.
    fn look_at_room(&mut self) {
        let (files, max) = (self.catalog.table.files().count(), self.limits.files_max);
        self.is_crowded = files >= max - max / 5;
        self.may_roll_up = true;
        if self.is_crowded {
            self.changed.extend(self.catalog.table.directories().map(|(directory, _)| directory.clone()));
            let reason = format!(
                "{files} files, history.files_max = {max}; all points are kept, but reads and starts become slow: \
                 raise it, or keep fewer types, or for a shorter time, with history.rules"
            );
            self.state.warn(FILES, &reason);
        } else {
            self.state.calm(FILES);
        }
    }

    /// Checks that files may take `bytes` more on the disk.
    fn check_room(&self, bytes: u64) -> Result<(), Error> {
        let full = self.log.check_disk();
        if self.log.spare_bytes() < bytes { Ok(full?) } else { Ok(()) }
    }

    fn replace(&mut self, files: Vec<Arc<DataFile>>, period: FilePeriod) -> Result<(), Error> {
        self.check_room(files.iter().map(|file| file.record.bytes).sum())?;
        let added = match merge(&mut self.catalog, &files, period) {
            Err(error) if self.leaves_alone(&error) => return Ok(()),
            merged => merged?.into_iter().collect(),
        };
        self.catalog.commit(CatalogEdit { added, removed: files, ..CatalogEdit::default() })?;
        self.state.show(self.catalog.table.clone(), None);
        self.state.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Marks the file that an error says to be damaged, so that the work goes on with others; `false` for other errors.
    pub(crate) fn leaves_alone(&self, error: &Error) -> bool {
        let Error::File { path, .. } = error else { return false };
        let Some(file) = self.catalog.table.files().find(|file| file.path == *path) else { return false };
        file.mark_damaged();
        self.state.unreadable(error);
        true
    }

    /// Rewrites a file of an earlier version, which has no checksums.
    fn add_checksums(&mut self) -> Result<bool, Error> {
        if !std::mem::take(&mut self.may_lack_checksums) {
            return Ok(false);
        }
        let lacks = |file: &&Arc<DataFile>| file.record.checksums.is_empty() && !file.is_damaged();
        let Some(file) = self.catalog.table.files().find(lacks).cloned() else { return Ok(false) };
        self.may_lack_checksums = true;
        let period = file.record.period();
        self.replace(vec![file], period).map(|()| true)
    }

    /// Gives copies to some files that have none, as those from before the log was moved to other machines.
    fn add_copies(&mut self) -> Result<bool, Error> {
        if !self.catalog.keeps_copies() || !std::mem::take(&mut self.may_lack_copies) {
            return Ok(false);
        }
        let mut bytes = 0;
        let lacks = |file: &&Arc<DataFile>| file.record.copy.is_none() && !file.is_damaged();
        let fits = |file: &&Arc<DataFile>| {
            bytes += file.record.bytes;
            bytes <= COPIED_AT_ONCE_BYTES || bytes == file.record.bytes
        };
        let chosen = self.catalog.table.files().filter(lacks).take_while(fits).take(DIRECTORIES_MAX);
        let copied: Vec<_> = chosen.map(|file| file.record.clone()).collect();
        if copied.is_empty() {
            return Ok(false);
        }
        self.may_lack_copies = true;
        match self.catalog.commit(CatalogEdit { copied, ..CatalogEdit::default() }) {
            Err(error) if self.leaves_alone(&error) => {}
            done => done?,
        }
        self.state.show(self.catalog.table.clone(), None);
        Ok(true)
    }

    /// Fetches a file that another process has written, or that is damaged here, from its copy.
    fn fetch_one(&mut self) -> Result<bool, Error> {
        if !std::mem::take(&mut self.may_lack_files) {
            return Ok(false);
        }
        let is_wanted = |file: &&Arc<DataFile>| {
            file.is_elsewhere() || (file.can_be_fetched() && self.state.is_known_damaged(&file.path))
        };
        let Some(file) = self.catalog.table.files().find(is_wanted).cloned() else { return Ok(false) };
        self.may_lack_files = true;
        match file.fetch().and_then(|_| file.verify()) {
            Err(error) if self.leaves_alone(&error) => {}
            done => {
                done?;
                self.state.mended(&file.path);
            }
        }
        Ok(true)
    }

    /// Removes files that are older than the retention time, and the oldest days beyond the size limit.
    fn retain(&mut self) -> Result<(), Error> {
        let now_ms = self.wall.now_ms();
        let mut removed: Vec<Arc<DataFile>> = Vec::new();
        // Order: tenant, type, then the newest day first.
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
        self.catalog.commit(CatalogEdit { removed, ..CatalogEdit::default() })?;
        self.state.show(self.catalog.table.clone(), None);
        Ok(())
    }
}
