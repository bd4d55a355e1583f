//! Publish and subscribe.

use bytes::Bytes;

use super::RespSession;
use crate::resp::channels::SubscriptionKind;
use crate::resp::context::{Fault, Outcome};
use crate::resp::messages::NoMemory;

/// Channels and patterns that a client may listen to.
const SUBSCRIPTIONS_MAX: usize = 1 << 16;

pub(crate) fn subscribe(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.begin_listening(SubscriptionKind::Channel, &arguments[1..])
}

pub(crate) fn psubscribe(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.begin_listening(SubscriptionKind::Pattern, &arguments[1..])
}

pub(crate) fn unsubscribe(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.end_listening(SubscriptionKind::Channel, &arguments[1..])
}

pub(crate) fn punsubscribe(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.end_listening(SubscriptionKind::Pattern, &arguments[1..])
}

pub(crate) fn publish(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let tenant = session.tenant.clone().ok_or(NOT_LOGGED_IN)?;
    let (channel, payload) = (&arguments[1], &arguments[2]);
    let receivers = session.shared.send(&tenant, channel, payload).map_err(|NoMemory| {
        let (setting, bytes) = (session.shared.clients.messages().setting(), payload.len());
        Fault::from(format!("OOM {setting} has no room for a message of {bytes} bytes; nobody got it, try again later"))
    })?;
    // A client that listens to the channel itself gets the message before the reply; in MULTI behind all replies.
    if !session.in_exec {
        session.client.take_all_messages(&mut session.out);
    }
    session.reply().count(receivers);
    Ok(())
}

const NOT_LOGGED_IN: Fault = Fault::error("NOAUTH Authentication required.");

pub(crate) fn channels(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    if arguments.len() > 3 {
        return Err(Fault::error(
            "ERR unknown subcommand or wrong number of arguments for 'channels'. Try PUBSUB HELP.",
        ));
    }
    let active = session.tenant.as_ref().ok_or(NOT_LOGGED_IN)?.channels.active(arguments.get(2));
    let mut reply = session.reply();
    reply.array(active.len());
    active.iter().for_each(|channel| reply.bulk(channel));
    Ok(())
}

pub(crate) fn subscriber_counts(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let tenant = session.tenant.clone().ok_or(NOT_LOGGED_IN)?;
    let mut reply = session.reply();
    reply.array((arguments.len() - 2) * 2);
    for channel in &arguments[2..] {
        reply.bulk(channel);
        reply.count(tenant.channels.subscribers(channel));
    }
    Ok(())
}

pub(crate) fn pattern_count(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let (_, patterns) = session.tenant.as_ref().ok_or(NOT_LOGGED_IN)?.channels.counts();
    session.reply().count(patterns);
    Ok(())
}

impl RespSession {
    fn begin_listening(&mut self, kind: SubscriptionKind, names: &[Bytes]) -> Outcome {
        let tenant = self.tenant.clone().ok_or(NOT_LOGGED_IN)?;
        let word: &[u8] = if kind == SubscriptionKind::Channel { b"subscribe" } else { b"psubscribe" };
        if self.client.subscriptions.lock().count() + names.len() > SUBSCRIPTIONS_MAX {
            return Err(Fault::from(format!("ERR a client may have at most {SUBSCRIPTIONS_MAX} subscriptions")));
        }
        for name in names {
            let (is_new, count) = {
                let mut subscriptions = self.client.subscriptions.lock();
                (subscriptions.add(kind, name), subscriptions.count())
            };
            // The confirmation is written before any message can come.
            self.confirm(word, Some(name), count);
            if is_new {
                tenant.channels.add(kind, name, &self.client);
            }
        }
        Ok(())
    }

    fn end_listening(&mut self, kind: SubscriptionKind, names: &[Bytes]) -> Outcome {
        let word: &[u8] = if kind == SubscriptionKind::Channel { b"unsubscribe" } else { b"punsubscribe" };
        // Messages that came before are told before.
        if !self.in_exec {
            self.client.take_all_messages(&mut self.out);
        }
        let all = || {
            let subscriptions = self.client.subscriptions.lock();
            let set = if kind == SubscriptionKind::Channel { &subscriptions.channels } else { &subscriptions.patterns };
            set.iter().cloned().collect::<Vec<_>>()
        };
        let all = if names.is_empty() { all() } else { Vec::new() };
        let names = if names.is_empty() { &all[..] } else { names };
        if names.is_empty() {
            let count = self.client.subscriptions.lock().count();
            self.confirm(word, None, count);
        }
        for name in names {
            let (was_there, count) = {
                let mut subscriptions = self.client.subscriptions.lock();
                (subscriptions.remove(kind, name), subscriptions.count())
            };
            if was_there && let Some(tenant) = &self.tenant {
                tenant.channels.remove(kind, name, &self.client);
            }
            self.confirm(word, Some(name), count);
        }
        Ok(())
    }

    fn confirm(&mut self, word: &[u8], name: Option<&Bytes>, count: usize) {
        let mut reply = self.reply();
        reply.push(3);
        reply.bulk(word);
        reply.bulk_or_null(name.map(|name| &name[..]));
        reply.count(count);
    }

    /// Ends all subscriptions without a word.
    pub(super) fn unsubscribe_all(&mut self) {
        let Some(tenant) = &self.tenant else { return };
        let subscriptions = std::mem::take(&mut *self.client.subscriptions.lock());
        subscriptions
            .channels
            .iter()
            .for_each(|name| tenant.channels.remove(SubscriptionKind::Channel, name, &self.client));
        subscriptions
            .patterns
            .iter()
            .for_each(|name| tenant.channels.remove(SubscriptionKind::Pattern, name, &self.client));
    }
}
