//! The contract of the log. All checks share the brokers, on which each makes topics of its own.

use std::sync::{Arc, LazyLock};

use millstream_log::Log;
use millstream_log_kafka::OnKafka;
use millstream_testkit::RealKafka;
use millstream_testkit::conformance::Subject;

/// Ends with this process.
static BROKERS: LazyLock<RealKafka> = LazyLock::new(RealKafka::of_environment);

struct OnBrokers(Arc<dyn Log>);

/// The brokers that tests share: one, unless the environment asks for more.
pub(crate) fn brokers() -> &'static RealKafka {
    &BROKERS
}

fn open() -> Arc<dyn Log> {
    OnKafka::open(crate::config(brokers())).unwrap()
}

impl Subject for OnBrokers {
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

millstream_testkit::conformance_suite!(OnBrokers);
