//! A client that sends the exact bytes of a test and returns the packets it receives.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

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

/// The content of a CONNECT packet.
#[derive(Clone, Copy)]
pub(crate) struct Hello<'a> {
    pub(crate) level: u8,
    pub(crate) keep_alive_s: u16,
    pub(crate) client: &'a str,
    pub(crate) clean: bool,
    pub(crate) login: Option<(&'a str, &'a str)>,
    /// Properties of MQTT 5 without their length.
    pub(crate) properties: &'a [u8],
    pub(crate) will: Option<Will<'a>>,
}

/// The message that the server publishes when the client disconnects without DISCONNECT.
#[derive(Clone, Copy)]
pub(crate) struct Will<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) properties: &'a [u8],
}

impl Hello<'_> {
    pub(crate) fn packet(&self) -> Vec<u8> {
        let will = self.will.map_or(0, |will| 0b100 | will.qos << 3 | u8::from(will.retain) << 5);
        let flags = if self.login.is_some() { 0b1100_0000 } else { 0 } | u8::from(self.clean) << 1 | will;
        let mut body = [text("MQTT"), vec![self.level, flags], self.keep_alive_s.to_be_bytes().to_vec()].concat();
        let properties = |body: &mut Vec<u8>, bytes: &[u8]| {
            if self.level == 5 {
                body.push(bytes.len() as u8);
                body.extend(bytes);
            }
        };
        properties(&mut body, self.properties);
        body.extend(text(self.client));
        if let Some(will) = self.will {
            properties(&mut body, will.properties);
            body.extend(text(will.topic));
            body.extend((will.payload.len() as u16).to_be_bytes());
            body.extend(will.payload);
        }
        if let Some((user, password)) = self.login {
            body.extend(text(user));
            body.extend(text(password));
        }
        packet(0x10, &body)
    }
}

/// CONNECT with a clean session and a client id of its own.
pub(crate) fn connect(level: u8, keep_alive_s: u16, login: Option<(&str, &str)>) -> Vec<u8> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let client = format!("client-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    Hello { level, keep_alive_s, client: &client, clean: true, login, properties: &[], will: None }.packet()
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

/// A SUBSCRIBE packet with one filter.
pub(crate) fn subscribe(level: u8, id: u16, filter: &str, options: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if level == 5 {
        body.push(0);
    }
    body.extend(text(filter));
    body.push(options);
    packet(0x82, &body)
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: u8,
    pub(crate) dup: bool,
    pub(crate) retain: bool,
    pub(crate) id: u16,
    /// Those of MQTT 5, without their length.
    pub(crate) properties: Vec<u8>,
}

impl Message {
    pub(crate) fn read(first_byte: u8, body: &[u8], level: u8) -> Self {
        assert_eq!(first_byte >> 4, 3, "a message, and not {first_byte:#x} {body:?}");
        let (length, rest) = body.split_first_chunk::<2>().unwrap();
        let (topic, mut rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        let qos = first_byte >> 1 & 3;
        let mut id = 0;
        if qos > 0 {
            id = u16::from_be_bytes([rest[0], rest[1]]);
            rest = &rest[2..];
        }
        let mut properties = Vec::new();
        if level == 5 {
            properties = rest[1..1 + usize::from(rest[0])].to_vec();
            rest = &rest[1 + usize::from(rest[0])..];
        }
        Self {
            topic: String::from_utf8(topic.to_vec()).unwrap(),
            payload: rest.to_vec(),
            qos,
            dup: first_byte & 8 != 0,
            retain: first_byte & 1 != 0,
            id,
            properties,
        }
    }

    pub(crate) fn text(&self) -> (&str, &str) {
        (&self.topic, std::str::from_utf8(&self.payload).unwrap())
    }
}

impl Mqtt {
    /// Opens a connection and sends nothing yet.
    pub(crate) async fn open(address: SocketAddr, level: u8) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), level)
    }

    /// Takes a connection and sends nothing yet.
    pub(crate) fn over(socket: TcpStream, level: u8) -> Self {
        Self { socket, level }
    }

    pub(crate) async fn log_in(address: SocketAddr, level: u8, user: &str) -> Self {
        let mut client = Self::open(address, level).await;
        client.send(&connect(level, 60, Some((user, "pw")))).await;
        let (first_byte, body) = client.next().await;
        assert_eq!((first_byte, &body[..2]), (0x20, &[0, 0][..]));
        client
    }

    /// Connects with `hello` and returns the body of the answer.
    pub(crate) async fn connect(address: SocketAddr, hello: &Hello<'_>) -> (Self, Vec<u8>) {
        let mut client = Self::open(address, hello.level).await;
        client.send(&hello.packet()).await;
        let (first_byte, body) = client.next().await;
        assert_eq!(first_byte, 0x20);
        (client, body)
    }

    /// Subscribes to a filter and returns the code of the answer.
    pub(crate) async fn subscribe(&mut self, filter: &str, options: u8) -> u8 {
        self.send(&subscribe(self.level, 77, filter, options)).await;
        let (first_byte, body) = self.next().await;
        assert_eq!(first_byte, 0x90);
        *body.last().unwrap()
    }

    pub(crate) async fn unsubscribe(&mut self, filter: &str) {
        let properties: &[u8] = if self.level == 5 { &[0] } else { &[] };
        self.send(&packet(0xA2, &[&[0, 78], properties, &text(filter)].concat())).await;
        assert_eq!(self.next().await.0, 0xB0);
    }

    /// Waits for the next message and returns it.
    pub(crate) async fn message(&mut self) -> Message {
        let (first_byte, body) = self.next().await;
        Message::read(first_byte, &body, self.level)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Sends to a server that may have closed the connection.
    pub(crate) async fn send_if_open(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes).await;
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

    /// Closes the sending half of the connection.
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
