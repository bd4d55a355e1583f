//! A client subscribes and unsubscribes at its tenant's broker.

use super::broker::{RetainedMap, SessionSubscription};
use super::broker_client::PendingSubscribe;
use super::client::Client;
use super::disconnect::DisconnectCause;
use super::pending::Waits;
use crate::registry::Act;
use crate::topic_filter::{TopicFilter, is_reserved};
use millstream_mqtt::to_client::{suback, unsuback};
use millstream_mqtt::{Qos, RetainHandling, SubscribeOptions, reason};

impl Client {
    /// Has the session keep a subscription to commands or errors.
    pub(super) fn reserve(&self, filter: &str, qos: Qos, wanted: &mut PendingSubscribe) -> Result<(), DisconnectCause> {
        let Some(broker_client) = &self.broker_client else { return Ok(()) };
        broker_client.link.with(|session| session.reserve(filter, qos))?;
        wanted.is_changed = true;
        Ok(())
    }

    /// Removes a subscription that [`Client::reserve`] has added.
    pub(super) fn unreserve(&self, filter: &str) -> Result<(), DisconnectCause> {
        let Some(broker_client) = &self.broker_client else { return Ok(()) };
        Ok(broker_client.link.with(|session| session.unreserve(filter))?)
    }

    /// Subscribes to the commands and errors of a session that was kept. What the device may no longer have it loses.
    pub(super) fn resume_reserved(&mut self) -> Result<(), DisconnectCause> {
        let Some(broker_client) = &self.broker_client else { return Ok(()) };
        for (filter, qos) in broker_client.link.with(|session| session.reserved.clone())? {
            if self.subscribe_reserved(&filter, qos) >= reason::UNSPECIFIED {
                self.unreserve(&filter)?;
            }
        }
        self.note_reserved();
        Ok(())
    }

    /// Subscribes in the broker and returns the reason code for SUBACK.
    pub(super) fn subscribe_private(
        &mut self,
        text: &str,
        options: SubscribeOptions,
        subscription_id: u32,
        wanted: &mut PendingSubscribe,
    ) -> Result<u8, DisconnectCause> {
        let Some(broker_client) = &self.broker_client else { return Ok(reason::NOT_AUTHORISED) };
        let Some(filter) = TopicFilter::parse(text) else { return Ok(reason::BAD_FILTER) };
        if is_reserved(filter.pattern) {
            return Ok(reason::BAD_FILTER);
        }
        if !self.allows(Act::Subscribe, filter.pattern) {
            return Ok(reason::NOT_AUTHORISED);
        }
        let is_shared = filter.group.is_some();
        if is_shared && options.no_local {
            return Err(DisconnectCause::Protocol("a shared subscription with no local"));
        }
        // A message exactly once belongs to one session for good; who shares has it at least once.
        let qos = if is_shared { options.qos.min(Qos::AtLeastOnce) } else { options.qos };
        let what = SessionSubscription {
            qos,
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            id: subscription_id,
            began: 0,
        };
        let is_new = match broker_client.link.subscribe(text, what.clone())? {
            Ok(is_new) => is_new,
            Err(reached) => return Ok(self.limit_reached(text, reached)),
        };
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
        wanted: PendingSubscribe,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let verdict = match &self.broker_client {
            Some(broker_client) if wanted.is_changed => match broker_client.link.keep_filters()? {
                None if wanted.retained.is_empty() => None,
                None => Some(broker_client.link.retained()),
                kept => kept,
            },
            _ => None,
        };
        match verdict {
            Some(verdict) => self.uplink.pend(verdict, Waits::Subscribed { id, codes, wanted }),
            None => suback(out, self.version, id, &codes),
        }
        Ok(())
    }

    /// Answers an unsubscription once it is kept.
    pub(super) fn answer_unsubscription(
        &mut self,
        id: u16,
        codes: Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), DisconnectCause> {
        let verdict = match &self.broker_client {
            Some(broker_client) => broker_client.link.keep_filters()?,
            None => None,
        };
        match verdict {
            Some(verdict) => self.uplink.pend(verdict, Waits::Unsubscribed { id, codes }),
            None => unsuback(out, self.version, id, &codes),
        }
        Ok(())
    }

    /// Sends what new subscriptions find retained.
    pub(super) fn send_retained(
        &self,
        retained: &RetainedMap,
        wanted: &PendingSubscribe,
    ) -> Result<(), DisconnectCause> {
        let Some(broker_client) = &self.broker_client else { return Ok(()) };
        let each = |(pattern, what): &(Box<str>, SessionSubscription)| {
            broker_client.link.send_retained(retained, pattern, what)
        };
        Ok(wanted.retained.iter().try_for_each(each)?)
    }

    /// Ends a subscription in the broker and returns true if there was one.
    pub(super) fn unsubscribe_private(&mut self, filter: &str) -> Result<bool, DisconnectCause> {
        match &self.broker_client {
            Some(broker_client) => Ok(broker_client.link.unsubscribe(filter)?),
            None => Ok(false),
        }
    }
}
