//! Sending of notifications over HTTP, and handling of unusual answers.

use std::net::SocketAddr;
use std::sync::Arc;

use millstream_testkit::eventually_async;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::notifications::change;
use crate::subscriptions::{subscribe, until_notification};
use crate::world::{Served, World};

/// The reaction to a request that has come as a whole.
#[derive(Clone)]
enum Then {
    /// Answers, and waits for the next.
    Answer(String),
    /// Answers so that each byte may come alone.
    Slowly(String),
    /// Answers and closes the connection.
    Close(String),
}

/// A request: the number of its connection, its path, its body.
#[derive(Debug, Clone)]
struct Got {
    connection: usize,
    path: String,
    body: String,
}

/// Somebody who answers byte for byte what a test says.
struct Scripted {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    /// Connections that it has closed.
    closed: Arc<Mutex<usize>>,
    accepting: JoinHandle<()>,
}

impl Scripted {
    async fn start(then: impl Fn(&Got, usize) -> Then + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (got, closed) = (Arc::<Mutex<Vec<Got>>>::default(), Arc::<Mutex<usize>>::default());
        let (seen, ended, then) = (got.clone(), closed.clone(), Arc::new(then));
        let accepting = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            for connection in 0.. {
                let (socket, _) = listener.accept().await.unwrap();
                let (seen, ended, then) = (seen.clone(), ended.clone(), then.clone());
                serving.spawn(async move {
                    serve(socket, connection, seen, &*then).await;
                    *ended.lock() += 1;
                });
            }
        });
        Self { address, got, closed, accepting }
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().clone()
    }

    async fn until_got(&self, path: &str, count: usize) -> Vec<Got> {
        let of = |got: Vec<Got>| got.into_iter().filter(|one| one.path == path).collect::<Vec<_>>();
        eventually_async(&format!("{count} requests under {path}"), || of(self.got()).len() >= count).await;
        of(self.got())
    }
}

async fn serve(
    mut socket: TcpStream,
    connection: usize,
    seen: Arc<Mutex<Vec<Got>>>,
    then: &(dyn Fn(&Got, usize) -> Then + Send + Sync),
) {
    socket.set_nodelay(true).unwrap();
    let mut bytes = Vec::new();
    loop {
        let Some((got, length)) = whole(&bytes, connection) else {
            if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
            continue;
        };
        bytes.drain(..length);
        let number = {
            let mut seen = seen.lock();
            seen.push(got.clone());
            seen.iter().filter(|one| one.path == got.path).count() - 1
        };
        match then(&got, number) {
            Then::Answer(text) => socket.write_all(text.as_bytes()).await.unwrap(),
            Then::Slowly(text) => {
                for byte in text.as_bytes() {
                    socket.write_all(&[*byte]).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
            Then::Close(text) => {
                socket.write_all(text.as_bytes()).await.unwrap();
                return;
            }
        }
    }
}

fn whole(bytes: &[u8], connection: usize) -> Option<(Got, usize)> {
    let head_bytes = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_bytes]).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse::<usize>().unwrap();
    let body = bytes.get(head_bytes..head_bytes + length)?;
    let path = head.split(' ').nth(1).unwrap().to_owned();
    Some((Got { connection, path, body: String::from_utf8(body.to_vec()).unwrap() }, head_bytes + length))
}

fn subscription(address: SocketAddr, path: &str, retry: &str) -> Value {
    json!({"subject": {"entities": [{"id": "e"}]}, "notification": {
        "http": {"url": format!("http://{address}{path}"), "timeout": 30_000},
        "attrsFormat": "simplifiedKeyValues", "delivery": {"retry": retry}}})
}

async fn set_t(served: &Served, t: usize) {
    let body = json!({"id": "e", "t": t}).to_string();
    change(served, "POST /v2/entities?options=upsert,keyValues", &body).await;
}

/// Path, what is answered there, the status that counts or why there is none, and whether the connection is used again.
fn odd_answers() -> Vec<(&'static str, Then, Result<u16, &'static str>, bool)> {
    let answer = |text: &str| Then::Answer(text.to_owned());
    let close = |text: &str| Then::Close(text.to_owned());
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nt: u\r\n\r\n";
    let long = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{}", "x".repeat(100_000));
    vec![
        ("/plain", answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"), Ok(200), true),
        ("/none", answer("HTTP/1.1 204 No Content\r\n\r\n"), Ok(204), true),
        ("/chunked", answer(chunked), Ok(200), true),
        ("/slow", Then::Slowly(chunked.to_owned()), Ok(200), true),
        ("/interim", answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 A\r\ncontent-length: 0\r\n\r\n"), Ok(202), true),
        ("/close", close("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"), Ok(200), false),
        // It says that it closes, and does not.
        ("/closing", answer("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"), Ok(200), false),
        ("/until-end", close("HTTP/1.1 200 OK\r\n\r\nhello"), Ok(200), false),
        ("/old", answer("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"), Ok(200), false),
        (
            "/old-kept",
            answer("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok"),
            Ok(200),
            true,
        ),
        ("/more", answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more"), Ok(200), false),
        ("/long", answer(&long), Ok(200), false),
        ("/torn", close("HTTP/1.1 500 X\r\ncontent-length: 9\r\n\r\nok"), Ok(500), false),
        ("/nonsense", answer("220 smtp ready\r\n"), Err("not HTTP/1"), false),
        ("/silent", close(""), Err("without an answer"), false),
        ("/half", close("HTTP/1.1 200 OK\r\ncontent-le"), Err("without an answer"), false),
        ("/lengths", answer("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"), Err("no number"), false),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_odd_answer_is_understood_and_no_notification_is_sent_twice() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for (path, then, expected, is_kept) in odd_answers() {
        // Each has a host of its own, lest what one does changes what is done with another.
        let receiver = Scripted::start(move |_, _| then.clone()).await;
        let id = subscribe(&served, "", &subscription(receiver.address, path, "safe")).await;
        for t in 0..2 {
            set_t(&served, t).await;
            let found = until_notification(&served, &id, |shown| {
                let last = shown.get(if expected.is_ok() { "lastSuccess" } else { "lastFailure" });
                last.is_some() && shown["timesSent"] == t + 1 && shown.get("queue").is_none()
            });
            let found = found.await;
            match expected {
                Ok(code) => assert_eq!(found["lastSuccessCode"], code, "{path}: {found}"),
                Err(why) => {
                    assert!(found["lastFailureReason"].as_str().unwrap().contains(why), "{path}: {found}")
                }
            }
        }
        let got = receiver.until_got(path, 2).await;
        assert_eq!(got.len(), 2, "{path}: each is sent once");
        assert_eq!(got[0].connection == got[1].connection, is_kept, "{path}");
        let deleted = served.ask(&format!("DELETE /v2/subscriptions/{id}"), None).await;
        assert_eq!(deleted.status, 204);
        receiver.accepting.abort();
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_closes_idle_connections_misses_no_notification() {
    const CHANGES: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    // It does not say that it closes.
    let close = || Then::Close("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned());
    let receiver = Scripted::start(move |_, _| close()).await;
    let id = subscribe(&served, "", &subscription(receiver.address, "/n", "never")).await;
    for t in 0..CHANGES {
        set_t(&served, t).await;
        eventually_async("the connection's end", || *receiver.closed.lock() == t + 1).await;
    }
    let found =
        until_notification(&served, &id, |shown| shown["timesSent"] == CHANGES && shown.get("queue").is_none()).await;
    assert_eq!(found.get("lastFailure"), None, "{found}");
    let got = receiver.got();
    let bodies: Vec<Value> = got.iter().map(|one| serde_json::from_str(&one.body).unwrap()).collect();
    let expected: Vec<Value> = (0..CHANGES).map(|t| json!({"id": "e", "type": "Thing", "t": t})).collect();
    assert_eq!(bodies, expected, "each once, in order");
    // Now that it is known for it, no connection is tried twice, however fast they follow one another.
    for t in 0..CHANGES {
        set_t(&served, t).await;
    }
    let found =
        until_notification(&served, &id, |shown| shown["timesSent"] == 2 * CHANGES && shown.get("queue").is_none())
            .await;
    assert_eq!(found.get("lastFailure"), None, "{found}");
    let got = receiver.until_got("/n", 2 * CHANGES).await;
    assert!(got.iter().enumerate().all(|(number, one)| one.connection == number), "{got:?}");
    served.stop().await;
    world.close();
    receiver.accepting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_that_may_have_arrived_is_not_resent() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    // It takes the second on a connection that is kept, and dies before it answers.
    let receiver = Scripted::start(|_, number| match number {
        1 => Then::Close(String::new()),
        _ => Then::Answer("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()),
    })
    .await;
    let id = subscribe(&served, "", &subscription(receiver.address, "/n", "safe")).await;
    for t in 0..3 {
        set_t(&served, t).await;
        receiver.until_got("/n", t + 1).await;
    }
    let found = until_notification(&served, &id, |shown| shown["timesSent"] == 3 && shown.get("queue").is_none()).await;
    assert!(found["lastFailureReason"].as_str().unwrap().contains("connection broken"), "{found}");
    let got = receiver.got();
    let order: Vec<(usize, Value)> =
        got.iter().map(|one| (one.connection, serde_json::from_str::<Value>(&one.body).unwrap()["t"].take())).collect();
    assert_eq!(order, [(0, json!(0)), (0, json!(1)), (1, json!(2))]);
    served.stop().await;
    world.close();
    receiver.accepting.abort();
}
