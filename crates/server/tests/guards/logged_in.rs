//! After a login: the connections of one tenant keep no other tenant out of any listener, plain or with TLS.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millstream_testkit::TlsServer;

use crate::amqp;
use crate::door::{Clients, Connection, WAYS, doors};
use crate::work::{Accounts, PASSWORD};

/// Connections that a listener may have.
const CONNECTIONS_MAX: usize = 16;

#[test]
fn a_tenant_that_has_all_connections_of_a_listener_makes_room_for_another() {
    let mut limits: Vec<String> =
        doors().map(|door| format!("--set={}={CONNECTIONS_MAX}", door.connections_max)).collect();
    // Each connection of MQTT has a session.
    limits.push(format!("--set=connect.mqtt.broker.sessions_max={}", 100 * CONNECTIONS_MAX));
    let server = TlsServer::start(&limits.iter().map(String::as_str).collect::<Vec<_>>());
    let (clients, accounts) = (Clients::of(&server), Accounts::make(server.addresses["applications"]));
    for (door, way) in doors().flat_map(|door| WAYS.map(|way| (door, way))) {
        let listener = door.listener;
        let enter = |token: &str| enter(clients.connect(listener, way), &accounts, listener, token);
        // Those that connections of the set-up, which are on their way out, still keep out try again.
        let mut held: Vec<_> = (0..100 * CONNECTIONS_MAX).filter_map(|_| enter("all")).take(CONNECTIONS_MAX).collect();
        assert_eq!(held.len(), CONNECTIONS_MAX, "{listener}, {way:?}, takes connections");
        assert!(
            enter("all").is_none(),
            "{listener}, {way:?}: one more than {} = {CONNECTIONS_MAX}",
            door.connections_max
        );
        for _ in 0..CONNECTIONS_MAX / 2 {
            held.push(enter("other").unwrap_or_else(|| panic!("{listener}, {way:?}: another tenant is kept out")));
        }
        assert!(enter("other").is_none(), "{listener}, {way:?}: each tenant has half");
        assert!(enter("all").is_none(), "{listener}, {way:?}: each tenant has half");
    }
}

/// Logs in; the connection, if the server takes it.
fn enter(
    mut client: Box<dyn Connection>,
    accounts: &Accounts,
    listener: &str,
    token: &str,
) -> Option<Box<dyn Connection>> {
    let (tenant, secret) = (accounts.tenant(token), accounts.secret(token));
    let device = format!("d@{tenant}");
    let http = |line: &str, login: String, body: &str| {
        format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: {login}\r\nfiware-service: {tenant}\r\n\
             content-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    let is_in = match listener {
        "applications" => {
            let request = http("GET /v2/entities", format!("Bearer {secret}"), "");
            asks(&mut *client, &[(&request, b"HTTP/1.1 200")])
        }
        "devices-http" => {
            let login = BASE64_STANDARD.encode(format!("{device}:{PASSWORD}"));
            asks(&mut *client, &[(&http("POST /telemetry", format!("Basic {login}"), "x"), b"HTTP/1.1 202")])
        }
        "devices-mqtt" => {
            let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
            // 3.1.1, a clean session with user and password, and no client id.
            let body =
                [&text("MQTT")[..], &[4, 0b1100_0010, 0, 0], &text(""), &text(&device), &text(PASSWORD)].concat();
            asks(&mut *client, &[(&[&[0x10, body.len() as u8][..], &body].concat(), &[0x20, 2, 0, 0])])
        }
        "kafka" => kafka(&mut *client, token, secret),
        "redis" => asks(
            &mut *client,
            &[(format!("AUTH {token} {secret}\r\n").as_bytes(), b"+OK\r\n"), (b"PING\r\n", b"+PONG\r\n")],
        ),
        "amqp" => {
            let mut wanted = Vec::new();
            amqp::log_in(&mut wanted, token, secret);
            amqp::receive(&mut wanted, &format!("telemetry/{tenant}"), 1);
            client.write_all(&wanted).is_ok() && amqp::let_in(&mut *client, 1).is_ok()
        }
        other => panic!("{other} has no login here"),
    };
    is_in.then_some(client)
}

/// Sends each request and reads its answer; true if all answers begin as they shall.
fn asks(client: &mut dyn Connection, requests: &[(&[u8], &[u8])]) -> bool {
    requests.iter().all(|(request, wanted)| {
        let mut answer = vec![0; wanted.len()];
        client.write_all(request).and_then(|()| client.read_exact(&mut answer)).is_ok() && answer == *wanted
    })
}

/// Logs in by SaslHandshake and SaslAuthenticate, version 1 and 0.
fn kafka(client: &mut dyn Connection, token: &str, secret: &str) -> bool {
    let login = format!("\0{token}\0{secret}");
    let login = [&(login.len() as u32).to_be_bytes()[..], login.as_bytes()].concat();
    [(17, 1, &b"\0\x05PLAIN"[..]), (36, 0, &login)].into_iter().all(|(api, version, body)| {
        // The correlation id is 7, and there is no client id.
        let head = [0, api, 0, version, 0, 0, 0, 7, 0xff, 0xff];
        let frame = [&((head.len() + body.len()) as u32).to_be_bytes()[..], &head, body].concat();
        let answer = client.write_all(&frame).and_then(|()| read_frame(client));
        // The error code stands behind the correlation id.
        answer.is_ok_and(|answer| answer[4..6] == [0, 0])
    })
}

fn read_frame(client: &mut dyn Connection) -> std::io::Result<Vec<u8>> {
    let mut size = [0; 4];
    client.read_exact(&mut size)?;
    let mut frame = vec![0; u32::from_be_bytes(size) as usize];
    client.read_exact(&mut frame)?;
    Ok(frame)
}
