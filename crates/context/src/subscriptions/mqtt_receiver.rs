//! A receiver of notifications over MQTT 3.1.1, plain or over TLS: one connection for each broker and login, opened with the first
//! notification, closed when it was idle for long or has failed.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rumqttc::mqttbytes::v4::{Connect, Packet, PubRel, Publish};
use rumqttc::{ConnectReturnCode, QoS};
use tokio::sync::Mutex;

use super::attempt::Failed;
use super::outgoing::Outgoing;
use super::socket::Socket;
use super::target::Broker;

/// Longest text of a packet: topic, user, password. Its length has 16 bits, and a longer one would be written with another.
pub(crate) const TEXT_MAX_BYTES: usize = u16::MAX as usize;
/// Largest packet that is read from a broker; it sends acknowledgements only.
const READ_MAX_BYTES: usize = 1_024;
/// A connection that was idle for longer is tried by a ping before it is used.
const TRUSTED: Duration = Duration::from_secs(1);

/// One broker and login.
pub(crate) struct MqttReceiver {
    broker: Broker,
    outgoing: Arc<Outgoing>,
    message_max_bytes: usize,
    connection: Mutex<Option<Connection>>,
}

struct Connection {
    socket: Socket,
    read: BytesMut,
    next_packet: u16,
    used: Instant,
}

impl MqttReceiver {
    pub(crate) fn new(broker: Broker, outgoing: Arc<Outgoing>, message_max_bytes: usize) -> Self {
        Self { broker, outgoing, message_max_bytes, connection: Mutex::default() }
    }

    /// Closes the connection if it was idle for so long; whether none is left.
    pub(crate) fn close_if_idle(&self, idle: Duration) -> bool {
        let Ok(mut connection) = self.connection.try_lock() else { return false };
        if connection.as_ref().is_some_and(|open| open.used.elapsed() >= idle) {
            *connection = None;
        }
        connection.is_none()
    }

    /// Publishes once; done when the broker has acknowledged it, if `qos` lets it.
    pub(crate) async fn send(
        &self,
        (topic, payload): (&str, &str),
        (qos, retain): (u8, bool),
        timeout: Duration,
    ) -> Result<(), Failed> {
        let until = tokio::time::Instant::now() + timeout;
        let late = || Failed::unreached("timeout: the broker is busy with other notifications");
        let mut place = tokio::time::timeout_at(until, self.connection.lock()).await.map_err(|_| late())?;
        // Out of its place while it is used: whatever fails or is given up leaves none behind.
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

    /// The kept connection if it still works, else a new one.
    async fn open(&self, kept: Option<Connection>) -> Result<Connection, Failed> {
        if let Some(mut connection) = kept
            && (connection.used.elapsed() < TRUSTED && !connection.is_closed() || connection.ping().await.is_ok())
        {
            return Ok(connection);
        }
        let Broker { address, login } = &self.broker;
        if login.iter().any(|(user, password)| user.len().max(password.len()) > TEXT_MAX_BYTES) {
            return Err(Failed::unreached(format!("user or password has more than {TEXT_MAX_BYTES} bytes")));
        }
        let socket = Socket::connect(address, &self.outgoing).await?;
        let mut connection = Connection { socket, read: BytesMut::new(), next_packet: 1, used: Instant::now() };
        let mut hello = Connect::new(format!("millstream{:016x}", fastrand::u64(..)));
        // Nobody pings while there is nothing to send; see [`TRUSTED`].
        (hello.keep_alive, hello.clean_session) = (0, true);
        if let Some((user, password)) = login {
            hello.set_login(user.as_str(), password.as_str());
        }
        connection.write(|out| hello.write(out).map(drop)).await.map_err(Failed::unreached)?;
        match connection.packet().await.map_err(Failed::unreached)? {
            Packet::ConnAck(answer) if answer.code == ConnectReturnCode::Success => Ok(connection),
            Packet::ConnAck(answer) => {
                Err(Failed::unreached(format!("the broker refuses the login: {:?}", answer.code)))
            }
            other => Err(Failed::unreached(format!("the broker speaks no MQTT: {other:?}"))),
        }
    }
}

impl Connection {
    /// Whether the broker has closed it; what it may have sent is no matter here.
    fn is_closed(&self) -> bool {
        match self.socket.try_read(&mut [0; 64]) {
            Ok(read_bytes) => read_bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    async fn write(
        &mut self,
        packet: impl FnOnce(&mut BytesMut) -> Result<(), rumqttc::mqttbytes::Error>,
    ) -> Result<(), String> {
        let mut out = BytesMut::new();
        packet(&mut out).map_err(|error| format!("no MQTT packet: {error:?}"))?;
        self.socket.write_all(&out).await.map_err(|error| format!("connection broken: {error}"))
    }

    async fn packet(&mut self) -> Result<Packet, String> {
        loop {
            match Packet::read(&mut self.read, READ_MAX_BYTES) {
                Ok(packet) => return Ok(packet),
                Err(rumqttc::mqttbytes::Error::InsufficientBytes(_)) => {}
                Err(error) => return Err(format!("the broker speaks no MQTT: {error:?}")),
            }
            match self.socket.read_buf(&mut self.read).await {
                Ok(0) => return Err("the broker has closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("connection broken: {error}")),
            }
        }
    }

    async fn ping(&mut self) -> Result<(), String> {
        self.write(|out| rumqttc::mqttbytes::v4::PingReq.write(out).map(drop)).await?;
        while self.packet().await? != Packet::PingResp {}
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
        let level = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(qos.min(2))];
        let mut publish = Publish::new(topic, level, payload);
        (publish.retain, publish.pkid) = (retain, self.next_packet);
        if publish.size() > max_bytes {
            return Err(Failed::unreached(format!("the message has more than {max_bytes} bytes")));
        }
        self.next_packet = self.next_packet.checked_add(1).unwrap_or(1);
        let packet = publish.pkid;
        self.write(|out| publish.write(out).map(drop)).await.map_err(Failed::unknown)?;
        if qos == 0 {
            return Ok(());
        }
        loop {
            match self.packet().await.map_err(Failed::unknown)? {
                Packet::PubAck(ack) if qos == 1 && ack.pkid == packet => return Ok(()),
                Packet::PubRec(ack) if ack.pkid == packet => {
                    let release = PubRel::new(packet);
                    self.write(|out| release.write(out).map(drop)).await.map_err(Failed::unknown)?;
                }
                Packet::PubComp(ack) if ack.pkid == packet => return Ok(()),
                _ => {}
            }
        }
    }
}
