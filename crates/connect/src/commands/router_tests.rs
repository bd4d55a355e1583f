//! The router against a simple model: random commands, listeners, verdicts, changes of the registry, and time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use millstream_types::{Offset, PartitionId, TenantId, TopicId};
use millstream_view::SourcePartition;
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::command::{Command, RecordPosition};
use super::delivery::{CommandDelivery, Note, Notes};
use super::listener::{Once, Way, Whose};
use super::listeners::Devices;
use super::outcome::{End, Outcome};
use super::request_id::{RequestId, RequestIds};
use super::router::{Listening, Router};
use crate::registry::Device;

const KEY: u128 = 7;

/// Devices d0 to d2 behind some of the gateways g0 to g2, each enabled or not.
#[derive(Default)]
struct TestDevices(Mutex<HashMap<String, Arc<Device>>>);

impl Devices for TestDevices {
    fn enabled(&self, _: &TenantId, device: &str) -> Option<Arc<Device>> {
        self.0.lock().get(device).filter(|device| device.enabled).cloned()
    }
}

impl TestDevices {
    fn set(&self, device: &str, is_enabled: bool, via: &[&str], groups: &[&str]) {
        let groups_of = if device.starts_with('g') { "memberOf" } else { "viaGroups" };
        let device_json = json!({"enabled": is_enabled, "via": via, groups_of: groups});
        self.0.lock().insert(device.to_owned(), Arc::new(serde_json::from_value(device_json).unwrap()));
    }

    fn may(&self, device: &str, via: Option<&str>) -> bool {
        let tenant = TenantId::default();
        let Some(known) = self.enabled(&tenant, device) else { return false };
        via.is_none_or(|via| self.enabled(&tenant, via).is_some_and(|gateway| known.is_behind(via, &gateway)))
    }
}

enum Receiver {
    Once(oneshot::Receiver<CommandDelivery>),
    Stream(mpsc::Receiver<CommandDelivery>),
}

struct TestListener {
    listening: Listening,
    receiver: Receiver,
    /// Takes nothing until it is told to.
    is_lazy: bool,
}

impl TestListener {
    fn via(&self) -> Option<&str> {
        match &self.listening.whose {
            Whose::Device { via, .. } => via.as_deref(),
            Whose::Behind { gateway } => Some(gateway),
        }
    }

    fn is_exact(&self) -> bool {
        matches!(self.listening.whose, Whose::Device { .. })
    }

    fn is_for(&self, device: &str) -> bool {
        matches!(&self.listening.whose, Whose::Device { device: named, .. } if **named == *device) || !self.is_exact()
    }

    fn is_full(&self) -> bool {
        matches!(&self.receiver, Receiver::Stream(stream) if stream.len() == stream.max_capacity())
    }

    fn take(&mut self) -> Option<CommandDelivery> {
        match &mut self.receiver {
            Receiver::Once(once) => once.try_recv().ok(),
            Receiver::Stream(stream) => stream.try_recv().ok(),
        }
    }
}

struct RouterWorld {
    known: Arc<TestDevices>,
    notes: Arc<Notes>,
    router: Arc<Router>,
    now_ms: i64,
    commands: Vec<Arc<Command>>,
    ends: HashMap<RecordPosition, Outcome>,
    /// The newest listener when a command came back last.
    returned: HashMap<RecordPosition, u64>,
    newest: u64,
    listeners: Vec<TestListener>,
    hands: Vec<CommandDelivery>,
    delivered: HashSet<RecordPosition>,
    last_first: HashMap<String, RecordPosition>,
    last_gateway: HashMap<String, String>,
}

impl RouterWorld {
    fn new() -> Self {
        let (known, notes) = (Arc::new(TestDevices::default()), Arc::new(Notes::default()));
        for (device, via, groups) in [("d0", &["g0"][..], &[][..]), ("d1", &["g0", "g1"], &[]), ("d2", &[], &["group"])]
        {
            known.set(device, true, via, groups);
        }
        for (gateway, groups) in [("g0", &[][..]), ("g1", &[]), ("g2", &["group"])] {
            known.set(gateway, true, &[], groups);
        }
        let router = Arc::new(Router::new(known.clone(), notes.clone(), RequestIds::keyed(KEY)));
        Self {
            known,
            notes,
            router,
            now_ms: 0,
            commands: Vec::new(),
            ends: HashMap::new(),
            returned: HashMap::new(),
            newest: 0,
            listeners: Vec::new(),
            hands: Vec::new(),
            delivered: HashSet::new(),
            last_first: HashMap::new(),
            last_gateway: HashMap::new(),
        }
    }

    fn send(&mut self, device: &str, ttl_ms: Option<i64>) {
        let source = SourcePartition { topic: TopicId(1), partition: PartitionId(0) };
        let command = Arc::new(Command {
            tenant: TenantId::default(),
            device: device.into(),
            position: RecordPosition { source, offset: Offset(self.commands.len() as u64) },
            name: "on".into(),
            content_type: None,
            correlation_id: Some("c".into()),
            wants_response: true,
            metadata: Vec::new(),
            payload: Bytes::new(),
            received_ms: self.now_ms,
            expires_ms: ttl_ms.map(|ttl_ms| self.now_ms + ttl_ms),
        });
        self.commands.push(Arc::clone(&command));
        self.router.arrive(&command, self.now_ms);
        self.look();
    }

    fn listen(&mut self, whose: Whose, room: Option<usize>, is_lazy: bool) {
        let (way, receiver) = match room {
            None => {
                let (sender, receiver) = oneshot::channel();
                (Way::Once(Once::new(sender)), Receiver::Once(receiver))
            }
            Some(room) => {
                let (sender, receiver) = mpsc::channel(room);
                (Way::Stream(sender), Receiver::Stream(receiver))
            }
        };
        let listening = self.router.listen(&TenantId::default(), whose, way, self.now_ms);
        self.newest = listening.id;
        self.listeners.push(TestListener { listening, receiver, is_lazy });
        self.look();
    }

    /// Takes what was delivered and reads the notes, until nothing happens any more.
    fn look(&mut self) {
        loop {
            let mut moved = false;
            let full =
                self.listeners.iter().filter(|listener| listener.is_full()).map(|listener| listener.listening.id);
            let full: HashSet<u64> = full.collect();
            for index in 0..self.listeners.len() {
                while !self.listeners[index].is_lazy
                    && let Some(delivery) = self.listeners[index].take()
                {
                    self.check_delivery(index, &delivery, &full);
                    self.take_in_hand(delivery);
                    moved = true;
                }
            }
            for note in self.notes.take() {
                moved = true;
                match note {
                    Note::Said(command, verdict) => {
                        let has_come_back = matches!(verdict, super::delivery::Verdict::Released { .. });
                        if has_come_back {
                            self.returned.insert(command.position, self.newest);
                        }
                        self.router.said(&command, verdict, self.now_ms);
                    }
                    Note::Ends(command, outcome) => {
                        let before = self.ends.insert(command.position, outcome);
                        assert_eq!(before, None, "a second end of {command:?}");
                        self.router.forget(&command);
                    }
                    Note::Waits(command) => assert!(command.expires_ms.is_some()),
                }
            }
            if !moved {
                return;
            }
            // The settlement thread retries too: a full listener may have room again.
            self.router.retry(self.now_ms);
        }
    }

    fn take_in_hand(&mut self, delivery: CommandDelivery) {
        let command = delivery.command();
        let (position, device) = (command.position, command.device.to_string());
        let others = self.hands.iter().filter(|other| *other.command().device == *device);
        assert_eq!(others.count(), 0, "two commands of {device} at once");
        assert!(!self.ends.contains_key(&position), "delivered after its end");
        // One that has come back before anybody looked at it may be late.
        if self.delivered.insert(position) && !self.returned.contains_key(&position) {
            let before = self.last_first.insert(device, position);
            assert!(before.is_none_or(|before| before < position), "{before:?} before {position:?}");
        }
        self.hands.push(delivery);
    }

    /// Checks that the listener was the right one for this delivery. Those in `full` had perhaps no room for it.
    fn check_delivery(&self, index: usize, delivery: &CommandDelivery, full: &HashSet<u64>) {
        let (got, command) = (&self.listeners[index], delivery.command());
        let device = &*command.device;
        let after = self.returned.get(&command.position).copied().unwrap_or(0);
        assert!(got.is_for(device) && self.known.may(device, got.via()), "{device} via {:?}", got.via());
        assert!(got.listening.id > after, "to the listener that has let it go");
        assert!(command.expires_ms.is_none_or(|expires_ms| expires_ms > self.now_ms));
        let eager = self.listeners.iter().filter(|other| {
            let is_eager = !other.is_lazy && matches!(other.receiver, Receiver::Stream(_));
            let has_room = !full.contains(&other.listening.id);
            let is_newer = other.listening.id > after;
            is_eager && has_room && is_newer && other.is_for(device) && self.known.may(device, other.via())
        });
        for other in eager {
            if other.is_exact() {
                assert!(got.is_exact(), "one that names {device} comes first");
                assert!(got.listening.id >= other.listening.id, "the newest comes first");
            } else if !got.is_exact() && other.via() == self.last_gateway.get(device).map(String::as_str) {
                assert_eq!(got.via(), other.via(), "the last gateway comes first");
            }
        }
    }

    /// Checks the invariants of a device after an event that concerns it.
    fn check_device(&self, device: &str) {
        let is_busy = self.hands.iter().any(|delivery| *delivery.command().device == *device)
            || self.listeners.iter().any(|listener| listener.is_lazy && listener.is_for(device));
        let waiting = self
            .commands
            .iter()
            .filter(|command| *command.device == *device && !self.ends.contains_key(&command.position));
        for command in waiting.filter(|_| !is_busy) {
            assert!(command.expires_ms.is_some(), "it neither waits nor has ended: {command:?}");
            let after = self.returned.get(&command.position).copied().unwrap_or(0);
            let could = self.listeners.iter().any(|listener| {
                let is_stream = matches!(listener.receiver, Receiver::Stream(_));
                is_stream
                    && listener.listening.id > after
                    && listener.is_for(device)
                    && self.known.may(device, listener.via())
            });
            assert!(!could, "somebody listens for {command:?}");
        }
    }
}

#[derive(Debug, Clone)]
enum RouterStep {
    Send { device: usize, ttl_ms: Option<i64> },
    Listen { device: Option<usize>, via: Option<usize>, room: Option<usize>, is_lazy: bool },
    Leave(usize),
    Take(usize),
    Accept(usize),
    Release(usize),
    Reject(usize),
    Seen { device: usize, gateway: usize },
    Register { device: usize, is_enabled: bool, via: Vec<usize> },
    Pass(i64),
}

const DEVICES: [&str; 3] = ["d0", "d1", "d2"];
const GATEWAYS: [&str; 3] = ["g0", "g1", "g2"];

fn step() -> impl Strategy<Value = RouterStep> {
    let ttl = prop::option::of(1..50_i64);
    prop_oneof![
        6 => (0..3_usize, ttl).prop_map(|(device, ttl_ms)| RouterStep::Send { device, ttl_ms }),
        4 => (prop::option::weighted(0.7, 0..3_usize), prop::option::of(0..3_usize), prop::option::of(1..3_usize), prop::bool::weighted(0.2))
            .prop_map(|(device, via, room, is_lazy)| RouterStep::Listen { device, via, room, is_lazy }),
        2 => any::<usize>().prop_map(RouterStep::Leave),
        1 => any::<usize>().prop_map(RouterStep::Take),
        4 => any::<usize>().prop_map(RouterStep::Accept),
        2 => any::<usize>().prop_map(RouterStep::Release),
        1 => any::<usize>().prop_map(RouterStep::Reject),
        1 => (0..3_usize, 0..3_usize).prop_map(|(device, gateway)| RouterStep::Seen { device, gateway }),
        1 => (0..3_usize, prop::bool::weighted(0.8), prop::collection::vec(0..3_usize, 0..3))
            .prop_map(|(device, is_enabled, via)| RouterStep::Register { device, is_enabled, via }),
        2 => (1..30_i64).prop_map(RouterStep::Pass),
    ]
}

fn run(world: &mut RouterWorld, step: &RouterStep) {
    let pick = |index: usize, count: usize| (count > 0).then(|| index % count);
    match step {
        RouterStep::Send { device, ttl_ms } => {
            world.send(DEVICES[*device], *ttl_ms);
            world.check_device(DEVICES[*device]);
        }
        RouterStep::Listen { device, via, room, is_lazy } => {
            let via = via.map(|via| Arc::from(GATEWAYS[via]));
            match device.map(|device| DEVICES[device]) {
                Some(device) => {
                    world.listen(Whose::Device { device: device.into(), via }, *room, *is_lazy);
                    world.check_device(device);
                }
                None => {
                    let gateway = via.unwrap_or_else(|| GATEWAYS[0].into());
                    world.listen(Whose::Behind { gateway }, *room, *is_lazy);
                    DEVICES.iter().for_each(|device| world.check_device(device));
                }
            }
        }
        RouterStep::Leave(index) => {
            if let Some(index) = pick(*index, world.listeners.len()) {
                world.listeners.remove(index);
            }
        }
        RouterStep::Take(index) => {
            if let Some(index) = pick(*index, world.listeners.len())
                && let Some(delivery) = world.listeners[index].take()
            {
                world.take_in_hand(delivery);
            }
            world.router.retry(world.now_ms);
        }
        RouterStep::Accept(index) | RouterStep::Release(index) | RouterStep::Reject(index) => {
            let Some(index) = pick(*index, world.hands.len()) else { return };
            let delivery = world.hands.remove(index);
            let device = delivery.command().device.clone();
            match step {
                RouterStep::Accept(_) => delivery.accept(),
                RouterStep::Reject(_) => delivery.reject(400, "no"),
                _ => delivery.release(),
            }
            world.look();
            world.check_device(&device);
        }
        RouterStep::Seen { device, gateway } => {
            world.router.seen_behind(&TenantId::default(), DEVICES[*device], GATEWAYS[*gateway]);
            world.last_gateway.insert(DEVICES[*device].to_owned(), GATEWAYS[*gateway].to_owned());
        }
        RouterStep::Register { device, is_enabled, via } => {
            let via: Vec<&str> = via.iter().map(|gateway| GATEWAYS[*gateway]).collect();
            world.known.set(DEVICES[*device], *is_enabled, &via, &[]);
        }
        RouterStep::Pass(ms) => {
            world.now_ms += ms;
            world.router.expire(world.now_ms);
        }
    }
    world.look();
}

proptest! {
    #[test]
    fn each_command_ends_once_in_order_and_reaches_only_permitted_listeners(steps in prop::collection::vec(step(), 0..120)) {
        let mut world = RouterWorld::new();
        steps.iter().for_each(|step| run(&mut world, step));
        world.hands.clear();
        world.look();
        world.listeners.clear();
        world.hands.clear();
        world.look();
        world.now_ms += 1_000;
        world.router.expire(world.now_ms);
        world.look();
        for command in &world.commands {
            let outcome = world.ends.get(&command.position).unwrap_or_else(|| panic!("no end of {command:?}"));
            prop_assert!(outcome.end != End::Accepted || world.delivered.contains(&command.position));
            prop_assert!(outcome.end != End::Expired || command.expires_ms.is_some());
        }
        prop_assert_eq!(world.router.next_expiry_ms(), None);
    }
}

fn by_itself(device: &str) -> Whose {
    Whose::Device { device: device.into(), via: None }
}

#[test]
fn the_latest_request_gets_the_command_and_the_others_are_told_at_once() {
    let mut world = RouterWorld::new();
    world.listen(by_itself("d0"), None, true);
    world.listen(by_itself("d0"), None, true);
    let Receiver::Once(first) = &mut world.listeners[0].receiver else { panic!("a stream") };
    assert_eq!(first.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
    world.send("d0", None);
    let delivery = world.listeners[1].take().unwrap();
    let request_id = RequestId::parse(delivery.request_id().unwrap()).unwrap();
    assert_eq!(request_id.correlation_id, "c");
    assert!(RequestIds::keyed(KEY).is_of(&TenantId::default(), "d0", &request_id));
    delivery.accept();
    world.look();
    assert_eq!(world.ends[&world.commands[0].position], Outcome::ACCEPTED);
}

#[test]
fn a_command_without_time_is_released_at_once_and_one_with_time_waits_for_the_next_listener() {
    let mut world = RouterWorld::new();
    world.send("d0", None);
    world.send("d0", Some(10));
    assert_eq!(world.ends[&world.commands[0].position].end, End::Released);
    world.listen(by_itself("d0"), Some(1), false);
    world.hands.remove(0).release();
    world.look();
    assert!(world.hands.is_empty(), "it is not given again to the one that has let it go");
    world.listen(by_itself("d0"), None, false);
    world.hands.remove(0).accept();
    world.look();
    assert_eq!(world.ends[&world.commands[1].position], Outcome::ACCEPTED);
}

#[test]
fn a_command_for_a_full_listener_is_released_or_retried() {
    let mut world = RouterWorld::new();
    world.listen(Whose::Behind { gateway: "g0".into() }, Some(1), true);
    world.send("d0", None);
    world.send("d1", None);
    world.send("d1", Some(10));
    assert_eq!(world.ends[&world.commands[1].position].end, End::Released);
    world.listeners[0].take().unwrap().accept();
    world.router.retry(world.now_ms);
    let delivery = world.listeners[0].take().unwrap();
    assert_eq!(delivery.command().position, world.commands[2].position);
}

#[test]
fn a_command_goes_to_another_gateway_while_the_last_one_is_full() {
    let mut world = RouterWorld::new();
    world.router.seen_behind(&TenantId::default(), "d1", "g0");
    world.listen(Whose::Behind { gateway: "g0".into() }, Some(1), true);
    world.listen(Whose::Behind { gateway: "g1".into() }, Some(1), true);
    world.send("d0", None);
    world.send("d1", None);
    let [first, second] = &mut world.listeners[..] else { panic!("two listeners") };
    let devices = [first, second].map(|listener| listener.take().map(|delivery| delivery.command().device.to_string()));
    assert_eq!(devices, [Some("d0".to_owned()), Some("d1".to_owned())]);
}

#[test]
fn a_device_that_is_gone_when_its_command_is_to_be_delivered_rejects_it() {
    let mut world = RouterWorld::new();
    world.send("d0", Some(10));
    world.known.set("d0", false, &[], &[]);
    world.listen(by_itself("d0"), Some(1), false);
    let outcome = &world.ends[&world.commands[0].position];
    assert_eq!((outcome.end, outcome.status), (End::Rejected, 404));
}
