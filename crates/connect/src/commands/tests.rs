//! Commands over a real log: from the stream to a listener and to the notice, over restarts and crashes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::Metrics;
use millstream_log::{AckLevel, Bell, Embedded, Log, LogConfig, Partition, SystemFiles, UpTo, reply};
use millstream_types::{
    BatchLimits, Header, ManualClock, Record, RecordView, SystemClock, TenantId, TopicKind, TopicName, TopicPartition,
};
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::notice::NOTICE_TYPE;
use super::{CommandDelivery, CommandsConfig, Listening, Once, Way, Whose};
use crate::registry::{self, Device};
use crate::{Connect, ConnectConfig};

/// Longest wait for an expected event; a test that waits longer fails.
const LONG: Duration = Duration::from_secs(120);

struct CommandsWorld {
    log: Arc<Embedded>,
    connect: Connect,
    clock: Arc<ManualClock>,
}

/// A notice: its headers but for the time, and its body.
type Notice = (Vec<(String, String)>, Value);

impl CommandsWorld {
    fn open(dir: &Path, config: CommandsConfig) -> Self {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let real = Arc::new(SystemClock::default());
        let log_config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(log_config, Arc::new(SystemFiles), real.clone(), real.clone()).unwrap();
        let context = ViewRuntime {
            log: log.clone() as Arc<dyn Log>,
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(2).unwrap(),
            wall: clock.clone(),
        };
        let config = ConnectConfig { commands: config, ..ConnectConfig::default() };
        let connect =
            Connect::open(&context, &config, Arc::new(()), Arc::default(), real, &Metrics::default()).unwrap();
        Self { log, connect, clock }
    }

    /// With the devices `d` and `e`.
    fn new(dir: &Path) -> Self {
        let world = Self::open(dir, CommandsConfig { waiting_max_per_device: 2, ..CommandsConfig::default() });
        for device in ["d", "e"] {
            let (tenant, value) = (TenantId::default(), Arc::new(Device::default()));
            let command = registry::RegistryCommand::CreateDevice {
                tenant: tenant.clone(),
                device: device.parse().unwrap(),
                value,
            };
            let asked = world.connect.registry().ask(&tenant, command);
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(asked).unwrap();
        }
        world
    }

    fn stop(self) {
        self.connect.stop();
        drop(self.connect);
        self.log.close().unwrap();
    }

    /// Copies the files that a crash would leave to a new directory.
    fn crash(&self, dir: &Path) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(&dir.join("log"), &copy.path().join("log"));
        copy
    }

    fn partitions(&self, kind: TopicKind) -> Vec<Arc<dyn Partition>> {
        let name = TopicName::reserved(kind, &TenantId::default());
        (0..4).map(|number| self.log.partition(&TopicPartition::new(name.clone(), number)).unwrap()).collect()
    }

    /// Appends a command, as an application does. `further` headers replace the usual ones.
    fn send(&self, device: &str, id: &str, further: &[(&str, &str)]) {
        let usual = [("device_id", device), ("correlation-id", id), ("subject", "on")];
        let all = usual.iter().filter(|(name, _)| !further.iter().any(|(own, _)| own == name)).chain(further);
        let headers: Vec<Header<'_>> = all.map(|(key, value)| Header { key, value: Some(value.as_bytes()) }).collect();
        let partitions = self.partitions(TopicKind::Command);
        let (done, answer) = reply();
        let record = Record { timestamp_ms: 1, key: None, value: Some(b"{}"), headers: &headers };
        partitions[0].append(&[record], AckLevel::Synced, done).unwrap();
        answer.wait().unwrap();
    }

    /// All notices, once there are `count` of them.
    fn notices(&self, count: usize) -> Vec<Notice> {
        let (partitions, bell) = (self.partitions(TopicKind::CommandResponse), Arc::new(Bell::default()));
        partitions.iter().for_each(|partition| partition.watch(&bell));
        loop {
            let notices: Vec<Notice> = partitions.iter().flat_map(|partition| read(&**partition)).collect();
            if notices.len() >= count {
                return notices;
            }
            assert!(bell.wait(LONG), "{notices:?}");
        }
    }

    /// Sends a command that is released at once, and returns the notices of the others, of which there are `count`.
    fn notices_before_another(&self, count: usize) -> Vec<Notice> {
        self.send("d", "another", &[]);
        let mut notices = self.notices(count + 1);
        assert_eq!(notices.len(), count + 1, "{notices:?}");
        notices.retain(|(headers, _)| !headers.contains(&("correlation-id".into(), "another".into())));
        notices
    }

    fn listen(&self, device: &str) -> (Listening, oneshot::Receiver<CommandDelivery>) {
        let (sender, receiver) = oneshot::channel();
        let whose = Whose::Device { device: device.into(), via: None };
        (self.connect.commands.listen(&TenantId::default(), whose, Way::Once(Once::new(sender))), receiver)
    }
}

/// All notices of a partition.
fn read(partition: &dyn Partition) -> Vec<Notice> {
    let (mut notices, mut next) = (Vec::new(), partition.offsets().first);
    loop {
        let batches = partition.read(next, 1 << 20, UpTo::Stable).unwrap();
        let Some(last) = batches.last() else { return notices };
        next = last.next_offset();
        for batch in batches {
            let batch = batch.inflated(&BatchLimits::default()).unwrap();
            notices.extend(batch.records().map(|record| notice(&record.unwrap())));
        }
    }
}

fn notice(record: &RecordView<'_>) -> Notice {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    assert_eq!(record.key, record.header("device_id"));
    let headers = record.headers().filter(|header| header.key != "creation-time");
    let headers = headers.map(|header| (header.key.to_owned(), text(header.value))).collect();
    (headers, serde_json::from_slice(record.value.unwrap()).unwrap())
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_all(&source, &target);
        } else {
            std::fs::copy(source, target).unwrap();
        }
    }
}

fn outcome(notice: &Notice) -> (&str, &str) {
    let status = notice.0.iter().find(|(name, _)| name == "status").unwrap();
    (notice.1["outcome"].as_str().unwrap(), &status.1)
}

#[test]
fn a_command_that_nobody_listens_for_is_released_with_one_notice_in_honos_form() {
    let dir = tempfile::tempdir().unwrap();
    let world = CommandsWorld::new(dir.path());
    let metadata = ("delivery-failure-notification-metadata-order", "7");
    world.send("e", "c1", &[("response-required", "true"), metadata]);
    let notices = world.notices_before_another(1);
    let expected = [
        ("content-type", NOTICE_TYPE),
        ("tenant_id", "default"),
        ("device_id", "e"),
        ("status", "503"),
        ("correlation-id", "c1"),
        metadata,
    ];
    let expected: Vec<_> = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(notices[0].0, expected);
    let body = json!({"error": "nobody listens for commands of the device", "outcome": "released"});
    assert_eq!(notices[0].1, body);
    world.stop();
}

#[test]
fn invalid_commands_and_commands_over_a_limit_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let world = CommandsWorld::new(dir.path());
    let wait = ("ttl", "60000");
    let sent = [
        ("nobody", "c1", wait),
        ("d", "c2", ("subject", "a+b")),
        ("d", "c3", wait),
        ("d", "c4", wait),
        ("d", "c5", wait),
    ];
    sent.iter().for_each(|(device, id, further)| world.send(device, id, &[*further]));
    let mut notices: Vec<(String, String)> = world.notices(3).iter().map(of_id).collect();
    notices.sort();
    let expected = [("c1", "rejected 404"), ("c2", "rejected 400"), ("c5", "rejected 429")];
    assert_eq!(notices, expected.map(|(id, told)| (id.to_owned(), told.to_owned())));
    world.stop();
}

fn of_id(notice: &Notice) -> (String, String) {
    let (end, status) = outcome(notice);
    let id = notice.0.iter().find(|(name, _)| name == "correlation-id").unwrap();
    (id.1.clone(), format!("{end} {status}"))
}

#[test]
fn a_command_waits_for_its_device_over_a_restart_and_is_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = CommandsWorld::new(dir.path());
    world.send("e", "c1", &[("ttl", "60000"), ("response-required", "true"), ("content-type", "application/json")]);
    world.send("e", "c2", &[("ttl", "60000")]);
    world.stop();
    let world = CommandsWorld::open(dir.path(), CommandsConfig::default());
    for (id, is_answered) in [("c1", true), ("c2", false)] {
        let (_listening, receiver) = world.listen("e");
        let delivery = receiver.blocking_recv().unwrap();
        let command = delivery.command();
        assert_eq!(
            (command.correlation_id.as_deref(), &*command.name, &command.payload[..]),
            (Some(id), "on", &b"{}"[..])
        );
        assert_eq!(delivery.request_id().is_some(), is_answered);
        delivery.accept();
    }
    world.stop();
    let world = CommandsWorld::open(dir.path(), CommandsConfig::default());
    let (_listening, mut receiver) = world.listen("e");
    assert!(world.notices_before_another(0).is_empty());
    assert_eq!(receiver.try_recv().unwrap_err(), oneshot::error::TryRecvError::Empty);
    world.stop();
}

#[test]
fn a_command_that_was_in_hand_in_a_crash_is_released_once_or_delivered_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = CommandsWorld::new(dir.path());
    let (_of_d, in_hand_of_d) = world.listen("d");
    let (_of_e, in_hand_of_e) = world.listen("e");
    world.send("d", "c1", &[]);
    world.send("e", "c2", &[("ttl", "60000")]);
    let in_hand = [in_hand_of_d.blocking_recv().unwrap(), in_hand_of_e.blocking_recv().unwrap()];
    let crashed = world.crash(dir.path());
    in_hand.into_iter().for_each(CommandDelivery::accept);
    world.stop();

    let world = CommandsWorld::open(crashed.path(), CommandsConfig::default());
    let (_listening, receiver) = world.listen("e");
    let delivery = receiver.blocking_recv().unwrap();
    assert_eq!(delivery.command().correlation_id.as_deref(), Some("c2"));
    delivery.accept();
    let notices = world.notices_before_another(1);
    assert_eq!(of_id(&notices[0]), ("c1".to_owned(), "released 503".to_owned()));
    let told = notices[0].1["error"].as_str().unwrap();
    assert!(told.contains("the server ended before it was known"), "{told}");
    world.stop();
    let world = CommandsWorld::open(crashed.path(), CommandsConfig::default());
    assert_eq!(world.notices_before_another(2).len(), 1, "no second end");
    world.stop();
}

#[test]
fn a_command_whose_time_is_over_expires() {
    let dir = tempfile::tempdir().unwrap();
    let world = CommandsWorld::new(dir.path());
    world.send("e", "c1", &[("ttl", "5000")]);
    let (listening, receiver) = world.listen("e");
    receiver.blocking_recv().unwrap().release();
    drop(listening);
    world.clock.advance(Duration::from_secs(6));
    assert_eq!(outcome(&world.notices(1)[0]), ("expired", "504"));
    let (_listening, mut receiver) = world.listen("e");
    assert_eq!(world.notices_before_another(1).len(), 1);
    assert_eq!(receiver.try_recv().unwrap_err(), oneshot::error::TryRecvError::Empty);
    world.stop();
}
