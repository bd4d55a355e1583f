//! Devices that wait for commands over MQTT. Each device has its own connection and subscription.

use std::convert::Infallible;
use std::time::Duration;

use millstream_mqtt::encode::{ack, publish};
use millstream_mqtt::from_server::Packet;
use millstream_mqtt::{
    AckKind, Outgoing, Publish, Qos, Subscribe, SubscribeOptions, Version, WriteError, reason, to_server,
};
use tokio::time::timeout;

use super::{ReadySignal, STATUS};
use crate::mqtt::{MqttConnection, connect_packet, unexpected};
use crate::sim::{Auth, SimArgs};
use crate::target::ServerTarget;
use crate::{Error, RequestFailure};

/// Keep-alive interval. The server closes a connection that is silent for 1.5 times this time.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Subscribes to all commands for the authenticated device.
const FILTER: &str = "command///req/#";
/// Longest request id that is answered, so that the topic of the answer stays within the limits of MQTT.
const REQUEST_ID_MAX_BYTES: usize = 1_024;

pub(super) struct MqttResponder {
    args: SimArgs,
    target: ServerTarget,
    qos: Qos,
}

impl MqttResponder {
    pub(super) fn of(args: &SimArgs) -> Result<Self, Error> {
        let qos = if args.qos == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce };
        Ok(Self { args: args.clone(), target: args.target()?, qos })
    }

    /// Answers commands until the connection breaks. Returns the failure.
    pub(super) async fn serve(&self, number: u64, ready: &mut ReadySignal) -> RequestFailure {
        let limit = self.target.request_timeout;
        let opened = timeout(limit, self.subscribe(number)).await.unwrap_or(Err(RequestFailure::Timeout(limit)));
        *ready = None;
        let answered = match opened {
            Ok(mut subscriber) => subscriber.answer_all().await,
            Err(failure) => Err(failure),
        };
        match answered {
            Err(failure) => failure,
            Ok(never) => match never {},
        }
    }

    /// Opens a connection and waits until its subscription is confirmed.
    async fn subscribe(&self, number: u64) -> Result<CommandSubscription, RequestFailure> {
        let (id, limit) = (self.args.device_id(number), self.target.request_timeout);
        let user = format!("{id}@{}", self.args.tenant);
        let login = (self.args.auth == Auth::Basic).then_some((&*user, &*self.args.password));
        let hello = connect_packet(&id, KEEP_ALIVE, login).map_err(unwritten)?;
        let mut connection = MqttConnection::open(&self.target, &hello, limit).await?;
        let mut out = Vec::new();
        let filters = vec![(FILTER, SubscribeOptions::at(self.qos))];
        let subscribe = Subscribe { id: 1, subscription_id: 0, filters };
        to_server::subscribe(&mut out, Version::V311, &subscribe).map_err(unwritten)?;
        connection.send(&out, limit).await?;
        out.clear();
        let confirmed = connection.hear(|packet| match packet {
            Packet::SubAck(answer) if !answer.codes.contains(&reason::UNSPECIFIED) => Ok(()),
            other => Err(unexpected(&other)),
        });
        confirmed.await?;
        Ok(CommandSubscription { connection, limit, replies: Replies { out, qos: self.qos, next_id: 1 } })
    }
}

struct CommandSubscription {
    connection: MqttConnection,
    /// The longest time that a write may take.
    limit: Duration,
    replies: Replies,
}

impl CommandSubscription {
    async fn answer_all(&mut self) -> Result<Infallible, RequestFailure> {
        loop {
            let replies = &mut self.replies;
            match timeout(KEEP_ALIVE, self.connection.hear(|packet| replies.take(&packet))).await {
                Ok(heard) => heard?,
                Err(_) => to_server::ping(&mut replies.out),
            }
            while self.connection.next_buffered(|packet| replies.take(&packet))?.is_some() {}
            if !replies.out.is_empty() {
                self.connection.send(&replies.out, self.limit).await?;
                replies.out.clear();
            }
        }
    }
}

/// The packets that a device answers with.
struct Replies {
    /// Bytes that are not written yet.
    out: Vec<u8>,
    qos: Qos,
    next_id: u16,
}

impl Replies {
    fn take(&mut self, packet: &Packet<'_>) -> Result<(), RequestFailure> {
        match packet {
            Packet::Publish(command) => self.answer(command),
            Packet::PubAck(_) | Packet::PingResp => {}
            other => return Err(unexpected(other)),
        }
        Ok(())
    }

    /// Confirms a command and publishes its answer.
    fn answer(&mut self, command: &Publish<'_>) {
        if command.qos == Qos::AtLeastOnce {
            ack(&mut self.out, Version::V311, AckKind::PubAck, command.id, reason::SUCCESS);
        }
        // command / tenant / device / req / request id / name
        let request = command.topic.split('/').nth(4).filter(|id| (1..=REQUEST_ID_MAX_BYTES).contains(&id.len()));
        let Some(request) = request else { return };
        let topic = format!("command///res/{request}/{STATUS}");
        let answer = Outgoing { topic: &topic, payload: command.payload, ..Outgoing::at(self.qos, self.next_id) };
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        publish(&mut self.out, Version::V311, &answer);
    }
}

fn unwritten(error: WriteError) -> RequestFailure {
    RequestFailure::Lost(Box::new(error))
}
