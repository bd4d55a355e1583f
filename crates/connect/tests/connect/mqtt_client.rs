//! A client that sends packets byte by byte as a test wants them, and shows those it gets.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
pub(crate) struct Mqtt {
    socket: TcpStream,
    pub(crate) level: u8,
}

/// A packet of the server: first byte and body.
pub(crate) type Packet = (u8, Vec<u8>);

/// A text with its length.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A packet.
pub(crate) fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first_byte];
    let mut length = body.len();
    loop {
        let low = (length & 0x7F) as u8;
        length >>= 7;
        bytes.push(if length > 0 { low | 0x80 } else { low });
        if length == 0 {
            break;
        }
    }
    bytes.extend_from_slice(body);
    bytes
}

/// CONNECT with a clean session.
pub(crate) fn connect(level: u8, keep_alive_s: u16, login: Option<(&str, &str)>) -> Vec<u8> {
    let flags = if login.is_some() { 0b1100_0010 } else { 0b10 };
    let mut body = [text("MQTT"), vec![level, flags], keep_alive_s.to_be_bytes().to_vec()].concat();
    if level == 5 {
        body.push(0);
    }
    body.extend(text("client"));
    if let Some((user, password)) = login {
        body.extend(text(user));
        body.extend(text(password));
    }
    packet(0x10, &body)
}

/// PUBLISH; `properties` are those of MQTT 5 without their length.
pub(crate) fn publish(level: u8, qos: u8, id: u16, topic: &str, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = text(topic);
    if qos > 0 {
        body.extend(id.to_be_bytes());
    }
    if level == 5 {
        body.push(properties.len() as u8);
        body.extend_from_slice(properties);
    }
    body.extend_from_slice(payload);
    packet(0x30 | qos << 1, &body)
}

/// SUBSCRIBE to one filter.
pub(crate) fn subscribe(level: u8, id: u16, filter: &str, options: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if level == 5 {
        body.push(0);
    }
    body.extend(text(filter));
    body.push(options);
    packet(0x82, &body)
}

impl Mqtt {
    /// Opens a connection and sends nothing yet.
    pub(crate) async fn open(address: SocketAddr, level: u8) -> Self {
        Self { socket: TcpStream::connect(address).await.unwrap(), level }
    }

    /// Logs in.
    pub(crate) async fn log_in(address: SocketAddr, level: u8, user: &str) -> Self {
        let mut client = Self::open(address, level).await;
        client.send(&connect(level, 60, Some((user, "pw")))).await;
        let (first_byte, body) = client.next().await;
        assert_eq!((first_byte, &body[..2]), (0x20, &[0, 0][..]));
        client
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn publish(&mut self, qos: u8, id: u16, topic: &str, payload: &[u8]) {
        let bytes = publish(self.level, qos, id, topic, &[], payload);
        self.send(&bytes).await;
    }

    /// The next packet; fails at the end of the connection.
    pub(crate) async fn next(&mut self) -> Packet {
        self.next_or_end().await.expect("a packet, and not the end")
    }

    /// The next packet; `None` if the server has closed the connection.
    pub(crate) async fn next_or_end(&mut self) -> Option<Packet> {
        timeout(PATIENCE, async {
            let first_byte = self.socket.read_u8().await.ok()?;
            let (mut length, mut shift) = (0, 0);
            loop {
                let byte = self.socket.read_u8().await.ok()?;
                length |= usize::from(byte & 0x7F) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let mut body = vec![0; length];
            self.socket.read_exact(&mut body).await.ok()?;
            Some((first_byte, body))
        })
        .await
        .expect("an answer in time")
    }

    /// Sends nothing more.
    pub(crate) async fn finish(&mut self) {
        // The server may have closed the connection already.
        let _ = self.socket.shutdown().await;
    }

    /// The reason with which the server closes the connection: that of DISCONNECT in MQTT 5, none in 3.1.1.
    pub(crate) async fn expect_end(&mut self) -> Option<u8> {
        let mut reason = None;
        while let Some((first_byte, body)) = self.next_or_end().await {
            assert_eq!(first_byte, 0xE0, "nothing but a good-bye: {body:?}");
            reason = Some(body[0]);
        }
        reason
    }
}
