//! The listener, over real sockets.

use std::sync::Arc;
use std::time::Duration;

use millstream_net::{ConnectionLimits, LoginTimeout, Metrics};
use millstream_store::resp::{BindError, CONNECTION_BYTES, Listener, ListenerConfig};
use millstream_types::MemoryBudget;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::memory::MemoryHost;

/// Only ends a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A tenant takes half of it.
fn memory() -> MemoryBudget {
    MemoryBudget::new("memory.budget_bytes", 128 << 20)
}

fn limits(connections_max: usize, memory: MemoryBudget) -> ConnectionLimits {
    ConnectionLimits {
        connections_max,
        setting: "store.redis.connections_max",
        connection_bytes: CONNECTION_BYTES,
        memory,
        login_timeout: LoginTimeout { setting: "store.redis.login_timeout_ms", limit_ms: 10_000 },
    }
}

fn listen(connections_max: usize) -> millstream_net::Serving {
    listen_with(connections_max, &Metrics::default())
}

pub(crate) fn listen_with(connections_max: usize, metrics: &Metrics) -> millstream_net::Serving {
    let config = ListenerConfig { request_max_bytes: 1 << 20, ..ListenerConfig::default() };
    let (endpoints, host, memory) = ("127.0.0.1:0".parse().unwrap(), Arc::new(MemoryHost::new(false)), memory());
    let listener = Listener::bind(endpoints, host, config, &memory).unwrap();
    listener.serve(limits(connections_max, memory), metrics)
}

pub(crate) async fn ask(socket: &mut TcpStream, request: &[u8], expected: &[u8]) {
    socket.write_all(request).await.unwrap();
    let mut reply = vec![0; expected.len()];
    timeout(LIMIT, socket.read_exact(&mut reply)).await.expect("in time").unwrap();
    assert_eq!(reply.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

async fn is_closed(socket: &mut TcpStream) -> bool {
    timeout(LIMIT, socket.read(&mut [0; 1])).await.expect("in time").is_ok_and(|bytes| bytes == 0)
}

#[tokio::test]
async fn requests_are_answered_and_messages_arrive() {
    let serving = listen(10);
    let mut socket = TcpStream::connect(serving.address()).await.unwrap();
    let mut listening = TcpStream::connect(serving.address()).await.unwrap();
    ask(&mut listening, b"subscribe c\r\n", b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
    ask(&mut socket, b"set a 1\r\nget a\r\npublish c hi\r\n", b"+OK\r\n$1\r\n1\r\n:1\r\n").await;
    ask(&mut listening, b"", b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n").await;
    ask(&mut socket, b"client kill type pubsub\r\n", b":1\r\n").await;
    assert!(is_closed(&mut listening).await);
    ask(&mut socket, b"quit\r\n", b"+OK\r\n").await;
    assert!(is_closed(&mut socket).await);
    assert_eq!(serving.shut_down(LIMIT).await, 0);
}

#[tokio::test]
async fn too_many_connections_and_too_long_requests_are_refused() {
    let serving = listen(1);
    let mut socket = TcpStream::connect(serving.address()).await.unwrap();
    ask(&mut socket, b"ping\r\n", b"+PONG\r\n").await;
    let mut second = TcpStream::connect(serving.address()).await.unwrap();
    second.write_all(b"ping\r\n").await.unwrap();
    let mut told = String::new();
    timeout(LIMIT, second.read_to_string(&mut told)).await.expect("in time").unwrap();
    assert!(
        told.starts_with("-ERR max number of clients reached: there are store.redis.connections_max = 1"),
        "{told}"
    );
    // An argument that is longer than a connection may hold is refused before it comes.
    ask(&mut socket, b"*1\r\n$1048577\r\n", b"-ERR Protocol error: invalid bulk length\r\n").await;
    assert!(is_closed(&mut socket).await);
    serving.shut_down(LIMIT).await;
}

#[tokio::test]
async fn commands_that_wait_for_exec_count_as_memory_of_their_connection() {
    const SETS: usize = 40;
    let serving = listen(10);
    let value = vec![b'x'; 1_000_000];
    let set = [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n", &value[..], b"\r\n"].concat();
    let mut first = TcpStream::connect(serving.address()).await.unwrap();
    ask(&mut first, b"multi\r\n", b"+OK\r\n").await;
    for _ in 0..SETS {
        ask(&mut first, &set, b"+QUEUED\r\n").await;
    }
    // There is no room for as much again.
    let mut second = TcpStream::connect(serving.address()).await.unwrap();
    ask(&mut second, b"multi\r\n", b"+OK\r\n").await;
    let (mut reply, mut queued) = ([0; 9], 0);
    while second.write_all(&set).await.is_ok()
        && timeout(LIMIT, second.read_exact(&mut reply)).await.expect("in time").is_ok()
    {
        queued += 1;
        assert!(queued < SETS, "nobody counts the queues");
    }
    ask(&mut first, b"discard\r\n", b"+OK\r\n").await;
    let mut third = TcpStream::connect(serving.address()).await.unwrap();
    ask(&mut third, b"multi\r\n", b"+OK\r\n").await;
    for _ in 0..SETS {
        ask(&mut third, &set, b"+QUEUED\r\n").await;
    }
    serving.shut_down(LIMIT).await;
}

#[tokio::test]
async fn names_of_channels_count_as_memory_of_their_connection() {
    let serving = listen(10);
    let name = "n".repeat(1_000_000);
    let (mut sockets, mut subscriptions) = (Vec::new(), 0);
    'connections: for _ in 0..2 {
        let mut socket = TcpStream::connect(serving.address()).await.unwrap();
        for count in 1..20 {
            let channel = format!("$1000002\r\n{name}{count:02}\r\n");
            let request = format!("*2\r\n$9\r\nSUBSCRIBE\r\n{channel}");
            let mut confirmed = vec![0; format!("*3\r\n$9\r\nsubscribe\r\n{channel}:{count}\r\n").len()];
            let sent = socket.write_all(request.as_bytes()).await;
            if sent.is_err() || timeout(LIMIT, socket.read_exact(&mut confirmed)).await.expect("in time").is_err() {
                break 'connections;
            }
            subscriptions += 1;
        }
        sockets.push(socket);
    }
    assert!((19..34).contains(&subscriptions), "{subscriptions} names of a megabyte, each twice in memory");
    serving.shut_down(LIMIT).await;
}

#[tokio::test]
async fn without_logins_only_loopback_is_listened_on() {
    let host = Arc::new(MemoryHost::new(false));
    let bound = Listener::bind("0.0.0.0:0".parse().unwrap(), host, ListenerConfig::default(), &memory());
    assert!(matches!(bound, Err(BindError::OpenToTheNetwork { .. })));
}
