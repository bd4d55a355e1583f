//! The state of one connection: it answers each frame of the peer, and sends over the peer's links.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use millstream_amqp::{
    Attach, Begin, Body, Close, DeliveryState, Detach, Disposition, End, ErrorInfo, Flow, Framed, Multiple, Open,
    Performative, Source, SymbolsBuilder, Transfer, condition, frame, write_frame,
};
use millstream_log::{Bell, Board};
use millstream_net::Login;
use millstream_types::TenantId;

use super::adapter::AmqpAdapter;
use super::address::StreamAddress;
use super::fault::Fault;
use super::link::{MessageRest, SenderLink};
use super::outgoing::MessageWriter;
use super::session::Session;
use super::stream_queue::{Pulled, Taken};
use super::stream_queues::QueueName;
use super::unsettled_room::UnsettledRoom;
use crate::stream::Stream;

/// Bytes after which the buffer is sent before more is added.
const BURST_BYTES: usize = 64 << 10;
/// Room in a frame for the performative of a transfer.
const TRANSFER_BYTES: usize = 64;
/// Memory that a link counts for: what is on its way over it.
const LINK_BYTES: u64 = 64 << 10;
const NO_ROOM: &str = "connect.amqp.buffers_max_bytes has no room for another link; try again later";
/// Deliveries that are taken of a queue at a time.
const PULLED_AT_ONCE: u32 = 256;
/// Link property by whose value receivers share a queue of their own.
const SUBSCRIPTION: &str = "subscription-name";

/// A link, by the channel of its session and its handle.
type LinkKey = (u16, u32);

/// The state of one connection.
pub(super) struct Engine {
    adapter: Arc<AmqpAdapter>,
    login: Login,
    /// The peer's limits, once it has opened.
    remote: Option<Remote>,
    sessions: HashMap<u16, Session>,
    /// Links that may have something to send.
    stirred: BTreeSet<LinkKey>,
    board: Arc<Board<LinkKey>>,
    /// The bell of the board.
    bell: Arc<Bell>,
    /// The bells of links.
    bells: HashMap<LinkKey, Arc<Bell>>,
    writer: MessageWriter,
    /// Memory of messages that are being written.
    message: Vec<u8>,
    unsettled: UnsettledRoom,
    /// Links that wait for memory.
    starved: BTreeSet<LinkKey>,
    /// A tenant whose topics have to be resolved before the next frame is handled.
    resolves: Option<TenantId>,
    /// The tenant whose topics cannot be resolved, with the reason.
    unresolved: Option<(TenantId, String)>,
    is_closed: bool,
}

/// The limits of a peer.
struct Remote {
    container_id: Box<str>,
    frame_max_bytes: usize,
    idle: Option<Duration>,
}

/// The end of a frame's handling.
enum Handled {
    Done,
    /// It has to be handled again once the topics of a tenant are resolved.
    Later,
}

impl Engine {
    pub(super) fn new(adapter: Arc<AmqpAdapter>, login: Login) -> Self {
        let bell = Arc::new(Bell::default());
        let (budget, tenant) = (adapter.buffers.clone(), login.principal.tenant.clone());
        let unsettled = UnsettledRoom::new(budget, tenant, adapter.config.unsettled_max);
        Self {
            adapter,
            login,
            remote: None,
            sessions: HashMap::new(),
            stirred: BTreeSet::new(),
            board: Board::new(Arc::clone(&bell)),
            bell,
            bells: HashMap::new(),
            writer: MessageWriter::default(),
            message: Vec::new(),
            unsettled,
            starved: BTreeSet::new(),
            resolves: None,
            unresolved: None,
            is_closed: false,
        }
    }

    /// The bell that rings when a link may have something to send.
    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(super) fn login(&self) -> &Login {
        &self.login
    }

    /// True once the peer has closed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Time without a frame of ours after which the peer wants an empty one.
    pub(super) fn heartbeat(&self) -> Option<Duration> {
        self.remote.as_ref()?.idle.map(|idle| idle / 2)
    }

    /// The peer's own name.
    pub(super) fn container_id(&self) -> &str {
        self.remote.as_ref().map_or("", |remote| &remote.container_id)
    }

    /// The tenant whose topics have to be resolved before more can be read.
    pub(super) fn resolves(&self) -> Option<&TenantId> {
        self.resolves.as_ref()
    }

    /// The topics are resolved, or cannot be for this reason.
    pub(super) fn resolved(&mut self, why: Option<String>) {
        self.unresolved = self.resolves.take().zip(why);
    }

    /// Handles the frames at hand; answers how many bytes it has taken.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Fault> {
        let limit_bytes = self.adapter.config.frame_max_bytes as usize;
        let mut taken = 0;
        while !self.is_closed && self.resolves.is_none() {
            let Framed::Whole(whole) = frame(&bytes[taken..], limit_bytes)? else { break };
            match whole.body()? {
                Body::Empty => {}
                Body::Sasl(_) => return Err(Fault::refused(condition::NOT_ALLOWED, "a frame of a login behind it")),
                Body::Amqp { channel, performative, .. } => {
                    if let Handled::Later = self.handle(channel, &performative, out)? {
                        break;
                    }
                }
            }
            taken += whole.size;
        }
        Ok(taken)
    }

    fn handle(&mut self, channel: u16, performative: &Performative<'_>, out: &mut Vec<u8>) -> Result<Handled, Fault> {
        match performative {
            Performative::Open(open) => self.open(open, out)?,
            Performative::Close(_) => {
                write_frame(out, 0, &Performative::Close(Close::default()), &[]);
                self.is_closed = true;
            }
            _ if self.remote.is_none() => return Err(Fault::refused(condition::NOT_ALLOWED, "a frame before open")),
            Performative::Begin(begin) => self.begin(channel, begin, out)?,
            Performative::Attach(attach) => return self.attach(channel, attach, out),
            Performative::Flow(flow) => self.flow(channel, flow, out)?,
            Performative::Transfer(transfer) => {
                let why = format!("a transfer over handle {}, which has no link", transfer.handle);
                return Err(Fault::refused(condition::UNATTACHED_HANDLE, why));
            }
            Performative::Disposition(disposition) => self.disposition(channel, disposition, out)?,
            Performative::Detach(detach) => self.detach(channel, detach, out)?,
            Performative::End(_) => {
                let mut session = self.sessions.remove(&channel).ok_or_else(|| no_session(channel))?;
                session.end();
                self.bells.retain(|(of, _), _| *of != channel);
                write_frame(out, channel, &Performative::End(End::default()), &[]);
            }
        }
        Ok(Handled::Done)
    }

    fn open(&mut self, open: &Open<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.remote.is_some() {
            return Err(Fault::refused(condition::NOT_ALLOWED, "a second open"));
        }
        self.remote = Some(Remote {
            container_id: open.container_id.chars().take(256).collect(),
            frame_max_bytes: (open.max_frame_size as usize).max(millstream_amqp::FRAME_MIN_MAX_BYTES),
            idle: open.idle_time_out.filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms.into())),
        });
        let capabilities = SymbolsBuilder::of(&["sole-connection-for-container"]);
        let config = &self.adapter.config;
        let own = Open {
            container_id: "millstream",
            max_frame_size: config.frame_max_bytes,
            channel_max: config.sessions_max - 1,
            idle_time_out: Some(config.idle_timeout_ms / 2),
            offered_capabilities: capabilities.as_multiple(),
            ..Open::default()
        };
        write_frame(out, 0, &Performative::Open(own), &[]);
        Ok(())
    }

    fn begin(&mut self, channel: u16, begin: &Begin<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let config = &self.adapter.config;
        if channel >= config.sessions_max {
            let why = format!("channel {channel}; connect.amqp.sessions_max = {}", config.sessions_max);
            return Err(Fault::refused(condition::FRAMING_ERROR, why));
        }
        if self.sessions.contains_key(&channel) {
            return Err(Fault::refused(condition::NOT_ALLOWED, format!("a second session on channel {channel}")));
        }
        let session = Session::new(begin);
        write_frame(out, channel, &Performative::Begin(session.begin(channel, config.links_max)), &[]);
        self.sessions.insert(channel, session);
        Ok(())
    }

    fn attach(&mut self, channel: u16, attach: &Attach<'_>, out: &mut Vec<u8>) -> Result<Handled, Fault> {
        let links_max = self.adapter.config.links_max;
        let session = self.sessions.get(&channel).ok_or_else(|| no_session(channel))?;
        if attach.handle >= links_max {
            let why = format!("handle {}; connect.amqp.links_max = {links_max}", attach.handle);
            return Err(Fault::refused(condition::FRAMING_ERROR, why));
        }
        if session.links.contains_key(&attach.handle) {
            let why = format!("handle {} has a link", attach.handle);
            return Err(Fault::refused(condition::HANDLE_IN_USE, why));
        }
        match self.receiver(channel, attach) {
            Ok(None) => return Ok(Handled::Later),
            Ok(Some(link)) => {
                let mode = u8::from(link.is_settled);
                let own = Attach {
                    role: false,
                    snd_settle_mode: mode,
                    initial_delivery_count: Some(0),
                    source: attach.source.map(|source| Source { filter: None, ..source }),
                    unsettled: None,
                    incomplete_unsettled: false,
                    max_message_size: None,
                    offered_capabilities: Multiple::None,
                    desired_capabilities: Multiple::None,
                    properties: None,
                    ..*attach
                };
                write_frame(out, channel, &Performative::Attach(own), &[]);
                if let Some(session) = self.sessions.get_mut(&channel) {
                    session.links.insert(attach.handle, link);
                }
            }
            Err((condition, why)) => {
                // The link is attached without its end, and detached at once (section 2.6.3).
                let own = Attach {
                    name: attach.name,
                    handle: attach.handle,
                    role: !attach.role,
                    initial_delivery_count: attach.role.then_some(0),
                    ..Attach::default()
                };
                write_frame(out, channel, &Performative::Attach(own), &[]);
                let error = Some(ErrorInfo::new(condition, &why));
                let detach = Detach { handle: attach.handle, closed: true, error };
                write_frame(out, channel, &Performative::Detach(detach), &[]);
            }
        }
        Ok(Handled::Done)
    }

    /// Opens the link of a receiver; `None` if the topics of its tenant have to be resolved first.
    fn receiver(&mut self, channel: u16, attach: &Attach<'_>) -> Result<Option<SenderLink>, (&'static str, String)> {
        if !attach.role {
            return Err((condition::NOT_IMPLEMENTED, "messages are not taken here".to_owned()));
        }
        let text = attach.source.and_then(|source| source.address).and_then(|address| address.text());
        let text = text.ok_or((condition::NOT_FOUND, "a source without an address".to_owned()))?;
        let unknown = || (condition::NOT_FOUND, format!("'{text}' is no address of a stream; use telemetry/TENANT"));
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
        if !self.adapter.knows(&address) {
            return Err((condition::NOT_FOUND, format!("tenant '{}' is not registered", address.tenant)));
        }
        let Some(streams) = self.adapter.streams.known(&address.tenant) else {
            if let Some((_, why)) = self.unresolved.take_if(|(tenant, _)| *tenant == address.tenant) {
                return Err((condition::INTERNAL_ERROR, why));
            }
            self.resolves = Some(address.tenant);
            return Ok(None);
        };
        let no_room = || (condition::RESOURCE_LIMIT_EXCEEDED, NO_ROOM.to_owned());
        let tenant = &self.login.principal.tenant;
        let room = self.adapter.buffers.take_for(tenant, LINK_BYTES).ok_or_else(no_room)?;
        let subscription = attach.properties.and_then(|properties| properties.get(SUBSCRIPTION));
        let subscription = subscription.and_then(|name| name.text()).map(Into::into);
        let name = QueueName { address: address.clone(), subscription };
        let take_room = |bytes| self.adapter.buffers.take_for(tenant, bytes);
        let queue = self.adapter.queues.of(name, streams.partitions(Stream::Telemetry), take_room);
        let queue = queue.ok_or_else(no_room)?;
        let key = (channel, attach.handle);
        let bell = self.board.hang_of_consumer(key);
        self.bells.insert(key, Arc::clone(&bell));
        Ok(Some(SenderLink::new(address, text, queue.join(bell), attach.snd_settle_mode == 1, room)))
    }

    fn flow(&mut self, channel: u16, flow: &Flow<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let session = self.sessions.get_mut(&channel).ok_or_else(|| no_session(channel))?;
        session.take_window(flow);
        let Some(handle) = flow.handle else {
            // Room for all links of the session.
            self.stirred.extend(session.links.keys().map(|handle| (channel, *handle)));
            if flow.echo {
                write_frame(out, channel, &Performative::Flow(session.flow()), &[]);
            }
            return Ok(());
        };
        let own = session.flow();
        let Some(link) = session.links.get_mut(&handle) else {
            // One that we have detached, and of which the peer did not know yet.
            return Ok(());
        };
        link.grant(flow);
        self.stirred.insert((channel, handle));
        if flow.echo {
            write_frame(out, channel, &Performative::Flow(link.flow(handle, own)), &[]);
        }
        Ok(())
    }

    fn disposition(&mut self, channel: u16, given: &Disposition<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let session = self.sessions.get_mut(&channel).ok_or_else(|| no_session(channel))?;
        let is_final = given.settled
            || matches!(
                given.state,
                Some(
                    DeliveryState::Accepted
                        | DeliveryState::Rejected(_)
                        | DeliveryState::Released
                        | DeliveryState::Modified(_)
                )
            );
        if !given.role || !is_final {
            return Ok(());
        }
        let last = given.last.unwrap_or(given.first);
        let settled = session.settle(given.first, last);
        let has_failed = match given.state {
            Some(DeliveryState::Accepted | DeliveryState::Rejected(_)) => None,
            Some(DeliveryState::Modified(modified)) => Some(modified.delivery_failed),
            _ => Some(false),
        };
        let handles: BTreeSet<u32> = settled.iter().map(|(handle, _)| *handle).collect();
        for handle in handles {
            let Some(link) = session.links.get(&handle) else { continue };
            if let Some(has_failed) = has_failed {
                let of_link = settled.iter().filter(|(of, _)| *of == handle).map(|(_, taken)| *taken);
                link.receiver.give_back(of_link, has_failed);
            }
        }
        // There may be room for more on every link.
        self.stirred.extend(session.links.keys().map(|handle| (channel, *handle)));
        if !given.settled && !settled.is_empty() {
            let own = Disposition {
                role: false,
                first: given.first,
                last: given.last,
                settled: true,
                state: given.state,
                batchable: false,
            };
            write_frame(out, channel, &Performative::Disposition(own), &[]);
        }
        Ok(())
    }

    fn detach(&mut self, channel: u16, detach: &Detach<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let session = self.sessions.get_mut(&channel).ok_or_else(|| no_session(channel))?;
        // One that we have detached is answered for.
        if session.end_link(detach.handle) {
            self.bells.remove(&(channel, detach.handle));
            let own = Detach { handle: detach.handle, closed: detach.closed, error: None };
            write_frame(out, channel, &Performative::Detach(own), &[]);
        }
        Ok(())
    }

    /// True if a link waits for memory, of which nobody tells.
    pub(super) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Looks again for memory.
    pub(super) fn retry(&mut self) {
        self.stirred.append(&mut self.starved);
    }

    /// Looks at the links whose bell has rung.
    pub(super) fn rung(&mut self) {
        self.stirred.extend(self.board.take());
    }

    /// Appends what can be sent, a burst at most; true if there is more.
    pub(super) fn pump(&mut self, out: &mut Vec<u8>) -> bool {
        while let Some(key) = self.stirred.pop_first() {
            match self.send(key, out) {
                Sent::More => {
                    self.stirred.insert(key);
                }
                Sent::All => {}
                Sent::Broken(why) => self.break_off(key, &why, out),
            }
            if out.len() >= BURST_BYTES {
                return !self.stirred.is_empty();
            }
        }
        false
    }

    /// Sends records over a link as far as there are credit and room.
    fn send(&mut self, key: LinkKey, out: &mut Vec<u8>) -> Sent {
        let (channel, handle) = key;
        let known: usize = self.sessions.values().map(Session::unsettled).sum();
        let known_max = self.unsettled.for_more_than(known);
        if known_max <= known && known < self.adapter.config.unsettled_max {
            self.starved.insert(key);
            return Sent::All;
        }
        let Some(remote) = &self.remote else { return Sent::All };
        let Some(session) = self.sessions.get_mut(&channel) else { return Sent::All };
        let Some(mut link) = session.links.remove(&handle) else { return Sent::All };
        let part_bytes = remote.frame_max_bytes.saturating_sub(TRANSFER_BYTES).max(1);
        let mut parts = Parts { channel, handle, is_settled: link.is_settled, part_bytes };
        if let Some(rest) = link.rest.take() {
            link.rest = parts.go_on(session, rest, out);
        }
        let (writer, message) = (&mut self.writer, &mut self.message);
        let mut left = if link.rest.is_some() { 0 } else { link.credit().min(PULLED_AT_ONCE) };
        let elsewhere = known - session.unsettled();
        let has_room = |session: &Session| session.window() > 0 && elsewhere + session.unsettled() < known_max;
        let mut pulled = Pulled::Enough;
        if left > 0 && has_room(session) {
            let SenderLink { receiver, address, address_text, .. } = &link;
            let (mut sent, mut rest) = (0, None);
            pulled = receiver.pull(|record, taken| {
                message.clear();
                writer.write(address, address_text, record, taken.failed_deliveries, message);
                rest = parts.begin(session, taken, message, out);
                sent += 1;
                left -= 1;
                let goes_on = left > 0 && rest.is_none() && has_room(session) && out.len() < BURST_BYTES;
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            link.rest = rest;
            (0..sent).for_each(|_| link.send_one());
        }
        let sent = match pulled {
            Pulled::Broken(why) => Sent::Broken(why),
            Pulled::Enough if link.rest.is_none() && link.credit() > 0 && has_room(session) => Sent::More,
            Pulled::Enough if link.rest.is_some() => Sent::All,
            Pulled::Enough | Pulled::Empty => {
                if link.drained() {
                    let flow = link.flow(handle, session.flow());
                    write_frame(out, channel, &Performative::Flow(flow), &[]);
                }
                Sent::All
            }
        };
        session.links.insert(handle, link);
        if self.message.capacity() > BURST_BYTES {
            self.message = Vec::new();
        }
        sent
    }

    /// Detaches a link whose queue cannot go on.
    fn break_off(&mut self, link: LinkKey, why: &str, out: &mut Vec<u8>) {
        let (channel, handle) = link;
        let Some(session) = self.sessions.get_mut(&channel) else { return };
        if let Some(link) = session.links.get(&handle) {
            // A topic may have been deleted, and made anew.
            self.adapter.streams.forget(&link.address.tenant);
        }
        if session.end_link(handle) {
            self.bells.remove(&(channel, handle));
            let error = Some(ErrorInfo::new(condition::INTERNAL_ERROR, why));
            let detach = Detach { handle, closed: true, error };
            write_frame(out, channel, &Performative::Detach(detach), &[]);
        }
    }

    /// Ends all sessions; what was not settled is given back.
    pub(super) fn end(&mut self) {
        self.sessions.values_mut().for_each(Session::end);
    }

    /// Tells the peer why its connection ends.
    pub(super) fn tell(&self, condition: &str, why: &str, out: &mut Vec<u8>) {
        // A close needs an open before it.
        if self.remote.is_none() {
            write_frame(out, 0, &Performative::Open(Open { container_id: "millstream", ..Open::default() }), &[]);
        }
        let error = Some(ErrorInfo::new(condition, why));
        write_frame(out, 0, &Performative::Close(Close { error }), &[]);
    }
}

/// The end of an attempt to send over a link.
enum Sent {
    /// There may be more.
    More,
    /// Nothing more can be sent until something happens.
    All,
    Broken(String),
}

/// Writes the frames of messages over a link.
struct Parts {
    channel: u16,
    handle: u32,
    is_settled: bool,
    /// Bytes of a message in one frame.
    part_bytes: usize,
}

impl Parts {
    /// Appends a delivery, in as many frames as its message needs. Returns the rest that the window has no room for.
    fn begin(&mut self, session: &mut Session, taken: Taken, message: &[u8], out: &mut Vec<u8>) -> Option<MessageRest> {
        let id = session.delivery_id();
        if !self.is_settled {
            session.keep_unsettled(id, self.handle, taken);
        }
        let sent = message.len().min(self.part_bytes);
        let tag = id.to_be_bytes();
        let first = Transfer {
            handle: self.handle,
            delivery_id: Some(id),
            delivery_tag: Some(&tag),
            message_format: Some(0),
            settled: Some(self.is_settled),
            more: sent < message.len(),
            ..Transfer::default()
        };
        write_frame(out, self.channel, &Performative::Transfer(first), &message[..sent]);
        session.transfer_one();
        if sent == message.len() {
            return None;
        }
        self.go_on(session, MessageRest { bytes: message.to_vec(), sent }, out)
    }

    /// Appends further frames of a message.
    fn go_on(&mut self, session: &mut Session, mut rest: MessageRest, out: &mut Vec<u8>) -> Option<MessageRest> {
        while session.window() > 0 {
            let end = rest.bytes.len().min(rest.sent + self.part_bytes);
            let more = end < rest.bytes.len();
            let transfer =
                Transfer { handle: self.handle, settled: Some(self.is_settled), more, ..Transfer::default() };
            write_frame(out, self.channel, &Performative::Transfer(transfer), &rest.bytes[rest.sent..end]);
            session.transfer_one();
            if !more {
                return None;
            }
            rest.sent = end;
        }
        Some(rest)
    }
}

fn no_session(channel: u16) -> Fault {
    Fault::refused(condition::NOT_ALLOWED, format!("a frame on channel {channel}, which has no session"))
}
