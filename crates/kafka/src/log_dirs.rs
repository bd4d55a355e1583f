//! DescribeLogDirs: the disk space of each partition, in the only log directory.

use std::collections::HashSet;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use millstream_log::Topic;

use crate::request_context::RequestContext;

/// The directory's name for clients; its path on this machine stays private.
const NAME: &str = "log";
/// The value for an unknown size.
const UNKNOWN: i64 = -1;

pub(crate) async fn describe_log_dirs(
    request: DescribeLogDirsRequest,
    context: RequestContext,
) -> DescribeLogDirsResponse {
    let all = context.broker.topics();
    let topics = match request.topics {
        None => all.iter().map(|topic| describe(&context, topic, |_| true)).collect(),
        Some(asked) => {
            let described = asked.into_iter().filter_map(|asked| {
                let topic = context.broker.topic(&asked.topic).ok()?;
                let wanted: HashSet<i32> = asked.partitions.into_iter().collect();
                Some(describe(&context, &topic, |number| wanted.contains(&number)))
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

fn describe(context: &RequestContext, topic: &Topic, is_wanted: impl Fn(i32) -> bool) -> DescribeLogDirsTopic {
    let name = context.broker.namespace.render(&topic.name);
    let numbers = (0..).take(topic.config.partitions as usize).filter(|number| is_wanted(*number));
    let partitions = numbers.filter_map(|number| {
        let size_bytes = context.broker.partition(&name, number).ok()?.size_bytes();
        let described = DescribeLogDirsPartition::default().with_partition_index(number);
        Some(described.with_partition_size(i64::try_from(size_bytes).unwrap_or(i64::MAX)))
    });
    let partitions = partitions.collect();
    DescribeLogDirsTopic::default().with_name(TopicName(StrBytes::from_string(name))).with_partitions(partitions)
}
