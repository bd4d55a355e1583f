//! One process of an installation works at a time; others wait, and take over once it is gone.
//!
//! ```text
//!   the active process ── "beat", again and again ──►┐
//!                                                    ├─ one partition, read by all
//!   a standby that has seen no beat in time          │
//!     writer "active" (fences other claimants) ──────┴─► "active": this process  ─► the former one sees it, and ends
//! ```
//!
//! Claims are commits of one fenced writer, so they have an order, and each is made in knowledge of the one before. Silence is only
//! counted while the brokers answer. What a former process still writes is refused where it matters: each of its writers is
//! fenced by the next one of its name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_log::{
    AckLevel, Appended, AtomicAppend, Cleanup, Done, Error, TopicConfig, Writer as _, Writers as WritersOf, reply,
};
use millstream_types::{ACTIVE, Offset, Record, TopicName, TopicPartition};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::activity::ActiveProcess;
use crate::core::Core;
use crate::fetching;
use crate::partition_state::PartitionState;
use crate::topic_admin;
use crate::writer::{self, KafkaWriter, Writers};

/// The name of the writer that claims.
const WRITER: &str = "active";
const ACTIVE_KEY: &[u8] = b"active";
const BEAT_KEY: &[u8] = b"beat";
/// Beats in the time after whose silence a process counts as gone.
const BEATS: u32 = 4;

/// The claims and beats that were read.
#[derive(Debug, Default)]
struct Seen {
    next: Offset,
    active: Option<ActiveProcess>,
    /// Beats of the active process.
    beats: u64,
}

impl Seen {
    async fn catch_up(&mut self, core: &Core, partition: &Arc<PartitionState>) -> Result<(), Error> {
        let Self { next, active, beats } = self;
        fetching::new_records(core, partition, next, |key, value| match (key, value) {
            (ACTIVE_KEY, value) => {
                *active = value.and_then(|value| serde_json::from_slice(value).ok());
                *beats = 0;
            }
            (BEAT_KEY, Some(run)) => {
                let is_its = active.as_ref().is_some_and(|active| active.run.as_bytes() == run);
                *beats += u64::from(is_its);
            }
            _ => {}
        })
        .await
    }
}

/// The writer by which a process has claimed that it works.
pub(crate) type Claim = Arc<Mutex<Option<KafkaWriter>>>;

/// Waits until no other process works, and works from now on, by `claim`.
///
/// # Errors
/// Those of a creation, a read and a commit; [`Error::Stopped`] once the log is closed.
pub(crate) async fn take_over(
    core: Arc<Core>,
    writers: Arc<Writers>,
    me: ActiveProcess,
    claim: Claim,
) -> Result<(), Error> {
    let partition = partition(&core).await?;
    let mut seen = Seen::default();
    seen.catch_up(&core, &partition).await?;
    loop {
        until_gone(&core, &partition, &mut seen, &me).await?;
        let mut claim = claim.lock().await;
        // A close has begun before this, or waits for the claim and gives it up.
        core.activity.check()?;
        let claimed_at = Instant::now();
        *claim = try_claim(&core, &writers, &partition, &mut seen, &me).await?;
        if claim.is_some() {
            core.cluster.contact.pauses.begin(claimed_at);
            core.activity.begin();
            break;
        }
    }
    core.waits.send_replace(None);
    let beating = Arc::clone(&core);
    core.spawn(async move { beat(beating, partition, seen, me).await });
    Ok(())
}

/// Lets another process take over at once, if this one works or is about to.
pub(crate) async fn leave(core: &Core, claim: Claim) {
    let Some(claim) = claim.lock().await.take() else { return };
    core.activity.end(None);
    if let Err(error) = commit(&claim, None).await {
        warn!(%error, "the next process waits until this one counts as gone");
    }
}

/// The partition of claims and beats.
async fn partition(core: &Arc<Core>) -> Result<Arc<PartitionState>, Error> {
    let config = TopicConfig {
        partitions: 1,
        cleanup: Cleanup::Compact,
        writers: WritersOf::OwnersOnly,
        // Each beat shows the clock of its broker.
        append_time: true,
        ..TopicConfig::default()
    };
    let name = TopicName::internal(ACTIVE.name);
    topic_admin::create_topic(Arc::clone(core), name.clone(), config).await?;
    core.topics.get(&name)?.partition(&TopicPartition::new(name, 0))
}

/// Waits until no other process works.
async fn until_gone(
    core: &Core,
    partition: &Arc<PartitionState>,
    seen: &mut Seen,
    me: &ActiveProcess,
) -> Result<(), Error> {
    let (limit, pause) = (core.config.session_timeout, core.config.session_timeout / BEATS / 2);
    let mut silent = Duration::ZERO;
    let mut told = None;
    loop {
        core.activity.check()?;
        let Some(active) = seen.active.clone() else { return Ok(()) };
        // Its data directory is this process's own, so it has ended; on another machine that may be a copy.
        let was_here = active.node == me.node && active.host == me.host;
        if was_here || silent >= limit {
            return Ok(());
        }
        if told.as_ref() != Some(&active) {
            info!(active = %active, "another process works with this log; this one waits, and takes over once that is gone");
            let why = format!("stands by: {active} works with this log; this process takes over once that is gone");
            core.waits.send_replace(Some(why));
            told = Some(active.clone());
        }
        let beats = seen.beats;
        sleep(pause).await;
        let asked_at = Instant::now();
        let looked = seen.catch_up(core, partition).await;
        let has_beaten = seen.beats != beats || seen.active.as_ref() != Some(&active);
        silent = match looked {
            Ok(()) if has_beaten => Duration::ZERO,
            Ok(()) if asked_at.elapsed() <= pause => silent + pause,
            Ok(()) => silent,
            Err(error) => {
                warn!(%error, "whether another process works is not known");
                silent
            }
        };
    }
}

/// Claims that this process works. `None` if another one was faster.
async fn try_claim(
    core: &Arc<Core>,
    writers: &Arc<Writers>,
    partition: &Arc<PartitionState>,
    seen: &mut Seen,
    me: &ActiveProcess,
) -> Result<Option<KafkaWriter>, Error> {
    let (before, beats) = (seen.active.clone(), seen.beats);
    let writer = writer::begin(Arc::clone(core), Arc::clone(writers), WRITER.to_owned()).await?;
    seen.catch_up(core, partition).await?;
    if seen.active != before || seen.beats != beats {
        return Ok(None);
    }
    let by = ActiveProcess { since_ms: core.now_ms(), ..me.clone() };
    match commit(&writer, Some(&by)).await {
        Ok(()) => {}
        Err(Error::Fenced { .. }) => return Ok(None),
        Err(error) => return Err(error),
    }
    match before.filter(|before| before.node != me.node) {
        Some(before) => warn!(former = %before, "this process has taken over from one that was silent"),
        None => info!("this process works with the log from now on"),
    }
    Ok(Some(writer))
}

/// Commits that a process works, or that none does.
async fn commit(writer: &KafkaWriter, active: Option<&ActiveProcess>) -> Result<(), Error> {
    let value = active.map(|active| serde_json::to_vec(active).unwrap_or_default());
    let record = Record { key: Some(ACTIVE_KEY), value: value.as_deref(), ..Record::default() };
    let target = TopicPartition::new(TopicName::internal(ACTIVE.name), 0);
    let append = AtomicAppend { records: vec![(target, vec![record])], positions: Vec::new() };
    let (done, answer) = reply();
    writer.commit(&append, AckLevel::Synced, done)?;
    answer.await.map(drop)
}

/// Tells again and again that this process works, until another one does.
async fn beat(core: Arc<Core>, partition: Arc<PartitionState>, mut seen: Seen, me: ActiveProcess) {
    let (activity, pauses) = (&core.activity, &core.cluster.contact.pauses);
    let interval = core.config.session_timeout / BEATS;
    let mut next_beat = Instant::now();
    while activity.works() {
        let (unsettled, look) = (pauses.open(), activity.begin_look());
        match seen.catch_up(&core, &partition).await {
            Ok(()) => {
                if let Some(other) = seen.active.take_if(|active| active.run != me.run) {
                    activity.end(Some(other));
                    return;
                }
                pauses.settle(unsettled);
                activity.end_look(look);
            }
            Err(error) => warn!(%error, "other processes may take this one for gone"),
        }
        if Instant::now() >= next_beat {
            next_beat = Instant::now() + interval;
            let record = Record { key: Some(BEAT_KEY), value: Some(me.run.as_bytes()), ..Record::default() };
            let (of_beat, sent_at) = (Arc::downgrade(&core), Instant::now());
            let done = Done::call(move |stored: Result<Appended, Error>| {
                if let (Ok(_), Some(core)) = (stored, of_beat.upgrade()) {
                    core.cluster.contact.pauses.beat(sent_at);
                }
            });
            // The next one does not wait for brokers that are gone.
            partition.queue.lock().push(&[record], core.config.batch_max_bytes, 0, done);
            core.outbox.ready(Arc::clone(&partition));
        }
        tokio::select! {
            () = sleep(next_beat.saturating_duration_since(Instant::now())) => {}
            () = pauses.doubted.notified() => {}
            () = activity.look_asked() => {}
        }
    }
}
