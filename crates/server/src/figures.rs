//! What topics hold and what groups still have to read, as few numbers however many topics, partitions and groups
//! there are.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millstream_http::Metrics;
use millstream_kafka::group::tenant_and_id;
use millstream_log::{Embedded, Log, PartitionStats};
use millstream_types::{Kind, TenantId};
use serde::Serialize;

/// Topics that have numbers of their own among the counters; those behind them by name share one set.
const TOPICS_MAX: usize = 500;
/// Pairs of group and topic that have a number of their own among the counters, the largest lags first.
const LAGS_MAX: usize = 1_000;
/// The name under which the others are summed up; no topic or tenant can have it.
const OTHERS: &str = "(others)";

/// What one group still has to read of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Lag {
    #[serde(skip)]
    pub(crate) tenant: String,
    pub(crate) group: String,
    pub(crate) topic: String,
    /// Offsets up to the stable ones, over all partitions.
    pub(crate) lag: u64,
}

/// The `limit` largest lags, of `tenant`'s groups or of all.
pub(crate) fn lags(log: &Embedded, tenant: Option<&TenantId>, limit: usize) -> Vec<Lag> {
    let topics = log.topics().into_iter().map(|topic| topic.name.clone());
    let topics = topics.filter(|name| name.kind() != Kind::Internal && tenant.is_none_or(|own| own == name.tenant()));
    let mut found = Vec::new();
    for topic in topics {
        let mut groups: BTreeMap<String, u64> = BTreeMap::new();
        log.lags(&topic).into_iter().for_each(|read| *groups.entry(read.group).or_default() += read.lag);
        found.extend(groups.into_iter().filter_map(|(group, lag)| {
            let (of, id) = tenant_and_id(&group).filter(|(of, _)| *of == topic.tenant().as_str())?;
            Some(Lag { tenant: of.to_owned(), group: id.to_owned(), topic: topic.to_string(), lag })
        }));
    }
    found.sort_by(|one, other| other.lag.cmp(&one.lag).then_with(|| one.group.cmp(&other.group)));
    found.truncate(limit);
    found
}

/// Shows topics and lags among the counters.
pub(crate) fn show(log: &Arc<Embedded>, metrics: &Metrics) {
    let labels = ["tenant", "topic"];
    let help = "Bytes of a topic's batches, in segments and in memory.";
    metrics.gauges_fn("millstream_topic_bytes", help, &labels, of_topics(log, |p| p.record_bytes));
    let help = "Segments of a topic.";
    metrics.gauges_fn("millstream_topic_segments", help, &labels, of_topics(log, |p| p.segments));
    let help = "First offsets of a topic's partitions, summed up: what retention has removed.";
    metrics.gauges_fn("millstream_topic_first_offsets", help, &labels, of_topics(log, |p| p.offsets.first.0));
    let help = "Stable offsets of a topic's partitions, summed up; their rate is that of its records.";
    metrics.gauges_fn("millstream_topic_stable_offsets", help, &labels, of_topics(log, |p| p.offsets.stable.0));
    let help = "Offsets between a group's positions in a topic and the stable ones.";
    let log = Arc::downgrade(log);
    metrics.gauges_fn("millstream_group_lag", help, &["tenant", "group", "topic"], move || {
        let lags = log.upgrade().map(|log| lags(&log, None, LAGS_MAX)).unwrap_or_default();
        lags.into_iter().map(|lag| (vec![lag.tenant, lag.group, lag.topic], lag.lag as f64)).collect()
    });
}

/// One number for each topic, which is what `count` says of its partitions summed up.
fn of_topics(
    log: &Arc<Embedded>,
    count: fn(&PartitionStats) -> u64,
) -> impl Fn() -> Vec<(Vec<String>, f64)> + Send + Sync + 'static {
    let log = Arc::downgrade(log);
    move || sums(&log, count)
}

fn sums(log: &Weak<Embedded>, count: fn(&PartitionStats) -> u64) -> Vec<(Vec<String>, f64)> {
    let Some(log) = log.upgrade() else { return Vec::new() };
    let mut sums = Vec::new();
    let mut others = 0;
    for (at, topic) in log.topics().iter().enumerate() {
        let sum: u64 = log.topic_stats(&topic.name).iter().map(count).sum();
        if at < TOPICS_MAX {
            sums.push((vec![topic.name.tenant().to_string(), topic.name.to_string()], sum as f64));
        } else {
            others += sum;
        }
    }
    if log.topics().len() > TOPICS_MAX {
        sums.push((vec![OTHERS.to_owned(), OTHERS.to_owned()], others as f64));
    }
    sums
}

#[cfg(test)]
mod tests {
    use millstream_log::{LogConfig, SystemFiles, TopicConfig};
    use millstream_types::{SystemClock, TopicName};

    use super::*;

    #[test]
    fn however_many_topics_there_are_their_numbers_stay_few() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
        let storage = millstream_log::Storage::Memory { max_bytes: 1024 };
        let config = TopicConfig { partitions: 3, storage, ..TopicConfig::default() };
        for number in 0..TOPICS_MAX + 20 {
            let name = TopicName::user(&format!("t-{number:04}"), &TenantId::default()).unwrap();
            log.create_topic(&name, &config).unwrap();
        }
        let sums = sums(&Arc::downgrade(&log), |_| 1);
        assert_eq!(sums.len(), TOPICS_MAX + 1);
        assert_eq!(sums[0], (vec!["default".to_owned(), "t-0000".to_owned()], 3.0));
        assert_eq!(sums[TOPICS_MAX], (vec![OTHERS.to_owned(), OTHERS.to_owned()], 60.0));
        log.close().unwrap();
    }
}
