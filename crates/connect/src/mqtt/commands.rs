//! Commands on their way to a client.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use millstream_mqtt::encode::{publish, publish_size};
use millstream_mqtt::property::{CONTENT_TYPE, put_text};
use millstream_mqtt::{Ack, Outgoing, Qos, Version, reason};
use millstream_types::Principal;
use tokio::sync::mpsc;

use super::broker::LimitReached;
use super::client::Client;
use super::command_filter::{CommandFilter, CommandTarget};
use super::deliveries::{Deliveries, SentCommand, Subscribed};
use super::disconnect::DisconnectCause;
use crate::commands::{CommandDelivery, Listening, Way, Whose};
use crate::metrics::{Direction, ProcessingOutcome};
use crate::sender::DeviceAddress;

/// The outcome of a command at the client.
enum CommandOutcome {
    Accepted,
    Released,
    Rejected(u16, String),
}

impl Client {
    /// Says what has become of a command, and counts it.
    fn say(&self, delivery: CommandDelivery, said: CommandOutcome) {
        let command = delivery.command();
        let fate = match said {
            CommandOutcome::Accepted => ProcessingOutcome::Forwarded,
            CommandOutcome::Released => ProcessingOutcome::Undeliverable,
            CommandOutcome::Rejected(..) => ProcessingOutcome::Unprocessable,
        };
        let took_ms = self.adapter.uplink.wall.now_ms().saturating_sub(command.received_ms);
        let took = Duration::from_millis(u64::try_from(took_ms).unwrap_or(0));
        let other = (command.tenant != *self.uplink.tenant()).then(|| self.adapter.uplink.meters.of(&command.tenant));
        let meter = other.as_ref().unwrap_or(self.uplink.meter());
        meter.count_command(Direction::of(command.wants_response), fate, command.payload.len(), took);
        match said {
            CommandOutcome::Accepted => delivery.accept(),
            CommandOutcome::Released => delivery.release(),
            CommandOutcome::Rejected(status, why) => delivery.reject(status, why),
        }
    }

    /// Subscribes to commands; the code that answers it.
    pub(super) fn subscribe_to_commands(&mut self, filter: &str, qos: Qos) -> u8 {
        let Some(who) = self.named_in(filter) else { return reason::BAD_FILTER };
        let Some(filter) = CommandFilter::parse(filter, who.tenant.as_str()) else { return reason::BAD_FILTER };
        if qos == Qos::ExactlyOnce {
            return reason::IMPLEMENTATION;
        }
        let is_allowed = match filter.whom(&who.name) {
            CommandTarget::One(device) => self.may_act_for(&who, device),
            CommandTarget::All => self.login.is_some(),
        };
        if !is_allowed {
            return reason::NOT_AUTHORISED;
        }
        let config = &self.adapter.config;
        let (most, in_flight_max) = (config.command_subscriptions_max, config.commands_in_flight_max);
        let known = self
            .commands
            .as_ref()
            .map_or(0, |commands| commands.subscribed.iter().filter(|known| known.filter.text != filter.text).count());
        if known >= most {
            let limit = "connect.mqtt.command_subscriptions_max";
            return self.limit_reached(&filter.text, LimitReached { limit, value: most as u64 });
        }
        let commands = self.commands.get_or_insert_with(|| Box::new(Deliveries::new(in_flight_max)));
        let outbox = commands.outbox.clone();
        let listening = self.listen(&who, &filter, &outbox);
        let present = self.adapter.presence.enter(&who.tenant, filter.device(&who.name));
        if let Some(commands) = &mut self.commands {
            commands.unsubscribe(&filter.text);
            commands.subscribed.push(Subscribed { filter, qos, who, _listening: listening, _present: present });
        }
        qos as u8
    }

    fn listen(
        &self,
        who: &Principal,
        filter: &CommandFilter,
        outbox: &mpsc::Sender<CommandDelivery>,
    ) -> Vec<Listening> {
        let own: Arc<str> = who.name.as_str().into();
        let whose = match filter.whom(&own) {
            CommandTarget::All => {
                vec![Whose::Device { device: own.clone(), via: None }, Whose::Behind { gateway: own.clone() }]
            }
            CommandTarget::One(device) => {
                let is_itself = *device == *own || self.login.is_none();
                vec![Whose::Device { device: device.into(), via: (!is_itself).then(|| own.clone()) }]
            }
        };
        let (commands, tenant) = (&self.adapter.uplink.commands, &who.tenant);
        whose.into_iter().map(|whose| commands.listen(tenant, whose, Way::Stream(outbox.clone()))).collect()
    }

    /// True if `who` may receive commands of `device`.
    pub(super) fn may_act_for(&self, who: &Principal, device: &str) -> bool {
        if self.login.is_none() && self.adapter.check(who).is_err() {
            return false;
        }
        let tenant = &who.tenant;
        let snapshot = self.adapter.registry.snapshot(tenant);
        let target = DeviceAddress::Named { tenant: None, device };
        let find = |known| self.adapter.uplink.ingest.sender(known, target, who).is_ok();
        snapshot.state.tenant(tenant).is_some_and(find)
    }

    /// Waits for a command and writes it.
    pub(super) fn poll_commands(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), DisconnectCause>> {
        let Some(commands) = &mut self.commands else { return Poll::Pending };
        match commands.inbox.poll_recv(cx) {
            Poll::Ready(Some(delivery)) => Poll::Ready(self.send_command(delivery, out)),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn send_command(&mut self, delivery: CommandDelivery, out: &mut Vec<u8>) -> Result<(), DisconnectCause> {
        let command = delivery.command();
        let known = self.commands.as_ref().and_then(|known| known.covering(command));
        let Some(Subscribed { filter, qos, .. }) = known else {
            // It was on its way when the client has unsubscribed.
            self.say(delivery, CommandOutcome::Released);
            return Ok(());
        };
        let (qos, topic) = (*qos, filter.topic(&command.device, delivery.request_id(), &command.name));
        let mut properties = Vec::new();
        if let Some(content_type) = command.content_type.as_deref().filter(|_| self.version == Version::V5) {
            properties.push(CONTENT_TYPE);
            put_text(&mut properties, content_type.as_bytes());
        }
        let mut message = Outgoing {
            dup: false,
            retain: false,
            qos,
            id: 0,
            topic: &topic,
            alias: 0,
            expiry_s: None,
            subscription_ids: &[],
            properties: &properties,
            payload: &command.payload,
        };
        let size = publish_size(self.version, &message);
        let limit = self.takes.packet_max_bytes;
        if size > limit || topic.len() > usize::from(u16::MAX) {
            let why = format!("a packet of {size} bytes; the device takes {limit} at most");
            self.say(delivery, CommandOutcome::Rejected(413, why));
            return Ok(());
        }
        let Some(id) = self.command_id(qos)? else {
            self.say(delivery, CommandOutcome::Released);
            return Ok(());
        };
        message.id = id;
        publish(out, self.version, &message);
        let sent = self.adapter.uplink.monotonic.now();
        if let Some(commands) = &mut self.commands {
            commands.flights.push(SentCommand { id, sent, delivery: Some(delivery) });
            self.figures.count_commands(commands.flights.len());
        }
        Ok(())
    }

    /// An id for a command; `None` if as many are on their way as may.
    fn command_id(&mut self, qos: Qos) -> Result<Option<u16>, DisconnectCause> {
        let Some(commands) = &mut self.commands else { return Ok(None) };
        let most = self.adapter.config.commands_in_flight_max;
        if commands.flights.len() >= most {
            return Ok(None);
        }
        Ok(match &self.broker_client {
            _ if qos == Qos::AtMostOnce => Some(0),
            // Both spaces draw on the same ids, and on what the client is able to take.
            Some(broker_client) => broker_client.link.with(|session| session.lend_id())?,
            None if commands.flights.len() >= self.takes.messages => None,
            None => Some(commands.free_id()),
        })
    }

    /// Handles an acknowledgement of the client; true if it was for a command.
    pub(super) fn command_acknowledged(&mut self, given: Ack) -> Result<bool, DisconnectCause> {
        let Some(commands) = &mut self.commands else { return Ok(false) };
        let Some(at) = commands.flights.iter().position(|flight| flight.id == given.id) else { return Ok(false) };
        let flight = commands.flights.swap_remove(at);
        self.figures.count_commands(commands.flights.len());
        if let Some(delivery) = flight.delivery {
            let refusal = || format!("the device has refused the command with reason {:#04x}", given.reason);
            let is_refused = given.reason >= reason::UNSPECIFIED;
            self.say(
                delivery,
                if is_refused { CommandOutcome::Rejected(400, refusal()) } else { CommandOutcome::Accepted },
            );
        }
        if let Some(broker_client) = &self.broker_client {
            broker_client.link.with(|session| session.return_id(given.id))?;
            // There may be room for the next one.
            broker_client.link.bell.notify_one();
        }
        Ok(true)
    }

    /// Accepts the commands at most once that were written: nothing more is ever known of them.
    pub(super) fn flushed(&mut self) {
        let Some(commands) = &mut self.commands else { return };
        let done: Vec<SentCommand> = commands.flights.extract_if(.., |flight| flight.id == 0).collect();
        if !done.is_empty() {
            self.figures.count_commands(commands.flights.len());
        }
        for delivery in done.into_iter().filter_map(|flight| flight.delivery) {
            self.say(delivery, CommandOutcome::Accepted);
        }
    }

    /// True if there are commands that the client has not acknowledged.
    pub(super) fn awaits_commands(&self) -> bool {
        self.commands.as_ref().is_some_and(|known| known.flights.iter().any(|flight| flight.delivery.is_some()))
    }

    /// Time left for the client to acknowledge the oldest command; `None` if it has acknowledged all.
    pub(super) fn command_patience(&self) -> Option<Duration> {
        let limit = Duration::from_millis(self.adapter.config.command_ack_timeout_ms);
        let awaited = self.commands.as_ref()?.flights.iter().filter(|flight| flight.delivery.is_some());
        let oldest = awaited.map(|flight| flight.sent).min()?;
        Some(limit.saturating_sub(self.adapter.uplink.monotonic.now().saturating_sub(oldest)))
    }

    /// Takes commands back that the client has not acknowledged in time.
    pub(super) fn withdraw_commands(&mut self) {
        let limit = Duration::from_millis(self.adapter.config.command_ack_timeout_ms);
        let now = self.adapter.uplink.monotonic.now();
        self.release_commands(|flight| now.saturating_sub(flight.sent) >= limit);
    }

    /// The connection is over: what the client has not acknowledged it does not have, as far as is known.
    pub(super) fn release_all_commands(&mut self) {
        self.release_commands(|_| true);
    }

    fn release_commands(&mut self, is_it: impl Fn(&SentCommand) -> bool) {
        let Some(commands) = &mut self.commands else { return };
        let late = commands.flights.iter_mut().filter(|flight| is_it(flight));
        let late: Vec<CommandDelivery> = late.filter_map(|flight| flight.delivery.take()).collect();
        late.into_iter().for_each(|delivery| self.say(delivery, CommandOutcome::Released));
    }
}
