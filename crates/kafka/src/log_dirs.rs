//! How much disk each partition takes, in the one place where this node keeps them.

use std::collections::HashSet;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::Topic;

use crate::caller::Caller;

/// What clients are told that the directory is called; where it lies on this machine is not their business.
const NAME: &str = "log";
/// What stands for a size that is not told.
const UNKNOWN: i64 = -1;

/// DescribeLogDirs.
pub(crate) async fn describe_log_dirs(request: DescribeLogDirsRequest, caller: Caller) -> DescribeLogDirsResponse {
    let all = caller.node.topics();
    let topics = match request.topics {
        None => all.iter().map(|topic| describe(&caller, topic, |_| true)).collect(),
        Some(asked) => {
            let described = asked.into_iter().filter_map(|asked| {
                let topic = caller.node.topic(&asked.topic).ok()?;
                let wanted: HashSet<i32> = asked.partitions.into_iter().collect();
                Some(describe(&caller, &topic, |number| wanted.contains(&number)))
            });
            described.collect()
        }
    };
    let log = DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_static_str(NAME))
        .with_topics(topics)
        .with_total_bytes(UNKNOWN)
        .with_usable_bytes(UNKNOWN);
    DescribeLogDirsResponse::default().with_results(vec![log])
}

fn describe(caller: &Caller, topic: &Topic, is_wanted: impl Fn(i32) -> bool) -> DescribeLogDirsTopic {
    let name = topic.name.to_string();
    let numbers = (0..).take(topic.config.partitions as usize).filter(|number| is_wanted(*number));
    let partitions = numbers.filter_map(|number| {
        let size_bytes = caller.node.partition(&name, number).ok()?.size_bytes();
        let described = DescribeLogDirsPartition::default().with_partition_index(number);
        Some(described.with_partition_size(i64::try_from(size_bytes).unwrap_or(i64::MAX)))
    });
    let partitions = partitions.collect();
    DescribeLogDirsTopic::default().with_name(TopicName(StrBytes::from_string(name))).with_partitions(partitions)
}
