//! A small MQTT server on the loopback address that confirms what it is sent, as a test tells it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

const PATIENCE: Duration = Duration::from_secs(60);

/// Behaviour of the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manners {
    /// Return code of CONNACK.
    pub(crate) welcome: u8,
    /// Closes each connection with this message of it, unconfirmed.
    pub(crate) closes_with: Option<usize>,
    /// Nothing is confirmed while this is false.
    pub(crate) confirms: Option<watch::Receiver<bool>>,
    /// So many messages are confirmed together.
    pub(crate) confirms_together: usize,
}

/// Record of one client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// CONNECT without its head.
    pub(crate) hello: Vec<u8>,
    /// First byte, topic and payload.
    pub(crate) messages: Vec<(u8, String, Vec<u8>)>,
    pub(crate) pings: usize,
    pub(crate) releases: usize,
    pub(crate) ended_in_order: bool,
}

/// Listens until it is dropped.
pub(crate) struct MqttServer {
    pub(crate) url: String,
    /// One for each connection.
    pub(crate) heard: Arc<Mutex<Vec<Heard>>>,
    accepting: JoinHandle<()>,
}

impl Drop for MqttServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl MqttServer {
    pub(crate) async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback address has a free port");
        let url = format!("mqtt://{}", listener.local_addr().expect("it is bound"));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = heard.clone();
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and with it every connection.
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("the listener is open");
                let number = {
                    let mut all = all.lock();
                    all.push(Heard::default());
                    all.len() - 1
                };
                serving.spawn(serve(stream, manners.clone(), all.clone(), number));
            }
        });
        Self { url, heard, accepting }
    }

    /// Waits until so many clients have connected.
    pub(crate) async fn until_connected(&self, count: usize) {
        let connected = async {
            while self.heard.lock().len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, connected).await.expect("all connect");
    }

    /// Waits until every client has said goodbye.
    pub(crate) async fn until_all_have_gone(&self) {
        let gone = async {
            while !self.heard.lock().iter().all(|one| one.ended_in_order) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("every client says goodbye");
    }

    /// All messages' payloads as numbers, by connection.
    pub(crate) fn numbers(&self) -> Vec<Vec<u64>> {
        let number = |payload: &[u8]| std::str::from_utf8(payload).ok()?.parse().ok();
        let of = |heard: &Heard| heard.messages.iter().filter_map(|(_, _, payload)| number(payload)).collect();
        self.heard.lock().iter().map(of).collect()
    }
}

/// First byte and body of the next packet; `None` at the end.
async fn packet(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let first = stream.read_u8().await.ok()?;
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = stream.read_u8().await.ok()?;
        length |= usize::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((first, body))
}

async fn serve(mut stream: TcpStream, mut manners: Manners, all: Arc<Mutex<Vec<Heard>>>, number: usize) {
    let mut unsent: Vec<Vec<u8>> = Vec::new();
    while let Some((first, body)) = packet(&mut stream).await {
        let mut answer = None;
        match first >> 4 {
            1 => {
                all.lock()[number].hello = body;
                let welcome = [0x20, 2, 0, manners.welcome];
                stream.write_all(&welcome).await.expect("the client waits");
                if manners.welcome > 0 {
                    return;
                }
            }
            3 => {
                let topic_end = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
                let topic = String::from_utf8_lossy(&body[2..topic_end]).into_owned();
                let id_bytes = if first & 6 > 0 { 2 } else { 0 };
                let count = {
                    let heard = &mut all.lock()[number];
                    heard.messages.push((first, topic, body[topic_end + id_bytes..].to_vec()));
                    heard.messages.len()
                };
                if manners.closes_with == Some(count) {
                    return;
                }
                let code = if first & 6 == 2 { 0x40 } else { 0x50 };
                answer = (id_bytes > 0).then(|| vec![code, 2, body[topic_end], body[topic_end + 1]]);
            }
            6 => {
                all.lock()[number].releases += 1;
                answer = Some(vec![0x70, 2, body[0], body[1]]);
            }
            12 => {
                all.lock()[number].pings += 1;
                answer = Some(vec![0xD0, 0]);
            }
            14 => {
                all.lock()[number].ended_in_order = true;
                return;
            }
            other => panic!("packet type {other} is not for a server"),
        }
        unsent.extend(answer);
        if unsent.len() >= manners.confirms_together.max(1) {
            if let Some(confirms) = &mut manners.confirms {
                confirms.wait_for(|go| *go).await.expect("the test is set up right");
            }
            // The client may have given up.
            drop(stream.write_all(&std::mem::take(&mut unsent).concat()).await);
        }
    }
}
