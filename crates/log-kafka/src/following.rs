//! Follows the tails of partitions: a task for each leader waits for the next records of all that it leads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_response::PartitionData;
use millstream_kafka_wire::CallError;
use millstream_log::Error;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::cluster::Purpose;
use crate::core::{Core, said};
use crate::fetching::{self, FETCH_VERSION, Fetched};
use crate::partition_state::{Ends, PartitionState};

/// Time that a leader waits for records. A partition that is new to the task is asked for after it at the latest.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// Bytes of one answer, and of one partition in it; a single batch may be larger.
const ANSWER_MAX_BYTES: i32 = 16 << 20;
const PARTITION_MAX_BYTES: i32 = 1 << 20;

/// Learns the ends of a partition and follows it from now on.
///
/// # Errors
/// Those of a look-up at its leader.
pub(crate) async fn begin(core: &Arc<Core>, partition: &Arc<PartitionState>) -> Result<(), Error> {
    if partition.is_known() {
        return Ok(());
    }
    let ends = fetching::ends(core, partition).await?;
    partition.begin(ends);
    core.answer_seen(partition);
    if partition.follow() {
        core.followed.add(Arc::clone(partition));
        run_tasks(core);
    }
    Ok(())
}

/// Asks the leader of a partition for its ends, and follows it from now on.
///
/// # Errors
/// Those of a look-up at its leader.
pub(crate) async fn look(core: &Arc<Core>, partition: &Arc<PartitionState>) -> Result<Ends, Error> {
    begin(core, partition).await?;
    let ends = fetching::ends(core, partition).await?;
    partition.learn(ends);
    core.answer_seen(partition);
    Ok(ends)
}

/// Starts a task for each leader that has none.
fn run_tasks(core: &Arc<Core>) {
    for broker in core.followed.new_leaders() {
        let core_of_task = Arc::clone(core);
        core.spawn(async move { follow(core_of_task, broker).await });
    }
}

/// Asks all leaders for the ends of the partitions that are followed.
///
/// # Errors
/// [`Error::Unreachable`] if one does not answer, or a partition has no leader any more.
pub(crate) async fn refresh(core: &Arc<Core>) -> Result<(), Error> {
    for broker in core.followed.leaders() {
        let deadline = tokio::time::Instant::now() + core.config.delivery_timeout;
        loop {
            let partitions = core.followed.led_by(broker);
            let (lost, why) = match ends(core, broker, &partitions).await {
                Ok(moved) if moved.is_empty() => break,
                Ok(moved) => {
                    let why = format!("broker {broker} does not lead {}", moved[0].id);
                    (moved, CallError::Unsent(why))
                }
                Err(why) => (partitions, why),
            };
            if tokio::time::Instant::now() > deadline {
                return Err(core.unreachable(&why));
            }
            search(core, &lost).await;
        }
    }
    Ok(())
}

/// Asks a leader for the ends of its partitions. Returns those that it does not lead.
async fn ends(
    core: &Arc<Core>,
    broker: i32,
    partitions: &[Arc<PartitionState>],
) -> Result<Vec<Arc<PartitionState>>, CallError> {
    let mut moved = Vec::new();
    for (partition, data) in ask(core, broker, Purpose::Read, partitions, Duration::ZERO, 1).await? {
        match data.error_code {
            0 => {
                partition.learn(fetching::ends_of(&partition, &data));
                core.answer_seen(&partition);
            }
            code if code == ResponseError::OffsetOutOfRange.code() => {}
            _ => moved.push(partition),
        }
    }
    Ok(moved)
}

async fn follow(core: Arc<Core>, broker: i32) {
    loop {
        let partitions = core.followed.led_by(broker);
        if partitions.is_empty() {
            core.followed.ended(broker);
            return;
        }
        // The others have come since, so each may keep less.
        let share = core.tail_share();
        partitions.iter().for_each(|partition| partition.shrink_tail(share));
        match round(&core, broker, &partitions).await {
            Ok(moved) if moved.is_empty() => {}
            Ok(moved) => search(&core, &moved).await,
            Err(why) => {
                debug!(broker, %why, "a leader does not answer");
                search(&core, &partitions).await;
            }
        }
    }
}

/// Looks for the leaders of these partitions.
async fn search(core: &Arc<Core>, partitions: &[Arc<PartitionState>]) {
    tokio::time::sleep(core.config.retry_backoff).await;
    if let Err(error) = core.find_leaders(partitions).await {
        warn!(%error, "the leaders of {} partitions are not known", partitions.len());
    }
    run_tasks(core);
}

/// Asks a leader once. Returns the partitions that it does not lead.
async fn round(
    core: &Arc<Core>,
    broker: i32,
    partitions: &[Arc<PartitionState>],
) -> Result<Vec<Arc<PartitionState>>, CallError> {
    let mut moved = Vec::new();
    for (partition, data) in ask(core, broker, Purpose::Tail, partitions, MAX_WAIT, ANSWER_MAX_BYTES).await? {
        if !take(core, &partition, data).await {
            moved.push(partition);
        }
    }
    Ok(moved)
}

/// Fetches what follows in each of the partitions.
async fn ask(
    core: &Arc<Core>,
    broker: i32,
    purpose: Purpose,
    partitions: &[Arc<PartitionState>],
    max_wait: Duration,
    max_bytes: i32,
) -> Result<Vec<(Arc<PartitionState>, PartitionData)>, CallError> {
    let connection = core.cluster.broker(broker, purpose).await?;
    let mut topics: HashMap<Uuid, Vec<_>> = HashMap::new();
    let mut asked: HashMap<(Uuid, i32), &Arc<PartitionState>> = HashMap::new();
    for partition in partitions {
        let Some(from) = partition.next_fetch() else { continue };
        let id = partition.topic.id;
        topics.entry(id).or_default().push(fetching::place(partition, from, max_bytes.min(PARTITION_MAX_BYTES)));
        asked.insert((id, partition.index()), partition);
    }
    let topics = topics.into_iter().map(|(id, partitions)| fetching::topic(id, partitions)).collect();
    let request = fetching::request(topics, max_wait, max_bytes);
    let patience = max_wait + core.config.request_timeout;
    let response = connection.call_within(&request, FETCH_VERSION, patience).await?;
    if response.error_code != 0 {
        return Err(CallError::Unsent(said(response.error_code, None)));
    }
    let mut answers = Vec::new();
    for topic in response.responses {
        for data in topic.partitions {
            let partition = asked.get(&(topic.topic_id, data.partition_index));
            answers.extend(partition.map(|partition| (Arc::clone(partition), data)));
        }
    }
    Ok(answers)
}

/// Takes the answer for a partition; `false` if the broker does not lead it.
async fn take(core: &Arc<Core>, partition: &Arc<PartitionState>, data: PartitionData) -> bool {
    let is_led = match ResponseError::try_from_code(data.error_code) {
        None => match fetching::fetched(partition, data) {
            Ok(Fetched { ends, visible }) => {
                if let (Some(place), Some(from), Some(to)) = (partition.copies(), partition.next_fetch(), visible.next)
                {
                    core.copies.keep(place, from, to, &visible.batches);
                }
                partition.fetched(ends, visible.batches, visible.next, core.tail_share());
                true
            }
            Err(error) => {
                // Readers that come to the batch get the error, too; the tail goes on once it is trimmed.
                warn!(%error, "a batch is damaged");
                tokio::time::sleep(MAX_WAIT).await;
                true
            }
        },
        Some(ResponseError::OffsetOutOfRange) => {
            match fetching::ends(core, partition).await {
                Ok(ends) => partition.skip_to(ends),
                Err(error) => debug!(%error, partition = %partition.id, "the ends are not known"),
            }
            true
        }
        Some(_) => false,
    };
    core.answer_seen(partition);
    is_led
}
