//! A client that has logged in: what it has sent and what is promised to it. Everything here is done at once, while its
//! packets lie in the buffer that they were read into; only the connection waits.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use millstream_mqtt::from_client::{Packet, decode};
use millstream_mqtt::to_client::pong;
use millstream_mqtt::{Disconnect, Framed, Publish, Qos, Subscribe, Unsubscribe, Version, frame, reason};
use millstream_types::{Principal, TenantId};
use smallvec::SmallVec;

use super::adapter::{ConnectionSlot, MqttAdapter};
use super::broker::LimitReached;
use super::broker_client::{BrokerClient, PendingSubscribe};
use super::client_figures::ClientFigures;
use super::deliveries::Deliveries;
use super::disconnect::{CONNECT_MAX_BYTES, DisconnectCause};
use super::error_filter::ErrorFilter;
use super::incoming::{IncomingPublish, Topic};
use super::last_will::LastWill;
use super::pending::Waits;
use super::provisioning::ProvisioningGateway;
use super::session_store::StoreReply;
use super::topic::is_about_commands;
use super::will::PendingWill;
use crate::connections::{DeviceConnection, Unauthenticated};
use crate::credential_cache::CachedLogin;
use crate::streams::TenantStreams;
use crate::topic_filter::is_reserved;
use crate::uplink::UplinkSession;

/// Filters on the error topic that one connection may have.
const ERROR_FILTERS_MAX: usize = 16;

pub(super) struct Client {
    pub(super) adapter: Arc<MqttAdapter>,
    /// Its way into the log, on Hono's topics and in the private space.
    pub(super) uplink: UplinkSession<StoreReply, Waits>,
    /// The verified login; `None` for an anonymous client.
    pub(super) login: Option<Arc<CachedLogin>>,
    /// The tenant that an anonymous client has to switch to before its next packet is handled.
    pub(super) turns_to: Option<TenantId>,
    /// Set for a gateway that may register devices.
    pub(super) provisions: Option<ProvisioningGateway>,
    pub(super) version: Version,
    pub(super) takes: Takes,
    /// Commands, once it has subscribed to them.
    pub(super) commands: Option<Box<Deliveries>>,
    pub(super) errors: Vec<ErrorFilter>,
    /// The tenant's private space, unless that is off.
    pub(super) broker_client: Option<BrokerClient>,
    aliases: Vec<Option<Arc<str>>>,
    /// True if something has come after which the private space may have more to send. Its own news rings the bell.
    pub(super) is_stirred: bool,
    /// Ids of messages exactly once that have come over this connection, and that the client has not let go of; of MQTT 5,
    /// in which it was told how many there may be.
    pub(super) open: HashSet<u16>,
    /// Ids in the packets that are being read: of messages at QoS 2 that the client has, and of those that it has forgotten.
    pub(super) received: Vec<u16>,
    pub(super) forgotten: Vec<u16>,
    /// The client's DISCONNECT, if it has sent one.
    pub(super) end: Option<Disconnect>,
    pub(super) will: Option<LastWill>,
    /// What the table of connections shows of it.
    pub(super) figures: Arc<ClientFigures>,
    /// That a subscription was refused for a limit is in the server's log.
    has_logged_limit: bool,
    _counted: Counted,
}

/// Messages that are worked off together; mostly one.
type IncomingPublishes<'a> = SmallVec<[IncomingPublish<'a>; 1]>;

/// The counts that hold a client while it is connected.
#[allow(dead_code, reason = "what counts ends when it is dropped")]
pub(super) enum Counted {
    Device(ConnectionSlot, DeviceConnection),
    Anonymous(Unauthenticated),
}

/// Limits that the client has set in CONNECT.
#[derive(Debug, Clone, Copy)]
pub(super) struct Takes {
    pub(super) packet_max_bytes: usize,
    /// Messages that may be on their way and not acknowledged.
    pub(super) messages: usize,
}

impl Client {
    pub(super) fn new(
        adapter: Arc<MqttAdapter>,
        who: Arc<Principal>,
        known: Option<(Arc<CachedLogin>, Arc<TenantStreams>)>,
        version: Version,
        takes: Takes,
        counted: Counted,
    ) -> Self {
        let (login, streams) = known.unzip();
        let uplink = UplinkSession::new(Arc::clone(&adapter.uplink), who, streams);
        let mut client = Self {
            adapter,
            uplink,
            login,
            turns_to: None,
            provisions: None,
            version,
            takes,
            commands: None,
            errors: Vec::new(),
            broker_client: None,
            aliases: Vec::new(),
            is_stirred: true,
            open: HashSet::new(),
            received: Vec::new(),
            forgotten: Vec::new(),
            end: None,
            will: None,
            figures: Arc::default(),
            has_logged_limit: false,
            _counted: counted,
        };
        client.look_at_authority();
        client
    }

    /// True if the client has sent as much as it may before it is acknowledged, or more than the log keeps up with.
    pub(super) fn is_full(&self) -> bool {
        self.turns_to.is_some()
            || self.is_provisioning()
            || self.uplink.is_full(usize::from(self.adapter.config.in_flight_max))
    }

    /// Largest packet that it may send. One without login sends telemetry and events only, so it gets no more than these take.
    pub(super) fn packet_max_bytes(&self) -> usize {
        let config = &self.adapter.config;
        match self.login {
            Some(_) => config.packet_max_bytes,
            None => config.packet_max_bytes.min(config.payload_max_bytes.saturating_add(CONNECT_MAX_BYTES)),
        }
    }

    /// The cause with the limit that is this client's.
    pub(super) fn with_own_limit(&self, fault: DisconnectCause) -> DisconnectCause {
        match fault {
            DisconnectCause::TooLarge { size_bytes, limit_bytes } if self.login.is_none() => {
                DisconnectCause::LargeWithoutLogin { size_bytes, limit_bytes }
            }
            other => other,
        }
    }

    /// Works through the packets at hand; answers how many bytes it has taken.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, DisconnectCause> {
        self.uplink.arrive();
        let mut items = IncomingPublishes::new();
        let taken = self.packets(bytes, &mut items, out);
        // The packets before a fault are valid.
        self.send(&items, out)?;
        self.keep_receipts(out)?;
        taken
    }

    fn packets<'a>(
        &mut self,
        bytes: &'a [u8],
        items: &mut IncomingPublishes<'a>,
        out: &mut Vec<u8>,
    ) -> Result<usize, DisconnectCause> {
        let in_flight_max = usize::from(self.adapter.config.in_flight_max);
        let mut taken = 0;
        while self.end.is_none() && self.uplink.messages() + items.len() < in_flight_max {
            let Framed::Whole(frame) = frame(&bytes[taken..], self.packet_max_bytes())? else { break };
            let packet = decode(frame, self.version)?;
            if self.login.is_none() && self.has_to_turn(&packet)? {
                break;
            }
            if self.provisions.is_some() && self.has_to_provision(&packet)? {
                break;
            }
            taken += frame.size;
            if let Packet::Publish(publish) = packet {
                let topic = self.topic(&publish)?;
                items.push(IncomingPublish { topic, publish });
                continue;
            }
            self.send(&std::mem::take(items), out)?;
            self.packet(packet, out)?;
        }
        Ok(taken)
    }

    fn packet(&mut self, packet: Packet<'_>, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
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
            Packet::Connect(_) => return Err(DisconnectCause::Protocol("a second CONNECT")),
            Packet::Auth => return Err(DisconnectCause::Protocol("AUTH without an authentication method")),
        }
        Ok(())
    }

    fn disconnect(&mut self, given: Disconnect) -> Result<(), DisconnectCause> {
        if let (Some(broker_client), Some(expiry_s)) = (&self.broker_client, given.session_expiry_s) {
            broker_client.end_with(expiry_s)?;
        }
        self.end = Some(given);
        Ok(())
    }

    pub(super) fn topic<'a>(&mut self, publish: &Publish<'a>) -> Result<Topic<'a>, DisconnectCause> {
        let alias = usize::from(publish.properties.alias);
        if alias == 0 {
            return Ok(Topic::Named(publish.topic));
        }
        let limit = usize::from(self.adapter.config.aliases_max);
        if alias > limit {
            let why = format!("topic alias {alias}; connect.mqtt.aliases_max = {limit}");
            return Err(DisconnectCause::refused(reason::BAD_ALIAS, why));
        }
        if self.aliases.len() < alias {
            self.aliases.resize(alias, None);
        }
        let known = &mut self.aliases[alias - 1];
        if !publish.topic.is_empty() {
            *known = Some(publish.topic.into());
            return Ok(Topic::Named(publish.topic));
        }
        known.clone().map(Topic::Alias).ok_or(DisconnectCause::Protocol("a topic alias that stands for nothing"))
    }

    fn subscribe(&mut self, given: &Subscribe<'_>, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let most = self.adapter.config.broker.filters_max;
        let mut codes = Vec::with_capacity(given.filters.len());
        let mut wanted = PendingSubscribe::default();
        for (at, (filter, options)) in given.filters.iter().enumerate() {
            codes.push(if at >= most {
                self.limit_reached(
                    filter,
                    LimitReached { limit: "connect.mqtt.broker.filters_max", value: most as u64 },
                )
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
        self.note_reserved();
        self.answer_subscription(given.id, codes, wanted, out)
    }

    /// Subscribes to commands or errors and returns the reason code for SUBACK.
    pub(super) fn subscribe_reserved(&mut self, filter: &str, qos: Qos) -> u8 {
        if is_about_commands(filter) {
            self.subscribe_to_commands(filter, qos)
        } else {
            self.subscribe_to_errors(filter, qos)
        }
    }

    /// Notes the subscriptions to commands and errors for the table of connections. A client without login names a tenant in
    /// each: the tenant that it speaks for is shown its own.
    pub(super) fn note_reserved(&self) {
        let commands = self.commands.iter().flat_map(|commands| &commands.subscribed);
        let filters = commands.map(|known| &*known.filter.text).chain(self.errors.iter().map(|known| &*known.filter));
        let tenant = self.uplink.tenant().as_str();
        let is_shown =
            |filter: &&str| filter.split('/').nth(1).is_some_and(|named| named.is_empty() || named == tenant);
        self.figures.note_reserved(filters.filter(is_shown));
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
            let limit = "subscriptions to errors of one connection";
            return self.limit_reached(filter, LimitReached { limit, value: ERROR_FILTERS_MAX as u64 });
        }
        self.errors.push(parsed);
        reason::SUCCESS
    }

    /// Counts a subscription that a limit refuses, and logs the first one of the connection. Returns the reason code.
    pub(super) fn limit_reached(&mut self, filter: &str, reached: LimitReached) -> u8 {
        let LimitReached { limit, value } = reached;
        let tenant = self.uplink.tenant();
        self.adapter.counts.subscription_refused(tenant, reached);
        if !std::mem::replace(&mut self.has_logged_limit, true) {
            let device = &*self.uplink.who().name;
            tracing::warn!(%tenant, device, filter, "mqtt: a subscription is refused, {limit} = {value} is reached");
        }
        reason::QUOTA
    }

    fn unsubscribe(&mut self, given: &Unsubscribe<'_>, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
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
        self.note_reserved();
        self.answer_unsubscription(given.id, codes, out)
    }

    /// Time until the login expires with its secret, certificate or token; `None` without a login or if it does not end.
    pub(super) fn secret_lasts(&self) -> Option<Duration> {
        let end_ms = self.login.as_ref()?.ends_ms()?;
        let left_ms = end_ms.saturating_add(1).saturating_sub(self.adapter.uplink.wall.now_ms());
        Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
    }

    /// True if the will is published at this end: not after a normal DISCONNECT, and not when the server shuts down.
    pub(super) fn leaves_its_will(&self, fault: Option<&DisconnectCause>) -> bool {
        let is_orderly = self.end.is_some_and(|end| end.reason == reason::SUCCESS);
        !is_orderly && !matches!(fault, Some(DisconnectCause::ShuttingDown))
    }

    /// Sends the client's will, unless it has said good-bye without it. The server's own end is no reason for it.
    pub(super) fn execute_will(&mut self, fault: Option<&DisconnectCause>) {
        let Some(will) = self.will.take().filter(|_| self.leaves_its_will(fault)) else { return };
        if !is_reserved(&will.topic) {
            if let (Some(broker_client), Some(streams)) = (&self.broker_client, self.uplink.streams()) {
                let (ingest, streams) = (Arc::clone(&self.adapter.uplink.ingest), Arc::clone(streams));
                let (who, meter) = (Arc::clone(self.uplink.who()), Arc::clone(self.uplink.meter()));
                let payload_max_bytes = self.adapter.config.payload_max_bytes;
                broker_client.link.leave_will(PendingWill { will, ingest, streams, meter, who, payload_max_bytes });
            }
            return;
        }
        self.uplink.arrive();
        // Nobody is left to be told of a refusal; it is counted.
        let _ = self.send(&[will.as_item()], &mut Vec::new());
    }
}
