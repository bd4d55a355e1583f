//! Bytes over a connection with TLS.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::server::{PATIENCE, Server};

/// More than sockets and sessions hold.
const BYTES: usize = 32 << 20;

#[tokio::test]
async fn megabytes_come_back_whole_though_the_client_reads_only_after_it_could_write_no_more() {
    let server = Server::start();
    let (_, stream) = server.connect().await;
    let (mut reading, mut writing) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let (stalled, unstalled) = tokio::sync::oneshot::channel();
    let bytes = sent.clone();
    let sending = tokio::spawn(async move {
        let (mut at, mut stalled) = (0, Some(stalled));
        while at < bytes.len() {
            let write = writing.write(&bytes[at..bytes.len().min(at + 10_007)]);
            at += match timeout(std::time::Duration::from_millis(300), write).await {
                Ok(written) => written.unwrap(),
                Err(_) => {
                    if let Some(stalled) = stalled.take() {
                        stalled.send(()).unwrap();
                    }
                    0
                }
            };
        }
        writing.flush().await.unwrap();
        assert!(stalled.is_none(), "the server has read everything without writing anything");
    });
    timeout(PATIENCE, unstalled).await.unwrap().unwrap();
    let mut received = vec![0; BYTES];
    timeout(PATIENCE, reading.read_exact(&mut received)).await.unwrap().unwrap();
    assert!(received == sent);
    sending.await.unwrap();
}

#[tokio::test]
async fn a_stream_ends_with_the_closing_alert_however_it_is_dropped() {
    let server = Server::start();
    let (_, mut stream) = server.connect().await;
    stream.write_all(b"bye").await.unwrap();
    stream.flush().await.unwrap();
    let mut back = [0; 3];
    stream.read_exact(&mut back).await.unwrap();
    // The server drops the connection without an orderly end.
    drop(server);
    let end = timeout(PATIENCE, stream.read(&mut back)).await.unwrap();
    assert_eq!(end.unwrap(), 0, "without the alert it were an error");
}
