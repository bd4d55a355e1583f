//! The contract of the log. All checks share one broker, on which each makes topics of its own.

use std::sync::{Arc, LazyLock};

use millstream_log::Log;
use millstream_log_kafka::OnKafka;
use millstream_testkit::RealKafka;
use millstream_testkit::conformance::Subject;

/// Ends with this process.
static BROKER: LazyLock<RealKafka> = LazyLock::new(|| RealKafka::start(1));

struct OneBroker(Arc<dyn Log>);

/// The broker that the tests of the gate share.
pub(crate) fn broker() -> &'static RealKafka {
    &BROKER
}

fn open() -> Arc<dyn Log> {
    OnKafka::open(crate::config(broker())).unwrap()
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
