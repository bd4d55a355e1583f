//! A fenced writer: a transactional producer of Kafka, its name the transactional id.
//!
//! ```text
//!   append ─► the open transaction ──commit──► closed ─┐   commits that wait share a transaction
//!                                                      ▼
//!                a task for each writer: sends the batches of the first transaction, waits for them, ends it, answers
//! ```
//!
//! Always true
//! - Transactions end in their order, one at a time.
//! - A commit that was refused by a coordinator that knows a later producer has no effect. One whose end was not answered is
//!   unknown.
//! - After a commit that failed, the writer does nothing more: what comes later was decided on it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use millstream_log::{AckLevel, Appended, AtomicAppend, Done, Error, Writer};
use millstream_types::{Record, RecordBatch, TopicPartition};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::{debug, warn};
use uuid::Uuid;

use crate::cluster::Purpose;
use crate::coordinator::{Answer, Coordinator, is_fenced};
use crate::core::Core;
use crate::following;
use crate::partition_state::PartitionState;
use crate::positions::{self, PositionRecord};
use crate::producing::PRODUCE_VERSION;
use crate::queue::ProducerId;
use crate::transaction::{AppendSize, End, Stored, Transaction};

/// Time after which it is asked whether readers see what was committed.
const SEEN_POLL: Duration = Duration::from_millis(10);

/// The writers of this process.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    by_name: Mutex<HashMap<String, Arc<WriterState>>>,
}

impl Writers {
    /// Notes that the task of a writer has ended.
    fn ended(&self, writer: &Arc<WriterState>) {
        let mut by_name = self.by_name.lock();
        if by_name.get(&writer.name).is_some_and(|known| Arc::ptr_eq(known, writer)) {
            by_name.remove(&writer.name);
        }
        drop(by_name);
        writer.has_ended.send_replace(true);
    }
}

/// A writer, shared by its handle and its task.
#[derive(Debug)]
pub(crate) struct WriterState {
    name: String,
    coordinator: Coordinator,
    work: Mutex<Work>,
    wake: Notify,
    has_ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct Work {
    /// The first one is at work.
    transactions: VecDeque<Transaction>,
    /// The task has begun to end the first one.
    is_ending: bool,
    producer: ProducerId,
    /// The error of every further call.
    over: Option<Error>,
    /// No call will come.
    is_left: bool,
}

/// The handle on a writer.
#[derive(Debug)]
pub(crate) struct KafkaWriter {
    core: Arc<Core>,
    state: Arc<WriterState>,
}

/// Begins the next writer of a name.
///
/// # Errors
/// [`Error::Unreachable`], [`Error::Refused`].
pub(crate) async fn begin(core: Arc<Core>, writers: Arc<Writers>, name: String) -> Result<KafkaWriter, Error> {
    let former = writers.by_name.lock().remove(&name);
    if let Some(former) = former {
        former.fence().await;
    }
    let coordinator = Coordinator::of(core.names.transactional_id(&name));
    let producer = coordinator.begin(&core).await?;
    if core.activity.works() {
        // A process that takes over claims that first, and fences this writer after a look that has found nobody.
        core.activity.confirm(&core.config).await?;
    }
    // The transaction of the writer before has ended: readers see it now.
    following::refresh(&core).await?;
    let work = Work { transactions: VecDeque::new(), is_ending: false, producer, over: None, is_left: false };
    let state = Arc::new(WriterState {
        name: name.clone(),
        coordinator,
        work: Mutex::new(work),
        wake: Notify::new(),
        has_ended: watch::Sender::new(false),
    });
    writers.by_name.lock().insert(name, Arc::clone(&state));
    let (core_of_task, state_of_task) = (Arc::clone(&core), Arc::clone(&state));
    core.spawn(async move {
        run(&core_of_task, &state_of_task).await;
        writers.ended(&state_of_task);
    });
    Ok(KafkaWriter { core, state })
}

/// Ends the writers of this process: what they have accepted is committed, what they left open is aborted.
pub(crate) async fn end_all(writers: Arc<Writers>) {
    let all: Vec<_> = writers.by_name.lock().drain().map(|(_, writer)| writer).collect();
    for writer in all {
        writer.fence().await;
    }
}

impl WriterState {
    /// Refuses further calls, and waits until those that were accepted have ended.
    async fn fence(&self) {
        {
            let mut work = self.work.lock();
            work.over.get_or_insert_with(|| Error::Fenced { writer: self.name.clone() });
            work.leave();
        }
        self.wake.notify_one();
        // The task outlives this only if the runtime ends.
        let _ = self.has_ended.subscribe().wait_for(|has_ended| *has_ended).await;
    }
}

impl Work {
    /// Notes that no call will come: the open transaction is void.
    fn leave(&mut self) {
        self.is_left = true;
        if let Some(last) = self.transactions.back_mut().filter(|last| last.end() == End::Open) {
            last.abort();
        }
    }

    /// The transaction that takes further records: the open one, or a new one.
    fn open(&mut self) -> &mut Transaction {
        if self.transactions.back().is_none_or(|last| last.end() != End::Open) {
            self.transactions.push_back(Transaction::default());
        }
        let last = self.transactions.len() - 1;
        &mut self.transactions[last]
    }

    /// The transaction that takes a commit: the open one, one of commits that wait, or a new one.
    fn closable(&mut self) -> &mut Transaction {
        let is_at_work = |index: usize| index == 0 && self.is_ending;
        let shared = self
            .transactions
            .len()
            .checked_sub(1)
            .filter(|last| self.transactions[*last].end() == End::Commit && !is_at_work(*last));
        match shared {
            Some(last) => &mut self.transactions[last],
            None => self.open(),
        }
    }
}

impl KafkaWriter {
    fn work(&self) -> Result<parking_lot::MutexGuard<'_, Work>, Error> {
        let work = self.state.work.lock();
        match &work.over {
            Some(error) => Err(error.clone()),
            None => Ok(work),
        }
    }

    /// The partition of an append that may be taken, and the bytes that it counts for.
    fn checked(
        &self,
        partition: &TopicPartition,
        records: &[Record<'_>],
    ) -> Result<(Arc<PartitionState>, usize), Error> {
        let topic = self.core.topics.get(&partition.topic)?;
        let bytes = topic.topic().config.check_records(partition, records)?;
        Ok((topic.partition(partition)?, bytes))
    }
}

impl Writer for KafkaWriter {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn append(&self, partition: &TopicPartition, records: &[Record<'_>]) -> Result<(), Error> {
        let (target, accepted_bytes) = self.checked(partition, records)?;
        let size = AppendSize { batch_max_bytes: self.core.config.batch_max_bytes, accepted_bytes };
        let mut work = self.work()?;
        self.core.pending.accept(accepted_bytes)?;
        work.open().append(&target, records, size, Done::ignore());
        drop(work);
        self.state.wake.notify_one();
        Ok(())
    }

    fn commit(&self, append: &AtomicAppend<'_>, _level: AckLevel, done: Done<Vec<Appended>>) -> Result<(), Error> {
        let checked = append.records.iter().map(|(partition, records)| self.checked(partition, records));
        let targets = checked.collect::<Result<Vec<_>, _>>()?;
        let kept = positions::records(&self.core, &append.positions)?;
        let batch_max_bytes = self.core.config.batch_max_bytes;
        let mut work = self.work()?;
        let of_positions: usize = kept.iter().map(PositionRecord::size_bytes).sum();
        self.core.pending.accept(targets.iter().map(|(_, bytes)| bytes).sum::<usize>() + of_positions)?;
        let transaction = work.closable();
        for record in &kept {
            let size = AppendSize { batch_max_bytes, accepted_bytes: record.size_bytes() };
            transaction.append(&record.partition, &[record.view()], size, Done::ignore());
        }
        transaction.commit(append, &targets, batch_max_bytes, done);
        drop(work);
        self.state.wake.notify_one();
        Ok(())
    }

    fn abort(&self) -> Result<(), Error> {
        let mut work = self.work()?;
        if let Some(last) = work.transactions.back_mut().filter(|last| last.end() == End::Open) {
            last.abort();
            self.state.wake.notify_one();
        }
        Ok(())
    }
}

impl Drop for KafkaWriter {
    fn drop(&mut self) {
        self.state.work.lock().leave();
        self.state.wake.notify_one();
    }
}

/// The next step of a writer's task.
enum Step {
    Wait,
    /// Send these batches, each to its partition.
    Send(Vec<(Arc<PartitionState>, RecordBatch)>),
    End(End),
    Leave,
}

async fn run(core: &Arc<Core>, writer: &Arc<WriterState>) {
    loop {
        let step = next_step(writer);
        let failed = match step {
            Step::Wait => {
                writer.wake.notified().await;
                None
            }
            Step::Send(batches) => send(core, writer, batches).await.err(),
            Step::End(end) => finish(core, writer, end).await.err(),
            Step::Leave => break,
        };
        if let Some(error) = failed {
            fail(core, writer, error).await;
        }
        core.troubles.end(&writer.coordinator);
    }
}

fn next_step(writer: &WriterState) -> Step {
    let mut work = writer.work.lock();
    let producer = work.producer;
    let is_left = work.is_left;
    let Some(first) = work.transactions.front_mut() else { return if is_left { Step::Leave } else { Step::Wait } };
    if first.end() == End::Abort {
        return Step::End(End::Abort);
    }
    let mut batches = Vec::new();
    for (partition, queue) in first.ready() {
        let compression = partition.topic.topic().config.compression;
        batches.extend(queue.take(producer, compression).map(|batch| (Arc::clone(partition), batch)));
    }
    if !batches.is_empty() {
        first.was_sent = true;
        return Step::Send(batches);
    }
    match first.end() {
        End::Open => Step::Wait,
        end => {
            work.is_ending = true;
            Step::End(end)
        }
    }
}

/// Sends a batch to each of some partitions, again and again until all are stored.
async fn send(
    core: &Arc<Core>,
    writer: &Arc<WriterState>,
    mut batches: Vec<(Arc<PartitionState>, RecordBatch)>,
) -> Result<(), Error> {
    let (begun, patience) = (Instant::now(), core.config.delivery_timeout);
    loop {
        let left = send_once(core, writer, batches).await?;
        let Some(why) = left.why else { return Ok(()) };
        if begun.elapsed() > patience {
            return Err(Error::Unreachable { brokers: core.config.brokers.join(", "), why });
        }
        if begun.elapsed() >= core.config.request_timeout {
            core.troubles.begin(&writer.coordinator, None, &why);
        }
        tokio::time::sleep(core.config.retry_backoff).await;
        let partitions: Vec<_> = left.batches.iter().map(|(partition, _)| Arc::clone(partition)).collect();
        // Without an answer the leaders are those of before.
        let _ = core.find_leaders(&partitions).await;
        batches = left.batches;
    }
}

/// Batches that were not stored, and the reason.
#[derive(Default)]
struct Left {
    batches: Vec<(Arc<PartitionState>, RecordBatch)>,
    why: Option<String>,
}

async fn send_once(
    core: &Arc<Core>,
    writer: &Arc<WriterState>,
    batches: Vec<(Arc<PartitionState>, RecordBatch)>,
) -> Result<Left, Error> {
    let mut by_leader: HashMap<i32, Vec<(Arc<PartitionState>, RecordBatch)>> = HashMap::new();
    let mut left = Left::default();
    for (partition, batch) in batches {
        match partition.leader() {
            Some(leader) => by_leader.entry(leader.broker).or_default().push((partition, batch)),
            None => {
                left.why = Some(format!("{} has no leader", partition.id));
                left.batches.push((partition, batch));
            }
        }
    }
    let mut requests = tokio::task::JoinSet::new();
    for (leader, batches) in by_leader {
        let (core, transactional_id) = (Arc::clone(core), writer.coordinator.transactional_id());
        requests.spawn(async move {
            let mut topics = HashMap::<Uuid, TopicProduceData>::new();
            for (partition, batch) in &batches {
                let data = PartitionProduceData::default()
                    .with_index(partition.index())
                    .with_records(Some(batch.bytes().clone()));
                let id = partition.topic.id;
                let topic = topics.entry(id).or_insert_with(|| TopicProduceData::default().with_topic_id(id));
                topic.partition_data.push(data);
            }
            let timeout_ms = i32::try_from(core.config.request_timeout.as_millis()).unwrap_or(i32::MAX);
            let request = ProduceRequest::default()
                .with_transactional_id(Some(transactional_id))
                .with_acks(-1)
                .with_timeout_ms(timeout_ms)
                .with_topic_data(topics.into_values().collect());
            let answer = match core.cluster.broker(leader, Purpose::Produce).await {
                Ok(broker) => broker.call_within(&request, PRODUCE_VERSION, core.config.request_timeout * 2).await,
                Err(error) => Err(error),
            };
            (batches, answer)
        });
    }
    while let Some(Ok((batches, answer))) = requests.join_next().await {
        let mut answers: HashMap<(Uuid, i32), PartitionProduceResponse> = HashMap::new();
        match answer {
            Err(error) => left.why = Some(error.to_string()),
            Ok(response) => {
                for topic in response.responses {
                    let id = topic.topic_id;
                    answers.extend(topic.partition_responses.into_iter().map(|answer| ((id, answer.index), answer)));
                }
            }
        }
        for (partition, batch) in batches {
            let answer = answers.remove(&(partition.topic.id, partition.index()));
            match take(core, writer, &partition, answer.as_ref())? {
                None => {}
                Some(why) => {
                    left.why = Some(why);
                    left.batches.push((partition, batch));
                }
            }
        }
    }
    Ok(left)
}

/// `true` for refusals of a batch that may be taken later. The coordinator may be busy with the end of the transaction before; and
/// where one partition of a request cannot join the transaction, as its new topic is not known to all brokers, no other is tried.
fn is_passing(error: ResponseError) -> bool {
    error.is_retriable()
        || matches!(error, ResponseError::ConcurrentTransactions | ResponseError::OperationNotAttempted)
}

/// Takes the answer for one batch. Returns the reason if it is to be sent again.
fn take(
    core: &Core,
    writer: &WriterState,
    partition: &Arc<PartitionState>,
    answer: Option<&PartitionProduceResponse>,
) -> Result<Option<String>, Error> {
    let mut work = writer.work.lock();
    let Some(first) = work.transactions.front_mut() else { return Ok(None) };
    if partition.topic.check_exists().is_err() {
        first.leave_out(core, &partition.id);
        return Ok(None);
    }
    let Some(answer) = answer else { return Ok(Some("no answer".to_owned())) };
    let why = core.why_refused(partition, answer.error_code, answer.error_message.as_deref());
    match ResponseError::try_from_code(answer.error_code) {
        None => {
            let base = partition.offset(answer.base_offset);
            let stored = first.queue(&partition.id).and_then(|queue| queue.acknowledged(base, partition.epoch()));
            if let Some((last, ended)) = stored {
                first.stored(&partition.id, base, last);
                core.pending.end(ended);
            }
            Ok(None)
        }
        Some(error) if is_fenced(error) => Err(Error::Fenced { writer: writer.name.clone() }),
        Some(error) if is_passing(error) => Ok(Some(why)),
        Some(_) => Err(Error::Refused { request: "an append", why }),
    }
}

/// Ends the first transaction and answers its commits.
async fn finish(core: &Arc<Core>, writer: &Arc<WriterState>, end: End) -> Result<(), Error> {
    let (producer, was_sent, stored) = {
        let work = writer.work.lock();
        let first = work.transactions.front();
        let stored = first.map(Transaction::stored_in).unwrap_or_default();
        (work.producer, first.is_some_and(|first| first.was_sent), stored)
    };
    if was_sent {
        // Without a record, all of whose topics were deleted, there is nothing to commit.
        let committed = end == End::Commit && !stored.is_empty();
        let deadline = Instant::now() + core.config.delivery_timeout;
        match writer.coordinator.end(core, producer, committed, deadline).await {
            Answer::Done(next) => writer.work.lock().producer = next,
            Answer::Fenced => return Err(Error::Fenced { writer: writer.name.clone() }),
            Answer::Refused(error) => return Err(error),
            Answer::Unknown(error) => {
                warn!(writer = writer.name, %error, "the outcome of a commit is unknown");
                return Err(Error::OutcomeUnknown { writer: writer.name.clone() });
            }
        }
    }
    if end == End::Commit {
        seen(core, &stored).await;
    }
    let ended = {
        let mut work = writer.work.lock();
        work.is_ending = false;
        work.transactions.pop_front()
    };
    if let Some(ended) = ended {
        ended.finish(core, &Ok(()));
    }
    Ok(())
}

/// Waits until readers see what was committed. The coordinator answers before the partitions have their markers.
async fn seen(core: &Arc<Core>, stored: &[Stored]) {
    let deadline = tokio::time::Instant::now() + core.config.delivery_timeout;
    for Stored { partition, first, last } in stored {
        let is_seen = tokio::time::timeout_at(deadline, async {
            let mut pause = SEEN_POLL;
            loop {
                if tokio::time::timeout(pause, partition.until_stable(last.next())).await.is_ok() {
                    return;
                }
                // The one that follows the partition may not have begun. An older transaction in front of this one is none of ours.
                match following::look(core, partition).await {
                    Ok(ends) if ends.stable < *first || ends.stable > *last => return,
                    _ => pause *= 2,
                }
            }
        });
        if is_seen.await.is_err() {
            warn!(partition = %partition.id, "what was committed has no marker yet, and readers do not see it");
        }
    }
}

/// Ends the writer, and everything that waits with `error`, after the first transaction is aborted if that is possible.
async fn fail(core: &Arc<Core>, writer: &Arc<WriterState>, error: Error) {
    let unknown = || Error::OutcomeUnknown { writer: writer.name.clone() };
    let error = match error {
        // The coordinator has ended a transaction that took too long, and another producer has not begun.
        Error::Fenced { .. } if core.activity.works() => unknown(),
        error => error,
    };
    let (is_fenced, is_unknown) =
        (matches!(error, Error::Fenced { .. }), matches!(error, Error::OutcomeUnknown { .. }));
    if !is_fenced && !is_unknown {
        let (producer, deadline) = (writer.work.lock().producer, Instant::now() + core.config.request_timeout);
        // Otherwise the next writer of the name aborts it, or the coordinator after its time-out.
        if let Answer::Refused(why) | Answer::Unknown(why) =
            writer.coordinator.end(core, producer, false, deadline).await
        {
            debug!(writer = writer.name, %why, "a transaction is left open");
        }
    }
    let ended = {
        let mut work = writer.work.lock();
        work.is_ending = false;
        work.over.get_or_insert_with(|| if is_fenced { error.clone() } else { unknown() });
        std::mem::take(&mut work.transactions)
    };
    ended.into_iter().for_each(|transaction| transaction.finish(core, &Err(error.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_sent_again_while_the_transaction_before_ends_or_a_topic_is_new() {
        let passing = [
            ResponseError::ConcurrentTransactions,
            ResponseError::NotLeaderOrFollower,
            ResponseError::OperationNotAttempted,
        ];
        for passing in passing {
            assert!(is_passing(passing), "{passing}");
        }
        assert!(!is_passing(ResponseError::MessageTooLarge));
    }
}
