//! The listeners, each with the first bytes of its protocol, and the ways to them: plain and with TLS.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use millstream_testkit::TlsServer;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::net::TcpSocket;

use crate::work::connect;

/// A listener.
pub(crate) struct Door {
    pub(crate) listener: &'static str,
    /// The setting for the largest number of its connections.
    pub(crate) connections_max: &'static str,
    /// The first bytes of a client without a login.
    pub(crate) hello: &'static [u8],
    /// The beginning of the answer to that.
    pub(crate) answer: &'static [u8],
}

/// The listeners that a server has.
pub(crate) fn doors() -> impl Iterator<Item = &'static Door> {
    let listeners = TlsServer::listeners();
    DOORS.iter().filter(move |door| listeners.contains(&door.listener))
}

/// The listeners of a server on the built-in log.
pub(crate) const DOORS: [Door; 6] = [
    Door {
        listener: "applications",
        connections_max: "http.connections_max",
        hello: b"GET /v2/entities HTTP/1.1\r\nhost: localhost\r\n\r\n",
        answer: b"HTTP/1.1 200",
    },
    Door {
        listener: "devices-http",
        connections_max: "http.connections_max",
        hello: b"POST /telemetry HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
        answer: b"HTTP/1.1 401",
    },
    Door {
        listener: "devices-mqtt",
        connections_max: "connect.mqtt.connections_max",
        // CONNECT of 3.1.1 without user and password, which is refused by a CONNACK.
        hello: b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x",
        answer: b"\x20\x02\x00",
    },
    Door {
        listener: "kafka",
        connections_max: "kafka.connections_max",
        // ApiVersions in version 0, with correlation id 7 and without a client id; the answer has more than 255 bytes.
        hello: b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff",
        answer: b"\x00\x00",
    },
    Door {
        listener: "redis",
        connections_max: "store.redis.connections_max",
        hello: b"PING\r\n",
        answer: b"+PONG\r\n",
    },
    Door {
        listener: "amqp",
        connections_max: "connect.amqp.connections_max",
        // The header of a login, which is answered by the same with the mechanisms behind it.
        hello: b"AMQP\x03\x01\x00\x00",
        answer: b"AMQP\x03\x01\x00\x00\x00\x00",
    },
];

impl Door {
    /// Asks as a new client; true if that is answered.
    pub(crate) fn answers(&self, mut client: Box<dyn Connection>) -> bool {
        client.write_all(self.hello).unwrap();
        let mut answer = vec![0; self.answer.len()];
        client.read_exact(&mut answer).is_ok() && answer == self.answer
    }
}

/// A client's side of a connection.
pub(crate) trait Connection: Read + Write {
    /// Closes it, as programs do that end, and still reads.
    fn leave(&mut self);
}

impl Connection for TcpStream {
    fn leave(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Connection for StreamOwned<ClientConnection, TcpStream> {
    fn leave(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
        self.sock.leave();
    }
}

/// How clients reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Tls,
}

pub(crate) const WAYS: [Way; 2] = [Way::Plain, Way::Tls];

/// Clients that trust a server's authority.
pub(crate) struct Clients<'a> {
    server: &'a TlsServer,
    tls: Arc<ClientConfig>,
}

impl<'a> Clients<'a> {
    pub(crate) fn of(server: &'a TlsServer) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.authority.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Self { server, tls: Arc::new(builder.with_root_certificates(roots).with_no_client_auth()) }
    }

    /// A new client of a listener.
    pub(crate) fn connect(&self, listener: &str, way: Way) -> Box<dyn Connection> {
        match way {
            Way::Plain => Box::new(connect(self.server.addresses[listener])),
            Way::Tls => {
                let name = ServerName::try_from("localhost").unwrap();
                let tls = ClientConnection::new(Arc::clone(&self.tls), name).unwrap();
                Box::new(StreamOwned::new(tls, self.without_handshake(listener)))
            }
        }
    }

    /// A connection to the port for TLS, whose client has not begun with TLS.
    pub(crate) fn without_handshake(&self, listener: &str) -> TcpStream {
        connect(self.server.addresses[&format!("{listener}-tls")])
    }
}

/// Connects from a loopback address of its own, says `hello` and nothing more.
pub(crate) async fn connect_as(number: u32, to: SocketAddr, hello: &[u8]) -> tokio::net::TcpStream {
    let [_, high, middle, low] = number.to_be_bytes();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 1 + high, middle, low)), 0)).unwrap();
    let stream = socket.connect(to).await.unwrap();
    let written = stream.try_write(hello);
    assert!(written.is_ok_and(|written| written == hello.len()) || hello.is_empty());
    stream
}

/// The next step of a client whose bytes are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Listen,
    /// It closes its side, as programs do that end.
    Leave,
}

/// Sends bytes and returns what comes back until the server closes the connection; `None` if it does not.
pub(crate) fn last_words(mut client: Box<dyn Connection>, bytes: &[u8], then: Then) -> Option<Vec<u8>> {
    // The server may have closed it before all of it was sent.
    let _ = client.write_all(bytes);
    if then == Then::Leave {
        client.leave();
    }
    let mut answer = Vec::new();
    match client.read_to_end(&mut answer) {
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => None,
        _ => Some(answer),
    }
}
