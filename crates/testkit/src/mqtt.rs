//! A client of MQTT that sends the exact bytes of a test and returns the packets that it receives.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;

/// A connection to a server.
#[derive(Debug)]
pub struct Mqtt {
    socket: TcpStream,
    /// The version of the protocol: 4 for MQTT 3.1.1, 5 for MQTT 5.
    pub level: u8,
}

/// A packet of the server: first byte and body.
pub type Packet = (u8, Vec<u8>);

/// A text with its length.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A packet with its length.
pub fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
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
#[derive(Debug, Clone, Copy)]
pub struct Hello<'a> {
    /// The version of the protocol.
    pub level: u8,
    /// The keep-alive time.
    pub keep_alive_s: u16,
    /// The client id.
    pub client: &'a str,
    /// Clean session, or clean start in MQTT 5.
    pub clean: bool,
    /// User and password.
    pub login: Option<(&'a str, &'a str)>,
    /// Properties of MQTT 5 without their length.
    pub properties: &'a [u8],
    /// The will.
    pub will: Option<Will<'a>>,
}

/// The message that the server publishes when the client disconnects without DISCONNECT.
#[derive(Debug, Clone, Copy)]
pub struct Will<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
    /// Its quality of service.
    pub qos: u8,
    /// `true` for a retained message.
    pub retain: bool,
    /// Properties of MQTT 5 without their length.
    pub properties: &'a [u8],
}

impl Hello<'_> {
    /// The CONNECT packet.
    pub fn packet(&self) -> Vec<u8> {
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
pub fn connect(level: u8, keep_alive_s: u16, login: Option<(&str, &str)>) -> Vec<u8> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let client = format!("client-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    Hello { level, keep_alive_s, client: &client, clean: true, login, properties: &[], will: None }.packet()
}

/// PUBLISH; `properties` are those of MQTT 5 without their length.
pub fn publish(level: u8, qos: u8, id: u16, topic: &str, properties: &[u8], payload: &[u8]) -> Vec<u8> {
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
pub fn subscribe(level: u8, id: u16, filter: &str, options: u8) -> Vec<u8> {
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
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Vec<u8>,
    /// Its quality of service.
    pub qos: u8,
    /// `true` if it may have been sent before.
    pub dup: bool,
    /// `true` if it was retained.
    pub retain: bool,
    /// The packet's id; 0 at quality 0.
    pub id: u16,
    /// Properties of MQTT 5 without their length.
    pub properties: Vec<u8>,
}

impl Message {
    /// Reads a PUBLISH packet.
    pub fn read(first_byte: u8, body: &[u8], level: u8) -> Self {
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

    /// Topic and payload, where the payload is text.
    pub fn text(&self) -> (&str, &str) {
        (&self.topic, std::str::from_utf8(&self.payload).unwrap())
    }
}

impl Mqtt {
    /// Opens a connection and sends nothing yet.
    pub async fn open(address: SocketAddr, level: u8) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), level)
    }

    /// Takes a connection and sends nothing yet.
    pub fn over(socket: TcpStream, level: u8) -> Self {
        Self { socket, level }
    }

    /// Connects as a user with the password `pw`.
    pub async fn log_in(address: SocketAddr, level: u8, user: &str) -> Self {
        let mut client = Self::open(address, level).await;
        client.send(&connect(level, 60, Some((user, "pw")))).await;
        let (first_byte, body) = client.next().await;
        assert_eq!((first_byte, &body[..2]), (0x20, &[0, 0][..]));
        client
    }

    /// Connects with `hello` and returns the body of the answer.
    pub async fn connect(address: SocketAddr, hello: &Hello<'_>) -> (Self, Vec<u8>) {
        let mut client = Self::open(address, hello.level).await;
        client.send(&hello.packet()).await;
        let (first_byte, body) = client.next().await;
        assert_eq!(first_byte, 0x20);
        (client, body)
    }

    /// Subscribes to a filter and returns the code of the answer.
    pub async fn subscribe(&mut self, filter: &str, options: u8) -> u8 {
        self.send(&subscribe(self.level, 77, filter, options)).await;
        let (first_byte, body) = self.next().await;
        assert_eq!(first_byte, 0x90);
        *body.last().unwrap()
    }

    /// Unsubscribes from a filter and waits for the answer.
    pub async fn unsubscribe(&mut self, filter: &str) {
        let properties: &[u8] = if self.level == 5 { &[0] } else { &[] };
        self.send(&packet(0xA2, &[&[0, 78], properties, &text(filter)].concat())).await;
        assert_eq!(self.next().await.0, 0xB0);
    }

    /// Waits for the next message and returns it.
    pub async fn message(&mut self) -> Message {
        let (first_byte, body) = self.next().await;
        Message::read(first_byte, &body, self.level)
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Sends to a server that may have closed the connection.
    pub async fn send_if_open(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes).await;
    }

    /// Sends a message without properties.
    pub async fn publish(&mut self, qos: u8, id: u16, topic: &str, payload: &[u8]) {
        let bytes = publish(self.level, qos, id, topic, &[], payload);
        self.send(&bytes).await;
    }

    /// The next packet; fails at the end of the connection.
    pub async fn next(&mut self) -> Packet {
        self.next_or_end().await.expect("a packet, and not the end")
    }

    /// The next packet; `None` if the server has closed the connection.
    pub async fn next_or_end(&mut self) -> Option<Packet> {
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
    pub async fn finish(&mut self) {
        // The server may have closed the connection already.
        let _ = self.socket.shutdown().await;
    }

    /// The reason with which the server closes the connection: that of DISCONNECT in MQTT 5, none in 3.1.1.
    pub async fn expect_end(&mut self) -> Option<u8> {
        let mut reason = None;
        while let Some((first_byte, body)) = self.next_or_end().await {
            assert_eq!(first_byte, 0xE0, "nothing but a good-bye: {body:?}");
            reason = Some(body[0]);
        }
        reason
    }
}
