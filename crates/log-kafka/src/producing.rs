//! Sends the appends of all partitions to their leaders.
//!
//! One task gathers the partitions that have something to send and makes requests, each with a batch of many partitions; a
//! leader has a few requests at a time, a partition one batch. A batch that is refused for a passing reason, or not answered,
//! is sent again under its old sequence number, so that it is stored once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{InitProducerIdRequest, ProduceRequest, ProducerId as WireProducerId};
use millstream_kafka_wire::CallError;
use millstream_log::Error;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::cluster::Purpose;
use crate::coordinator::INIT_PRODUCER_ID_VERSION;
use crate::core::{Core, said};
use crate::partition_state::PartitionState;
use crate::queue::ProducerId;

pub(crate) const PRODUCE_VERSION: i16 = 13;
/// Bytes of batches in one request; a single batch may be larger.
const REQUEST_MAX_BYTES: usize = 8 << 20;

/// Sends what is ready, for ever.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let ready = core.outbox.take().await;
        let producer = producer(&core).await;
        let mut by_leader: HashMap<i32, Vec<Arc<PartitionState>>> = HashMap::new();
        let mut homeless = Vec::new();
        for partition in ready {
            match partition.leader() {
                Some(leader) => by_leader.entry(leader.broker).or_default().push(partition),
                None => homeless.push(partition),
            }
        }
        for (leader, partitions) in by_leader {
            match producer {
                Ok(producer) => send(&core, leader, partitions, producer),
                Err(_) => homeless.extend(partitions),
            }
        }
        let why = producer.err().unwrap_or_else(|| CallError::Unsent("a partition has no leader".to_owned()));
        again(&core, homeless, &why);
    }
}

/// Waits until nothing is to be sent. Appends are refused by then.
pub(crate) async fn until_sent(core: &Core) {
    for topic in core.topics.all() {
        for partition in topic.partitions() {
            while !partition.queue.lock().is_empty() {
                tokio::time::sleep(core.config.retry_backoff).await;
            }
        }
    }
}

/// Makes requests of what these partitions have to send; what the leader cannot take now stays ready.
fn send(core: &Arc<Core>, leader: i32, partitions: Vec<Arc<PartitionState>>, producer: ProducerId) {
    let mut rest = partitions.into_iter();
    while !core.outbox.is_busy(leader) {
        let mut request = HashMap::<Uuid, TopicProduceData>::new();
        let (mut sent, mut bytes) = (Vec::new(), 0);
        for partition in rest.by_ref() {
            let compression = partition.topic.topic().config.compression;
            let Some(batch) = partition.queue.lock().take(producer, compression) else { continue };
            bytes += batch.size_bytes();
            core.counters.sealed(batch.size_bytes());
            let data =
                PartitionProduceData::default().with_index(partition.index()).with_records(Some(batch.bytes().clone()));
            let id = partition.topic.id;
            let topic = request.entry(id).or_insert_with(|| TopicProduceData::default().with_topic_id(id));
            topic.partition_data.push(data);
            sent.push(partition);
            if bytes >= REQUEST_MAX_BYTES {
                break;
            }
        }
        if sent.is_empty() {
            return;
        }
        let timeout_ms = i32::try_from(core.config.request_timeout.as_millis()).unwrap_or(i32::MAX);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(timeout_ms)
            .with_topic_data(request.into_values().collect());
        core.outbox.began(leader);
        core.counters.frame_written();
        let core_of_task = Arc::clone(core);
        core.spawn(async move { deliver(core_of_task, leader, sent, request).await });
    }
    // An answer of the leader wakes the task again.
    core.outbox.keep(rest);
}

async fn deliver(core: Arc<Core>, leader: i32, sent: Vec<Arc<PartitionState>>, request: ProduceRequest) {
    let (patience, sent_at) = (core.config.request_timeout * 2, Instant::now());
    let answer = match core.cluster.broker(leader, Purpose::Produce).await {
        Ok(broker) => broker.call_within(&request, PRODUCE_VERSION, patience).await,
        Err(error) => Err(error),
    };
    core.outbox.ended(leader);
    if answer.is_ok() {
        core.counters.synced(sent_at.elapsed());
    }
    match answer {
        Err(why) => {
            if matches!(why, CallError::Unanswered(_)) {
                sent.iter().for_each(|partition| partition.queue.lock().unanswered());
            }
            again(&core, sent, &why);
        }
        Ok(response) => {
            let mut answers: HashMap<(Uuid, i32), PartitionProduceResponse> = HashMap::new();
            for topic in response.responses {
                let id = topic.topic_id;
                answers.extend(topic.partition_responses.into_iter().map(|answer| ((id, answer.index), answer)));
            }
            let mut refused = Vec::new();
            for partition in sent {
                match answers.remove(&(partition.topic.id, partition.index())) {
                    Some(answer) if answer.error_code == 0 => acknowledge(&core, leader, &partition, &answer),
                    answer => refused.push((partition, answer)),
                }
            }
            refuse(&core, refused);
        }
    }
}

fn acknowledge(core: &Arc<Core>, leader: i32, partition: &Arc<PartitionState>, answer: &PartitionProduceResponse) {
    let base = partition.offset(answer.base_offset);
    let epoch = partition.epoch();
    let (acknowledged, is_ready) = {
        let mut queue = partition.queue.lock();
        if answer.log_append_time_ms >= 0
            && let Some((accepted_at, _)) = queue.oldest()
        {
            core.clocks.stamped(leader, answer.log_append_time_ms, core.now_ms(), accepted_at.elapsed());
        }
        let acknowledged = queue.acknowledged(base, epoch);
        (acknowledged, queue.is_ready())
    };
    if let Some((last, ended)) = acknowledged {
        core.troubles.end(&partition.id);
        partition.acknowledged(last, ended);
        core.answer_seen(partition);
    }
    if is_ready {
        core.outbox.ready(Arc::clone(partition));
    }
}

/// Sends again what was refused for a passing reason, and ends the rest.
fn refuse(core: &Arc<Core>, refused: Vec<(Arc<PartitionState>, Option<PartitionProduceResponse>)>) {
    let mut later = Vec::new();
    let mut why = CallError::Unsent("no answer for a partition".to_owned());
    for (partition, answer) in refused {
        let code = answer.as_ref().map_or(0, |answer| answer.error_code);
        let message = answer.as_ref().and_then(|answer| answer.error_message.as_deref());
        let said = core.why_refused(&partition, code, message);
        let may_be_stored = partition.queue.lock().oldest().is_some_and(|(_, may_be_stored)| may_be_stored);
        match ResponseError::try_from_code(code) {
            Some(ResponseError::OutOfOrderSequenceNumber | ResponseError::UnknownProducerId) if !may_be_stored => {
                // The broker has forgotten the producer, as it does after a day, or with the last record of it.
                debug!(partition = %partition.id, "the producer was forgotten; another one is taken");
                core.outbox.renew_producer();
                {
                    let mut queue = partition.queue.lock();
                    queue.forget_producer();
                    queue.again();
                }
                core.outbox.ready(partition);
            }
            None | Some(ResponseError::NotEnoughReplicasAfterAppend | ResponseError::RequestTimedOut) => {
                partition.queue.lock().unanswered();
                why = CallError::Unanswered(said);
                later.push(partition);
            }
            Some(error) if error.is_retriable() => {
                why = CallError::Unsent(said);
                later.push(partition);
            }
            Some(_) if may_be_stored => {
                fail(core, &partition, &Error::Unanswered { partition: partition.id.clone(), why: said })
            }
            Some(_) => fail(core, &partition, &Error::Refused { request: "an append", why: said }),
        }
    }
    again(core, later, &why);
}

/// Looks for the leaders of these partitions and sends again, as long as there is time for it.
fn again(core: &Arc<Core>, partitions: Vec<Arc<PartitionState>>, why: &CallError) {
    let mut later = Vec::new();
    for partition in partitions {
        let oldest = {
            let mut queue = partition.queue.lock();
            queue.again();
            queue.oldest()
        };
        let Some((since, may_be_stored)) = oldest else { continue };
        if let Err(gone) = partition.topic.check_exists() {
            fail(core, &partition, &gone);
        } else if since.elapsed() < core.config.delivery_timeout {
            if since.elapsed() >= core.config.request_timeout {
                core.troubles.begin(&partition.id, Some(&partition.id), why);
            }
            later.push(partition);
        } else if may_be_stored {
            fail(core, &partition, &Error::Unanswered { partition: partition.id.clone(), why: why.to_string() });
        } else {
            fail(core, &partition, &core.unreachable(why));
        }
    }
    if later.is_empty() {
        return;
    }
    debug!(partitions = later.len(), %why, "appends are sent again");
    let core_of_task = Arc::clone(core);
    core.spawn(async move {
        let core = core_of_task;
        tokio::time::sleep(core.config.retry_backoff).await;
        if let Err(error) = core.find_leaders(&later).await {
            warn!(%error, "the leaders of {} partitions are not known", later.len());
        }
        later.into_iter().for_each(|partition| core.outbox.ready(partition));
    });
}

/// Ends all appends of a partition. The next one begins under another producer: this one's numbers are not known any more.
fn fail(core: &Arc<Core>, partition: &PartitionState, error: &Error) {
    core.outbox.renew_producer();
    core.troubles.end(&partition.id);
    let ended = partition.queue.lock().fail(error);
    core.counters.lost(ended.records_lost);
    core.lost.tell(&partition.id, ended.records_lost, error);
    core.pending.end(ended);
}

/// The producer of this engine; asks for one if there is none.
async fn producer(core: &Core) -> Result<ProducerId, CallError> {
    if let Some(known) = core.outbox.producer() {
        return Ok(known);
    }
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_producer_id(WireProducerId(-1))
        .with_producer_epoch(-1);
    let answer = core.cluster.ask(&request, INIT_PRODUCER_ID_VERSION, core.config.request_timeout).await?;
    if answer.error_code != 0 {
        return Err(CallError::Unsent(said(answer.error_code, None)));
    }
    let producer = ProducerId { id: answer.producer_id.0, epoch: answer.producer_epoch };
    core.outbox.set_producer(producer);
    Ok(producer)
}
