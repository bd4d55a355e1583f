//! Redis clients that are many, slow, large or broken: each is bounded, and the others are served.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millstream_net::raise_open_files;
use millstream_testkit::resp::{Connection, Reply, command, encode};
use millstream_testkit::{Process, eventually};

use crate::{make, start};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn connect(process: &Process) -> Connection {
    Connection::open(&process.redis.to_string()).unwrap()
}

fn ask(connection: &mut Connection, words: &[&str]) -> Reply {
    connection.ask(&command(words)).unwrap()
}

/// Sends all of `pipeline` and returns the replies.
fn pipelined(connection: &mut Connection, pipeline: &[Vec<&str>]) -> Vec<String> {
    let bytes: Vec<u8> = pipeline.iter().flat_map(|words| encode(&command(words))).collect();
    let mut write = connection.writer().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| write(&bytes).unwrap());
        pipeline.iter().map(|_| connection.read().unwrap().shown()).collect()
    })
}

#[test]
fn clients_that_never_read_their_replies_are_bounded_and_closed_while_others_are_served() {
    const CLIENTS: usize = 20;
    const GETS: usize = 2_000;
    /// Replies on their way: those of a unit of commands, once more as bytes of the socket.
    const CLIENT_MAX: u64 = 8 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_on(dir.path(), &["--set", "store.redis.write_timeout_ms=3000"]);
    let mut other = connect(&process);
    let big = "x".repeat(MIB as usize);
    assert!(ask(&mut other, &["SET", "big", &big]).is("+OK"));
    assert_eq!(ask(&mut other, &["GET", "big"]).bulk.map(|value| value.len()), Some(big.len()));
    let before = process.rss_bytes();

    let gets = encode(&command(&["GET", "big"])).repeat(GETS);
    let unread: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut socket = TcpStream::connect(process.redis).unwrap();
            socket.write_all(&gets).unwrap();
            socket
        })
        .collect();
    let mut highest = 0;
    let mut turn = 0;
    eventually("the server to close those that do not read", || {
        highest = highest.max(process.rss_bytes());
        turn += 1;
        assert!(ask(&mut other, &["SET", "turn", &turn.to_string()]).is("+OK"));
        assert_eq!(ask(&mut other, &["GET", "turn"]).bulk, Some(turn.to_string().into_bytes()));
        let list = ask(&mut other, &["CLIENT", "LIST"]).bulk.unwrap();
        list.iter().filter(|byte| **byte == b'\n').count() == 1
    });
    let added = highest.saturating_sub(before);
    println!("{CLIENTS} clients that do not read {GETS} MiB each: {} MiB added, {turn} turns of another", added / MIB);
    assert!(added <= CLIENTS as u64 * CLIENT_MAX, "{added} bytes for replies that nobody reads");
    for mut socket in unread {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut buffer, mut read) = (vec![0; 1 << 16], 0);
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(closed) if closed.kind() == ErrorKind::ConnectionReset => break,
                Err(other) => panic!("the connection is not closed: {other}"),
            }
        }
        assert!(read < GETS * big.len() / 10, "{read} bytes were sent to a client that reads none");
    }
    process.stop();
}

#[test]
fn subscribers_that_do_not_read_share_their_messages_and_are_closed_and_told() {
    const SUBSCRIBERS: usize = 400;
    const MESSAGES: usize = 44;
    const MESSAGE_BYTES: usize = 500_000;
    /// The messages once, and the connections.
    const ADDED_MAX: u64 = 128 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_on(dir.path(), &["--set", "store.redis.write_timeout_ms=3000"]);
    let (mut publisher, mut reader) = (connect(&process), connect(&process));
    let mut subscribe = |_| {
        let mut socket = TcpStream::connect(process.redis).unwrap();
        socket.write_all(b"SUBSCRIBE news\r\n").unwrap();
        socket
    };
    let subscribers: Vec<TcpStream> = (0..SUBSCRIBERS).map(&mut subscribe).collect();
    ask(&mut reader, &["SUBSCRIBE", "news"]);
    eventually("all to be subscribed", || {
        let reply = ask(&mut publisher, &["PUBSUB", "NUMSUB", "news"]);
        reply.elements[1].integer() == Some(SUBSCRIBERS as i64 + 1)
    });
    let before = process.rss_bytes();
    let (news, mut highest) = ("n".repeat(MESSAGE_BYTES), 0);
    for _ in 0..MESSAGES {
        let sent = ask(&mut publisher, &["PUBLISH", "news", &news]).integer();
        assert!(sent.is_some_and(|sent| sent >= 1), "{sent:?}");
        assert_eq!(reader.read().unwrap().elements[2].bulk.as_ref().map(Vec::len), Some(MESSAGE_BYTES));
        highest = highest.max(process.rss_bytes());
    }
    eventually("those that do not read to be closed", || {
        highest = highest.max(process.rss_bytes());
        ask(&mut publisher, &["PUBLISH", "news", "more"]).integer() == Some(1)
    });
    let added = highest.saturating_sub(before);
    println!("{SUBSCRIBERS} subscribers that do not read {MESSAGES} messages: {} MiB added", added / MIB);
    assert!(added <= ADDED_MAX, "{added} bytes for messages that nobody reads");
    let series = format!("millstream_redis_clients_closed_total{{reason=\"unread_replies\"}} {SUBSCRIBERS}\n");
    eventually("all to be counted", || process.get("/metrics").text().contains(&series));
    drop(subscribers);
    process.stop();
}

/// Connections at rest, as many as the limit on open files allows.
fn idle(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut socket = TcpStream::connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(b"PING\r\n").unwrap();
        let mut pong = [0; 7];
        socket.read_exact(&mut pong).unwrap();
        assert_eq!(&pong, b"+PONG\r\n");
        socket
    };
    (0..count).map(connect).collect()
}

#[test]
fn ten_thousand_idle_connections_take_little_memory_and_one_more_is_told_the_limit() {
    const CONNECTIONS: usize = 10_000;
    /// The memory that each connection counts as.
    const CONNECTION_BYTES: u64 = 24 << 10;
    let files = raise_open_files() as usize;
    let count = CONNECTIONS.min(files.saturating_sub(100));
    assert!(count >= 500, "{files} open files are too few; raise the limit (ulimit -n)");
    let dir = tempfile::tempdir().unwrap();
    let most = format!("store.redis.connections_max={}", count + 1);
    let process = Process::start_on(dir.path(), &["--set", &most]);
    let mut other = connect(&process);
    assert!(ask(&mut other, &["SET", "key", "value"]).is("+OK"));
    let before = process.rss_bytes();
    let idle = idle(process.redis, count);
    let added = process.rss_bytes().saturating_sub(before);
    println!("{count} idle connections: {} MiB, {} bytes each", added / MIB, added / count as u64);
    assert!(added <= count as u64 * CONNECTION_BYTES, "{added} bytes");

    let mut told = String::new();
    let mut one_more = TcpStream::connect(process.redis).unwrap();
    one_more.write_all(b"PING\r\n").unwrap();
    one_more.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("-ERR max number of clients reached: "), "{told}");
    assert_eq!(ask(&mut other, &["GET", "key"]).bulk.as_deref(), Some(&b"value"[..]));
    drop(idle);
    let clients = |other: &mut Connection| String::from_utf8(ask(other, &["INFO", "clients"]).bulk.unwrap()).unwrap();
    eventually("the connections to be closed", || clients(&mut other).contains("connected_clients:1\r\n"));
    process.stop();
}

#[test]
fn malformed_requests_end_their_connection_with_a_reason_and_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let mut other = connect(&process);
    assert!(ask(&mut other, &["SET", "key", "value"]).is("+OK"));
    let before = process.rss_bytes();
    for (request, reason) in [
        (&b"*1\r\n$1099511627776\r\n"[..], "invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$-5\r\n", "invalid bulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"SET key \"half\r\n", "unbalanced quotes in request"),
        (&[b'x'; 70_000], "too big inline request"),
    ] {
        let mut socket = TcpStream::connect(process.redis).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(request).unwrap();
        let mut told = Vec::new();
        // What was not read may end the connection by a reset, behind the reason.
        let _ = socket.read_to_end(&mut told);
        assert_eq!(String::from_utf8(told).unwrap(), format!("-ERR Protocol error: {reason}\r\n"));
    }
    // A million arguments that are announced take memory once they come; half of them leave none behind.
    let mut sockets = Vec::new();
    for _ in 0..20 {
        let mut socket = TcpStream::connect(process.redis).unwrap();
        socket.write_all(b"*1000000\r\n$4\r\nMGET\r\n$60000000\r\n").unwrap();
        sockets.push(socket);
    }
    assert_eq!(ask(&mut other, &["GET", "key"]).bulk.as_deref(), Some(&b"value"[..]));
    let added = process.rss_bytes().saturating_sub(before);
    assert!(added < 64 * MIB, "{added} bytes for what was only announced");
    let many: Vec<&str> = std::iter::once("EXISTS").chain(std::iter::repeat_n("key", 1_000_000)).collect();
    assert_eq!(ask(&mut other, &many).integer(), Some(1_000_000));
    process.stop();
}

#[test]
fn a_pipeline_of_large_writes_is_stored_and_a_transaction_of_them_is_refused_as_a_whole() {
    const KEYS: usize = 12;
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let mut client = connect(&process);
    let (value, keys) = ("v".repeat(900_000), (0..KEYS).map(|number| format!("key-{number}")).collect::<Vec<_>>());
    let sets: Vec<Vec<&str>> = keys.iter().map(|key| vec!["SET", key, &value]).collect();
    assert_eq!(pipelined(&mut client, &sets), vec!["+OK"; KEYS]);
    // Each of these is a few bytes that rewrite a large value.
    let expiries: Vec<Vec<&str>> = keys.iter().map(|key| vec!["EXPIRE", key, "1000"]).collect();
    assert_eq!(pipelined(&mut client, &expiries), vec![":1"; KEYS]);
    let longer: Vec<Vec<&str>> = keys.iter().map(|key| vec!["SETRANGE", key, "3999999", "!"]).collect();
    assert_eq!(pipelined(&mut client, &longer), vec![":4000000"; KEYS]);

    let before = process.rss_bytes();
    let shrunk: Vec<Vec<&str>> = keys.iter().map(|key| vec!["SETRANGE", key, "0", "?"]).collect();
    let multi = [&[vec!["MULTI"], vec!["SET", "other", "1"]][..], &shrunk, &[vec!["EXEC"]]].concat();
    let replies = pipelined(&mut client, &multi);
    let told = replies.last().unwrap();
    assert!(told.starts_with("-ERR the writes of one transaction have ") && told.contains("may have"), "{told}");
    assert_eq!(ask(&mut client, &["EXISTS", "other"]).integer(), Some(0), "nothing of it has taken effect");
    assert_eq!(ask(&mut client, &["GETRANGE", "key-0", "0", "0"]).bulk.as_deref(), Some(&b"v"[..]));
    let added = process.rss_bytes().saturating_sub(before);
    assert!(added < 128 * MIB, "{added} bytes for a transaction that is refused");
    process.stop();
}

#[test]
fn a_rate_that_is_used_up_is_told_for_each_command_and_for_a_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    make(&process, "db0", r#"{"partitions": 1, "writes_per_second": 1}"#);
    let mut client = connect(&process);
    let refusal = "-ERR the bucket takes 1 writes a second (writes_per_second); try again in ";
    eventually("the rate is used up", || {
        let reply = ask(&mut client, &["SET", "key", "value"]);
        assert!(reply.is("+OK") || reply.shown().starts_with(refusal), "{}", reply.shown());
        !reply.is("+OK")
    });
    eventually("a transaction is refused", || {
        assert!(ask(&mut client, &["MULTI"]).is("+OK"));
        assert!(ask(&mut client, &["SET", "a", "1"]).is("+QUEUED"));
        assert!(ask(&mut client, &["GET", "key"]).is("+QUEUED"));
        let reply = ask(&mut client, &["EXEC"]);
        assert!(reply.elements.len() == 2 || reply.shown().starts_with(refusal), "{}", reply.shown());
        reply.is_error()
    });
    // Reads are no writes, also those of several keys.
    for _ in 0..10 {
        assert_eq!(ask(&mut client, &["MGET", "key", "none"]).elements.len(), 2);
    }
    process.stop();
}
