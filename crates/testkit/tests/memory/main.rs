//! The engine in memory keeps the contract of the log, and loses answers where a test asks for it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod unknown;

use std::sync::Arc;

use millstream_log::Log;
use millstream_testkit::MemoryLog;
use millstream_testkit::conformance::Subject;
use millstream_types::SystemClock;

struct InMemory {
    engine: Arc<MemoryLog>,
    log: Arc<dyn Log>,
}

impl InMemory {
    fn of(engine: Arc<MemoryLog>) -> Self {
        Self { log: Arc::clone(&engine) as Arc<dyn Log>, engine }
    }
}

impl Subject for InMemory {
    fn start() -> Self {
        Self::of(MemoryLog::open(Arc::new(SystemClock::default())))
    }

    fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    fn restart(&mut self) {
        *self = Self::of(self.engine.reopened());
    }
}

mod contract {
    millstream_testkit::conformance_suite!(super::InMemory);
}
