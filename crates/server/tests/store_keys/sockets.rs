//! Requests that are broken on the way: nothing of them is visible.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::{make, put, start, tag};

/// Sends these bytes; returns what is answered until the server closes.
fn exchange(to: SocketAddr, request: &str, is_cut: bool) -> String {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    if is_cut {
        socket.shutdown(Shutdown::Write).unwrap();
    }
    let mut answer = String::new();
    // A server may end a broken connection by a reset.
    let _ = socket.read_to_string(&mut answer);
    answer
}

#[test]
fn a_body_that_is_cut_or_has_another_length_leaves_nothing_and_disturbs_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "things", "{}");
    let kept = tag(&put(to, "/kv/things/kept", &[], b"kept"));
    let put_head = |length: &str| format!("PUT /kv/things/kept HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n");
    for (name, request) in [
        ("cut in the body", put_head("Content-Length: 100") + "half of it"),
        ("cut before the body", put_head("Content-Length: 100")),
        ("cut in the head", "PUT /kv/things/kept HTTP/1.1\r\nHost: localhost\r\nContent-Le".to_owned()),
        ("cut in a chunk", put_head("Transfer-Encoding: chunked") + "64\r\nhalf of it"),
        ("cut between chunks", put_head("Transfer-Encoding: chunked") + "4\r\nhalf\r\n"),
        ("a chunk without a length", put_head("Transfer-Encoding: chunked") + "x\r\nhalf\r\n0\r\n\r\n"),
        ("a length that is none", put_head("Content-Length: some") + "some"),
        ("a length below nothing", put_head("Content-Length: -1") + "some"),
        ("two lengths", put_head("Content-Length: 4\r\nContent-Length: 5") + "some!"),
    ] {
        let answer = exchange(to, &request, true);
        let other = process.get("/kv/things/kept");
        assert_eq!((other.body.as_slice(), tag(&other)), (&b"kept"[..], kept.clone()), "{name}: {answer}");
        let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 5");
        assert!(is_refused, "{name}: {answer}");
    }
    // What is longer than it says is a value of the length that it said, and then a request that is none.
    let answer = exchange(to, &(put_head("Content-Length: 4") + "longand a rest\r\n\r\n"), false);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("HTTP/1.1 400"), "{answer}");
    assert_eq!(process.get("/kv/things/kept").body, b"long");
    process.stop();
}
