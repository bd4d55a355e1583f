//! Sends notifications over MQTT 3.1.1, plain or over TLS: one connection for each broker and login, opened with the
//! first notification and closed after long idle time or a failure.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};
use millstream_mqtt::encode::{ack, publish, publish_size};
use millstream_mqtt::from_server::{ConnAck, Packet, decode};
use millstream_mqtt::{
    AckKind, Connect, Framed, Outgoing as OutgoingPacket, PACKET_MAX_BYTES, Qos, Version, WriteError, frame, reason,
    to_server,
};
use millstream_outgoing::{Failed, Outgoing, Socket};
use tokio::sync::Mutex;

use super::target::NotificationBroker;

/// Largest packet from a broker, which sends acknowledgements only.
const READ_MAX_BYTES: usize = 1_024;
/// A connection that was idle for longer is tested by a ping before use.
const TRUSTED: Duration = Duration::from_secs(1);

/// A receiver: one broker and login.
pub(crate) struct MqttReceiver {
    broker: NotificationBroker,
    outgoing: Arc<Outgoing>,
    message_max_bytes: usize,
    connection: Mutex<Option<BrokerConnection>>,
}

struct BrokerConnection {
    socket: Socket,
    read: BytesMut,
    next_packet: u16,
    used: Instant,
}

impl MqttReceiver {
    pub(crate) fn new(broker: NotificationBroker, outgoing: Arc<Outgoing>, message_max_bytes: usize) -> Self {
        Self { broker, outgoing, message_max_bytes, connection: Mutex::default() }
    }

    /// Closes a connection that was idle for `idle`; returns true if none is left.
    pub(crate) fn close_if_idle(&self, idle: Duration) -> bool {
        let Ok(mut connection) = self.connection.try_lock() else { return false };
        if connection.as_ref().is_some_and(|open| open.used.elapsed() >= idle) {
            *connection = None;
        }
        connection.is_none()
    }

    /// Publishes once; with QoS 1 or 2 returns after the broker's acknowledgement.
    pub(crate) async fn send(
        &self,
        topic: &str,
        payload: &str,
        qos: u8,
        retain: bool,
        timeout: Duration,
    ) -> Result<(), Failed> {
        let until = tokio::time::Instant::now() + timeout;
        let late = || Failed::refused("timeout: the broker is busy with other notifications");
        let mut place = tokio::time::timeout_at(until, self.connection.lock()).await.map_err(|_| late())?;
        // Removed while in use: a failed or cancelled attempt leaves no connection behind.
        let kept = place.take();
        let opened = tokio::time::timeout_at(until, self.open(kept)).await;
        let mut connection = opened.map_err(|_| Failed::unreached("timeout: no connection to the broker"))??;
        let published =
            tokio::time::timeout_at(until, connection.publish(topic, payload, qos, retain, self.message_max_bytes));
        published.await.map_err(|_| Failed::unknown("timeout: the broker has not acknowledged"))??;
        connection.used = Instant::now();
        *place = Some(connection);
        Ok(())
    }

    /// The kept connection if it still works, otherwise a new one.
    async fn open(&self, kept: Option<BrokerConnection>) -> Result<BrokerConnection, Failed> {
        if let Some(mut connection) = kept
            && (connection.used.elapsed() < TRUSTED && !connection.is_closed() || connection.ping().await.is_ok())
        {
            return Ok(connection);
        }
        let hello = self.connect_packet().map_err(|error| Failed::unreached(error.to_string()))?;
        let socket = Socket::connect(&self.broker.address, &self.outgoing).await?;
        let mut connection = BrokerConnection { socket, read: BytesMut::new(), next_packet: 1, used: Instant::now() };
        connection.write(&hello).await.map_err(Failed::unreached)?;
        let answered = connection.packet(|packet| match packet {
            Packet::ConnAck(answer) => why_refused(answer),
            other => Some(format!("the broker speaks no MQTT: {other:?}")),
        });
        match answered.await.map_err(Failed::unreached)? {
            None => Ok(connection),
            Some(why) => Err(Failed::unreached(why)),
        }
    }

    fn connect_packet(&self) -> Result<Vec<u8>, WriteError> {
        let client_id = format!("millstream{:016x}", fastrand::u64(..));
        // A clean session without keep alive: idle connections send no pings, see [`TRUSTED`].
        let mut connect = Connect::new(Version::V311, &client_id);
        let login = self.broker.login.as_ref();
        (connect.user, connect.password) = login.map(|(user, password)| (user.as_str(), password.as_bytes())).unzip();
        let mut packet = Vec::new();
        to_server::connect(&mut packet, &connect)?;
        Ok(packet)
    }
}

/// `None` if the broker accepts the client.
fn why_refused(answer: ConnAck<'_>) -> Option<String> {
    // Section 3.2.2.3 of MQTT 3.1.1.
    let why = match answer.code {
        0 => return None,
        1 => "it does not speak MQTT 3.1.1",
        2 => "the client id is not allowed",
        3 => "it is not available",
        4 => "wrong user or password",
        _ => "not authorised",
    };
    Some(format!("the broker refuses the login: {why} (return code {})", answer.code))
}

/// The part of an acknowledgement that a packet brings.
enum Acknowledgement {
    /// The broker has taken the message.
    Complete,
    /// QoS 2: the broker has the message and waits for its release.
    Received,
    /// The packet is about something else.
    None,
}

impl BrokerConnection {
    /// The broker has closed the connection; received bytes are ignored.
    fn is_closed(&self) -> bool {
        match self.socket.try_read(&mut [0; 64]) {
            Ok(read_bytes) => read_bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.socket.write_all(bytes).await.map_err(|error| format!("connection broken: {error}"))
    }

    /// Waits for the next packet and hands it to `take`.
    async fn packet<T>(&mut self, take: impl FnOnce(Packet<'_>) -> T) -> Result<T, String> {
        let no_mqtt = |error| format!("the broker speaks no MQTT: {error}");
        loop {
            if let Framed::Whole(frame) = frame(&self.read, READ_MAX_BYTES).map_err(no_mqtt)? {
                let taken = take(decode(frame, Version::V311).map_err(no_mqtt)?);
                let size_bytes = frame.size;
                self.read.advance(size_bytes);
                return Ok(taken);
            }
            match self.socket.read_buf(&mut self.read).await {
                Ok(0) => return Err("the broker has closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("connection broken: {error}")),
            }
        }
    }

    async fn ping(&mut self) -> Result<(), String> {
        let mut out = Vec::new();
        to_server::ping(&mut out);
        self.write(&out).await?;
        while !self.packet(|packet| packet == Packet::PingResp).await? {}
        Ok(())
    }

    async fn publish(
        &mut self,
        topic: &str,
        payload: &str,
        qos: u8,
        retain: bool,
        max_bytes: usize,
    ) -> Result<(), Failed> {
        let level = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][usize::from(qos.min(2))];
        let id = self.next_packet;
        let message = OutgoingPacket { retain, topic, payload: payload.as_bytes(), ..OutgoingPacket::at(level, id) };
        let max_bytes = max_bytes.min(PACKET_MAX_BYTES);
        if publish_size(Version::V311, &message) > max_bytes {
            return Err(Failed::refused(format!("the message has more than {max_bytes} bytes")));
        }
        self.next_packet = id.checked_add(1).unwrap_or(1);
        let mut out = Vec::new();
        publish(&mut out, Version::V311, &message);
        self.write(&out).await.map_err(Failed::unknown)?;
        if level == Qos::AtMostOnce {
            return Ok(());
        }
        drop(out);
        loop {
            let answered = self.packet(|packet| match packet {
                Packet::PubAck(ack) if level == Qos::AtLeastOnce && ack.id == id => Acknowledgement::Complete,
                Packet::PubRec(ack) if ack.id == id => Acknowledgement::Received,
                Packet::PubComp(ack) if ack.id == id => Acknowledgement::Complete,
                _ => Acknowledgement::None,
            });
            match answered.await.map_err(Failed::unknown)? {
                Acknowledgement::Complete => return Ok(()),
                Acknowledgement::Received => {
                    let mut release = Vec::new();
                    ack(&mut release, Version::V311, AckKind::PubRel, id, reason::SUCCESS);
                    self.write(&release).await.map_err(Failed::unknown)?;
                }
                Acknowledgement::None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::NotificationsConfig;
    use millstream_outgoing::{Address, FailureKind};

    const CONNACK: &[u8] = b"\x20\x02\x00\x00";
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Answers the packets of one client, one after the other, and closes the connection.
    async fn serve(listener: TcpListener, answers: &[&[u8]]) {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut heard = BytesMut::new();
        for answer in answers {
            let size_bytes = loop {
                if let Framed::Whole(frame) = frame(&heard, PACKET_MAX_BYTES).unwrap() {
                    break frame.size;
                }
                assert!(socket.read_buf(&mut heard).await.unwrap() > 0, "the client waits for its answer");
            };
            heard.advance(size_bytes);
            socket.write_all(answer).await.unwrap();
        }
        socket.shutdown().await.unwrap();
        while socket.read_buf(&mut heard).await.is_ok_and(|read_bytes| read_bytes > 0) {}
    }

    /// Publishes to a broker that gives these answers.
    async fn publish_to(answers: &[&[u8]], password: &str, payload: &str, qos: u8) -> Result<(), Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".to_owned(), port, is_tls: false };
        let login = Some(("user".to_owned(), password.to_owned()));
        let outgoing = Arc::new(NotificationsConfig::default().outgoing(Arc::new(|| false)).unwrap());
        let receiver = MqttReceiver::new(NotificationBroker { address, login }, outgoing, 1 << 20);
        tokio::select! {
            sent = receiver.send("t", payload, qos, false, TIMEOUT) => sent,
            () = async { serve(listener, answers).await; std::future::pending().await } => unreachable!(),
        }
    }

    #[tokio::test]
    async fn a_failure_names_its_reason_and_says_whether_the_broker_may_have_the_message() {
        let (long, large) = ("p".repeat(65_536), "x".repeat(1 << 20));
        for (answers, password, payload, kind, reason) in [
            (
                &[&b"\x20\x02\x00\x04"[..]][..],
                "pw",
                "x",
                FailureKind::Unreached,
                "wrong user or password (return code 4)",
            ),
            (&[b"\x20\x02\x00\x05"], "pw", "x", FailureKind::Unreached, "not authorised (return code 5)"),
            (&[b"\x20\x02\x00\x03"], "pw", "x", FailureKind::Unreached, "not available (return code 3)"),
            (&[b"\x20\x02\x00\x09"], "pw", "x", FailureKind::Unreached, "speaks no MQTT: malformed packet"),
            (&[b"\xd0\x00"], "pw", "x", FailureKind::Unreached, "speaks no MQTT: PingResp"),
            (
                &[b"\x30\xff\x7f"],
                "pw",
                "x",
                FailureKind::Unreached,
                "a packet of 16386 bytes is over the limit of 1024",
            ),
            (&[], "pw", "x", FailureKind::Unreached, "the broker has closed the connection"),
            (&[], &long, "x", FailureKind::Unreached, "the password has 65536 bytes; MQTT allows at most 65535"),
            (&[CONNACK], "pw", &large, FailureKind::Refused, "the message has more than 1048576 bytes"),
            (&[CONNACK], "pw", "x", FailureKind::Unknown, "the broker has closed the connection"),
            (&[CONNACK, b"\x40\x02\x00\x02"], "pw", "x", FailureKind::Unknown, "the broker has closed the connection"),
            (&[CONNACK, b"\x41\x02\x00\x01"], "pw", "x", FailureKind::Unknown, "speaks no MQTT: malformed packet"),
        ] {
            let failed = publish_to(answers, password, payload, 1).await.unwrap_err();
            assert!(failed.reason.contains(reason), "{reason}: {failed:?}");
            assert_eq!(failed.kind, kind, "{reason}");
        }
    }

    #[tokio::test]
    async fn a_message_counts_as_sent_when_its_acknowledgement_is_complete_despite_other_packets() {
        let stray: &[u8] = b"\x30\x03\x00\x01t\x40\x02\x00\x09";
        for (qos, answers) in [
            (0, vec![CONNACK]),
            (1, vec![CONNACK, b"\x40\x02\x00\x01"]),
            (1, vec![&*[CONNACK, stray].concat(), b"\x40\x02\x00\x01"]),
            (2, vec![CONNACK, b"\x50\x02\x00\x01", b"\x70\x02\x00\x01"]),
            (2, vec![&*[CONNACK, stray].concat(), &*[stray, b"\x50\x02\x00\x01"].concat(), b"\x70\x02\x00\x01"]),
        ] {
            assert_eq!(publish_to(&answers, "pw", "x", qos).await, Ok(()), "{qos} {answers:02x?}");
        }
    }
}
