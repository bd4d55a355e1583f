//! A listener over real sockets, with a protocol that answers in capitals.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_net::{
    Admitted, ConnectionLimits, Door, Listener, LoginTimeout, Metrics, Protocol, Refusal, Serving, Shutdown, TlsSession,
};
use millstream_types::{MemoryBudget, TenantId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::net::TcpStream;

/// Answers each byte by its capital, and takes the first for a login; ends at the end of the client, or with the listener unless it is stubborn.
struct Capitals {
    is_stubborn: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Protocol<S> for Capitals {
    async fn serve(self: Arc<Self>, mut stream: S, admitted: Admitted) {
        let mut stopping = std::pin::pin!(admitted.shutdown.clone().begun());
        loop {
            tokio::select! {
                () = stopping.as_mut(), if !self.is_stubborn => return,
                byte = stream.read_u8() => {
                    let Ok(byte) = byte else { return };
                    if let Err(full) = admitted.login.succeeded(&TenantId::default()) {
                        stream.write_all(full.to_string().as_bytes()).await.unwrap();
                        return;
                    }
                    stream.write_u8(byte.to_ascii_uppercase()).await.unwrap();
                }
            }
        }
    }

    async fn turn_away(self: Arc<Self>, mut stream: S, _: SocketAddr, _: Shutdown, refusal: Refusal) {
        let _ = stream.write_all(refusal.to_string().as_bytes()).await;
    }
}

fn start(connections_max: usize, memory_bytes: u64, is_stubborn: bool) -> (Serving, Door<Capitals>, Metrics) {
    let limits = ConnectionLimits {
        connections_max,
        setting: "capitals.connections_max",
        connection_bytes: 10,
        memory: MemoryBudget::new("memory.budget_bytes", memory_bytes),
        login_timeout: LoginTimeout { setting: "capitals.login_timeout_ms", limit_ms: 10_000 },
    };
    let metrics = Metrics::default();
    let listener = Listener::bind("capitals", "127.0.0.1:0".parse().unwrap()).unwrap();
    let (serving, door) = listener.serve(Arc::new(Capitals { is_stubborn }), limits, &metrics);
    (serving, door, metrics)
}

async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<u8> {
    stream.write_u8(b'a').await?;
    stream.read_u8().await
}

async fn read_to_end(mut stream: impl AsyncRead + Unpin) -> String {
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    text
}

#[tokio::test]
async fn a_connection_over_a_limit_is_refused_with_its_name_and_an_ended_one_makes_room() {
    for (connections_max, memory_bytes, told) in [
        (
            1,
            100,
            "there are capitals.connections_max = 1 connections already, 1 of them of this tenant; close some, or raise the limit",
        ),
        (9, 10, "memory.budget_bytes = 10 has no room for the 10 bytes of a connection"),
    ] {
        let (serving, _, metrics) = start(connections_max, memory_bytes, false);
        let mut first = TcpStream::connect(serving.address()).await.unwrap();
        assert_eq!(ask(&mut first).await.unwrap(), b'A');
        let mut second = TcpStream::connect(serving.address()).await.unwrap();
        if connections_max == 1 {
            second.write_u8(b'a').await.unwrap();
        }
        assert_eq!(read_to_end(second).await, told);
        let text = metrics.text();
        assert!(text.contains("millstream_connections{listener=\"capitals\"} 1\n"), "{text}");
        assert!(text.contains("millstream_connections_refused_total{listener=\"capitals\"} 1\n"), "{text}");
        drop(first);
        loop {
            let mut third = TcpStream::connect(serving.address()).await.unwrap();
            if ask(&mut third).await.is_ok_and(|byte| byte == b'A') {
                break;
            }
        }
        assert_eq!(serving.shut_down(Duration::from_secs(60)).await, 0);
    }
}

#[tokio::test]
async fn connections_that_do_not_end_within_the_drain_are_aborted_and_counted() {
    let (serving, door, _) = start(9, 1 << 30, true);
    let mut client = TcpStream::connect(serving.address()).await.unwrap();
    let (mut guest, inside) = duplex(64);
    door.admit(inside, serving.address(), TlsSession::default());
    assert_eq!((ask(&mut client).await.unwrap(), ask(&mut guest).await.unwrap()), (b'A', b'A'));
    assert_eq!((serving.connections(), door.is_open()), (2, true));
    assert_eq!(serving.shut_down(Duration::from_millis(1)).await, 2);
    assert!(ask(&mut client).await.is_err() && ask(&mut guest).await.is_err());
    assert!(!door.is_open());
    let (late, inside) = duplex(64);
    door.admit(inside, "127.0.0.1:1".parse().unwrap(), TlsSession::default());
    assert_eq!(read_to_end(late).await, "", "a listener that stops closes a late guest");
}

#[tokio::test]
async fn dropping_the_listener_aborts_its_connections_and_frees_the_address() {
    let (serving, _, _) = start(9, 1 << 30, true);
    let address = serving.address();
    let mut client = TcpStream::connect(address).await.unwrap();
    assert_eq!(ask(&mut client).await.unwrap(), b'A');
    drop(serving);
    assert_eq!(read_to_end(client).await, "");
    while Listener::bind("capitals", address.into()).is_err() {
        tokio::task::yield_now().await;
    }
}
