//! Tokens, tenants and the credentials of devices after a move to Kafka: who had access has it, and nobody else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use millstream_testkit::{
    Answer, Authority, Signed, ask, eventually, kafka_arguments, millstream, own_addresses, terminate, try_ask,
};
use serde_json::{Value, json};

use crate::migration::{done, migrate};

/// A server with an address for applications, and one with TLS for devices over HTTP.
struct Server<'a> {
    process: Child,
    applications: SocketAddr,
    devices: SocketAddr,
    dir: &'a Path,
}

impl<'a> Server<'a> {
    /// The server of a directory with `server.crt`, `server.key` and `ca.crt`.
    fn start(dir: &'a Path, arguments: &[String]) -> Self {
        let [applications, devices] = own_addresses();
        let mut command = millstream();
        command.args([
            "serve",
            "--listen-kafka",
            "off",
            "--listen-devices-http",
            "off",
            "--listen-devices-mqtt",
            "off",
        ]);
        command.args(["--listen-redis", "off", "--data-dir"]).arg(dir.join("data")).args(arguments);
        command.args(["--listen-applications", &applications.to_string()]);
        command.args(["--listen-devices-http-tls", &devices.to_string()]);
        command.arg("--tls-certificate").arg(dir.join("server.crt")).arg("--tls-key").arg(dir.join("server.key"));
        let process = command.current_dir(dir).stdout(Stdio::null()).spawn().unwrap();
        eventually("it is ready", || {
            try_ask(applications, "GET", "/readyz", &[], b"").is_some_and(|answer| answer.status == 200)
        });
        Self { process, applications, devices, dir }
    }

    fn call(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend((!token.is_empty()).then_some(("Authorization", &*bearer)));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        ask(self.applications, method, path, &headers, body.as_bytes())
    }

    fn create(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let answer = self.call(token, method, path, body);
        assert!(answer.status < 300, "{method} {path}: {}", answer.text());
        answer
    }

    /// The status of a message that curl sends.
    fn message(&self, shown: &[&str]) -> u16 {
        let url = format!("https://localhost:{}/telemetry", self.devices.port());
        let resolve = format!("localhost:{}:{}", self.devices.port(), self.devices.ip());
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", "ca.crt", "--resolve", &resolve]);
        curl.args(["-H", "Content-Type: text/plain", "-d", "1"]).args(shown).arg(&url).current_dir(self.dir);
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().parse().unwrap()
    }

    fn stop(mut self) {
        terminate(&mut self.process);
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Tokens {
    root: String,
    revoked: String,
    limited: String,
}

fn certificate(device: &str) -> [String; 4] {
    ["--cert".to_owned(), format!("{device}.crt"), "--key".to_owned(), format!("{device}.key")]
}

/// Makes tenants, devices and tokens; some of each have lost their access.
fn create_all(server: &Server<'_>, authorities: &[Authority; 2]) -> Tokens {
    let make = |method: &str, path: &str, body: Value| drop(server.create("", method, path, &body));
    let password = |device: &str, password: &str| json!([{"type": "hashed-password", "auth-id": device, "secrets": [{"pwd-plain": password}]}]);
    for device in ["kept", "deleted", "disabled"] {
        make("POST", &format!("/v1/devices/default/{device}"), json!({}));
        make("PUT", &format!("/v1/credentials/default/{device}"), password(device, "former"));
        make("PUT", &format!("/v1/credentials/default/{device}"), password(device, "hush"));
    }
    make("DELETE", "/v1/devices/default/deleted", Value::Null);
    make("PUT", "/v1/devices/default/disabled", json!({"enabled": false}));
    let [acme, former] = authorities.each_ref().map(|authority| json!({"cert": authority.pem()}));
    make("POST", "/v1/tenants/acme", json!({"trusted-ca": [acme, former]}));
    for device in ["lamp", "lost", "old"] {
        make("POST", &format!("/v1/devices/acme/{device}"), json!({}));
        let shown = json!([{"type": "x509-cert", "auth-id": format!("CN={device}"), "secrets": [{}]}]);
        make("PUT", &format!("/v1/credentials/acme/{device}"), shown);
    }
    make("PUT", "/v1/credentials/acme/lost", json!([]));
    assert_eq!(server.message(&certificate("old").each_ref().map(|text| text.as_str())), 202);
    make("PUT", "/v1/tenants/acme", json!({"trusted-ca": [acme]}));
    make("PUT", "/api/streams/orders", json!({"partitions": 1}));

    let every_role = |name: &str| json!({"name": name, "tenant": "*", "roles": ["reader", "writer", "admin"]});
    let token = |by: &str, new: &Value| {
        server.create(by, "POST", "/api/tokens", new).json()["token"].as_str().unwrap().to_owned()
    };
    let root = token("", &every_role("root"));
    let revoked = token(&root, &every_role("revoked"));
    let limited = json!({"name": "limited", "tenant": "default", "roles": ["reader"], "topics": ["orders"]});
    let limited = token(&root, &limited);
    server.create(&root, "DELETE", "/api/tokens/revoked", &Value::Null);
    Tokens { root, revoked, limited }
}

/// The answer to everybody who may want access.
fn access(server: &Server<'_>, tokens: &Tokens) -> BTreeMap<String, u16> {
    let mut found = BTreeMap::new();
    for (name, token) in
        [("nobody", ""), ("root", &tokens.root), ("revoked", &tokens.revoked), ("limited", &tokens.limited)]
    {
        for (method, path, body) in [
            ("GET", "/api/streams/orders?from=earliest", Value::Null),
            ("GET", "/api/streams/telemetry.default?from=earliest", Value::Null),
            ("POST", "/api/streams/orders/records", json!([{"value": 1}])),
            ("GET", "/v1/devices/acme/lamp", Value::Null),
            ("GET", "/api/tokens", Value::Null),
        ] {
            found.insert(format!("{name} {method} {path}"), server.call(token, method, path, &body).status);
        }
    }
    for login in ["kept:hush", "kept:former", "deleted:hush", "disabled:hush", "unknown:hush"] {
        let (device, password) = login.split_once(':').unwrap();
        let status = server.message(&["-u", &format!("{device}@default:{password}")]);
        found.insert(format!("device {login}"), status);
    }
    for device in ["lamp", "lost", "old"] {
        let status = server.message(&certificate(device).each_ref().map(|text| text.as_str()));
        found.insert(format!("certificate of {device}"), status);
    }
    found
}

#[test]
fn who_had_access_has_it_after_the_move_and_nobody_else() {
    let installation = tempfile::tempdir().unwrap();
    let dir = installation.path();
    let of_server = Authority::new("server");
    std::fs::write(dir.join("ca.crt"), of_server.pem()).unwrap();
    of_server.server(&["localhost"]).write(dir, "server");
    let authorities = ["devices", "former"].map(Authority::new);
    let clients: [(&str, Signed); 3] = [
        ("lamp", authorities[0].client("lamp")),
        ("lost", authorities[0].client("lost")),
        ("old", authorities[1].client("old")),
    ];
    clients.iter().for_each(|(name, signed)| drop(signed.write(dir, name)));

    let server = Server::start(dir, &[]);
    let tokens = create_all(&server, &authorities);
    let before = access(&server, &tokens);
    let listed = server.call(&tokens.root, "GET", "/api/tokens", &Value::Null).json();
    let granted: Vec<&str> =
        before.iter().filter(|(_, status)| **status < 300).map(|(name, _)| name.as_str()).collect();
    let expected = [
        "certificate of lamp",
        "device kept:hush",
        "limited GET /api/streams/orders?from=earliest",
        "root GET /api/streams/orders?from=earliest",
        "root GET /api/streams/telemetry.default?from=earliest",
        "root GET /api/tokens",
        "root GET /v1/devices/acme/lamp",
        "root POST /api/streams/orders/records",
    ];
    assert_eq!(granted, expected, "{before:?}");
    server.stop();

    done(migrate(dir, &dir.join("data")));
    let server = Server::start(dir, &kafka_arguments(dir));
    assert_eq!(access(&server, &tokens), before);
    assert_eq!(server.call(&tokens.root, "GET", "/api/tokens", &Value::Null).json(), listed);
    // A token that is revoked there stays revoked, too.
    server.create(&tokens.root, "DELETE", "/api/tokens/limited", &Value::Null);
    server.stop();
    let server = Server::start(dir, &kafka_arguments(dir));
    let after = access(&server, &tokens);
    assert_eq!(after["limited GET /api/streams/orders?from=earliest"], 401);
    assert_eq!(after["root GET /api/streams/orders?from=earliest"], 200);
}
