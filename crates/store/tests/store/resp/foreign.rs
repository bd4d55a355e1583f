//! Clients of other protocols, above all web pages: nothing that they send is carried out.

use std::process::{Command, Stdio};

use millstream_net::Metrics;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::Server;
use super::memory::MemoryHost;
use super::over_a_socket::{LIMIT, ask, listen_with};

/// Beginnings of what a browser can be made to send; a page chooses what is behind them.
const BEGINNINGS: [&str; 12] = [
    "GET / HTTP/1.1\r\n",
    "HEAD /x HTTP/1.1\r\n",
    "POST / HTTP/1.1\r\n",
    "PUT /set%20a HTTP/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "DELETE / HTTP/1.0\r\n",
    "PATCH / HTTP/1.1\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "post\r\n",
    "Host: 127.0.0.1:6379\r\n",
    "HOST: a\r\n",
    "\x16\x03\x01\x02",
];

#[test]
fn a_request_of_another_protocol_closes_the_connection_before_and_after_a_login() {
    for needs_login in [false, true] {
        let server = Server::with(MemoryHost::stopped(needs_login));
        for login in ["", "auth default secret\r\n"] {
            let mut owner = server.client();
            owner.ask("auth default secret");
            assert_eq!(owner.ask("set kept 1"), "+OK");
            for beginning in BEGINNINGS {
                let mut client = server.client();
                client.send(login.as_bytes());
                let replies = client.send(format!("{beginning}\r\nFLUSHALL\r\nSET a 1\r\n").as_bytes());
                assert_eq!(String::from_utf8(replies).unwrap(), "", "{beginning}: a page learns nothing");
                assert!(client.is_closed, "{beginning}");
                assert_eq!(owner.ask("get kept"), "$1 1", "{beginning}");
                assert_eq!(owner.ask("exists a"), ":0", "{beginning}");
            }
        }
    }
}

#[test]
fn commands_before_it_are_answered_and_values_like_it_are_values() {
    let server = Server::new();
    let mut client = server.client();
    client.check(&[
        ("set a \"HTTP/1.1\"", "+OK"),
        ("get a", "$8 HTTP/1.1"),
        ("set post Host:", "+OK"),
        ("get post", "$5 Host:"),
    ]);
    let array = b"*3\r\n$3\r\nSET\r\n$4\r\nPOST\r\n$8\r\nHTTP/1.1\r\n";
    assert_eq!(client.send(array), b"+OK\r\n");
    let replies = client.send(b"set b 1\r\nget b\r\nGET / HTTP/1.1\r\nset b 2\r\n");
    assert_eq!(String::from_utf8(replies).unwrap(), "+OK\r\n$1\r\n1\r\n");
    assert!(client.is_closed);
    assert_eq!(server.client().ask("get b"), "$1 1");
}

#[tokio::test]
async fn a_web_page_cannot_empty_the_database_and_the_operator_is_told() {
    let metrics = Metrics::default();
    let serving = listen_with(100, &metrics);
    let mut owner = TcpStream::connect(serving.address()).await.unwrap();
    ask(&mut owner, b"SET kept 1\r\n", b"+OK\r\n").await;
    for beginning in BEGINNINGS {
        let mut socket = TcpStream::connect(serving.address()).await.unwrap();
        socket.write_all(format!("{beginning}\r\nFLUSHALL\r\n").as_bytes()).await.unwrap();
        let mut told = Vec::new();
        // What was not read may end the connection by a reset.
        let _ = timeout(LIMIT, socket.read_to_end(&mut told)).await.expect("it is closed");
        assert!(told.is_empty(), "{beginning}: {}", told.escape_ascii());
    }
    let url = format!("http://{}/", serving.address());
    for method in ["POST", "PUT", "OPTIONS", "DELETE", "PATCH", "FLUSHALL", "anything"] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--http0.9", "--max-time", "60", "-X", method, "--data-binary", "\r\nFLUSHALL\r\n", &url]);
        curl.stdout(Stdio::null()).stderr(Stdio::null());
        let status = tokio::task::spawn_blocking(move || curl.status());
        assert!(!status.await.unwrap().unwrap().success(), "{method}");
    }
    ask(&mut owner, b"GET kept\r\n", b"$1\r\n1\r\n").await;
    let closed = BEGINNINGS.len() + 7;
    let series = format!("millstream_redis_clients_closed_total{{reason=\"foreign_protocol\"}} {closed}\n");
    assert!(metrics.text().contains(&series), "{}", metrics.text());
    serving.shut_down(LIMIT).await;
}
