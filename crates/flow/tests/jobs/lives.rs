//! A job through several lives: its process is killed on a simulated disk, and other jobs go on from it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use millstream_flow::{Error, FlowConfig, StopMode};
use millstream_testkit::eventually;
use millstream_testkit::sim::SimFiles;
use millstream_testkit::small_log::new_disk;
use millstream_types::{Offset, Record};
use serde_json::Value;

use crate::node::{Node, Setup};

/// The name of the job in each document.
pub(crate) const NAME: &str = "lives";
/// The longest wait for a job to come to a place at which something happens to it.
const PAUSE: Duration = Duration::from_millis(60);
const REPLACE_TIME: Duration = Duration::from_secs(30);

/// An event between two parts of the input.
#[derive(Debug, Clone)]
pub(crate) enum Then {
    GoOn,
    /// The process ends by `kill -9` at so many changes of its disk.
    Kill(u64),
    /// The process ends in order.
    Restart,
    /// The job is stopped, and another one goes on from it with so many instances.
    Resume(StopMode, u32),
    /// Another one with so many instances takes its place.
    Replace(u32),
}

/// The process that runs a job, and the disk of its lives.
pub(crate) struct Lives {
    config: FlowConfig,
    disk: SimFiles,
    node: Node,
    /// The files of a node that are not in its log.
    _dir: tempfile::TempDir,
    id: String,
    /// The offsets behind what was appended, by topic and partition.
    ends: BTreeMap<String, BTreeMap<u32, Offset>>,
}

impl Lives {
    /// Runs the job on a new disk, with topics of so many partitions.
    pub(crate) fn begin(config: &FlowConfig, topics: &[(&str, u32)], document: &Value) -> Self {
        let disk = new_disk();
        let (node, _dir) = Self::open(config, &disk);
        topics.iter().for_each(|(topic, partitions)| node.create(topic, *partitions));
        let id = node.run(document);
        Self { config: config.clone(), disk, node, _dir, id, ends: BTreeMap::new() }
    }

    fn open(config: &FlowConfig, disk: &SimFiles) -> (Node, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup { config: config.clone(), disk: Some(disk.clone()), ..Setup::default() };
        (Node::open_as(dir.path(), setup), dir)
    }

    pub(crate) fn append(&mut self, topic: &str, record: &Record<'_>) {
        let (partition, end) = self.node.append_one(topic, record);
        self.ends.entry(topic.to_owned()).or_default().insert(partition, end);
    }

    /// Waits until the job has committed all that there is, and not for long.
    pub(crate) fn pause(&self) {
        self.pause_or(|| false);
    }

    fn pause_or(&self, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while begun.elapsed() < PAUSE && !holds() && self.node.job(&self.id)["lag"] != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the node, and opens the next one on this disk.
    fn reopen(self, disk: SimFiles, end: fn(Node)) -> Self {
        end(self.node);
        let (node, _dir) = Self::open(&self.config, &disk);
        Self { disk, node, _dir, ..self }
    }

    /// Lets something happen to the job. `document` is that with so many instances.
    pub(crate) fn go_on(mut self, then: &Then, document: impl Fn(u32) -> Value) -> Self {
        match then {
            Then::GoOn => {}
            Then::Kill(changes) => {
                self.disk.crash_after(*changes);
                self.pause_or(|| self.disk.is_off());
                let disk = self.disk.kill();
                return self.reopen(disk, Node::end);
            }
            Then::Restart => {
                let disk = self.disk.clone();
                return self.reopen(disk, Node::close);
            }
            Then::Resume(mode, parallelism) => {
                self.node.stop(&self.id, *mode);
                let stopped = self.node.ended(&self.id);
                assert_eq!(stopped["state"], "stopped", "{stopped:#}");
                let mut document = document(*parallelism);
                document["resume_from"] = NAME.into();
                self.id = match self.node.submit(&document) {
                    // It was stopped before its first epoch.
                    Err(Error::Invalid { findings }) if findings[0].message.contains("has no state") => {
                        document.as_object_mut().unwrap().remove("resume_from");
                        self.node.run(&document)
                    }
                    submitted => submitted.unwrap_or_else(|error| panic!("{error:?}\n{document:#}")).id,
                };
            }
            Then::Replace(parallelism) => {
                let document = document(*parallelism);
                let submitted = self.node.replace(&document, REPLACE_TIME);
                self.id = submitted.unwrap_or_else(|error| panic!("{error:?}\n{document:#}")).id;
            }
        }
        self
    }

    /// Lets the last job, which goes on as `last` says, come to the end of all that was appended and complete; the node.
    pub(crate) fn complete(self, last: &Then, document: impl Fn(u32) -> Value) -> Node {
        let are_seen = || self.ends.iter().all(|(topic, ends)| self.node.is_readable(topic, ends));
        eventually("the records can be read", are_seen);
        let lives = self.go_on(last, |parallelism| {
            let mut document = document(parallelism);
            document["mode"] = "batch".into();
            for source in document["sources"].as_object_mut().unwrap().values_mut() {
                source["config"]["stop_at"] = "end".into();
            }
            document
        });
        let ended = lives.node.ended(&lives.id);
        assert_eq!(ended["state"], "completed", "{ended:#}");
        lives.node
    }
}
