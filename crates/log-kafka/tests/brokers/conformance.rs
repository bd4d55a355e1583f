//! The contract of the log. All checks share one broker, on which each makes topics of its own.

use std::sync::{Arc, LazyLock};

use millstream_log::Log;
use millstream_log_kafka::{KafkaConfig, OnKafka};
use millstream_testkit::RealKafka;
use millstream_testkit::conformance::Subject;

/// Ends with this process.
static BROKER: LazyLock<RealKafka> = LazyLock::new(|| RealKafka::start(1));

struct OneBroker(Arc<dyn Log>);

fn open() -> Arc<dyn Log> {
    let brokers = BROKER.brokers().iter().map(|broker| broker.address.clone()).collect();
    let config = KafkaConfig { brokers, replication_factor: 1, min_insync_replicas: 1, ..KafkaConfig::default() };
    OnKafka::open(config).unwrap()
}

impl Subject for OneBroker {
    fn start() -> Self {
        Self(open())
    }

    fn log(&self) -> &Arc<dyn Log> {
        &self.0
    }

    fn restart(&mut self) {
        self.0 = open();
    }
}

millstream_testkit::conformance_suite!(OneBroker);
