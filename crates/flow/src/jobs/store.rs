//! The view `_jobs`: all jobs, and the decisions on submissions and ends. Each change is told in `_job_events`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use millstream_types::{PartitionId, TenantId};
use millstream_view::{DecodeError, Draft, Encoded, InState, View, Views};

use super::events;
use super::record::{AllRecords, JobKey, JobRecord, JobState, NodeParallelism, SourceGroup, is_waiting};
use crate::Error;
use crate::runtime::RunFailure;

/// The only partition of the view.
pub(super) const PARTITION: PartitionId = PartitionId(0);

/// The view with the limits that decisions need.
pub(super) struct JobsView {
    pub(super) jobs_max: usize,
    pub(super) per_tenant_max: usize,
    pub(super) ended_max: usize,
}

/// A new value of a job; `None` forgets it.
pub(super) struct JobChange {
    key: JobKey,
    record: Option<Arc<JobRecord>>,
}

pub(super) enum JobCommand {
    /// Stores a new job as running.
    Submit(Box<JobRecord>),
    /// A running job is not started, for this reason, until it is resumed.
    Pause(JobKey, String),
    /// A paused job may run again.
    Resume(JobKey),
    /// A run of a running job has begun, which is only told.
    Started(JobKey),
    /// A running job is to end in this state. A kill is stronger than a stop.
    Ending(JobKey, JobState),
    /// A running job has ended.
    End(JobKey, JobState, Option<RunFailure>),
    /// A running job is started again after an error.
    Restart(JobKey, RunFailure),
    /// Forgets a job that waits to take the place of one that goes on running.
    Withdraw(JobKey),
    /// A job has taken over the state of an earlier one, with these places of its nodes.
    TakenOver(JobKey, BTreeMap<String, u64>),
    /// A running job has this parallelism of nodes, in place of that of its document.
    Parallelism(JobKey, NodeParallelism),
    /// The source of this name has finished this number of records.
    Place(JobKey, String, u64),
}

#[derive(Debug)]
pub(super) enum JobAnswer {
    Stored,
    /// The new job is stored, and these ended ones are forgotten for it.
    Submitted(Vec<JobKey>),
    /// The id and the document are known; the job has this state.
    Same(JobState),
    /// The id is known with this other hash.
    HashDiffers(String),
    /// This job of that name runs.
    NameTaken(String),
    /// A source of the new job would read under the group of a running one's.
    GroupTaken(TakenGroup),
    /// The job of this id, which the new one is to go on from, is forgotten, or has completed.
    EarlierForgotten(String),
    /// As many jobs run as are allowed.
    Full(usize),
    /// As many jobs of the tenant run as are allowed.
    TenantFull(usize),
    /// No running job has that key.
    Unknown,
}

/// The job of this id.
///
/// # Errors
/// [`Error::UnknownJob`] if the tenant has none.
pub(super) fn find(views: &Views<JobsView>, tenant: &TenantId, id: &str) -> Result<Arc<JobRecord>, Error> {
    let key = JobKey::new(tenant, id);
    let found = views.snapshot(PARTITION).state.get(&key).cloned();
    found.ok_or_else(|| Error::UnknownJob { id: id.to_owned() })
}

/// A source whose positions a running job keeps for one of its own.
#[derive(Debug)]
pub(super) struct TakenGroup {
    pub(super) node: String,
    pub(super) place: SourceGroup,
    /// The id of the running job.
    pub(super) job: String,
}

impl View for JobsView {
    type State = AllRecords;
    type Storage = InState;
    type Change = JobChange;
    type Command = JobCommand;
    type Answer = JobAnswer;

    const NAME: &'static str = "jobs";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: JobCommand) -> JobAnswer {
        match command {
            JobCommand::Submit(record) => self.submit(draft, *record),
            JobCommand::Pause(key, reason) => change_running(draft, key, |record| record.paused = Some(reason)),
            JobCommand::Resume(key) => self.resume(draft, key),
            JobCommand::Started(key) => {
                let started = draft.state().get(&key).map(|record| events::started(record, draft.now_ms()));
                let is_known = started.is_some();
                started.into_iter().for_each(|event| draft.publish(events::partition(), event));
                if is_known { JobAnswer::Stored } else { JobAnswer::Unknown }
            }
            JobCommand::Ending(key, state) => change_running(draft, key, |record| {
                if record.ending != Some(JobState::Killed) {
                    record.ending = Some(state);
                }
            }),
            JobCommand::End(key, state, error) => {
                let ended_ms = Some(draft.now_ms());
                change_running(draft, key, |record| {
                    (record.state, record.ended_ms, record.error, record.ending) = (state, ended_ms, error, None);
                    record.paused = None;
                    if state == JobState::Completed {
                        record.places.clear();
                    }
                })
            }
            JobCommand::Restart(key, error) => change_running(draft, key, |record| {
                record.restarts += 1;
                record.error = Some(error);
            }),
            JobCommand::Withdraw(key) => {
                if !draft.state().get(&key).is_some_and(|record| is_waiting(draft.state(), record)) {
                    return JobAnswer::Unknown;
                }
                change(draft, JobChange { key, record: None });
                JobAnswer::Stored
            }
            JobCommand::TakenOver(key, places) => change_running(draft, key, |record| {
                record.resumes.iter_mut().for_each(|resumes| resumes.is_done = true);
                record.places = places;
            }),
            JobCommand::Parallelism(key, parallelism) => {
                change_running(draft, key, |record| record.parallelism = parallelism)
            }
            JobCommand::Place(key, node, records) => change_running(draft, key, |record| {
                record.places.insert(node, records);
            }),
        }
    }

    fn apply(state: &mut Self::State, change: &JobChange) {
        match &change.record {
            Some(record) => drop(state.insert(change.key.clone(), Arc::clone(record))),
            None => drop(state.remove(&change.key)),
        }
    }

    fn encode(change: &JobChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        change.key.encode(key);
        let Some(record) = &change.record else { return Encoded::Tombstone };
        record.encode(value);
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<JobChange, DecodeError> {
        let record = value.map(JobRecord::decode).transpose()?.map(Arc::new);
        Ok(JobChange { key: JobKey::decode(key)?, record })
    }
}

impl JobsView {
    fn submit(&self, draft: &mut Draft<'_, Self>, record: JobRecord) -> JobAnswer {
        let key = record.key();
        if let Some(known) = draft.state().get(&key) {
            let is_same = known.hash == record.hash;
            return if is_same { JobAnswer::Same(known.state) } else { JobAnswer::HashDiffers(known.hash.clone()) };
        }
        let earlier = record.earlier();
        let running = || draft.state().values().filter(|known| known.state == JobState::Running);
        // A job that takes the place of another waits until that has ended.
        let replaced = running().map(|known| known.key()).find(|known| Some(known) == earlier.as_ref());
        let of_name = |known: &&Arc<JobRecord>| {
            known.tenant == record.tenant && known.name == record.name && Some(known.key()) != replaced
        };
        if let Some(other) = running().find(of_name) {
            return JobAnswer::NameTaken(other.id.clone());
        }
        let sources = record.source_groups();
        for other in running().filter(|known| known.tenant == record.tenant && Some(known.key()) != replaced) {
            let taken = other.source_groups();
            let shared = sources.iter().find(|(_, place)| taken.values().any(|taken| taken == *place));
            if let Some((node, place)) = shared {
                let (node, place, job) = ((*node).to_owned(), place.clone(), other.id.clone());
                return JobAnswer::GroupTaken(TakenGroup { node, place, job });
            }
        }
        let has_state = |job: &JobKey| draft.state().get(job).is_some_and(|known| known.state != JobState::Completed);
        if let Some(forgotten) = earlier.filter(|earlier| !has_state(earlier)) {
            return JobAnswer::EarlierForgotten(forgotten.id);
        }
        let of_tenant = running().filter(|known| known.tenant == record.tenant).count();
        if replaced.is_none() && of_tenant >= self.per_tenant_max {
            return JobAnswer::TenantFull(of_tenant);
        }
        let count = running().count();
        if replaced.is_none() && count >= self.jobs_max {
            return JobAnswer::Full(count);
        }
        let forgotten = self.beyond_limit(draft, &record);
        for key in forgotten.iter().cloned() {
            change(draft, JobChange { key, record: None });
        }
        change(draft, JobChange { key, record: Some(Arc::new(record)) });
        JobAnswer::Submitted(forgotten)
    }

    fn resume(&self, draft: &mut Draft<'_, Self>, key: JobKey) -> JobAnswer {
        match draft.state().get(&key) {
            Some(known) if known.paused.is_some() => {
                let resumed_ms = Some(draft.now_ms());
                change_running(draft, key, |record| (record.paused, record.resumed_ms) = (None, resumed_ms))
            }
            Some(known) => JobAnswer::Same(known.state),
            None => JobAnswer::Unknown,
        }
    }

    /// The oldest ended jobs of a tenant that has too many, when `new` is submitted; not those that a job is about to go on from.
    fn beyond_limit(&self, draft: &Draft<'_, Self>, new: &JobRecord) -> Vec<JobKey> {
        let needed: HashSet<JobKey> =
            draft.state().values().filter_map(|known| known.earlier()).chain(new.earlier()).collect();
        let is_ended = |known: &&Arc<JobRecord>| {
            known.tenant == new.tenant && known.state != JobState::Running && !needed.contains(&known.key())
        };
        let mut ended: Vec<_> =
            draft.state().values().filter(is_ended).map(|known| (known.ended_ms, known.key())).collect();
        let count = ended.len().saturating_sub(self.ended_max);
        ended.sort();
        ended.into_iter().take(count).map(|(_, key)| key).collect()
    }
}

/// Makes a change, and tells it.
fn change(draft: &mut Draft<'_, JobsView>, change: JobChange) {
    let before = draft.state().get(&change.key);
    let has_ended = |record: &Arc<JobRecord>| record.state != JobState::Running;
    let next = || draft.state().values().find(|record| record.earlier().as_ref() == Some(&change.key));
    let next = change.record.as_ref().filter(|record| has_ended(record)).and_then(|_| next());
    let next = next.map(|record| record.id.as_str());
    let event = events::of_change(before.map(|record| &**record), change.record.as_deref(), next, draft.now_ms());
    event.into_iter().for_each(|event| draft.publish(events::partition(), event));
    draft.change(change);
}

fn change_running(draft: &mut Draft<'_, JobsView>, key: JobKey, edit: impl FnOnce(&mut JobRecord)) -> JobAnswer {
    match draft.state().get(&key).filter(|known| known.state == JobState::Running) {
        None => JobAnswer::Unknown,
        Some(known) => {
            let mut record = JobRecord::clone(known);
            edit(&mut record);
            change(draft, JobChange { key, record: Some(Arc::new(record)) });
            JobAnswer::Stored
        }
    }
}
