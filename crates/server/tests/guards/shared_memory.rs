//! Kinds of work that draw on memory which all tenants share: what one tenant takes of it leaves others theirs.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use millstream_testkit::eventually;

use crate::amqp;
use crate::memory::{BUDGET_BYTES, SETTINGS};
use crate::work::{Ground, PASSWORD, connect};

/// More than there is memory for.
const MANY: usize = 100;
/// A name or value that takes much memory.
const LARGE_BYTES: usize = 1_000_000;
/// Those of a connection.
const LARGE: usize = 4;
/// Filters of a session, and the length of each.
const FILTERS: (usize, usize) = (100, 1_200);
/// Six sessions with such filters fit.
const SUBSCRIPTIONS_MAX_BYTES: usize = 3 << 19;

/// Has the server take much memory, with the token of this name; what stands open meanwhile, if it did.
type Press = fn(&Ground, &str) -> Option<TcpStream>;

const PRESSES: [(&str, Press); 6] = [
    ("request over HTTP", body),
    ("requests over Redis", queued_commands),
    ("pub/sub subscriber", channels),
    ("subscriptions of a session", filters),
    ("receiver", receivers),
    ("sender", senders),
];

#[test]
fn what_one_tenant_takes_of_the_memory_and_does_not_let_go_leaves_others_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let own = [
        format!("memory.budget_bytes={BUDGET_BYTES}"),
        format!("connect.mqtt.broker.subscriptions_max_bytes={SUBSCRIPTIONS_MAX_BYTES}"),
    ];
    let settings: Vec<String> =
        SETTINGS.into_iter().chain(own.iter().map(String::as_str)).map(|set| format!("--set={set}")).collect();
    let ground = Ground::start_with(dir.path(), &settings);
    for (name, press) in PRESSES {
        let mut held = Vec::new();
        // The connections of the row before are on their way out.
        eventually("memory", || {
            held.extend(press(&ground, "all"));
            !held.is_empty()
        });
        held.extend((0..MANY).map_while(|_| press(&ground, "all")));
        assert!(held.len() < MANY, "{name}: nothing bounds a tenant");
        assert!(press(&ground, "other").is_some(), "{name}: another tenant is kept out by {}", held.len());
    }
    ground.process.stop();
}

/// An append of which the body does not come.
fn body(ground: &Ground, token: &str) -> Option<TcpStream> {
    let (tenant, secret) = (ground.tenant(token), ground.secret(token));
    let length = LARGE * LARGE_BYTES;
    let head = format!(
        "POST /api/streams/in/records HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {secret}\r\n\
         fiware-service: {tenant}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         expect: 100-continue\r\n\r\n"
    );
    let mut socket = connect(ground.process.applications);
    asks(&mut socket, head.as_bytes(), b"HTTP/1.1 100").then_some(socket)
}

/// A transaction of which the end does not come.
fn queued_commands(ground: &Ground, token: &str) -> Option<TcpStream> {
    let mut socket = redis(ground, token);
    let value = "x".repeat(LARGE_BYTES);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${LARGE_BYTES}\r\n{value}\r\n");
    let is_queued = asks(&mut socket, b"MULTI\r\n", b"+OK\r\n")
        && (0..LARGE).all(|_| asks(&mut socket, set.as_bytes(), b"+QUEUED\r\n"));
    is_queued.then_some(socket)
}

/// A subscriber of channels with long names.
fn channels(ground: &Ground, token: &str) -> Option<TcpStream> {
    let mut socket = redis(ground, token);
    let subscribed = (1..=LARGE).all(|number| {
        let name = format!("{number}{}", "n".repeat(LARGE_BYTES - 1));
        let subscribe = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${LARGE_BYTES}\r\n{name}\r\n");
        let confirmed = format!("*3\r\n$9\r\nsubscribe\r\n${LARGE_BYTES}\r\n{name}\r\n:{number}\r\n");
        asks(&mut socket, subscribe.as_bytes(), confirmed.as_bytes())
    });
    // The memory is taken behind the confirmation.
    (subscribed && asks(&mut socket, b"PING\r\n", b"*2\r\n$4\r\npong\r\n")).then_some(socket)
}

/// A session of MQTT 3.1.1 with long filters, which ends with its connection.
fn filters(ground: &Ground, token: &str) -> Option<TcpStream> {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let packet = |kind: u8, body: &[u8]| {
        let (mut packet, mut rest) = (vec![kind], body.len());
        while rest >= 128 {
            packet.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        packet.push(rest as u8);
        [&packet, body].concat()
    };
    let device = format!("d@{}", ground.tenant(token));
    let hello = [text("MQTT"), vec![4, 0b1100_0010, 0, 0], text(""), text(&device), text(PASSWORD)].concat();
    let mut socket = connect(ground.process.mqtt);
    if !asks(&mut socket, &packet(0x10, &hello), &[0x20, 2, 0, 0]) {
        return None;
    }
    let (count, length) = FILTERS;
    let wanted = (0..count).flat_map(|number| [text(&format!("{number:0length$}")), vec![1]].concat());
    let subscribe: Vec<u8> = [0, 1].into_iter().chain(wanted).collect();
    let granted = [&[0x90, 2 + count as u8, 0, 1][..], &vec![1; count]].concat();
    asks(&mut socket, &packet(0x82, &subscribe), &granted).then_some(socket)
}

/// A connection over AMQP with many links.
fn receivers(ground: &Ground, token: &str) -> Option<TcpStream> {
    const LINKS: u32 = 100;
    let (mut socket, mut wanted) = (connect(ground.process.amqp), Vec::new());
    amqp::log_in(&mut wanted, token, ground.secret(token));
    amqp::receive(&mut wanted, &format!("telemetry/{}", ground.tenant(token)), LINKS);
    amqp::enter(&mut socket, &wanted, LINKS).ok().map(|()| socket)
}

/// A connection over AMQP with many senders.
fn senders(ground: &Ground, token: &str) -> Option<TcpStream> {
    const LINKS: u32 = 100;
    let (mut socket, mut wanted) = (connect(ground.process.amqp), Vec::new());
    amqp::log_in(&mut wanted, token, ground.secret(token));
    amqp::send_parts(&mut wanted, &format!("command/{}", ground.tenant(token)), LINKS, b"");
    amqp::enter(&mut socket, &wanted, LINKS).ok().map(|()| socket)
}

fn redis(ground: &Ground, token: &str) -> TcpStream {
    let mut socket = connect(ground.process.redis);
    let login = format!("AUTH {token} {}\r\n", ground.secret(token));
    assert!(asks(&mut socket, login.as_bytes(), b"+OK\r\n"));
    socket
}

/// `true` if the answer begins as it shall.
fn asks(socket: &mut TcpStream, request: &[u8], wanted: &[u8]) -> bool {
    let mut answer = vec![0; wanted.len()];
    // A connection that is refused may end before all is written.
    socket.write_all(request).and_then(|()| socket.read_exact(&mut answer)).is_ok() && answer == wanted
}
