//! Handshakes: who is admitted, who is refused with which reason, and what a slow one may take.

use std::time::Duration;

use millstream_net::ClientAuth;
use millstream_testkit::Authority;
use rustls::AlertDescription;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::server::{PATIENCE, Server, ask_clients, client};

/// The alert in an error of a client's.
fn alert(error: &std::io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

#[tokio::test]
async fn a_client_refuses_a_foreign_authority_another_name_and_an_expired_certificate_and_the_server_hears_why() {
    let server = Server::start();
    let foreign = Authority::new("foreign");
    assert!(server.try_connect("localhost", client(&foreign, None)).await.is_err());
    server.has_failed("server_certificate", 1).await;
    assert!(server.try_connect("elsewhere", client(&server.authority, None)).await.is_err());
    server.has_failed("server_certificate", 2).await;
    let old = Authority::new("tests");
    let expired = old.expired(&["localhost"]);
    let server = Server::start_with(|_, dir| drop(expired.write(dir.path(), "server")), 10);
    assert!(server.try_connect("localhost", client(&old, None)).await.is_err());
    server.has_failed("server_certificate", 1).await;
    server.shows("millstream_tls_certificate_expiry_timestamp_seconds 978307200").await;
}

#[tokio::test]
async fn reasons_that_a_listener_cannot_have_are_not_among_the_counters() {
    let clients = Authority::new("clients");
    let asked = |auth| Server::start_with(|config, dir| ask_clients(config, dir, &clients, auth), 10);
    let rows = [
        (Server::start(), [false, false]),
        (asked(ClientAuth::Optional), [false, true]),
        (asked(ClientAuth::Required), [true, true]),
    ];
    for (server, expected) in rows {
        let text = server.metrics.text();
        let has = |reason: &str| text.contains(&format!("reason=\"{reason}\""));
        assert_eq!(["no_client_certificate", "client_certificate"].map(has), expected, "{text}");
        assert!(has("not_tls") && has("timeout"), "{text}");
    }
}

#[tokio::test]
async fn clients_show_a_certificate_where_it_is_required_and_are_known_by_its_subject() {
    let clients = Authority::new("clients");
    let device = clients.client("thermometer-7");
    let (expired, foreign) = (clients.expired(&[]), Authority::new("foreign").client("thermometer-7"));
    let server = Server::start_with(|config, dir| ask_clients(config, dir, &clients, ClientAuth::Required), 10);
    let (name, _stream) = server.try_connect("localhost", client(&server.authority, Some(&device))).await.unwrap();
    assert!(name.contains("CN=thermometer-7"), "{name}");
    let rows = [
        (None, "no_client_certificate", AlertDescription::CertificateRequired),
        (Some(&expired), "client_certificate", AlertDescription::CertificateExpired),
        (Some(&foreign), "client_certificate", AlertDescription::UnknownCA),
    ];
    for (at, (certificate, reason, expected)) in rows.into_iter().enumerate() {
        let refused = server.try_connect("localhost", client(&server.authority, certificate)).await.unwrap_err();
        assert_eq!(alert(&refused), Some(expected), "{refused}");
        server.has_failed(reason, at.max(1) as u64).await;
    }
    server.shows("millstream_tls_handshakes_total{listener=\"echo\"} 1").await;
}

#[tokio::test]
async fn where_a_certificate_is_optional_clients_come_in_without_one_but_not_with_a_wrong_one() {
    let clients = Authority::new("clients");
    let foreign = Authority::new("foreign").client("thermometer-7");
    let server = Server::start_with(|config, dir| ask_clients(config, dir, &clients, ClientAuth::Optional), 10);
    assert_eq!(server.connect().await.0, "nobody");
    let refused = server.try_connect("localhost", client(&server.authority, Some(&foreign))).await.unwrap_err();
    assert_eq!(alert(&refused), Some(AlertDescription::UnknownCA));
}

#[tokio::test]
async fn plain_bytes_are_answered_without_tls() {
    let server = Server::start();
    let mut socket = TcpStream::connect(server.address()).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // The server closes with bytes unread, so the text may be followed by a reset.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap();
    assert!(String::from_utf8(answer).unwrap().contains("this port takes TLS only"));
    server.has_failed("not_tls", 1).await;
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_ends_and_meanwhile_others_come_in() {
    let server = Server::start_with(|config, _| config.handshake_timeout_ms = 3_000, 1_000);
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(server.address()).await.unwrap());
    }
    // One has begun; it stops in the middle of its first record.
    silent[0].write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    for _ in 0..10 {
        server.connect().await;
    }
    for mut socket in silent {
        // Closed, with or without an alert.
        let _ = timeout(PATIENCE, socket.read_to_end(&mut Vec::new())).await.unwrap();
    }
    server.has_failed("timeout", 50).await;
    server.shows("millstream_tls_handshakes_total{listener=\"echo\"} 10").await;
}

#[tokio::test]
async fn handshakes_count_as_connections_and_take_memory_and_a_client_too_many_is_told_over_tls() {
    let server = Server::start_with(|_, _| {}, 8);
    let mut users = Vec::new();
    for _ in 0..6 {
        users.push(server.connect().await);
    }
    let silent =
        [TcpStream::connect(server.address()).await.unwrap(), TcpStream::connect(server.address()).await.unwrap()];
    server.shows("millstream_connections{listener=\"echo\"} 8").await;
    assert_eq!(server.memory.used_bytes(), 8 * 24 * 1024);
    drop(silent);
    server.has_failed("closed", 2).await;
    server.shows("millstream_connections{listener=\"echo\"} 6").await;
    for _ in 0..2 {
        users.push(server.connect().await);
    }
    let refused = server.try_connect("localhost", client(&server.authority, None)).await;
    assert!(refused.is_err(), "the text has no line");
    server.shows("millstream_connections_refused_total{listener=\"echo\"} 1").await;
    server.shows("millstream_tls_handshakes_total{listener=\"echo\"} 9").await;
    drop(users);
    server.shows("millstream_connections{listener=\"echo\"} 0").await;
    assert_eq!(server.memory.used_bytes(), 0);
    server.connect().await;
}

#[tokio::test]
async fn a_listener_that_stops_does_not_wait_for_handshakes() {
    let server = Server::start();
    let _silent = TcpStream::connect(server.address()).await.unwrap();
    server.shows("millstream_connections{listener=\"echo\"} 1").await;
    let Server { serving, .. } = server;
    assert_eq!(timeout(PATIENCE, serving.shut_down(Duration::from_secs(3_600))).await.unwrap(), 0);
}
