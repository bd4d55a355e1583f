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
use super::command_tasks::{CommandDelivery, NewDelivery};
use super::fault::Fault;
use super::incoming_command::CommandOutcome;
use super::link::SenderLink;
use super::link_opener::{LinkOpener, Opened, refuse_link};
use super::outgoing::MessageWriter;
use super::parts::Parts;
use super::receiver_link::ReceiverLink;
use super::session::Session;
use super::stream_queue::Pulled;
use super::unsettled_room::UnsettledRoom;

/// Bytes after which the buffer is sent before more is added.
const BURST_BYTES: usize = 64 << 10;
/// Room in a frame for the performative of a transfer.
const TRANSFER_BYTES: usize = 64;
/// Deliveries that are taken of a queue at a time.
const PULLED_AT_ONCE: u32 = 256;

/// A link, by the channel of its session and its handle.
type LinkKey = (u16, u32);

/// The state of one connection.
pub(super) struct Engine {
    adapter: Arc<AmqpAdapter>,
    login: Login,
    opener: LinkOpener,
    /// The peer's limits, once it has opened.
    remote: Option<Remote>,
    pub(super) sessions: HashMap<u16, Session>,
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
    /// Commands that have come and are not sent yet.
    commands: Vec<NewDelivery>,
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
            opener: LinkOpener::new(Arc::clone(&adapter), login.clone()),
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
            commands: Vec::new(),
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

    /// The peer's own name, once it has opened.
    pub(super) fn container_id(&self) -> Option<&str> {
        self.remote.as_ref().map(|remote| &*remote.container_id)
    }

    /// The tenant whose topics have to be resolved before more can be read.
    pub(super) fn resolves(&self) -> Option<&TenantId> {
        self.resolves.as_ref()
    }

    /// The topics are resolved, or cannot be for this reason.
    pub(super) fn resolved(&mut self, why: Option<String>) {
        if let Some(tenant) = self.resolves.take() {
            self.opener.resolved(tenant, why);
        }
    }

    /// Takes the commands that have come.
    pub(super) fn take_commands(&mut self) -> Vec<NewDelivery> {
        std::mem::take(&mut self.commands)
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
                Body::Amqp { channel, performative, payload } => {
                    if let Handled::Later = self.handle(channel, &performative, payload, out)? {
                        break;
                    }
                }
            }
            taken += whole.size;
        }
        Ok(taken)
    }

    fn handle(
        &mut self,
        channel: u16,
        performative: &Performative<'_>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Handled, Fault> {
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
            Performative::Transfer(transfer) => self.transfer(channel, transfer, payload, out)?,
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
        let capabilities = SymbolsBuilder::of(&["ANONYMOUS-RELAY", "sole-connection-for-container"]);
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
        if session.has_link(attach.handle) {
            let why = format!("handle {} has a link", attach.handle);
            return Err(Fault::refused(condition::HANDLE_IN_USE, why));
        }
        if !attach.role {
            match self.opener.sender(attach) {
                Ok(link) => self.attach_receiver(channel, attach, link, out),
                Err(fault) => refuse_link(channel, attach, &fault, out),
            }
            return Ok(Handled::Done);
        }
        let key = (channel, attach.handle);
        let hang = || {
            let bell = self.board.hang_of_consumer(key);
            self.bells.insert(key, Arc::clone(&bell));
            bell
        };
        match self.opener.receiver(attach, hang) {
            Ok(Opened::Later(tenant)) => {
                self.resolves = Some(tenant);
                return Ok(Handled::Later);
            }
            Ok(Opened::Link(link)) => {
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
            Err(fault) => refuse_link(channel, attach, &fault, out),
        }
        Ok(Handled::Done)
    }

    fn attach_receiver(&mut self, channel: u16, attach: &Attach<'_>, link: ReceiverLink, out: &mut Vec<u8>) {
        let own = Attach {
            role: true,
            rcv_settle_mode: 0,
            initial_delivery_count: None,
            unsettled: None,
            incomplete_unsettled: false,
            max_message_size: Some(self.adapter.message_max_bytes() as u64),
            offered_capabilities: Multiple::None,
            desired_capabilities: Multiple::None,
            properties: None,
            ..*attach
        };
        write_frame(out, channel, &Performative::Attach(own), &[]);
        if let Some(session) = self.sessions.get_mut(&channel) {
            write_frame(out, channel, &Performative::Flow(link.flow(attach.handle, session.flow())), &[]);
            session.receivers.insert(attach.handle, link);
        }
    }

    fn transfer(
        &mut self,
        channel: u16,
        transfer: &Transfer<'_>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let session = self.sessions.get_mut(&channel).ok_or_else(|| no_session(channel))?;
        if session.receive_one() {
            write_frame(out, channel, &Performative::Flow(session.flow()), &[]);
        }
        let handle = transfer.handle;
        let is_detached = session.is_detached(handle);
        let Some(link) = session.receivers.get_mut(&handle) else {
            if is_detached {
                // It was on its way when we have detached the link.
                return Ok(());
            }
            let why = format!("a transfer over handle {handle}, which has no link for messages");
            return Err(Fault::refused(condition::UNATTACHED_HANDLE, why));
        };
        let delivered = match link.take(transfer, payload) {
            Ok(Some(delivered)) => delivered,
            Ok(None) => return Ok(()),
            Err((condition, why)) => {
                self.detach_link((channel, handle), condition, &why, out);
                return Ok(());
            }
        };
        let (id, is_settled) = (delivered.delivery_id, delivered.is_settled);
        let delivery = CommandDelivery { channel, handle, serial: link.serial, id, is_settled };
        let (tenant, bytes) = (link.tenant.clone(), delivered.bytes);
        match self.adapter.buffers.take_for(&self.login.principal.tenant, bytes.len() as u64) {
            Some(room) => self.commands.push(NewDelivery { delivery, tenant, bytes, room }),
            None => self.command_ended(delivery, &CommandOutcome::Released, out),
        }
        Ok(())
    }

    /// Tells the sender of a command its outcome, if its link is still there.
    pub(super) fn command_ended(&mut self, delivery: CommandDelivery, outcome: &CommandOutcome, out: &mut Vec<u8>) {
        let CommandDelivery { channel, handle, serial, id, is_settled } = delivery;
        let Some(session) = self.sessions.get_mut(&channel) else { return };
        let own = session.flow();
        let Some(link) = session.receivers.get_mut(&handle).filter(|link| link.serial == serial) else { return };
        link.ended();
        if !is_settled {
            let state = match outcome {
                CommandOutcome::Accepted => DeliveryState::Accepted,
                CommandOutcome::Released => DeliveryState::Released,
                CommandOutcome::Rejected(condition, why) => {
                    DeliveryState::Rejected(Some(ErrorInfo::new(condition, why)))
                }
            };
            let told =
                Disposition { role: true, first: id, last: None, settled: true, state: Some(state), batchable: false };
            write_frame(out, channel, &Performative::Disposition(told), &[]);
        }
        if link.replenish() {
            write_frame(out, channel, &Performative::Flow(link.flow(handle, own)), &[]);
        }
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
        if let Some(link) = session.receivers.get(&handle) {
            if flow.echo {
                write_frame(out, channel, &Performative::Flow(link.flow(handle, own)), &[]);
            }
            return Ok(());
        }
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
            let of_link = settled.iter().filter(|(of, _)| *of == handle).map(|(_, taken)| *taken);
            match has_failed {
                Some(has_failed) => link.receiver.give_back(of_link, has_failed),
                None => link.receiver.finish(of_link),
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
            pulled = receiver.pull(link.is_settled, |record, taken| {
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
            Pulled::Starved => {
                self.starved.insert(key);
                Sent::All
            }
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
        if let Some(link) = self.sessions.get(&channel).and_then(|session| session.links.get(&handle)) {
            // A topic may have been deleted, and made anew.
            self.adapter.streams.forget(&link.address.tenant);
        }
        self.detach_link(link, condition::INTERNAL_ERROR, why, out);
    }

    fn detach_link(&mut self, link: LinkKey, condition: &str, why: &str, out: &mut Vec<u8>) {
        let (channel, handle) = link;
        let Some(session) = self.sessions.get_mut(&channel) else { return };
        if session.end_link(handle) {
            session.detached(handle);
            self.bells.remove(&link);
            let error = Some(ErrorInfo::new(condition, why));
            write_frame(out, channel, &Performative::Detach(Detach { handle, closed: true, error }), &[]);
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

fn no_session(channel: u16) -> Fault {
    Fault::refused(condition::NOT_ALLOWED, format!("a frame on channel {channel}, which has no session"))
}
