//! Sends messages of devices over MQTT. Each device has its own connection and up to `--in-flight` unconfirmed messages.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use millstream_mqtt::encode::{ack, publish};
use millstream_mqtt::from_server::Packet;
use millstream_mqtt::to_server::{disconnect, ping};
use millstream_mqtt::{AckKind, Disconnect, Outgoing, Qos, Version, reason};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFuture;

use super::fleet::Fleet;
use super::run::SimRun;
use super::{Auth, SimArgs};
use crate::mqtt::{MqttConnection, connect_packet, unexpected};
use crate::{Error, FailureKind, RequestFailure};

/// Keep-alive interval. The server closes a connection that is silent for 1.5 times this time.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Packets and limits of the devices of one thread.
#[derive(Debug)]
pub(super) struct Publishers {
    qos: Qos,
    /// Largest number of unconfirmed messages of a device.
    in_flight: usize,
    /// Publishers, indexed by device number.
    publishers: Vec<Publisher>,
}

#[derive(Debug)]
struct Publisher {
    connect_packet: Vec<u8>,
    topic: String,
}

impl Publishers {
    /// Prepares the devices with these ids.
    pub(super) fn of<'a>(args: &SimArgs, ids: impl Iterator<Item = &'a str>) -> Result<Self, Error> {
        let sender = |id: &str| {
            let user = format!("{id}@{}", args.tenant);
            let login = (args.auth == Auth::Basic).then_some((user.as_str(), args.password.as_str()));
            let connect_packet = connect_packet(id, KEEP_ALIVE, login).map_err(|error| Error::Option {
                option: "password",
                value: user.clone(),
                rule: error.to_string(),
            })?;
            Ok(Publisher { connect_packet, topic: args.topic(id) })
        };
        let qos = match args.qos() {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        };
        Ok(Self { qos, in_flight: args.in_flight(), publishers: ids.map(sender).collect::<Result<_, Error>>()? })
    }
}

/// Packets that a server sends to a client that only publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPacket {
    /// PUBACK or PUBCOMP: the server has taken the message with this id.
    Confirmed(u16),
    /// PUBREC: the client must answer with PUBREL.
    PubRec(u16),
    /// PINGRESP: the server has read everything before the ping.
    PingResp,
}

impl ServerPacket {
    fn of(packet: Packet<'_>) -> Result<Self, RequestFailure> {
        match packet {
            Packet::PubAck(ack) | Packet::PubComp(ack) => Ok(Self::Confirmed(ack.id)),
            Packet::PubRec(ack) => Ok(Self::PubRec(ack.id)),
            Packet::PingResp => Ok(Self::PingResp),
            other => Err(unexpected(&other)),
        }
    }
}

/// A message that the server has not confirmed yet.
#[derive(Debug, Clone, Copy)]
struct InFlightMessage {
    /// Packet id; not sent at QoS 0.
    id: u16,
    /// Time from which its latency counts.
    from: Instant,
    started: Instant,
}

/// State of one device and its connection.
struct MqttDevice {
    run: Arc<SimRun>,
    fleet: Arc<Mutex<Fleet>>,
    publishers: Arc<Publishers>,
    number: usize,
    connection: Option<MqttConnection>,
    /// Due time of the next message.
    due: Instant,
    /// Time since which the device may send one more message.
    free_since: Instant,
    next_id: u16,
    /// Unconfirmed messages in the order of sending.
    under_way: VecDeque<InFlightMessage>,
    /// QoS 0 only: number of messages that the pending ping confirms.
    pinged: usize,
    pinged_at: Instant,
    /// Bytes that are not written yet.
    out: Vec<u8>,
    written_at: Instant,
}

/// Runs the task of one device.
pub(super) async fn work(
    run: Arc<SimRun>,
    fleet: Arc<Mutex<Fleet>>,
    publishers: Arc<Publishers>,
    number: usize,
    due: Instant,
) {
    let now = Instant::now();
    let mut device = MqttDevice {
        run: run.clone(),
        fleet,
        publishers,
        number,
        connection: None,
        due,
        free_since: now,
        next_id: 0,
        under_way: VecDeque::new(),
        pinged: 0,
        pinged_at: now,
        out: Vec::new(),
        written_at: now,
    };
    // Timer and stop signal are reused, because creating them for each message costs more than the message.
    let mut timer = pin!(sleep_until(due));
    let mut stopped = pin!(run.stop.cancelled());
    while let Some(now) = device.begin() {
        let outcome = match device.write(now).await {
            Ok(()) => device.hear(timer.as_mut(), stopped.as_mut()).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = outcome {
            device.lose(&failure);
            if matches!(failure, RequestFailure::Connect(_) | RequestFailure::Refused(_)) {
                run.rest().await;
            }
        }
    }
    if let Some(mut connection) = device.connection {
        let mut goodbye = Vec::new();
        disconnect(&mut goodbye, Version::V311, Disconnect::default());
        // The server may have closed the connection already.
        drop(connection.send(&goodbye, run.target.request_timeout).await);
    }
}

impl MqttDevice {
    /// Starts every message that is due and returns the current time; `None` when the run is over and all is confirmed.
    fn begin(&mut self) -> Option<Instant> {
        let now = Instant::now();
        while self.may_begin() && self.due <= now && !self.run.is_over_at(now) && self.run.take_ticket() {
            let payload = self.fleet.lock().payload(self.number);
            // Packet ids begin at 1.
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            let waited = self.free_since < self.due;
            let from = self.run.pacing.counts_from(self.due, now, waited);
            self.under_way.push_back(InFlightMessage { id: self.next_id, from, started: now });
            let publishers = &self.publishers;
            let topic = &publishers.publishers[self.number].topic;
            let message = Outgoing { topic, payload: &payload, ..Outgoing::at(publishers.qos, self.next_id) };
            publish(&mut self.out, Version::V311, &message);
            self.due = self.run.pacing.next_due(self.run.period, self.due, now, now);
        }
        let is_over = self.run.is_over_at(now);
        if is_over && self.under_way.is_empty() {
            return None;
        }
        let unasked = self.publishers.qos == Qos::AtMostOnce && self.pinged == 0 && !self.under_way.is_empty();
        if unasked && (is_over || !self.may_begin()) {
            (self.pinged, self.pinged_at) = (self.under_way.len(), now);
            ping(&mut self.out);
        } else if self.connection.is_some() && now.saturating_duration_since(self.written_at) >= KEEP_ALIVE {
            ping(&mut self.out);
        }
        Some(now)
    }

    fn may_begin(&self) -> bool {
        self.under_way.len() < self.publishers.in_flight
    }

    async fn write(&mut self, now: Instant) -> Result<(), RequestFailure> {
        if self.out.is_empty() {
            return Ok(());
        }
        let target = &self.run.target;
        let limit = target.request_timeout;
        if self.connection.is_none() {
            let connect_packet = &self.publishers.publishers[self.number].connect_packet;
            self.connection = Some(MqttConnection::open(target, connect_packet, limit).await?);
        }
        if let Some(connection) = &mut self.connection {
            connection.send(&self.out, limit).await?;
        }
        self.out.clear();
        self.written_at = now;
        Ok(())
    }

    /// Waits for the next packet, the next due time or the end of the run.
    async fn hear(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        stopped: Pin<&mut WaitForCancellationFuture<'_>>,
    ) -> Result<(), RequestFailure> {
        let wake = self.wake();
        // An early timer only wakes once too often. Resetting it for each message would cost more.
        if timer.deadline() > wake || timer.is_elapsed() {
            timer.as_mut().reset(wake);
        }
        let is_stopped = self.run.stop.is_cancelled();
        let connection = &mut self.connection;
        let heard = async {
            match connection {
                Some(connection) => connection.hear(ServerPacket::of).await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            biased;
            heard = heard => Some(heard?),
            () = timer => None,
            () = stopped, if !is_stopped => None,
        };
        let now = Instant::now();
        let mut next = heard;
        while let Some(heard) = next {
            self.confirm(heard, now)?;
            next = match &mut self.connection {
                Some(connection) => connection.next_buffered(ServerPacket::of)?,
                None => None,
            };
        }
        match self.gives_up() {
            Some(at) if at <= now => Err(RequestFailure::Timeout(self.run.target.request_timeout)),
            _ => Ok(()),
        }
    }

    /// Time at which the oldest unconfirmed message times out.
    fn gives_up(&self) -> Option<Instant> {
        let asked = match self.publishers.qos {
            Qos::AtMostOnce => (self.pinged > 0).then_some(self.pinged_at),
            _ => self.under_way.front().map(|oldest| oldest.started),
        };
        asked.map(|asked| asked + self.run.target.request_timeout)
    }

    /// Next time at which the device must act without a packet from the server.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let is_over = self.run.is_over_at(now);
        let begins = (self.may_begin() && !is_over).then_some(self.due);
        let ends = self.run.end.filter(|_| !is_over);
        let pings = self.connection.is_some().then_some(self.written_at + KEEP_ALIVE);
        // All are absent only if no answer is pending and no message follows.
        [self.gives_up(), begins, ends, pings].into_iter().flatten().min().unwrap_or(now + KEEP_ALIVE)
    }

    /// Handles a packet of the server.
    fn confirm(&mut self, heard: ServerPacket, now: Instant) -> Result<(), RequestFailure> {
        let was_full = !self.may_begin();
        match heard {
            ServerPacket::PubRec(id) => ack(&mut self.out, Version::V311, AckKind::PubRel, id, reason::SUCCESS),
            ServerPacket::Confirmed(id) => {
                let Some(at) = self.under_way.iter().position(|message| message.id == id) else {
                    return Err(RequestFailure::Lost("a message was confirmed that was not sent".into()));
                };
                if let Some(message) = self.under_way.remove(at).filter(|message| self.counts(message)) {
                    self.fleet.lock().tally.count(Ok(now.saturating_duration_since(message.from)));
                }
            }
            ServerPacket::PingResp => self.read_up_to_ping(now),
        }
        if was_full {
            self.free_since = now;
        }
        Ok(())
    }

    fn read_up_to_ping(&mut self, now: Instant) {
        let read = std::mem::take(&mut self.pinged);
        let mut read: Vec<_> = self.under_way.drain(..read).collect();
        read.retain(|message| message.from >= self.run.measured_from);
        let mut fleet = self.fleet.lock();
        if let Some((last, others)) = read.split_last() {
            fleet.tally.accept(others.len() as u64);
            fleet.tally.count(Ok(now.saturating_duration_since(last.from)));
        }
    }

    /// Returns whether a message falls after the warm-up.
    fn counts(&self, message: &InFlightMessage) -> bool {
        message.from >= self.run.measured_from
    }

    /// Counts all unconfirmed messages as failed and drops the connection. The next message opens a new one.
    fn lose(&mut self, failure: &RequestFailure) {
        let kind = FailureKind::from(failure);
        let lost = std::mem::take(&mut self.under_way);
        let mut fleet = self.fleet.lock();
        for _ in lost.iter().filter(|message| self.counts(message)) {
            fleet.tally.count(Err(kind));
        }
        drop(fleet);
        self.connection = None;
        self.pinged = 0;
        self.out.clear();
        self.free_since = Instant::now();
    }
}
