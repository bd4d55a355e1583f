//! Requests of web pages of other sites through a browser on this machine, and requests that a proxy could frame
//! differently.

use std::sync::Arc;

use millstream_http::{Cors, Listener, ListenerLimits, LoopbackApplications, Origins, Payload, Route, Routes};

use crate::server::{Answer, LIMITS, Server, WRITER};

async fn read() -> &'static str {
    "read"
}

async fn change(Payload(_): Payload) -> &'static str {
    "changed"
}

fn things(name: &'static str, path: &'static str) -> Routes {
    Routes::new(name)
        .route(Route::get(path, WRITER, LIMITS, "Read").answers(200, "Read.").to(read, ()))
        .route(Route::post(path, WRITER, LIMITS, "Change").answers(200, "Changed.").to(change, ()))
}

async fn server() -> Server {
    let cors = Cors {
        origins: Origins::Of(vec!["http://page".parse().unwrap()]),
        allowed_headers: "content-type".parse().unwrap(),
        exposed_headers: "".parse().unwrap(),
        max_age_s: 600,
    };
    let called = Arc::new(LoopbackApplications::called(&["gateway.lan".to_owned()]));
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind("test", address, called, ListenerLimits::default()).await.unwrap();
    Server::on(listener, [things("closed", "/closed"), things("shared", "/shared").cors(cors)])
}

async fn status(server: &Server, request: &str) -> u16 {
    let mut client = server.connect().await;
    client.send(request).await;
    Answer::parse(&client.read_to_end().await).status
}

#[tokio::test]
async fn pages_of_other_sites_neither_rebind_a_name_nor_change_anything() {
    let server = server().await;
    let rows = [
        // method and path, Host, Origin, status
        ("GET /closed", "localhost:8000", "", 200),
        ("GET /closed", "127.0.0.1", "", 200),
        ("GET /closed", "[::1]:8000", "", 200),
        ("GET /closed", "gateway.lan:80", "", 200),
        ("GET /closed", "attacker.example", "", 403),
        ("GET /closed", "attacker.example:8000", "http://attacker.example:8000", 403),
        ("POST /closed", "attacker.example", "http://attacker.example", 403),
        ("POST /closed", "localhost", "http://localhost", 200),
        ("POST /closed", "LOCALHOST:80", "http://localhost:80", 200),
        ("POST /closed", "localhost", "http://attacker.example", 403),
        ("POST /closed", "localhost:8000", "http://localhost:9000", 403),
        ("POST /closed", "localhost", "null", 403),
        ("POST /closed", "localhost", "http://page", 403),
        ("GET /closed", "localhost", "http://attacker.example", 200),
        ("POST /shared", "localhost", "http://page", 200),
        ("POST /shared", "localhost", "http://attacker.example", 403),
    ];
    for (line, host, origin, expected) in rows {
        let origin = if origin.is_empty() { String::new() } else { format!("origin: {origin}\r\n") };
        let request =
            format!("{line} HTTP/1.1\r\nhost: {host}\r\n{origin}content-length: 0\r\nconnection: close\r\n\r\n");
        assert_eq!(status(&server, &request).await, expected, "{request}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refused_host_is_named_with_the_setting_that_allows_it() {
    let server = server().await;
    let mut client = server.connect().await;
    client.send("GET /closed HTTP/1.1\r\nhost: attacker.example\r\nconnection: close\r\n\r\n").await;
    let answer = client.read_to_end().await;
    assert!(answer.contains("attacker.example") && answer.contains("applications.hosts"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_has_one_host_and_no_transfer_coding_but_chunked() {
    let server = server().await;
    let rows = [
        ("GET /closed HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        ("GET /closed HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n\r\n", 400),
        ("GET /closed HTTP/1.0\r\n\r\n", 200),
        (
            "POST /closed HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip, chunked\r\nconnection: close\r\n\r\n0\r\n\r\n",
            501,
        ),
        (
            "POST /closed HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: Chunked\r\nconnection: close\r\n\r\n0\r\n\r\n",
            200,
        ),
    ];
    for (request, expected) in rows {
        assert_eq!(status(&server, request).await, expected, "{request}");
    }
    server.stop().await;
}
