//! Commands to LoRaWAN devices whose network server takes them and does not answer.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millstream_testkit::{Process, ask};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const PASSWORD: &str = "hush";
/// The wait of a command's sender.
const TIMEOUT_MS: u64 = 3_000;

/// A network server of one tenant, which is registered as the device `ns`.
pub(crate) struct NetworkServer<'a> {
    pub(crate) process: &'a Process,
    pub(crate) tenant: &'a str,
    /// The headers of an administrator of the tenant.
    pub(crate) login: &'a [(&'a str, &'a str)],
}

impl NetworkServer<'_> {
    fn put(&self, line: &str, body: &Value) {
        let (method, path) = line.split_once(' ').unwrap();
        let headers = [self.login, &[JSON]].concat();
        let answer = ask(self.process.applications, method, path, &headers, body.to_string().as_bytes());
        assert!(matches!(answer.status, 201 | 204 | 409), "{line}: {} {}", answer.status, answer.text());
    }

    /// Registers it with an endpoint at this address, and the device behind it, of which it then sends an uplink.
    pub(crate) fn register(&self, address: SocketAddr, properties: &Value, device: &str) {
        let tenant = self.tenant;
        self.put(&format!("POST /v1/devices/{tenant}/ns"), &json!({}));
        let endpoint = json!({"uri": format!("http://{address}/{{{{deviceId}}}}"), "payload-properties": properties});
        self.put(&format!("PUT /v1/devices/{tenant}/ns"), &json!({"command-endpoint": endpoint}));
        let secrets = json!([{"type": "hashed-password", "auth-id": "ns", "secrets": [{"pwd-plain": PASSWORD}]}]);
        self.put(&format!("PUT /v1/credentials/{tenant}/ns"), &secrets);
        self.put(&format!("POST /v1/devices/{tenant}/{device}"), &json!({"via": ["ns"]}));
        let login = format!("Basic {}", BASE64_STANDARD.encode(format!("ns@{tenant}:{PASSWORD}")));
        let body = json!({"deviceInfo": {"devEui": device}, "data": "AA=="}).to_string();
        let headers = [JSON, ("Authorization", &*login)];
        let answer = ask(self.process.devices, "POST", "/chirpstackV4?event=up", &headers, body.as_bytes());
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    /// Has a command posted that is not answered: the connection on which it comes, or the status of the answer to its sender.
    pub(crate) fn hang(&self, device: &str, sender: &[(&str, &str)]) -> Result<TcpStream, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.register(listener.local_addr().unwrap(), &json!({}), device);
        listener.set_nonblocking(true).unwrap();
        let path = format!("/api/commands/{}/{device}?command=1&one-way=true&timeout-ms={TIMEOUT_MS}", self.tenant);
        std::thread::scope(|scope| {
            let command = scope.spawn(|| ask(self.process.applications, "POST", &path, sender, b"x").status);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(TIMEOUT_MS) && !command.is_finished() {
                match listener.accept() {
                    Ok((mut socket, _)) => {
                        socket.set_nonblocking(false).unwrap();
                        socket.read_exact(&mut [0]).unwrap();
                        return Ok(socket);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Err(command.join().unwrap().to_string())
        })
    }
}

/// The DevEUI of a number.
pub(crate) fn dev_eui(number: usize) -> String {
    format!("{number:016X}")
}
