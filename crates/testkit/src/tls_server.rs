//! The server's binary as a process with TLS on every listener.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use tempfile::TempDir;

use crate::{Authority, Signed, has_kafka_listener, kafka_arguments, millstream};

const KAFKA: &str = "kafka";
const LISTENERS: [&str; 6] = ["applications", "devices-http", "devices-mqtt", KAFKA, "redis", "amqp"];

/// A running `millstream serve` whose listeners each have an address with TLS and one without; killed when dropped.
#[derive(Debug)]
pub struct TlsServer {
    child: Child,
    /// The addresses by listener; `LISTENER-tls` is the one with TLS.
    pub addresses: HashMap<String, SocketAddr>,
    /// The working directory, with `ca.crt`, `server.crt` and `server.key`.
    pub dir: TempDir,
    /// The authority that has signed the server's certificate.
    pub authority: Authority,
}

impl TlsServer {
    /// A server that is called `localhost`, with these arguments besides.
    pub fn start(arguments: &[&str]) -> Self {
        let authority = Authority::new("tests");
        let signed = authority.server(&["localhost"]);
        Self::start_with(authority, &signed, arguments)
    }

    /// The same with another certificate.
    pub fn start_with(authority: Authority, signed: &Signed, arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.crt"), authority.pem()).unwrap();
        let [certificate, key] = signed.write(dir.path(), "server");
        let (mut command, data) = (millstream(), dir.path().join("data"));
        command.arg("serve").arg("--data-dir").arg(&data).current_dir(dir.path());
        if !has_kafka_listener() {
            command.args(["--listen-kafka", "off"]).args(kafka_arguments(&data));
        }
        let listeners = Self::listeners();
        for listener in &listeners {
            command.args([format!("--listen-{listener}"), "127.0.0.1:0".to_owned()]);
            command.args([format!("--listen-{listener}-tls"), "127.0.0.1:0".to_owned()]);
        }
        command.arg("--tls-certificate").arg(certificate).arg("--tls-key").arg(key);
        command.args(["--set", "connect.http.send_timeout_ms=60000", "--set", "connect.mqtt.send_timeout_ms=60000"]);
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut server = Self { child, addresses: HashMap::new(), dir, authority };
        for line in lines.take(2 * listeners.len()) {
            let line = line.unwrap();
            let (name, url) = line.strip_prefix("listening ").and_then(|rest| rest.split_once(' ')).unwrap();
            server.addresses.insert(name.to_owned(), url.rsplit("//").next().unwrap().parse().unwrap());
        }
        assert_eq!(server.addresses.len(), 2 * listeners.len(), "{}", server.log());
        server
    }

    /// The listeners that it has.
    pub fn listeners() -> Vec<&'static str> {
        LISTENERS.into_iter().filter(|listener| *listener != KAFKA || has_kafka_listener()).collect()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.path().join("log")).unwrap()).into_owned()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
