//! After a login: the connections of one tenant keep no other tenant out of any listener.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::door::DOORS;
use crate::work::{Ground, PASSWORD, connect};

/// Connections that a listener may have.
const CONNECTIONS_MAX: usize = 16;

#[test]
fn a_tenant_that_has_all_connections_of_a_listener_makes_room_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut limits: Vec<String> =
        DOORS.iter().map(|door| format!("--set={}={CONNECTIONS_MAX}", door.connections_max)).collect();
    // Each connection of MQTT has a session.
    limits.push(format!("--set=connect.mqtt.broker.sessions_max={}", 100 * CONNECTIONS_MAX));
    let ground = Ground::start_with(dir.path(), &limits);
    for door in &DOORS {
        let listener = door.listener;
        let enter = |token: &str| enter(&ground, listener, token);
        // Those that connections of the set-up, which are on their way out, still keep out try again.
        let mut held: Vec<_> = (0..100 * CONNECTIONS_MAX).filter_map(|_| enter("all")).take(CONNECTIONS_MAX).collect();
        assert_eq!(held.len(), CONNECTIONS_MAX, "{listener} takes connections");
        assert!(enter("all").is_none(), "{listener}: one more than {} = {CONNECTIONS_MAX}", door.connections_max);
        for _ in 0..CONNECTIONS_MAX / 2 {
            held.push(enter("other").unwrap_or_else(|| panic!("{listener}: another tenant is kept out")));
        }
        assert!(enter("other").is_none(), "{listener}: each tenant has half");
        assert!(enter("all").is_none(), "{listener}: each tenant has half");
    }
    ground.process.stop();
}

/// Connects and logs in; the connection, if the server takes it.
fn enter(ground: &Ground, listener: &str, token: &str) -> Option<TcpStream> {
    let (tenant, secret) = (ground.tenant(token), ground.secret(token));
    let (process, device) = (&ground.process, format!("d@{tenant}"));
    let http = |line: &str, login: String, body: &str| {
        format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: {login}\r\nfiware-service: {tenant}\r\n\
             content-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    match listener {
        "applications" => {
            let request = http("GET /v2/entities", format!("Bearer {secret}"), "");
            asks(process.applications, &[(&request, b"HTTP/1.1 200")])
        }
        "devices-http" => {
            let login = BASE64_STANDARD.encode(format!("{device}:{PASSWORD}"));
            asks(process.devices, &[(&http("POST /telemetry", format!("Basic {login}"), "x"), b"HTTP/1.1 202")])
        }
        "devices-mqtt" => {
            let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
            // 3.1.1, a clean session with user and password, and no client id.
            let body =
                [&text("MQTT")[..], &[4, 0b1100_0010, 0, 0], &text(""), &text(&device), &text(PASSWORD)].concat();
            asks(process.mqtt, &[(&[&[0x10, body.len() as u8][..], &body].concat(), &[0x20, 2, 0, 0])])
        }
        "kafka" => kafka(process.kafka, token, secret),
        "redis" => asks(
            process.redis,
            &[(format!("AUTH {token} {secret}\r\n").as_bytes(), b"+OK\r\n"), (b"PING\r\n", b"+PONG\r\n")],
        ),
        other => panic!("{other} has no login here"),
    }
}

/// Sends each request and reads its answer; the connection, if all answers begin as they shall.
fn asks(to: SocketAddr, requests: &[(&[u8], &[u8])]) -> Option<TcpStream> {
    let mut socket = connect(to);
    for (request, wanted) in requests {
        let mut answer = vec![0; wanted.len()];
        socket.write_all(request).ok()?;
        socket.read_exact(&mut answer).ok()?;
        if answer != *wanted {
            return None;
        }
    }
    Some(socket)
}

/// Logs in by SaslHandshake and SaslAuthenticate, version 1 and 0.
fn kafka(to: SocketAddr, token: &str, secret: &str) -> Option<TcpStream> {
    let mut socket = connect(to);
    let login = format!("\0{token}\0{secret}");
    let login = [&(login.len() as u32).to_be_bytes()[..], login.as_bytes()].concat();
    for (api, version, body) in [(17, 1, &b"\0\x05PLAIN"[..]), (36, 0, &login)] {
        // The correlation id is 7, and there is no client id.
        let head = [0, api, 0, version, 0, 0, 0, 7, 0xff, 0xff];
        let frame = [&((head.len() + body.len()) as u32).to_be_bytes()[..], &head, body].concat();
        socket.write_all(&frame).ok()?;
        let mut size = [0; 4];
        socket.read_exact(&mut size).ok()?;
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        socket.read_exact(&mut answer).ok()?;
        // The error code stands behind the correlation id.
        if answer[4..6] != [0, 0] {
            return None;
        }
    }
    Some(socket)
}
