//! The private space, as one client uses it: what it publishes, what it subscribes to, what it is sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::Problem;
use millstream_log::{AckLevel, Done, reply};
use millstream_types::Record;

use super::adapter::{ADAPTER, origin};
use super::client::Client;
use super::encode::{AckKind, Outgoing, ack, publish, publish_size, suback, unsuback};
use super::fault::{Fault, reason};
use super::kept::{One, Upstream, Verdict};
use super::mapped::{Elsewhere, Mapped};
use super::packet::{Packet, Qos, RetainHandling, SubscribeOptions, Version};
use super::pending::Waits;
use super::property::{ALIAS, MESSAGE_EXPIRY, without};
use super::space::message::{Draft, Message};
use super::space::{Entry, Link, Lost, Next, RetainedMap, Subscription};
use super::upstream::{Item, reason_of};
use crate::refusal::{not_taken, unknown_tenant};
use crate::registry::{Act, TenantState, has_broker, may};
use crate::sender::{Sender, Target};
use crate::streams::TenantStreams;
use crate::topic_filter::{Filter, is_reserved, why_not_published};
use crate::usage::{Admission, Moment};

/// What is written for a client before it is sent, about.
const BURST_BYTES: usize = 64 << 10;

/// A client's place in the private space.
pub(super) struct Private {
    pub(super) link: Link,
    pub(super) alias_max: u16,
    /// Whether the session is kept beyond the connection.
    is_durable: bool,
    aliases: HashMap<Box<str>, u16>,
}

/// Whether there is more to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// No.
    No,
    /// Once this is sent.
    Yes,
    /// Once it is read from the log.
    Unread,
}

impl From<Lost> for Fault {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::TakenOver => Self::refused(reason::TAKEN_OVER, "the same client id has connected again"),
            Lost::NoRoom => Self::refused(reason::BUSY, "no room in the memory budget for what waits; connect again"),
            Lost::Gone => Self::refused(reason::UNAVAILABLE, "the tenant's topic was deleted; connect again"),
        }
    }
}

impl Private {
    pub(super) fn new(link: Link, alias_max: u16, is_durable: bool) -> Self {
        Self { link, alias_max, is_durable, aliases: HashMap::new() }
    }

    /// The client has set how long its session outlives the connection.
    pub(super) fn end_with(&self, expiry_s: u32) -> Result<(), Fault> {
        if expiry_s > 0 && !self.is_durable {
            return Err(Fault::Protocol("a session expiry at the end of a connection that began without one"));
        }
        self.link.set_expiry(expiry_s);
        Ok(())
    }
}

impl Client {
    /// Publishes messages in the tenant's private space, in order.
    pub(super) fn publish_private(&mut self, run: &[Item<'_>], out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut new = Vec::with_capacity(run.len());
        let mut judged = Ok(());
        for item in run {
            match self.is_to_be_published(item, out) {
                Ok(true) => new.push(item.clone()),
                Ok(false) => {}
                Err(fault) => {
                    judged = Err(fault);
                    break;
                }
            }
        }
        // What came before a fault was in order.
        let is_acknowledged = |item: &Item<'_>| item.publish.qos > Qos::AtMostOnce;
        let mut alike = new.chunk_by(|a, b| is_acknowledged(a) == is_acknowledged(b));
        alike.try_for_each(|same| self.offer_private(same, out)).and(judged)
    }

    /// Whether a message is one that the device may send and has not sent before. One that is not is answered.
    fn is_to_be_published(&mut self, item: &Item<'_>, out: &mut Vec<u8>) -> Result<bool, Fault> {
        let (topic, publish) = (item.topic.as_str(), &item.publish);
        self.check_topic(topic)?;
        if !self.is_new(item)? {
            // Its first copy was taken; whoever sends it again has missed that.
            ack(out, self.version, AckKind::PubRec, publish.id, reason::SUCCESS);
            return Ok(false);
        }
        if !self.allows(Act::Publish, topic) {
            if self.version == Version::V311 {
                return Err(forbidden(topic));
            }
            self.count_rejected(1);
            if publish.qos > Qos::AtMostOnce {
                self.forget_arrived(publish.id)?;
                ack(out, self.version, acknowledged_by(publish.qos), publish.id, reason::NOT_AUTHORISED);
            }
            return Ok(false);
        }
        if publish.qos == Qos::ExactlyOnce && self.version == Version::V5 {
            let most = self.adapter.config.in_flight_max;
            self.open.insert(publish.id);
            if self.open.len() > usize::from(most) {
                let why = format!("more than connect.mqtt.in_flight_max = {most} messages exactly once are open");
                return Err(Fault::refused(reason::RECEIVE_MAXIMUM, why));
            }
        }
        Ok(true)
    }

    /// The id of a message that is refused is the client's to use again.
    fn forget_arrived(&mut self, id: u16) -> Result<(), Fault> {
        self.open.remove(&id);
        if let Some(private) = self.private.as_ref().filter(|private| !private.is_durable) {
            private.link.with(|session| session.arrived.remove(&id))?;
        }
        Ok(())
    }

    /// Publishes messages that are promised alike.
    fn offer_private(&mut self, run: &[Item<'_>], out: &mut Vec<u8>) -> Result<(), Fault> {
        let snapshot = self.adapter.registry.snapshot(&self.who.tenant);
        let known = snapshot.state.tenant(&self.who.tenant);
        match known.and_then(|known| Some((known, known.mapping.as_deref()?))) {
            Some((known, mapping)) => self.offer_by_rules(run, known, mapping, out),
            None => self.offer_unmapped(run, known, out),
        }
    }

    /// Publishes messages that stay within the private space, if tenant and device may use as much.
    pub(super) fn offer_unmapped(
        &mut self,
        run: &[Item<'_>],
        known: Option<&TenantState>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let Some(streams) = self.streams.clone() else { return Ok(()) };
        let admission = known
            .ok_or_else(|| unknown_tenant(&self.who.tenant))
            .and_then(|known| Sender::find(known, Target::Caller, origin(&self.who)))
            .and_then(|sender| self.admit(&streams, &sender, run));
        match admission {
            Ok(admission) => {
                if self.append_private(run)? {
                    admission.keep();
                }
                Ok(())
            }
            // What fits is taken, to the last message.
            Err(problem) if run.len() > 1 && problem.status().is_client_error() => {
                run.chunks(1).try_for_each(|one| self.offer_unmapped(one, known, out))
            }
            Err(problem) => run.iter().try_for_each(|item| self.refuse_private(item, &problem, out)),
        }
    }

    fn admit<'a>(
        &self,
        streams: &'a TenantStreams,
        sender: &Sender<'_>,
        run: &[Item<'_>],
    ) -> Result<Admission<'a>, Problem> {
        let sizes = || run.iter().map(|item| item.publish.payload.len());
        sizes().try_for_each(|size| sender.check_payload(size))?;
        let now = Moment { wall_ms: self.adapter.wall.now_ms(), monotonic: self.now };
        streams.usage.admit(sender, sender.amount(sizes()), now)
    }

    /// Tells the sender of a message that it is not taken, as far as its version has words for it.
    pub(super) fn refuse_private(
        &mut self,
        item: &Item<'_>,
        problem: &Problem,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        self.count_rejected(1);
        let publish = &item.publish;
        if publish.qos == Qos::AtMostOnce {
            return Ok(());
        }
        let code = reason_of(problem.status());
        // Some reasons no acknowledgement has, but DISCONNECT does (MQTT 5, section 2.4).
        if self.version == Version::V311 || matches!(code, reason::TOO_LARGE | reason::BUSY) {
            return Err(Fault::refused(code, problem.text()));
        }
        self.forget_arrived(publish.id)?;
        ack(out, self.version, acknowledged_by(publish.qos), publish.id, code);
        Ok(())
    }

    /// Whether the device may do so with all topics of `pattern`.
    fn allows(&self, act: Act, pattern: &str) -> bool {
        let device = self.adapter.registry.device(&self.who.tenant, &self.who.name);
        device.is_some_and(|device| may(&device.ext, act, pattern))
    }

    /// Whether the device may still have all that it has subscribed to.
    pub(super) fn keeps_its_filters(&self) -> bool {
        let Some(private) = &self.private else { return true };
        let snapshot = self.adapter.registry.snapshot(&self.who.tenant);
        let tenant = snapshot.state.tenant(&self.who.tenant).and_then(|known| known.tenant.as_deref());
        let filters = private.link.with(|session| session.filters.keys().cloned().collect::<Vec<_>>());
        let is_allowed =
            |text: &str| Filter::parse(text).is_some_and(|filter| self.allows(Act::Subscribe, filter.pattern));
        // A connection that has lost its session ends by that.
        tenant.is_some_and(|stored| has_broker(&stored.value.ext))
            && filters.is_ok_and(|filters| filters.iter().all(|filter| is_allowed(filter)))
    }

    /// Whether the device may publish there in the private space.
    pub(super) fn may_publish(&self, topic: &str) -> Result<(), Fault> {
        self.check_topic(topic)?;
        if self.allows(Act::Publish, topic) { Ok(()) } else { Err(forbidden(topic)) }
    }

    /// Whether anybody may publish there in the private space.
    fn check_topic(&self, topic: &str) -> Result<(), Fault> {
        if self.private.is_none() {
            return Err(Fault::refused(reason::NOT_AUTHORISED, format!("topic '{topic}': {OFF}")));
        }
        if let Some(rule) = why_not_published(topic) {
            return Err(Fault::refused(reason::BAD_TOPIC, format!("topic '{topic}': {rule}")));
        }
        Ok(())
    }

    /// Publishes messages that are promised alike. Whether they were taken: those that are promised at most once may not be.
    fn append_private(&mut self, run: &[Item<'_>]) -> Result<bool, Fault> {
        if !self.needs_owner(run) {
            return self.append_here(run, Elsewhere::No);
        }
        self.publish_owned(run, Vec::new(), None);
        Ok(true)
    }

    /// Has messages published by the tenant's owner, each together with its record in `upstream` if they are mapped.
    pub(super) fn publish_owned(&mut self, run: &[Item<'_>], upstream: Vec<Upstream>, mapped: Option<Box<Mapped>>) {
        let Some(private) = &self.private else { return };
        let now_ms = self.adapter.wall.now_ms();
        let mut upstream = upstream.into_iter();
        let ones = run.iter().map(|item| {
            let parts = Parts::of(item, now_ms);
            let draft = self.draft(item, &parts, &private.link.client, mapped.is_some());
            One {
                record: draft.to_publish(now_ms),
                upstream: upstream.next(),
                retain: draft.retain.then(|| Arc::new(draft.to_message())),
                once: (item.publish.qos == Qos::ExactlyOnce && private.is_durable).then_some(item.publish.id),
            }
        });
        let verdict = private.link.publish(ones.collect());
        let acks = run.iter().map(|item| (acknowledged_by(item.publish.qos), item.publish.id)).collect();
        self.pend(verdict, Waits::Owned { acks, mapped });
    }

    /// Appends messages of which nothing else is kept, as [`Client::append_private`].
    pub(super) fn append_here(&mut self, run: &[Item<'_>], elsewhere: Elsewhere) -> Result<bool, Fault> {
        let Some(private) = &self.private else { return Ok(false) };
        let space = &private.link.space;
        let now_ms = self.adapter.wall.now_ms();
        let is_mapped = !matches!(elsewhere, Elsewhere::No);
        let parts: Vec<Parts> = run.iter().map(|item| Parts::of(item, now_ms)).collect();
        let draft = |(item, parts)| self.draft(item, parts, &private.link.client, is_mapped);
        let drafts: Vec<Draft<'_>> = run.iter().zip(&parts).map(draft).collect();
        let headers: Vec<_> = drafts.iter().map(Draft::headers).collect();
        let records: Vec<Record<'_>> =
            drafts.iter().zip(&headers).map(|(draft, headers)| draft.record(now_ms, headers)).collect();
        let acks = run.iter().map(|item| (acknowledged_by(item.publish.qos), item.publish.id));
        let acks: Vec<_> = acks.filter(|(_, id)| *id != 0).collect();
        let (level, done, answer) = if acks.is_empty() {
            (AckLevel::Memory, Done::ignore(), None)
        } else {
            let (done, reply) = reply();
            (space.level, done, Some(reply))
        };
        if let Err(error) = space.partition.append(&records, level, done) {
            self.count_rejected(run.len());
            return if acks.is_empty() {
                Ok(false)
            } else {
                Err(Fault::refused(reason::BUSY, not_taken(&error).text()))
            };
        }
        self.sends_unwaited = answer.is_none();
        match (answer, elsewhere) {
            (Some(reply), Elsewhere::Awaited(first, mapped)) => {
                self.pend(Verdict::Both(Some(first), reply), Waits::Private { acks, mapped: Some(mapped) });
            }
            (Some(reply), _) => self.pend(Verdict::Log(reply), Waits::Private { acks, mapped: None }),
            (None, _) => self.count_accepted(run.len(), Duration::ZERO),
        }
        Ok(true)
    }

    /// Whether something of a run is kept together with its messages. What follows goes the same way until that is
    /// answered, so that it is not overtaken.
    pub(super) fn needs_owner(&self, run: &[Item<'_>]) -> bool {
        let is_durable = self.private.as_ref().is_some_and(|private| private.is_durable);
        let is_kept = |item: &Item<'_>| item.publish.retain || (is_durable && item.publish.qos == Qos::ExactlyOnce);
        self.owned > 0 || run.iter().any(is_kept)
    }

    /// Whether a message has not been taken already; only one that is sent exactly once can have been.
    fn is_new(&self, item: &Item<'_>) -> Result<bool, Fault> {
        let (publish, id) = (&item.publish, item.publish.id);
        match &self.private {
            Some(private) if publish.qos == Qos::ExactlyOnce && !private.is_durable => {
                Ok(private.link.with(|session| session.arrived.insert(id))?)
            }
            // Of a session that is kept, the tenant's owner knows. Of one that is sent again he has mostly said so by now, and
            // it uses nothing up. It must not be acknowledged before those that are with him.
            Some(private) if publish.qos == Qos::ExactlyOnce && publish.dup && self.owned == 0 => {
                Ok(!private.link.has_arrived(id))
            }
            _ => Ok(true),
        }
    }

    fn draft<'a>(&'a self, item: &'a Item<'_>, parts: &'a Parts, client: &'a str, is_mapped: bool) -> Draft<'a> {
        Draft {
            is_mapped,
            topic: item.topic.as_str(),
            payload: item.publish.payload,
            qos: item.publish.qos,
            retain: item.publish.retain,
            adapter: ADAPTER,
            client,
            device: &self.who.name,
            content_type: item.publish.properties.content_type,
            properties: &parts.properties,
            expires: &parts.expires,
        }
    }

    /// Has the session keep a subscription to commands or errors.
    pub(super) fn reserve(&self, filter: &str, qos: Qos, wanted: &mut Wanted) -> Result<(), Fault> {
        let Some(private) = &self.private else { return Ok(()) };
        private.link.with(|session| session.reserve(filter, qos))?;
        wanted.is_changed = true;
        Ok(())
    }

    /// Takes [`Client::reserve`] back.
    pub(super) fn unreserve(&self, filter: &str) -> Result<(), Fault> {
        let Some(private) = &self.private else { return Ok(()) };
        Ok(private.link.with(|session| session.unreserve(filter))?)
    }

    /// Subscribes to the commands and errors of a session that was kept. What the device may no longer have it loses.
    pub(super) fn resume_reserved(&mut self) -> Result<(), Fault> {
        let Some(private) = &self.private else { return Ok(()) };
        for (filter, qos) in private.link.with(|session| session.reserved.clone())? {
            if self.subscribe_reserved(&filter, qos) >= reason::UNSPECIFIED {
                self.unreserve(&filter)?;
            }
        }
        Ok(())
    }

    /// Subscribes in the private space; the code that answers it.
    pub(super) fn subscribe_private(
        &mut self,
        text: &str,
        options: SubscribeOptions,
        subscription_id: u32,
        wanted: &mut Wanted,
    ) -> Result<u8, Fault> {
        let Some(private) = &self.private else { return Ok(reason::NOT_AUTHORISED) };
        let Some(filter) = Filter::parse(text) else { return Ok(reason::BAD_FILTER) };
        if is_reserved(filter.pattern) {
            return Ok(reason::BAD_FILTER);
        }
        if !self.allows(Act::Subscribe, filter.pattern) {
            return Ok(reason::NOT_AUTHORISED);
        }
        let is_shared = filter.group.is_some();
        if is_shared && options.no_local {
            return Err(Fault::Protocol("a shared subscription with no local"));
        }
        // A message exactly once belongs to one session for good; who shares has it at least once.
        let qos = if is_shared { options.qos.min(Qos::AtLeastOnce) } else { options.qos };
        let what = Subscription {
            qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            id: subscription_id,
            began: 0,
        };
        let Some(is_new) = private.link.subscribe(text, what.clone())? else { return Ok(reason::QUOTA) };
        wanted.is_changed = true;
        let is_sent = match options.retain_handling {
            RetainHandling::Send => true,
            RetainHandling::SendIfNew => is_new,
            RetainHandling::DoNotSend => false,
        };
        if is_sent && !is_shared {
            wanted.retained.push((filter.pattern.into(), what));
        }
        Ok(qos as u8)
    }

    /// Answers a subscription once it is kept, and with what is retained.
    pub(super) fn answer_subscription(
        &mut self,
        id: u16,
        codes: Vec<u8>,
        wanted: Wanted,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let verdict = match &self.private {
            Some(private) if wanted.is_changed => match private.link.keep_filters()? {
                None if wanted.retained.is_empty() => None,
                None => Some(private.link.retained()),
                kept => kept,
            },
            _ => None,
        };
        match verdict {
            Some(verdict) => self.pend(verdict, Waits::Subscribed { id, codes, wanted }),
            None => suback(out, self.version, id, &codes),
        }
        Ok(())
    }

    /// Answers an unsubscription once it is kept.
    pub(super) fn answer_unsubscription(&mut self, id: u16, codes: Vec<u8>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let verdict = match &self.private {
            Some(private) => private.link.keep_filters()?,
            None => None,
        };
        match verdict {
            Some(verdict) => self.pend(verdict, Waits::Unsubscribed { id, codes }),
            None => unsuback(out, self.version, id, &codes),
        }
        Ok(())
    }

    /// Sends what new subscriptions find retained.
    pub(super) fn send_retained(&self, retained: &RetainedMap, wanted: &Wanted) -> Result<(), Fault> {
        let Some(private) = &self.private else { return Ok(()) };
        let each = |(pattern, what): &(Box<str>, Subscription)| private.link.send_retained(retained, pattern, what);
        Ok(wanted.retained.iter().try_for_each(each)?)
    }

    /// Ends a subscription in the private space; whether there was one.
    pub(super) fn unsubscribe_private(&mut self, filter: &str) -> Result<bool, Fault> {
        match &self.private {
            Some(private) => Ok(private.link.unsubscribe(filter)?),
            None => Ok(false),
        }
    }

    /// What a client says of a message on its way.
    pub(super) fn private_ack(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(Private { link, is_durable, .. }) = &self.private else { return Ok(()) };
        let version = self.version;
        if let Packet::PubRel(given) = packet {
            self.open.remove(&given.id);
        }
        match packet {
            Packet::PubAck(given) => drop(link.with(|session| session.acknowledged(given.id))?),
            Packet::PubRec(given) if given.reason >= reason::UNSPECIFIED => {
                link.with(|session| session.rejected(given.id))?;
            }
            Packet::PubRec(given) if link.with(|session| session.received(given.id))? => self.received.push(given.id),
            Packet::PubRec(given) => ack(out, version, AckKind::PubRel, given.id, reason::UNKNOWN_ID),
            Packet::PubComp(given) => drop(link.with(|session| session.completed(given.id))?),
            Packet::PubRel(given) if *is_durable => self.forgotten.push(given.id),
            Packet::PubRel(given) => {
                let is_known = link.with(|session| session.arrived.remove(&given.id))?;
                let code = if is_known { reason::SUCCESS } else { reason::UNKNOWN_ID };
                ack(out, version, AckKind::PubComp, given.id, code);
            }
            _ => {}
        }
        // There may be room for the next one.
        link.bell.notify_one();
        Ok(())
    }

    /// Has it kept that messages exactly once have come, to either side, so that their ids may be forgotten.
    pub(super) fn keep_receipts(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let (received, forgotten) = (std::mem::take(&mut self.received), std::mem::take(&mut self.forgotten));
        let Some(private) = &self.private else { return Ok(()) };
        if received.is_empty() && forgotten.is_empty() {
            return Ok(());
        }
        let Some(verdict) = private.link.keep_progress(&forgotten)? else { return self.release(&received, out) };
        // One change for both.
        if forgotten.is_empty() {
            self.pend(verdict, Waits::Received(received));
        } else {
            self.pend(verdict, Waits::Forgotten(forgotten));
            if !received.is_empty()
                && let Some(verdict) = self.private.as_ref().map(|private| private.link.keep_progress(&[]))
            {
                self.pend(verdict?.unwrap_or(Verdict::Refused(None)), Waits::Received(received));
            }
        }
        Ok(())
    }

    /// Tells a client that it may forget ids.
    pub(super) fn release(&mut self, ids: &[u16], out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(private) = &self.private else { return Ok(()) };
        for id in ids {
            private.link.with(|session| session.released(*id))?;
            ack(out, self.version, AckKind::PubRel, *id, reason::SUCCESS);
        }
        Ok(())
    }

    /// Writes what the client is to be sent.
    pub(super) fn deliver(&mut self, out: &mut Vec<u8>) -> Result<More, Fault> {
        let Some(Private { link, alias_max, aliases, .. }) = &mut self.private else { return Ok(More::No) };
        let packet_max_bytes = self.takes.packet_max_bytes;
        let (version, now_ms) = (self.version, self.adapter.wall.now_ms());
        let (mut delivered, mut dropped, mut is_full) = (0, 0, false);
        let unread = link.each(|session, next| {
            match next {
                Next::Release(id) => ack(out, version, AckKind::PubRel, id, reason::SUCCESS),
                Next::Message { id, dup, entry, message } => {
                    let alias = alias_of(&message.topic, *alias_max, aliases);
                    let sending = Sending { id, dup, entry, message };
                    let sent = send(out, version, packet_max_bytes, now_ms, alias, &sending);
                    if !alias.1 && sent != Some(alias.0) {
                        // The client has not learnt it.
                        aliases.retain(|_, known| *known != alias.0);
                    }
                    if sent.is_some() {
                        delivered += 1;
                    } else {
                        session.discard(id);
                        dropped += 1;
                    }
                }
                Next::Missing | Next::Nothing => {}
            }
            is_full = out.len() >= BURST_BYTES;
            !is_full
        })?;
        link.count(delivered, dropped);
        Ok(match (unread, is_full) {
            (true, _) => More::Unread,
            (false, true) => More::Yes,
            (false, false) => More::No,
        })
    }
}

fn forbidden(topic: &str) -> Fault {
    let why = format!("topic '{topic}': the device's mqtt-access does not allow to publish there");
    Fault::refused(reason::NOT_AUTHORISED, why)
}

/// How a message is acknowledged, if it has an id.
fn acknowledged_by(qos: Qos) -> AckKind {
    if qos == Qos::ExactlyOnce { AckKind::PubRec } else { AckKind::PubAck }
}

/// Why there is no private space.
pub(super) const OFF: &str =
    "the tenant has no private space (its ext has mqtt-broker off); publish to telemetry, t, event or e";

/// What of a message has to be written anew.
struct Parts {
    properties: Vec<u8>,
    expires: String,
}

impl Parts {
    fn of(item: &Item<'_>, now_ms: i64) -> Self {
        let properties = item.publish.properties;
        let expires = expires(properties.expiry_s, now_ms);
        Self { properties: without(properties.bytes, &[ALIAS, MESSAGE_EXPIRY]), expires }
    }
}

/// When a message is void that is published now, as its header says it; empty if never.
pub(super) fn expires(expiry_s: Option<u32>, now_ms: i64) -> String {
    let end = expiry_s.map(|seconds| now_ms.saturating_add(i64::from(seconds) * 1_000));
    end.map(|end| end.to_string()).unwrap_or_default()
}

/// What a subscription asks for beside messages to come.
#[derive(Default)]
pub(super) struct Wanted {
    is_changed: bool,
    /// Patterns that bring what is retained.
    retained: Vec<(Box<str>, Subscription)>,
}

struct Sending {
    id: u16,
    dup: bool,
    entry: Entry,
    message: Arc<Message>,
}

/// The alias of a topic, and whether the client knows it; 0 if it has none.
fn alias_of(topic: &str, most: u16, known: &mut HashMap<Box<str>, u16>) -> (u16, bool) {
    if most == 0 {
        return (0, false);
    }
    if let Some(alias) = known.get(topic) {
        return (*alias, true);
    }
    let next = known.len() as u16 + 1;
    if next > most {
        return (0, false);
    }
    known.insert(topic.into(), next);
    (next, false)
}

/// Writes a message, unless it is void or too large for the client; the alias that it carries, 0 if none.
fn send(
    out: &mut Vec<u8>,
    version: Version,
    packet_max_bytes: usize,
    now_ms: i64,
    (alias, is_known): (u16, bool),
    sending: &Sending,
) -> Option<u16> {
    let Sending { id, dup, entry, message } = sending;
    let mut outgoing = Outgoing {
        dup: *dup,
        retain: entry.retain,
        qos: entry.qos,
        id: *id,
        topic: if is_known { "" } else { &message.topic },
        alias,
        expiry_s: message.lasts_s(now_ms)?,
        subscription_ids: &entry.ids,
        properties: &message.properties,
        payload: &message.payload,
    };
    if publish_size(version, &outgoing) > packet_max_bytes {
        // By the property that says the alias it may be too large.
        (outgoing.topic, outgoing.alias) = (&message.topic, 0);
        if publish_size(version, &outgoing) > packet_max_bytes {
            return None;
        }
    }
    publish(out, version, &outgoing);
    Some(outgoing.alias)
}
