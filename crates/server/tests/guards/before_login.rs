//! Before a login: silent clients keep nobody out, over TCP, TLS and WebSocket.

use millstream_testkit::{TlsServer, eventually_async};
use tokio::net::TcpStream;

use crate::door::{connect_as, doors};
use crate::work::connect;

/// Connections that a listener may have; a quarter of them may be without a login.
const CONNECTIONS_MAX: usize = 120;
/// Connections that say nothing; `MILLSTREAM_SILENT_CONNECTIONS` sets another number.
const SILENT: u32 = 200;
/// The beginning of a TLS hello: the head of its first record.
const HALF_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01";
const UPGRADE: &[u8] = b"GET /mqtt HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: mqtt\r\n\r\n";

#[test]
fn silent_connections_of_many_addresses_keep_nobody_out_of_any_listener() {
    let silent = std::env::var("MILLSTREAM_SILENT_CONNECTIONS").map_or(SILENT, |number| number.parse().unwrap());
    let limits: Vec<String> = doors().map(|door| format!("--set={}={CONNECTIONS_MAX}", door.connections_max)).collect();
    let server = TlsServer::start(&limits.iter().map(String::as_str).collect::<Vec<_>>());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for door in doors() {
        let tls = format!("{}-tls", door.listener);
        let mut ways = vec![("nothing", door.listener, &b""[..]), ("half a TLS hello", tls.as_str(), HALF_HELLO)];
        if door.listener == "devices-mqtt" {
            ways.push(("a WebSocket and nothing over it", "devices-http", UPGRADE));
        }
        for (what, listener, hello) in ways {
            let (to, from) = (server.addresses[listener], server.addresses[door.listener]);
            let held: Vec<_> = runtime.block_on(async {
                let mut held = Vec::new();
                for number in 1..=silent {
                    held.push(connect_as(number, to, hello).await);
                }
                until_all_are_taken(&held).await;
                held
            });
            assert!(
                door.answers(Box::new(connect(from))),
                "{}: {silent} clients say {what} to {listener}",
                door.listener
            );
            drop(held);
        }
    }
}

/// Waits until the listener has looked at every silent connection: it has closed all but those that may be without a login.
async fn until_all_are_taken(held: &[TcpStream]) {
    let is_closed = |stream: &TcpStream| loop {
        match stream.try_read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    let are_taken = || held.iter().filter(|stream| is_closed(stream)).count() + CONNECTIONS_MAX / 4 >= held.len();
    eventually_async("the listener to look at every silent connection", are_taken).await;
}
