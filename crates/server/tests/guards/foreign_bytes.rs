//! Another protocol's bytes, plain, within TLS and in place of TLS: nothing of them takes effect, and the next client is
//! served. Requests of a web page end the connection, too.

use millstream_testkit::TlsServer;

use crate::door::{Clients, Then, WAYS, Way, doors, last_words};

/// Requests that a web page can have a browser send.
const PAGES: [(&str, &[u8]); 2] = [
    ("a form", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nFLUSHALL\r\n"),
    ("an image", b"GET /?SET+a+b HTTP/1.0\r\nHost: localhost\r\n\r\nFLUSHALL\r\n"),
];
/// The first bytes of clients of other listeners.
const STRAYS: [(&str, &[u8]); 5] = [
    ("a hello of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on \r\n\r\n"),
    ("a command of Redis", b"*1\r\n$7\r\nNOTHING\r\n"),
    ("a CONNECT of MQTT", b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x\xe0\x00"),
    ("a request of Kafka", b"\x00\x00\x00\x0a\x7f\x12\x00\x00\x00\x00\x00\x07\xff\xff"),
    ("zeros", &[0; 64]),
];

#[test]
fn another_protocols_bytes_change_nothing_and_those_of_a_web_page_end_the_connection() {
    let server = TlsServer::start(&[]);
    let clients = Clients::of(&server);
    let redis = |commands: &[u8]| last_words(clients.connect("redis", Way::Plain), commands, Then::Listen).unwrap();
    assert_eq!(redis(b"SET kept 1\r\nQUIT\r\n"), b"+OK\r\n+OK\r\n");
    for door in doors() {
        let listener = door.listener;
        let pages: &[_] = if door.hello.ends_with(b"\r\n\r\n") { &[] } else { &PAGES };
        let pages = pages.iter().map(|(what, bytes)| (what, bytes, Then::Listen));
        let strays = STRAYS.iter().map(|(what, bytes)| (what, bytes, Then::Leave));
        for (what, bytes, then) in pages.chain(strays) {
            for way in WAYS {
                let last = last_words(clients.connect(listener, way), bytes, then);
                assert!(last.is_some(), "{listener}, {way:?}: the connection stays after {what}");
                assert!(door.answers(clients.connect(listener, way)), "{listener}, {way:?}, after {what}");
            }
            let last = last_words(Box::new(clients.without_handshake(listener)), bytes, then);
            assert!(last.is_some(), "{listener}: the connection to the port for TLS stays after {what}");
            assert!(door.answers(clients.connect(listener, Way::Tls)), "{listener}: TLS after {what} without it");
        }
    }
    assert_eq!(redis(b"GET kept\r\nDBSIZE\r\nQUIT\r\n"), b"$1\r\n1\r\n:1\r\n+OK\r\n");
}
