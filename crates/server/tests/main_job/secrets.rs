//! Secrets are in no log line, answer, metric and event of the audit trail, and on the disk only in documents that need them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use millstream_testkit::{Answer, Process, Raw, ask, eventually, has_kafka_listener, millstream};
use millstream_types::{StateTopic, SystemClock, WallClock as _};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::secret_search::{Kept, Secret, search};
use crate::tokens::{call, make};

/// The prefix of an EC public key on P-256 in DER (SubjectPublicKeyInfo).
const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// All secrets of a run, and everything that the server has said.
struct Run {
    process: Process,
    root: String,
    secrets: Vec<Secret>,
    /// Questions and their answers.
    answers: Vec<(String, Vec<u8>)>,
}

impl Run {
    fn secret(&mut self, name: &'static str, kept: Kept, text: impl Into<String>) -> String {
        let text = text.into();
        self.secrets.push(Secret { name, text: text.clone(), kept });
        text
    }

    fn hear(&mut self, what: impl Into<String>, answer: &Answer) -> u16 {
        let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>();
        self.answers.push((what.into(), [headers.as_bytes(), &answer.body].concat()));
        answer.status
    }

    /// A request of an application; the status.
    fn call(&mut self, token: &str, method: &str, path: &str, body: &Value) -> u16 {
        let answer = call(self.process.applications, token, method, path, body);
        self.hear(format!("{method} {path}"), &answer)
    }

    /// A request by the token that may do everything, which has to succeed.
    fn done(&mut self, method: &str, path: &str, body: &Value) {
        let answer = call(self.process.applications, &self.root, method, path, body);
        assert!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.text());
        self.hear(format!("{method} {path}"), &answer);
    }

    /// A message of a device over HTTP; the status.
    fn send(&mut self, login: &str) -> u16 {
        let headers = [("Authorization", login), ("Content-Type", "text/plain")];
        let answer = ask(self.process.devices, "POST", "/telemetry", &headers, b"21");
        self.hear("POST /telemetry", &answer)
    }

    fn tokens(&mut self) {
        let wrong = self.secret("a wrong token", Kept::Nowhere, "mst_wrong+token/0123456789==");
        let new = json!({"name": "made", "tenant": "*", "roles": ["reader", "writer", "admin"]});
        let made = make(&self.process, &self.root.clone(), &new);
        self.secret("a made token", Kept::Nowhere, &made);
        for (token, status) in [(&made, 200), (&wrong, 401)] {
            assert_eq!(self.call(token, "GET", "/api/streams", &Value::Null), status);
            assert_eq!(self.call(token, "GET", "/v2/entities", &Value::Null), status);
        }
        let of_kafka: &[_] = if has_kafka_listener() { &[("made", &made, 0), ("root", &wrong, 58)] } else { &[] };
        for &(user, secret, code) in of_kafka {
            assert_eq!(Raw::connect(self.process.kafka).kafka_login(user, secret), code, "{user}");
            for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
                assert_eq!(
                    self.kcat(mechanism, user, secret, if code == 0 { "30" } else { "2" }),
                    code == 0,
                    "{mechanism} {user}"
                );
            }
        }
        self.redis(&made, &wrong);
    }

    /// Asks for the list of topics within this time in seconds; true if it is answered.
    fn kcat(&mut self, mechanism: &str, user: &str, secret: &str, time_s: &str) -> bool {
        let mut kcat = Command::new("kcat");
        kcat.args([
            "-b",
            &self.process.kafka.to_string(),
            "-m",
            time_s,
            "-L",
            "-X",
            "security.protocol=sasl_plaintext",
        ]);
        kcat.args(["-X", &format!("sasl.mechanism={mechanism}"), "-X", &format!("sasl.username={user}")]);
        let output = kcat.args(["-X", &format!("sasl.password={secret}")]).output().unwrap();
        self.answers.push((format!("kcat {mechanism}"), [output.stdout, output.stderr].concat()));
        output.status.success()
    }

    fn redis(&mut self, right: &str, wrong: &str) {
        let commands: [&[&str]; 17] = [
            &["AUTH", "made", wrong],
            &["AUTH", wrong],
            &["HELLO", "3", "AUTH", "made", wrong],
            &["AUTH", "made", wrong, right],
            &["AUTH", right],
            &["AUTH", "made", right],
            &["CONFIG", "SET", "slowlog-log-slower-than", "0"],
            &["AUTH", "made", right],
            &["AUTH", wrong],
            &["HELLO", "2", "AUTH", "made", right],
            &["SLOWLOG", "GET", "100"],
            &["CLIENT", "LIST"],
            &["ACL", "LIST"],
            &["ACL", "LOG"],
            &["CONFIG", "GET", "*"],
            &["INFO", "everything"],
            &["ECHO", "the end"],
        ];
        let mut request = String::new();
        for command in commands {
            write!(request, "*{}\r\n", command.len()).unwrap();
            command.iter().for_each(|argument| write!(request, "${}\r\n{argument}\r\n", argument.len()).unwrap());
        }
        let mut socket = TcpStream::connect(self.process.redis).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"the end\r\n") {
            let mut part = [0; 4096];
            let length = socket.read(&mut part).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&part[..length]);
        }
        let text = String::from_utf8_lossy(&said);
        assert!(text.contains("WRONGPASS") && text.contains("+OK") && text.contains("(redacted)"), "{text}");
        self.answers.push(("Redis commands".to_owned(), said));
    }

    fn devices(&mut self) {
        let password = self.secret("a device's password", Kept::Nowhere, "device+password/0123?&=");
        let wrong = self.secret("a wrong password of a device", Kept::Nowhere, "wrong+password/0123?&=");
        let psk = self.secret("a shared key", Kept::OnDisk, STANDARD.encode("a shared key of a device"));
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &SystemRandom::new()).unwrap();
        let public = STANDARD.encode([&P256_PREFIX[..], key.public_key().as_ref()].concat());
        self.done("POST", "/v1/devices/default/d-1", &json!({}));
        let credentials = json!([
            {"type": "hashed-password", "auth-id": "d-1", "secrets": [{"pwd-plain": password}]},
            {"type": "psk", "auth-id": "d-1", "secrets": [{"key": psk}]},
            {"type": "rpk", "auth-id": "sensor", "secrets": [{"key": public}]},
        ]);
        self.done("PUT", "/v1/credentials/default/d-1", &credentials);
        // Refused as a whole: of an unknown member and of a wrong type.
        for secrets in [json!([{"pwd": password}]), json!([{"pwd-plain": [password]}])] {
            let wrong = json!([{"type": "hashed-password", "auth-id": "d-2", "secrets": secrets}]);
            let answer = call(self.process.applications, &self.root, "PUT", "/v1/credentials/default/d-1", &wrong);
            assert_eq!(self.hear("PUT wrong credentials", &answer), 400);
        }
        let token = token(&key, "sensor");
        self.secret("a device's token", Kept::Nowhere, &token);
        let tampered = format!("{}{}", &token[..token.len() - 8], "AAAAAAAA");
        self.secret("a wrong token of a device", Kept::Nowhere, &tampered);
        let basic = |password: &str| format!("Basic {}", STANDARD.encode(format!("d-1@default:{password}")));
        for (login, status) in [
            (basic(&password), 202),
            (basic(&wrong), 401),
            (format!("Bearer {token}"), 202),
            (format!("Bearer {tampered}"), 401),
        ] {
            assert_eq!(self.send(&login), status, "{login}");
        }
        for (user, secret, code) in
            [("d-1@default", &password, 0), ("d-1@default", &wrong, 4), ("", &token, 0), ("", &tampered, 4)]
        {
            assert_eq!(mqtt_login(self.process.mqtt, user, secret), code, "{user} {secret}");
        }
    }

    fn subscriptions(&mut self) {
        let header = self.secret("a header of a subscription", Kept::InDocument, "Bearer notify+header/0123");
        let query = self.secret("a query of a subscription's URL", Kept::InDocument, "notify-query-0123456789");
        let user = self.secret("a password in a subscription's URL", Kept::InDocument, "notify-user-0123456789");
        let passwd = self.secret("a broker's password", Kept::OnDisk, "notify+broker/0123456789");
        let closed = closed_address();
        let url = format!("http://someone:{user}@{closed}/in?{query}");
        for target in [
            json!({"httpCustom": {"url": url, "headers": {"Authorization": header}}}),
            json!({"mqtt": {"url": format!("mqtt://{closed}"), "topic": "t", "user": "u", "passwd": passwd}}),
        ] {
            let subject = json!({"entities": [{"idPattern": ".*"}]});
            self.done("POST", "/v2/subscriptions", &json!({"subject": subject, "notification": target}));
        }
        self.done("POST", "/v2/entities", &json!({"id": "e", "type": "T", "a": {"value": 1}}));
        let root = self.root.clone();
        let failed = || {
            let listed = call(self.process.applications, &root, "GET", "/v2/subscriptions", &Value::Null).json();
            listed.as_array().unwrap().iter().all(|listed| listed["notification"]["lastFailure"].is_string())
        };
        eventually("both notifications have failed", failed);
    }

    fn jobs(&mut self) {
        let header = self.secret("a header of a job's sink", Kept::InDocument, "Bearer job+header/0123456");
        let query = self.secret("a query of a job's URL", Kept::InDocument, "job-query-0123456789");
        self.done("PUT", "/api/streams/numbers", &json!({}));
        self.done("POST", "/api/streams/numbers/records", &json!([{"value": {"n": 1}}]));
        let url = format!("http://{}/in?token={query}", closed_address());
        let config = json!({"url": url, "retries": 1, "headers": {"Authorization": header}});
        let document = json!({
            "version": 1, "kind": "Job", "name": "posting", "id": "posting", "restart": {"policy": "never"},
            "sources": {"in": {"type": "stream", "config": {"topic": "numbers"}}},
            "sinks": {"out": {"type": "http", "inputs": ["in"], "config": config}},
        });
        let answer = call(self.process.applications, &self.root, "POST", "/api/jobs", &document);
        assert_eq!(answer.status, 201, "{}", answer.text());
        let failed = || {
            let told = call(self.process.applications, &self.root, "GET", "/api/jobs/posting/status", &Value::Null);
            told.text().contains("has no answer")
        };
        eventually("the job tells of its failure", failed);
        for part in ["status", "errors", "graph"] {
            self.done("GET", &format!("/api/jobs/posting/{part}"), &Value::Null);
        }
    }

    /// All lists and figures that the server documents, and the topics that nobody may read.
    fn ask_for_everything(&mut self) {
        let document = call(self.process.applications, &self.root, "GET", "/openapi.json", &Value::Null).json();
        let paths = document["paths"].as_object().unwrap();
        let lists = paths.iter().filter(|(path, methods)| methods.get("get").is_some() && !path.contains('{'));
        let lists: Vec<String> = lists.map(|(path, _)| path.clone()).filter(|path| !path.ends_with("/ws")).collect();
        assert!(lists.iter().any(|path| path == "/api/tokens"), "{lists:?}");
        let more = [
            "/v1/credentials/default/d-1",
            "/v1/devices/default/d-1",
            "/v1/devices/default",
            "/api/streams/numbers/info",
        ];
        for path in lists.iter().map(String::as_str).chain(more) {
            let headers = [("Authorization", &*format!("Bearer {}", self.root)), ("Request-Timeout", "2s")];
            let answer = ask(self.process.applications, "GET", path, &headers, b"");
            self.hear(format!("GET {path}"), &answer);
        }
        self.done("GET", "/api/streams/_audit?from=earliest&until=latest&limit=1000", &Value::Null);
        for topic in StateTopic::ALL.into_iter().filter(|topic| *topic != StateTopic::Audit) {
            let topic = topic.name();
            let path = format!("/api/streams/{topic}?from=earliest&until=latest");
            let answer = call(self.process.applications, &self.root, "GET", &path, &Value::Null);
            assert!(self.hear(format!("GET {path}"), &answer) >= 400, "{topic} is for nobody");
        }
    }

    /// A backup, and what is told of it.
    fn back_up(&mut self, dir: &str) {
        if crate::log_has_no_files() {
            return;
        }
        for arguments in [&["--to", dir][..], &["list", dir], &["verify", dir]] {
            let mut command = millstream();
            command.arg("backup").args(arguments).env("MILLSTREAM_SERVER", self.process.applications_url());
            let output = command.env("MILLSTREAM_TOKEN", &self.root).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            self.answers.push((format!("backup {arguments:?}"), [output.stdout, output.stderr].concat()));
        }
    }

    /// The secrets that an answer repeats although it must not.
    fn check_answers(&self) -> Vec<String> {
        let documents = ["GET /v2/subscriptions", "GET /api/jobs"];
        let dir = tempfile::tempdir().unwrap();
        for (number, (_, answer)) in self.answers.iter().enumerate() {
            std::fs::write(dir.path().join(number.to_string()), answer).unwrap();
        }
        let found = search(dir.path(), &self.secrets).into_iter().filter_map(|(secret, file, form)| {
            let (what, _) = &self.answers[Path::new(&file).file_name()?.to_str()?.parse::<usize>().ok()?];
            let is_shown = secret.kept == Kept::InDocument && documents.contains(&what.as_str());
            (!is_shown).then(|| format!("{} in the answer to {what} as {form}", secret.name))
        });
        found.collect()
    }
}

/// A token that a device signs with its key.
fn token(key: &EcdsaKeyPair, auth_id: &str) -> String {
    let now = SystemClock::default().now_ms() / 1_000;
    let claims = json!({"tid": "default", "sub": auth_id, "aud": "hono-adapter", "iat": now, "exp": now + 3_600});
    let parts = [json!({"alg": "ES256", "typ": "JWT"}), claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let text = parts.join(".");
    let signature = key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// CONNECT of MQTT 3.1.1 with user and password; the return code.
fn mqtt_login(to: SocketAddr, user: &str, password: &str) -> u8 {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let body = [&text("MQTT")[..], &[4, 0xc2, 0, 0], &text("a-client"), &text(user), &text(password)].concat();
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = match body.len() {
        short @ ..128 => vec![short as u8],
        long => vec![(long & 0x7f) as u8 | 0x80, (long >> 7) as u8],
    };
    socket.write_all(&[&[0x10][..], &length, &body].concat()).unwrap();
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).unwrap();
    answer[3]
}

/// An address on which nobody listens.
fn closed_address() -> SocketAddr {
    millstream_testkit::own_addresses()[0]
}

#[test]
fn secrets_are_in_no_log_line_answer_metric_or_audit_event_and_on_the_disk_only_where_a_document_needs_them() {
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (settings, log) = (dir.path().join("settings.toml"), dir.path().join("log"));
    let root = "root+token/0123456789==";
    let roles = "tenant = \"*\"\nroles = [\"reader\", \"writer\", \"admin\"]\n";
    let limit = "[listen]\nlogin_failures_per_minute = 1000\n";
    std::fs::write(&settings, format!("{limit}[[applications.tokens]]\nname = \"root\"\ntoken = \"{root}\"\n{roles}"))
        .unwrap();
    let mut program = millstream();
    program.stderr(File::create(&log).unwrap());
    let of_targets = ["context.notifications.allowed_targets", "flow.http_allowed_targets"]
        .map(|setting| format!("--set={setting}=[\"private\"]"));
    let arguments =
        ["--config", settings.to_str().unwrap(), "--set", "logging.level=trace", &of_targets[0], &of_targets[1]];
    let process = Process::start_by(program, data.path(), &arguments);
    let mut run = Run { process, root: root.to_owned(), secrets: Vec::new(), answers: Vec::new() };
    run.secret("a configured token", Kept::Nowhere, root);
    run.tokens();
    run.devices();
    run.subscriptions();
    run.jobs();
    run.ask_for_everything();
    run.back_up(dir.path().join("backups").to_str().unwrap());
    for more in [&[][..], &["--explain"]] {
        let shown =
            millstream().args(["config", "show", "--config", settings.to_str().unwrap()]).args(more).output().unwrap();
        assert!(shown.status.success());
        run.answers.push((format!("config show {more:?}"), shown.stdout));
    }
    let mut found = run.check_answers();
    let Run { process, secrets, .. } = run;
    process.stop();
    let told = std::fs::read_to_string(&log).unwrap();
    for part in ["TRACE", "DEBUG", "a device's login is refused", "alarm raised", "a request is sent again"] {
        assert!(told.contains(part), "the log has no line with {part}");
    }
    let in_log = search(&log, &secrets).into_iter();
    found.extend(in_log.map(|(secret, _, form)| format!("{} in the log as {form}", secret.name)));
    let on_disk = search(data.path(), &secrets);
    let wrong = on_disk.iter().filter(|(secret, ..)| secret.kept == Kept::Nowhere);
    found.extend(wrong.map(|(secret, file, form)| format!("{} in {file} as {form}", secret.name)));
    assert!(found.is_empty(), "{found:#?}");
    for secret in secrets.iter().filter(|secret| secret.kept != Kept::Nowhere) {
        let is_there = on_disk.iter().any(|(found, ..)| found.name == secret.name);
        assert!(is_there, "{} is not in the data directory: the search is blind", secret.name);
    }
}
