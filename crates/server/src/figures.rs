//! Metrics of topics and consumer groups, with a limit on the number of series.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use millstream_http::Metrics;
use millstream_kafka::group::tenant_and_id;
use millstream_log::{LogFigures, PartitionStats, Storage, TopicConfig};
use millstream_query::Engine;
use millstream_types::{TenantId, TopicKind};
use serde::Serialize;

/// Limit of topics with their own series, in name order; the others share one.
const TOPICS_MAX: usize = 500;
/// Limit of (group, topic) pairs with their own series, largest lags first.
const LAGS_MAX: usize = 1_000;
/// Label of the shared series; it is not a valid name of a topic or tenant.
const OTHERS: &str = "(others)";

/// The lag of a group on a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Lag {
    #[serde(skip)]
    pub(crate) tenant: String,
    pub(crate) group: String,
    pub(crate) topic: String,
    /// Records up to the stable offsets, summed over all partitions.
    pub(crate) lag: u64,
}

/// Returns the `limit` largest lags of `tenant`'s groups, or of all groups.
pub(crate) fn lags(log: &dyn LogFigures, tenant: Option<&TenantId>, limit: usize) -> Vec<Lag> {
    let topics = log.topics().into_iter().map(|topic| topic.name.clone());
    let topics =
        topics.filter(|name| name.kind() != TopicKind::Internal && tenant.is_none_or(|own| own == name.tenant()));
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

/// Registers the metrics of topics and lags.
pub(crate) fn show(log: &Arc<dyn LogFigures>, metrics: &Metrics) {
    let labels = ["tenant", "topic"];
    let help = "Bytes of a topic's batches, in segments and in memory.";
    metrics.gauges_fn("millstream_topic_bytes", help, &labels, of_topics(log, |_| true, |p| p.record_bytes));
    let help = "First offsets of a topic's partitions, summed up: what retention has removed.";
    let loses_its_start = |config: &TopicConfig| config.cleanup.expires() || config.storage != Storage::Disk;
    let first_offsets = of_topics(log, loses_its_start, |p| p.offsets.first.0);
    metrics.gauges_fn("millstream_topic_first_offsets", help, &labels, first_offsets);
    let help = "Stable offsets of a topic's partitions, summed up; their rate is that of its records.";
    let stable_offsets = of_topics(log, |_| true, |p| p.offsets.stable.0);
    metrics.gauges_fn("millstream_topic_stable_offsets", help, &labels, stable_offsets);
    let help = "Reads of a topic since the start that failed because they began at damaged records.";
    let (own, damaged) = (labels, Arc::downgrade(log));
    metrics.labelled_counters_fn("millstream_topic_damaged_reads_total", help, &own, move || {
        let reads = sums(&damaged, |_| true, |p| p.damaged_reads).into_iter();
        reads.filter(|(_, reads)| *reads > 0.0).map(|(topic, reads)| (topic, reads as u64)).collect()
    });
    let help = "Records since the start that were accepted without waiting, such as messages of QoS 0, and that Kafka then did not take.";
    let lost = Arc::downgrade(log);
    metrics.counter_fn("millstream_log_records_lost_total", help, move || {
        lost.upgrade().map_or(0.0, |log| log.stats().records_lost as f64)
    });
    let help = "Records between a group's positions in a topic and the stable offsets.";
    let log = Arc::downgrade(log);
    metrics.gauges_fn("millstream_group_lag", help, &["tenant", "group", "topic"], move || {
        let lags = log.upgrade().map(|log| lags(&*log, None, LAGS_MAX)).unwrap_or_default();
        lags.into_iter().map(|lag| (vec![lag.tenant, lag.group, lag.topic], lag.lag as f64)).collect()
    });
}

/// Registers the metrics of topics that only the built-in log has: the brokers of Kafka keep segments to themselves.
pub(crate) fn show_segments(log: &Arc<dyn LogFigures>, metrics: &Metrics) {
    let help = "Segments of a topic that is stored on the disk.";
    let on_disk = |config: &TopicConfig| config.storage == Storage::Disk;
    let segments = of_topics(log, on_disk, |p| p.segments);
    metrics.gauges_fn("millstream_topic_segments", help, &["tenant", "topic"], segments);
}

/// Registers the metrics of live queries.
pub(crate) fn show_queries(engine: &Arc<Engine>, metrics: &Metrics) {
    let gauge = |name: &str, help: &str, read: fn(&Engine) -> u64| {
        let engine = Arc::downgrade(engine);
        metrics.gauge_fn(name, help, move || engine.upgrade().map_or(0.0, |engine| read(&engine) as f64));
    };
    gauge("millstream_query_live", "Live queries of all tenants.", |engine| engine.live_count() as u64);
    let help = "Live queries that still read past records; limit query.reading_past_max.";
    gauge("millstream_query_reading_past", help, |engine| engine.reading_past() as u64);
    let help = "Bytes of the counts, groups and sketches of live queries; limit query.states_max_bytes.";
    gauge("millstream_query_states_bytes", help, Engine::states_bytes);
    let help = "Bytes of results that wait for clients of live queries; limit query.queues_max_bytes.";
    gauge("millstream_query_queues_bytes", help, Engine::queues_bytes);
    let counter = |name: &str, help: &str, read: fn(&Engine) -> u64| {
        let engine = Arc::downgrade(engine);
        metrics.counter_fn(name, help, move || engine.upgrade().map_or(0.0, |engine| read(&engine) as f64));
    };
    let help = "Records that live queries have read since the start: a new one once for all queries, a past one once for each.";
    counter("millstream_query_records_seen_total", help, Engine::records_seen);
    let help = "Rows, or records of counts and groups, found for all live queries since the start.";
    counter("millstream_query_matched_total", help, Engine::matched);
    let (help, engine) = ("Live queries that have ended since the start, by cause.", Arc::downgrade(engine));
    metrics.labelled_counters_fn("millstream_query_ended_total", help, &["cause"], move || {
        let Some(engine) = engine.upgrade() else { return Vec::new() };
        engine.ended().map(|(cause, ended)| (vec![cause.as_str().to_owned()], ended)).collect()
    });
}

/// Returns a gauge with one value per topic that `has` it: the sum of `count` over the topic's partitions.
fn of_topics(
    log: &Arc<dyn LogFigures>,
    has: fn(&TopicConfig) -> bool,
    count: fn(&PartitionStats) -> u64,
) -> impl Fn() -> Vec<(Vec<String>, f64)> + Send + Sync + 'static {
    let log = Arc::downgrade(log);
    move || sums(&log, has, count)
}

fn sums(
    log: &Weak<dyn LogFigures>,
    has: fn(&TopicConfig) -> bool,
    count: fn(&PartitionStats) -> u64,
) -> Vec<(Vec<String>, f64)> {
    let Some(log) = log.upgrade() else { return Vec::new() };
    let mut sums = Vec::new();
    let mut others = None;
    for (at, topic) in log.topics().iter().enumerate().filter(|(_, topic)| has(&topic.config)) {
        let sum: u64 = log.topic_stats(&topic.name).iter().map(count).sum();
        if at < TOPICS_MAX {
            sums.push((vec![topic.name.tenant().to_string(), topic.name.to_string()], sum as f64));
        } else {
            *others.get_or_insert(0) += sum;
        }
    }
    sums.extend(others.map(|sum| (vec![OTHERS.to_owned(), OTHERS.to_owned()], sum as f64)));
    sums
}

#[cfg(test)]
mod tests {
    use millstream_log::{Embedded, Log as _, LogConfig, SystemFiles};
    use millstream_types::{SystemClock, TopicName};

    use super::*;

    #[test]
    fn the_metrics_of_topics_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::default());
        let config = LogConfig { dir: dir.path().join("log"), ..LogConfig::default() };
        let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
        let storage = Storage::Memory { max_bytes: 1024 };
        let config = TopicConfig { partitions: 3, storage, ..TopicConfig::default() };
        for number in 0..TOPICS_MAX + 20 {
            let name = TopicName::user(&format!("t-{number:04}"), &TenantId::default()).unwrap();
            log.create_topic(&name, &config).unwrap();
        }
        let figures: Arc<dyn LogFigures> = log.clone();
        let all = Arc::downgrade(&figures);
        let sums = sums(&all, |_| true, |_| 1);
        assert_eq!(sums.len(), TOPICS_MAX + 1);
        assert_eq!(sums[0], (vec!["default".to_owned(), "t-0000".to_owned()], 3.0));
        assert_eq!(sums[TOPICS_MAX], (vec![OTHERS.to_owned(), OTHERS.to_owned()], 60.0));
        assert_eq!(super::sums(&all, |config| config.storage == Storage::Disk, |_| 1), []);
        log.close().unwrap();
    }
}
