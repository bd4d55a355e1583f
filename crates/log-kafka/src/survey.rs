//! Looks at all partitions from time to time, for the figures: their sizes, and the ends of those that nobody here reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, DescribeLogDirsRequest, ListOffsetsRequest, TopicName as WireName};
use kafka_protocol::protocol::StrBytes;
use tracing::debug;

use crate::cluster::Purpose;
use crate::core::Core;
use crate::fetching::{EARLIEST, Isolation, LATEST, LIST_OFFSETS_VERSION};
use crate::partition_state::{Ends, PartitionState};
use millstream_kafka_wire::CallError;

const DESCRIBE_LOG_DIRS_VERSION: i16 = 4;
const PERIOD: Duration = Duration::from_secs(10);

/// Looks again and again, as long as the engine lives.
pub(crate) async fn run(core: Weak<Core>) {
    loop {
        let Some(core) = core.upgrade() else { return };
        for (broker, partitions) in by_leader(&core) {
            if let Err(why) = look(&core, broker, &partitions).await {
                debug!(broker, %why, "a leader does not tell the sizes of its partitions");
            }
        }
        drop(core);
        tokio::time::sleep(PERIOD).await;
    }
}

fn by_leader(core: &Core) -> BTreeMap<i32, Vec<Arc<PartitionState>>> {
    // A broker that leads nothing is asked as well: its answer shows that it is there.
    let mut led: BTreeMap<i32, Vec<Arc<PartitionState>>> =
        core.cluster.ids().into_iter().map(|id| (id, Vec::new())).collect();
    for partition in core.topics.all().iter().flat_map(|topic| topic.partitions()) {
        if let Some(leader) = partition.leader() {
            led.entry(leader.broker).or_default().push(partition);
        }
    }
    led
}

async fn look(core: &Core, broker: i32, partitions: &[Arc<PartitionState>]) -> Result<(), CallError> {
    let sizes = sizes(core, broker).await?;
    for partition in partitions {
        if let Some(size) = sizes.get(&(partition.topic.kafka_name.clone(), partition.index())) {
            partition.measured(*size);
        }
    }
    let unread: Vec<&Arc<PartitionState>> = partitions.iter().filter(|partition| !partition.is_known()).collect();
    if unread.is_empty() {
        return Ok(());
    }
    let first = offsets(core, broker, &unread, EARLIEST, Isolation::Uncommitted).await?;
    let stable = offsets(core, broker, &unread, LATEST, Isolation::Committed).await?;
    let high = offsets(core, broker, &unread, LATEST, Isolation::Uncommitted).await?;
    for partition in unread {
        let place = (partition.topic.kafka_name.clone(), partition.index());
        if let (Some(&first), Some(&stable), Some(&high)) = (first.get(&place), stable.get(&place), high.get(&place)) {
            let first = partition.origin.map.first(first);
            let [stable, high] = [stable, high].map(|kafka_offset| partition.offset(kafka_offset));
            let stable = stable.max(first);
            partition.seen_from_afar(Ends { first, stable, high: high.max(stable) });
        }
    }
    Ok(())
}

/// The bytes of each partition that a broker has.
async fn sizes(core: &Core, broker: i32) -> Result<HashMap<(String, i32), u64>, CallError> {
    let connection = core.cluster.broker(broker, Purpose::Control).await?;
    let request = DescribeLogDirsRequest::default().with_topics(None);
    let answer = connection.call(&request, DESCRIBE_LOG_DIRS_VERSION).await?;
    let mut sizes = HashMap::new();
    for topic in answer.results.into_iter().flat_map(|directory| directory.topics) {
        let current = topic.partitions.iter().filter(|partition| !partition.is_future_key);
        for partition in current {
            let size = u64::try_from(partition.partition_size).unwrap_or(0);
            sizes.insert((topic.name.to_string(), partition.partition_index), size);
        }
    }
    Ok(sizes)
}

/// An end of each of these partitions of one leader, as Kafka numbers it.
async fn offsets(
    core: &Core,
    broker: i32,
    partitions: &[&Arc<PartitionState>],
    timestamp: i64,
    isolation: Isolation,
) -> Result<HashMap<(String, i32), i64>, CallError> {
    let mut wanted: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for partition in partitions {
        let place = ListOffsetsPartition::default()
            .with_partition_index(partition.index())
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp);
        wanted.entry(&partition.topic.kafka_name).or_default().push(place);
    }
    let topic = |(name, partitions): (&str, Vec<ListOffsetsPartition>)| {
        let name = WireName(StrBytes::from_string(name.to_owned()));
        ListOffsetsTopic::default().with_name(name).with_partitions(partitions)
    };
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation.level())
        .with_topics(wanted.into_iter().map(topic).collect());
    let connection = core.cluster.broker(broker, Purpose::Control).await?;
    let answer = connection.call(&request, LIST_OFFSETS_VERSION).await?;
    let mut found = HashMap::new();
    for topic in answer.topics {
        for partition in topic.partitions.iter().filter(|partition| partition.error_code == 0) {
            found.insert((topic.name.to_string(), partition.partition_index), partition.offset);
        }
    }
    Ok(found)
}
