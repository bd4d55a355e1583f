//! A client that has logged in: what it has sent and what is promised to it. Everything here is done at once, while its
//! packets lie in the buffer that they were read into; only the connection waits.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_types::{Principal, TenantId};
use smallvec::SmallVec;

use super::adapter::{ADAPTER, MqttAdapter, Place as Seat};
use super::commands::Deliveries;
use super::connect_packet::Will;
use super::encode::pong;
use super::error_filter::ErrorFilter;
use super::fault::{Fault, reason};
use super::packet::{Disconnect, Packet, Publish, PublishProperties, Qos, Subscribe, Unsubscribe, Version, decode};
use super::pending::Pending;
use super::private::{Private, Wanted, expires};
use super::property::{MESSAGE_EXPIRY, WILL_DELAY, without};
use super::space::message::Draft;
use super::toll::LeftWill;
use super::topic::is_about_commands;
use super::upstream::Item;
use super::wire::{Framed, frame};
use crate::connections::{Connection, Unauthenticated};
use crate::meter::Meter;
use crate::streams::TenantStreams;
use crate::topic_filter::is_reserved;
use crate::verified::Verified;

/// Filters on the error topic that one connection may have.
const ERROR_FILTERS_MAX: usize = 16;

/// A client.
pub(super) struct Client {
    pub(super) adapter: Arc<MqttAdapter>,
    /// On whose behalf it speaks.
    pub(super) who: Arc<Principal>,
    /// The login by which it does; without one it is a stranger.
    pub(super) login: Option<Arc<Verified>>,
    /// Topics of its tenant; a stranger has none before it names a tenant.
    pub(super) streams: Option<Arc<TenantStreams>>,
    /// The tenant that a stranger has to turn to before its next packet is worked off.
    pub(super) turns_to: Option<TenantId>,
    /// The tenant's topics have to be resolved again.
    pub(super) are_streams_stale: bool,
    pub(super) meter: Arc<Meter>,
    pub(super) version: Version,
    pub(super) takes: Takes,
    /// Commands, once it has subscribed to them.
    pub(super) commands: Option<Box<Deliveries>>,
    pub(super) errors: Vec<ErrorFilter>,
    /// The tenant's private space, unless that is off.
    pub(super) private: Option<Private>,
    aliases: Vec<Option<Arc<str>>>,
    pub(super) pending: VecDeque<Pending>,
    /// Monotonic time at which what is being worked off came.
    pub(super) now: Duration,
    /// Messages in [`Client::pending`].
    pub(super) waiting: usize,
    /// Whether something has come by which the private space may have more to send. Where it has so by itself, it rings.
    pub(super) is_stirred: bool,
    /// Runs of messages in [`Client::pending`] that the tenant's owner publishes.
    pub(super) owned: usize,
    /// Whether its last message was one that nobody waits for.
    pub(super) sends_unwaited: bool,
    /// Whether [`Client::pending`] has a wait for room in the log.
    pub(super) is_held_back: bool,
    /// Ids of messages exactly once that have come over this connection, and that the client has not let go of; of MQTT 5,
    /// in which it was told how many there may be.
    pub(super) open: HashSet<u16>,
    /// Ids of messages exactly once that the client has got, and of those that it has forgotten, in what is being read.
    pub(super) received: Vec<u16>,
    pub(super) forgotten: Vec<u16>,
    /// How the client has ended the connection, if it has.
    pub(super) end: Option<Disconnect>,
    pub(super) will: Option<LastWill>,
    _counted: Counted,
}

/// Messages that are worked off together; mostly one.
type Items<'a> = SmallVec<[Item<'a>; 1]>;

/// As what a client counts while it is connected.
#[allow(dead_code, reason = "what counts ends when it is dropped")]
pub(super) enum Counted {
    Device(Seat, Connection),
    Stranger(Unauthenticated),
}

/// What a client is able to take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Takes {
    /// Largest packet.
    pub(super) packet_max_bytes: usize,
    /// Messages that may be on their way and not acknowledged.
    pub(super) messages: usize,
}

/// What is published when the client goes without a word.
#[derive(Debug)]
pub(crate) struct LastWill {
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) topic: Box<str>,
    pub(super) content_type: Option<Box<str>>,
    pub(crate) payload: Box<[u8]>,
    /// How long the session may be left alone before it is published.
    pub(super) delay_s: u32,
    expiry_s: Option<u32>,
    /// Those that pass through as they came.
    properties: Vec<u8>,
}

impl LastWill {
    pub(super) fn of(will: &Will<'_>) -> Self {
        Self {
            qos: will.qos,
            retain: will.retain,
            topic: will.topic.into(),
            content_type: will.properties.content_type.map(Into::into),
            payload: will.payload.into(),
            delay_s: will.delay_s,
            expiry_s: will.properties.expiry_s,
            properties: without(will.properties.bytes, &[WILL_DELAY, MESSAGE_EXPIRY]),
        }
    }

    /// When it is void if it is published now; empty if never.
    pub(super) fn expires(&self, now_ms: i64) -> String {
        expires(self.expiry_s, now_ms)
    }

    /// As a message of the private space.
    pub(super) fn draft<'a>(
        &'a self,
        client: &'a str,
        device: &'a str,
        expires: &'a str,
        is_mapped: bool,
    ) -> Draft<'a> {
        Draft {
            is_mapped,
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            adapter: ADAPTER,
            client,
            device,
            content_type: self.content_type.as_deref(),
            properties: &self.properties,
            expires,
        }
    }

    /// As a message that its client sends.
    pub(super) fn as_item(&self) -> Item<'_> {
        let properties =
            PublishProperties { content_type: self.content_type.as_deref(), ..PublishProperties::default() };
        let (qos, retain, topic, payload) = (self.qos, self.retain, &*self.topic, &*self.payload);
        Item {
            topic: Topic::Named(topic),
            publish: Publish { dup: false, retain, qos, topic, id: 0, properties, payload },
        }
    }
}

/// A message's topic: as it stands in the packet, or the one that its alias stands for.
#[derive(Debug, Clone)]
pub(super) enum Topic<'a> {
    Named(&'a str),
    Alias(Arc<str>),
}

impl Topic<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Named(topic) => topic,
            Self::Alias(topic) => topic,
        }
    }
}

impl Client {
    pub(super) fn new(
        adapter: Arc<MqttAdapter>,
        who: Arc<Principal>,
        known: Option<(Arc<Verified>, Arc<TenantStreams>)>,
        (version, takes): (Version, Takes),
        counted: Counted,
    ) -> Self {
        let meter = adapter.meters.of(&who.tenant);
        let now = adapter.monotonic.now();
        let (login, streams) = known.unzip();
        Self {
            adapter,
            who,
            login,
            streams,
            turns_to: None,
            are_streams_stale: false,
            meter,
            version,
            takes,
            commands: None,
            errors: Vec::new(),
            private: None,
            aliases: Vec::new(),
            pending: VecDeque::new(),
            now,
            waiting: 0,
            is_stirred: true,
            owned: 0,
            sends_unwaited: false,
            is_held_back: false,
            open: HashSet::new(),
            received: Vec::new(),
            forgotten: Vec::new(),
            end: None,
            will: None,
            _counted: counted,
        }
    }

    /// Whether the client has sent as much as it may before it is acknowledged, or more than the log keeps up with.
    pub(super) fn is_full(&self) -> bool {
        self.is_held_back || self.turns_to.is_some() || self.waiting >= usize::from(self.adapter.config.in_flight_max)
    }

    /// Works through the packets at hand; answers how many bytes it has taken.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Fault> {
        self.now = self.adapter.monotonic.now();
        let mut items = Items::new();
        let taken = self.packets(bytes, &mut items, out);
        // What came before a fault was in order.
        self.send(&items, out)?;
        self.keep_receipts(out)?;
        taken
    }

    fn packets<'a>(&mut self, bytes: &'a [u8], items: &mut Items<'a>, out: &mut Vec<u8>) -> Result<usize, Fault> {
        let in_flight_max = usize::from(self.adapter.config.in_flight_max);
        let mut taken = 0;
        while self.end.is_none() && self.waiting + items.len() < in_flight_max {
            let Framed::Whole(frame) = frame(&bytes[taken..], self.adapter.config.packet_max_bytes)? else { break };
            let packet = decode(frame, self.version)?;
            if self.login.is_none() && self.has_to_turn(&packet)? {
                break;
            }
            taken += frame.size;
            if let Packet::Publish(publish) = packet {
                let topic = self.topic(&publish)?;
                items.push(Item { topic, publish });
                continue;
            }
            self.send(&std::mem::take(items), out)?;
            self.packet(packet, out)?;
        }
        Ok(taken)
    }

    fn packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.is_stirred |= !matches!(packet, Packet::PingReq);
        match packet {
            Packet::PingReq => pong(out),
            Packet::Disconnect(given) => self.disconnect(given)?,
            Packet::Subscribe(given) => self.subscribe(&given, out)?,
            Packet::Unsubscribe(given) => self.unsubscribe(&given, out)?,
            Packet::PubAck(given) if self.command_acknowledged(given)? => {}
            Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubRel(_) | Packet::PubComp(_) => {
                self.private_ack(&packet, out)?
            }
            // They are worked off together.
            Packet::Publish(_) => {}
            Packet::Connect(_) => return Err(Fault::Protocol("a second CONNECT")),
            Packet::Auth => return Err(Fault::Protocol("AUTH without an authentication method")),
        }
        Ok(())
    }

    fn disconnect(&mut self, given: Disconnect) -> Result<(), Fault> {
        if let (Some(private), Some(expiry_s)) = (&self.private, given.session_expiry_s) {
            private.end_with(expiry_s)?;
        }
        self.end = Some(given);
        Ok(())
    }

    pub(super) fn topic<'a>(&mut self, publish: &Publish<'a>) -> Result<Topic<'a>, Fault> {
        let alias = usize::from(publish.properties.alias);
        if alias == 0 {
            return Ok(Topic::Named(publish.topic));
        }
        let limit = usize::from(self.adapter.config.aliases_max);
        if alias > limit {
            let why = format!("topic alias {alias}; connect.mqtt.aliases_max = {limit}");
            return Err(Fault::refused(reason::BAD_ALIAS, why));
        }
        if self.aliases.len() < alias {
            self.aliases.resize(alias, None);
        }
        let known = &mut self.aliases[alias - 1];
        if !publish.topic.is_empty() {
            *known = Some(publish.topic.into());
            return Ok(Topic::Named(publish.topic));
        }
        known.clone().map(Topic::Alias).ok_or(Fault::Protocol("a topic alias that stands for nothing"))
    }

    fn subscribe(&mut self, given: &Subscribe<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let most = self.adapter.config.broker.filters_max;
        let mut codes = Vec::with_capacity(given.filters.len());
        let mut wanted = Wanted::default();
        for (at, (filter, options)) in given.filters.iter().enumerate() {
            codes.push(if at >= most {
                reason::QUOTA
            } else if is_reserved(filter) {
                let code = self.subscribe_reserved(filter, options.qos);
                if code < reason::UNSPECIFIED {
                    self.reserve(filter, options.qos, &mut wanted)?;
                }
                code
            } else {
                self.subscribe_private(filter, *options, given.subscription_id, &mut wanted)?
            });
        }
        self.answer_subscription(given.id, codes, wanted, out)
    }

    /// Subscribes to commands or errors; the code that answers it.
    pub(super) fn subscribe_reserved(&mut self, filter: &str, qos: Qos) -> u8 {
        if is_about_commands(filter) {
            self.subscribe_to_commands(filter, qos)
        } else {
            self.subscribe_to_errors(filter, qos)
        }
    }

    fn subscribe_to_errors(&mut self, filter: &str, qos: Qos) -> u8 {
        let parsed = match self.named_in(filter) {
            Some(who) => ErrorFilter::parse(filter, who.tenant.as_str()),
            None => None,
        };
        let Some(parsed) = parsed else { return reason::BAD_FILTER };
        if qos != Qos::AtMostOnce {
            return reason::NOT_AUTHORISED;
        }
        self.errors.retain(|known| known.filter != parsed.filter);
        if self.errors.len() >= ERROR_FILTERS_MAX {
            return reason::QUOTA;
        }
        self.errors.push(parsed);
        reason::SUCCESS
    }

    fn unsubscribe(&mut self, given: &Unsubscribe<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut codes = Vec::with_capacity(given.filters.len());
        for filter in &given.filters {
            let before = self.errors.len();
            self.errors.retain(|known| &*known.filter != *filter);
            self.unreserve(filter)?;
            let is_gone = self.errors.len() < before
                || self.commands.as_mut().is_some_and(|commands| commands.unsubscribe(filter))
                || self.unsubscribe_private(filter)?;
            codes.push(if is_gone { reason::SUCCESS } else { reason::NO_SUBSCRIPTION_EXISTED });
        }
        self.answer_unsubscription(given.id, codes, out)
    }

    /// How long the secret that the device has logged in with is still good; `None` if it does not end.
    pub(super) fn secret_lasts(&self) -> Option<Duration> {
        let login = self.login.as_ref()?;
        let end = login.credential.secrets[login.secret].not_after?;
        let left_ms = end.0.saturating_add(1).saturating_sub(self.adapter.wall.now_ms());
        Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
    }

    /// Whether a client that goes so leaves its will: it takes it along by a normal good-bye only.
    pub(super) fn leaves_its_will(&self, fault: Option<&Fault>) -> bool {
        let is_orderly = self.end.is_some_and(|end| end.reason == reason::SUCCESS);
        !is_orderly && !matches!(fault, Some(Fault::ShuttingDown))
    }

    /// Sends the client's will, unless it has said good-bye without it. The server's own end is no reason for it.
    pub(super) fn execute_will(&mut self, fault: Option<&Fault>) {
        let Some(will) = self.will.take().filter(|_| self.leaves_its_will(fault)) else { return };
        if !is_reserved(&will.topic) {
            if let (Some(private), Some(streams)) = (&self.private, &self.streams) {
                let (registry, streams) = (self.adapter.registry.clone(), Arc::clone(streams));
                let (who, meter) = (Arc::clone(&self.who), Arc::clone(&self.meter));
                let payload_max_bytes = self.adapter.config.payload_max_bytes;
                private.link.leave_will(LeftWill { will, registry, streams, meter, who, payload_max_bytes });
            }
            return;
        }
        self.now = self.adapter.monotonic.now();
        // Nobody is left to be told of a refusal; it is counted.
        let _ = self.send(&[will.as_item()], &mut Vec::new());
    }

    /// Messages that the client has sent and nobody has answered for count as refused when it goes.
    pub(super) fn count_unanswered(&self) {
        self.adapter.totals.rejected.fetch_add(self.waiting as u64, Ordering::Relaxed);
    }
}
