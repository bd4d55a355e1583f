//! CLIENT PAUSE, as INFO tells of it.

use millstream_net::Metrics;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::over_a_socket::{LIMIT, ask, listen_with};

/// Asks INFO until `blocked_clients` is `count`.
async fn until_blocked(admin: &mut TcpStream, count: usize) {
    let expected = format!("blocked_clients:{count}\r\n");
    let mut info = String::new();
    let all = async {
        while !info.contains(&expected) {
            admin.write_all(b"INFO clients\r\n").await.unwrap();
            info.clear();
            while !info.contains("tracking_clients:0\r\n") {
                let mut piece = [0; 512];
                let read = admin.read(&mut piece).await.unwrap();
                info.push_str(std::str::from_utf8(&piece[..read]).unwrap());
            }
            // The end of the reply.
            if !info.ends_with("\r\n\r\n") {
                admin.read_exact(&mut [0; 2]).await.unwrap();
            }
        }
    };
    tokio::time::timeout(LIMIT, all).await.unwrap_or_else(|_| panic!("{expected}"));
}

#[tokio::test]
async fn clients_that_a_pause_holds_back_are_counted() {
    let serving = listen_with(10, &Metrics::default());
    let mut admin = TcpStream::connect(serving.address()).await.unwrap();
    let mut writer = TcpStream::connect(serving.address()).await.unwrap();
    until_blocked(&mut admin, 0).await;
    ask(&mut admin, b"CLIENT PAUSE 3600000 WRITE\r\n", b"+OK\r\n").await;
    writer.write_all(b"SET a 1\r\n").await.unwrap();
    until_blocked(&mut admin, 1).await;
    ask(&mut admin, b"CLIENT UNPAUSE\r\n", b"+OK\r\n").await;
    ask(&mut writer, b"", b"+OK\r\n").await;
    until_blocked(&mut admin, 0).await;
    serving.shut_down(LIMIT).await;
}
