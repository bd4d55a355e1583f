//! Opens the links of a client: who may have which, and with what behind it.

use std::sync::Arc;

use millstream_amqp::{Attach, Detach, ErrorInfo, Performative, TargetTerminus, Value, condition, write_frame};
use millstream_log::Bell;
use millstream_net::Login;
use millstream_types::{TenantId, TopicKind};

use super::adapter::AmqpAdapter;
use super::address::StreamAddress;
use super::incoming_command::command_address;
use super::link::SenderLink;
use super::receiver_link::{LinkFault, ReceiverLink};
use super::stream_queues::{NoQueue, QueueName};
use crate::stream::Stream;

/// Memory that a link counts for: what is on its way over it.
const LINK_BYTES: u64 = 64 << 10;
const NO_ROOM: &str = "connect.amqp.buffers_max_bytes has no room for another link; try again later";
const ADDRESSES: &str = "telemetry/TENANT, event/TENANT or command_response/TENANT/REPLY";
/// Link property by whose value receivers share a queue of their own.
const SUBSCRIPTION: &str = "subscription-name";
const SUBSCRIPTION_MAX_BYTES: usize = 256;
const TOO_MANY_QUEUES: &str = "a tenant has at most 16 queues of events; take a subscription-name that is there, one that is not used for a week is forgotten";

/// Opens the links of one connection.
pub(super) struct LinkOpener {
    adapter: Arc<AmqpAdapter>,
    login: Login,
    /// The tenant whose topics cannot be resolved, with the reason.
    unresolved: Option<(TenantId, String)>,
    /// Number of links that clients send over.
    opened: u64,
}

/// The end of an attempt to open the link of a receiver.
pub(super) enum Opened {
    Link(SenderLink),
    /// The topics of this tenant have to be resolved first.
    Later(TenantId),
}

impl LinkOpener {
    pub(super) fn new(adapter: Arc<AmqpAdapter>, login: Login) -> Self {
        Self { adapter, login, unresolved: None, opened: 0 }
    }

    /// The topics of a tenant are resolved, or cannot be for this reason.
    pub(super) fn resolved(&mut self, tenant: TenantId, why: Option<String>) {
        self.unresolved = why.map(|why| (tenant, why));
    }

    /// Opens the link of a client that sends commands.
    pub(super) fn sender(&mut self, attach: &Attach<'_>) -> Result<ReceiverLink, LinkFault> {
        let target = match attach.target {
            Some(TargetTerminus::Node(target)) if !target.dynamic => target,
            Some(_) => return Err((condition::NOT_IMPLEMENTED, "a target that is no address".to_owned())),
            None => return Err((condition::NOT_FOUND, "a sender without a target".to_owned())),
        };
        let address = target.address.filter(|address| *address != Value::Null);
        let mut tenant = None;
        if let Some(address) = address {
            let text = address.text().unwrap_or_default();
            let why = || format!("'{text}' takes no messages; use command/TENANT, or no address");
            let (named, _) = command_address(text).ok_or_else(|| (condition::NOT_FOUND, why()))?;
            if !self.adapter.may_command(&self.login, &named) {
                let name = &self.login.principal.name;
                let why = format!("'{name}' may not send to '{text}'; that takes the role writer in its tenant");
                return Err((condition::UNAUTHORIZED_ACCESS, why));
            }
            if !self.adapter.knows(&named) {
                return Err((condition::NOT_FOUND, format!("tenant '{named}' is not registered")));
            }
            tenant = Some(named);
        }
        let message_max_bytes = self.adapter.message_max_bytes();
        let room = self.adapter.buffers.take_for(&self.login.principal.tenant, message_max_bytes as u64);
        let room = room.ok_or_else(|| (condition::RESOURCE_LIMIT_EXCEEDED, NO_ROOM.to_owned()))?;
        self.opened += 1;
        Ok(ReceiverLink::new(tenant, self.opened, message_max_bytes, room))
    }

    /// Opens the link of a client that receives. `hang` hangs up the bell that is to ring for it.
    pub(super) fn receiver(
        &mut self,
        attach: &Attach<'_>,
        hang: impl FnOnce() -> Arc<Bell>,
    ) -> Result<Opened, LinkFault> {
        let text = attach.source.and_then(|source| source.address).and_then(|address| address.text());
        let text = text.ok_or((condition::NOT_FOUND, "a source without an address".to_owned()))?;
        let unknown = || (condition::NOT_FOUND, format!("'{text}' is no address of a stream; use {ADDRESSES}"));
        let address = StreamAddress::parse(text).ok_or_else(unknown)?;
        if !self.adapter.may_receive(&self.login, &address) {
            let name = &self.login.principal.name;
            let why = format!("'{name}' may not receive '{text}'; that takes the role reader in its tenant");
            return Err((condition::UNAUTHORIZED_ACCESS, why));
        }
        if attach.rcv_settle_mode == 1 {
            let why = "receivers settle first (rcv-settle-mode 0)".to_owned();
            return Err((condition::NOT_IMPLEMENTED, why));
        }
        if !self.adapter.knows(&address.tenant) {
            return Err((condition::NOT_FOUND, format!("tenant '{}' is not registered", address.tenant)));
        }
        let Some(streams) = self.adapter.streams.known(&address.tenant) else {
            if let Some((_, why)) = self.unresolved.take_if(|(tenant, _)| *tenant == address.tenant) {
                return Err((condition::INTERNAL_ERROR, why));
            }
            return Ok(Opened::Later(address.tenant));
        };
        let no_room = || (condition::RESOURCE_LIMIT_EXCEEDED, NO_ROOM.to_owned());
        let tenant = &self.login.principal.tenant;
        let room = self.adapter.buffers.take_for(tenant, LINK_BYTES).ok_or_else(no_room)?;
        let subscription = attach.properties.and_then(|properties| properties.get(SUBSCRIPTION));
        let subscription = subscription.and_then(|name| name.text()).filter(|name| !name.is_empty());
        if let Some(name) = subscription.filter(|name| name.len() > SUBSCRIPTION_MAX_BYTES || name.contains('\0')) {
            let why = format!("{SUBSCRIPTION} of {} bytes; use 1 to {SUBSCRIPTION_MAX_BYTES} without NUL", name.len());
            return Err((condition::INVALID_FIELD, why));
        }
        let name = QueueName { address: address.clone(), subscription: subscription.map(Into::into) };
        let stream = match address.kind {
            TopicKind::Event => Stream::Event,
            TopicKind::CommandResponse => Stream::CommandResponse,
            _ => Stream::Telemetry,
        };
        let queue = self.adapter.queues.of(name, streams.partitions(stream), &self.adapter.buffers);
        let queue = queue.map_err(|refused| match refused {
            NoQueue::NoMemory => no_room(),
            NoQueue::TooMany => (condition::RESOURCE_LIMIT_EXCEEDED, TOO_MANY_QUEUES.to_owned()),
        })?;
        let receiver = queue.join(hang());
        Ok(Opened::Link(SenderLink::new(address, text, receiver, attach.snd_settle_mode == 1, room)))
    }
}

/// Attaches a link without its end, and detaches it at once (section 2.6.3).
pub(super) fn refuse_link(channel: u16, attach: &Attach<'_>, fault: &LinkFault, out: &mut Vec<u8>) {
    let (condition, why) = fault;
    let own = Attach {
        name: attach.name,
        handle: attach.handle,
        role: !attach.role,
        initial_delivery_count: attach.role.then_some(0),
        ..Attach::default()
    };
    write_frame(out, channel, &Performative::Attach(own), &[]);
    let error = Some(ErrorInfo::new(condition, why));
    let detach = Detach { handle: attach.handle, closed: true, error };
    write_frame(out, channel, &Performative::Detach(detach), &[]);
}
