//! MQTT over WebSocket: messages of any size hold no more memory than packets over TCP.

use std::time::Duration;

use millstream_connect::{ConnectConfig, MqttConfig};
use millstream_testkit::mqtt::{connect, publish};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{World, quick};

const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

/// Opens a WebSocket.
async fn open(world: &World) -> TcpStream {
    let mut socket = TcpStream::connect(world.devices()).await.unwrap();
    socket.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("\r\nsec-websocket-protocol: mqtt\r\n"), "{head}");
    // The example of RFC 6455, section 1.3.
    assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    socket
}

/// The beginning of a binary message of `size_bytes`, with a mask that changes nothing.
fn head(size_bytes: usize) -> Vec<u8> {
    [&[0x82, 0xFF][..], &(size_bytes as u64).to_be_bytes(), &[0; 4]].concat()
}

fn config(buffers_max_bytes: usize) -> ConnectConfig {
    // Nothing but its size closes a connection.
    let mqtt =
        MqttConfig { connect_timeout_ms: 600_000, packet_timeout_ms: 600_000, buffers_max_bytes, ..quick().mqtt };
    ConnectConfig { mqtt, ..quick() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_before_connect_are_refused_as_they_come_and_draw_on_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open_with(dir.path(), config(1 << 20)).await;
    let mut sockets = Vec::new();
    for number in 0..40 {
        let mut socket = open(&world).await;
        // A CONNECT of 60,000 bytes, of which 50,000 come; then one that is larger than any may be.
        let size: &[u8] = if number < 30 { &[0xE0, 0xD4, 0x03] } else { &[0x80, 0x80, 0x08] };
        let begin = [&head(256 << 10), &[0x10][..], size, &[0; 50_000]].concat();
        // The server may have closed it already.
        let _ = socket.write_all(&begin).await;
        sockets.push(socket);
    }
    // The first of them wait for the rest of their packets.
    for socket in &mut sockets[17..] {
        timeout(PATIENCE, socket.read_to_end(&mut Vec::new())).await.expect("it is closed").ok();
    }
    drop(sockets);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packet_of_any_size_up_to_the_limit_comes_in_one_message_after_the_login() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(64 << 20);
    config.mqtt.payload_max_bytes = 300_000;
    let world = World::open_with(dir.path(), config).await;
    world.register("T", "d").await;
    let mut socket = open(&world).await;
    let hello = connect(4, 60, Some(("d@T", "pw")));
    let large = publish(4, 1, 7, "telemetry", &[], &vec![b'x'; 200_000]);
    for packet in [hello, large] {
        socket.write_all(&[head(packet.len()), packet].concat()).await.unwrap();
        let mut answer = [0; 6];
        socket.read_exact(&mut answer).await.unwrap();
        assert!([[0x82, 4, 0x20, 2, 0, 0], [0x82, 4, 0x40, 2, 0, 7]].contains(&answer), "{answer:?}");
    }
    world.stop().await;
}
