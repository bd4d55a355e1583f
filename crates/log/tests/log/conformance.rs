//! The embedded engine keeps the contract, on a simulated disk and on the system's.

use std::path::Path;
use std::sync::Arc;

use millstream_log::{Embedded, Files, KafkaLog, Log, LogConfig, SystemFiles};
use millstream_testkit::conformance::{KafkaSubject, Subject};
use millstream_testkit::sim::SimFiles;
use millstream_types::SystemClock;

/// The embedded engine, its directory, and whatever must outlive it.
struct Engine<D> {
    files: Arc<dyn Files>,
    config: LogConfig,
    engine: Arc<Embedded>,
    log: Arc<dyn Log>,
    kafka_log: Arc<dyn KafkaLog>,
    _disk: D,
}

impl<D> Engine<D> {
    fn start(files: Arc<dyn Files>, dir: &Path, disk: D) -> Self {
        let config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let engine = open(&config, &files);
        Self { files, config, log: engine.clone(), kafka_log: engine.clone(), engine, _disk: disk }
    }
}

fn open(config: &LogConfig, files: &Arc<dyn Files>) -> Arc<Embedded> {
    let clock = Arc::new(SystemClock::default());
    Embedded::open(config.clone(), files.clone(), clock.clone(), clock).unwrap()
}

trait Disk: Sized {
    fn start() -> Engine<Self>;
}

impl<D: Disk> Subject for Engine<D> {
    fn start() -> Self {
        D::start()
    }

    fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    fn restart(&mut self) {
        self.engine.close().unwrap();
        self.engine = open(&self.config, &self.files);
        self.log = self.engine.clone();
        self.kafka_log = self.engine.clone();
    }
}

impl<D: Disk> KafkaSubject for Engine<D> {
    fn kafka_log(&self) -> &Arc<dyn KafkaLog> {
        &self.kafka_log
    }
}

impl<D> Drop for Engine<D> {
    fn drop(&mut self) {
        self.engine.close().unwrap();
    }
}

impl Disk for SimFiles {
    fn start() -> Engine<Self> {
        let files = Self::new();
        Engine::start(Arc::new(files.clone()), Path::new("/"), files)
    }
}

impl Disk for tempfile::TempDir {
    fn start() -> Engine<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        Engine::start(Arc::new(SystemFiles), &path, dir)
    }
}

mod on_a_simulated_disk {
    millstream_testkit::conformance_suite!(super::Engine<millstream_testkit::sim::SimFiles>);
    millstream_testkit::kafka_conformance_suite!(super::Engine<millstream_testkit::sim::SimFiles>);
}

mod on_the_systems_disk {
    millstream_testkit::conformance_suite!(super::Engine<tempfile::TempDir>);
    millstream_testkit::kafka_conformance_suite!(super::Engine<tempfile::TempDir>);
}
