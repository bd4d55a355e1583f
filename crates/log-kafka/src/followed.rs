//! The partitions whose tails are followed.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::partition_state::PartitionState;

/// The partitions that are followed, and the leaders that have a task for theirs.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    partitions: Mutex<Vec<Arc<PartitionState>>>,
    leaders: Mutex<HashSet<i32>>,
}

impl Followed {
    pub(crate) fn add(&self, partition: Arc<PartitionState>) {
        self.partitions.lock().push(partition);
    }

    /// The partitions of this leader.
    pub(crate) fn led_by(&self, broker: i32) -> Vec<Arc<PartitionState>> {
        let mut partitions = self.partitions.lock();
        partitions.retain(|partition| partition.topic.check_exists().is_ok());
        let led = |partition: &&Arc<PartitionState>| partition.leader().is_some_and(|leader| leader.broker == broker);
        partitions.iter().filter(led).cloned().collect()
    }

    /// The number of partitions that are followed.
    pub(crate) fn count(&self) -> usize {
        self.partitions.lock().len()
    }

    /// The leaders that have a task.
    pub(crate) fn leaders(&self) -> Vec<i32> {
        self.leaders.lock().iter().copied().collect()
    }

    /// The leaders that need a task; they count as those that have one from now on.
    pub(crate) fn new_leaders(&self) -> Vec<i32> {
        let wanted: HashSet<i32> = {
            let partitions = self.partitions.lock();
            partitions.iter().filter_map(|partition| Some(partition.leader()?.broker)).collect()
        };
        let mut leaders = self.leaders.lock();
        wanted.into_iter().filter(|broker| leaders.insert(*broker)).collect()
    }

    /// Notes that the task of a leader has ended.
    pub(crate) fn ended(&self, broker: i32) {
        self.leaders.lock().remove(&broker);
    }
}
