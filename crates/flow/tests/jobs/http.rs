//! The sink `http` against a server of these tests.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use millstream_flow::{Error, FlowConfig, Functions, StopMode};
use millstream_testkit::eventually;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::node::{Node, Setup};

/// A request: headers in lower case, and the body.
#[derive(Debug, Clone)]
struct Received {
    head: String,
    body: Value,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head)).trim()
    }
}

/// The next request; `None` if the connection ends.
fn read_request(socket: &mut impl BufRead) -> Option<Received> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if socket.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        let line = line.to_ascii_lowercase();
        length = line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body).unwrap();
    Some(Received { head, body: serde_json::from_slice(&body).unwrap() })
}

/// Answers one request a connection, each with the next status of `answers`, then 204. Status 0 closes the connection.
fn serve(answers: &'static [u16]) -> (SocketAddr, Arc<Mutex<Vec<Received>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&received);
    thread::spawn(move || {
        let mut answers = answers.iter();
        for socket in listener.incoming() {
            let mut socket = BufReader::new(socket.unwrap());
            log.lock().unwrap().push(read_request(&mut socket).unwrap());
            let status = answers.next().copied().unwrap_or(204);
            if status > 0 {
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno");
                let answer = if status == 204 {
                    answer.replace("content-length: 2\r\n", "").replace("\r\n\r\nno", "\r\n\r\n")
                } else {
                    answer
                };
                socket.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    (address, received)
}

fn job(config: &Value) -> Value {
    json!({
        "version": 1, "kind": "Job", "name": "send", "id": "s1", "mode": "batch", "restart": {"policy": "never"},
        "sources": {"in": {"type": "list", "config": {"records": [{"n": 1}, {"n": 2}, {"n": 3}]}, "batch": {"size": 2}}},
        "sinks": {"out": {"type": "http", "inputs": ["in"], "config": config}},
    })
}

#[test]
fn a_batch_is_sent_until_it_is_taken_under_the_same_idempotency_key() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let (address, received) = serve(&[503, 0, 429]);
    let config = json!({"url": format!("http://{address}/in?x=1"), "headers": {"X-Site": "north"}});
    let ended = node.ended(&node.run(&job(&config)));
    assert_eq!(ended["state"], "completed", "{ended:#}");
    let received = received.lock().unwrap().clone();
    let bodies: Vec<&Value> = received.iter().map(|request| &request.body).collect();
    let (first, second) = (json!([{"n": 1}, {"n": 2}]), json!([{"n": 3}]));
    assert_eq!(bodies, [&first, &first, &first, &first, &second]);
    let keys: Vec<&str> = received.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!(keys[..4], ["default/s1/out/0.0-1"; 4]);
    assert_eq!(keys[4], "default/s1/out/2.0-2");
    assert!(received[0].head.starts_with("post /in?x=1 http/1.1"), "{}", received[0].head);
    assert_eq!(received[0].header("x-site"), "north");
    assert_eq!(received[0].header("content-type"), "application/json");
    node.close();
}

#[test]
fn the_reason_of_a_job_tells_of_a_server_that_does_not_take_its_requests_for_as_long() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let (address, received) = serve(&[503, 503, 503, 503]);
    let mut job = job(&json!({"url": format!("http://{address}/in")}));
    job["mode"] = "streaming".into();
    let id = node.run(&job);
    let answered = format!(" of 11, after: POST http://{address}/in is answered 503");
    let is_told =
        |reason: &str| reason.starts_with("out sends a request again, attempt ") && reason.contains(&answered);
    eventually("the reason names node and answer", || node.job(&id)["reason"].as_str().is_some_and(is_told));
    node.running(&id);
    eventually("all are taken", || received.lock().unwrap().len() == 6);
    eventually("there is no reason any more", || node.job(&id)["reason"].is_null());
    node.kill(&id).unwrap();
    node.ended(&id);
    node.close();
}

#[test]
fn a_batch_size_of_the_sink_bounds_its_requests() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let (address, received) = serve(&[]);
    let mut job = job(&json!({"url": format!("http://{address}/")}));
    job["sources"]["in"]["batch"]["size"] = 3.into();
    job["sinks"]["out"]["batch"] = json!({"size": 2});
    assert_eq!(node.ended(&node.run(&job))["state"], "completed");
    let bodies: Vec<Value> = received.lock().unwrap().iter().map(|request| request.body.clone()).collect();
    assert_eq!(bodies, [json!([{"n": 1}, {"n": 2}]), json!([{"n": 3}])]);
    node.close();
}

#[test]
fn each_record_is_sent_by_itself_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let (address, received) = serve(&[]);
    let config = json!({"url": format!("http://{address}/"), "per": "record"});
    assert_eq!(node.ended(&node.run(&job(&config)))["state"], "completed");
    let bodies: Vec<Value> = received.lock().unwrap().iter().map(|request| request.body.clone()).collect();
    assert_eq!(bodies, [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})]);
    node.close();
}

#[test]
fn a_refused_record_and_a_server_that_never_answers_fail_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let (address, received) = serve(&[204, 422]);
    let mut refused = job(&json!({"url": format!("http://{address}/"), "per": "record"}));
    refused["id"] = "s2".into();
    let ended = node.ended(&node.run(&refused));
    assert_eq!((&ended["state"], &ended["error"]["code"]), (&json!("failed"), &json!("http_status")), "{ended:#}");
    assert_eq!(ended["error"]["record"], "record 1");
    let reason = ended["reason"].as_str().unwrap();
    assert!(reason.ends_with("422 Unprocessable Entity with 2 bytes"), "without its text: {reason}");
    assert_eq!(received.lock().unwrap().len(), 2, "what is refused is not sent again");

    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut unreached = job(&json!({"url": format!("http://{closed}/"), "retries": 1}));
    unreached["id"] = "s3".into();
    let ended = node.ended(&node.run(&unreached));
    assert_eq!(ended["error"]["code"], "http_unreachable", "{ended:#}");
    assert!(ended["reason"].as_str().unwrap().contains("given up after 2 attempts"), "{ended:#}");
    node.close();
}

#[test]
fn a_faulty_target_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = FlowConfig { http_allowed_targets: vec!["*.example.org".to_owned()], ..FlowConfig::default() };
    let node = Node::open_with(dir.path(), config, Functions::default());
    for config in [
        json!({"url": "ftp://a"}),
        json!({"url": "http://a/", "headers": {"a b": "c"}}),
        json!({"url": "http://a/", "timeout": "soon"}),
        json!({"url": "http://a/", "retries": -1}),
        json!({"url": "http://a/", "concurrency": 0}),
        json!({}),
    ] {
        let error = node.submit(&job(&config)).unwrap_err().to_string();
        assert!(error.contains("config"), "{error}");
    }
    let Err(Error::Invalid { findings }) = node.submit(&job(&json!({"url": "http://127.0.0.1:1/"}))) else {
        panic!("a host that is not allowed is refused")
    };
    assert_eq!((findings[0].rule, &*findings[0].path), ("target", "sinks.out.config.url"));
    assert!(findings[0].message.contains("flow.http_allowed_targets"), "{findings:?}");
    node.close();
}

#[test]
fn a_private_target_must_be_allowed_where_jobs_come_from_other_machines_and_a_job_of_before_waits() {
    let dir = tempfile::tempdir().unwrap();
    let target = job(&json!({"url": "http://127.0.0.1:9/"}));
    let node = Node::open(dir.path());
    node.create("numbers", 1);
    let id = node.run(&target);
    node.close();

    let node = Node::open_as(dir.path(), Setup { are_remote: true, ..Setup::default() });
    let words = "is a private address, which must be among flow.http_allowed_targets";
    eventually("the job waits", || node.job(&id)["reason"].as_str().is_some_and(|reason| reason.contains(words)));
    assert_eq!(node.job(&id)["state"], "starting");
    let mut other = target.clone();
    other["name"] = "other".into();
    let Err(Error::Invalid { findings }) = node.submit(&other) else { panic!("it must be allowed") };
    assert!(findings[0].message.contains(words), "{findings:?}");
    node.close();

    let config = FlowConfig { http_allowed_targets: vec!["private".to_owned()], ..FlowConfig::default() };
    let node = Node::open_as(dir.path(), Setup { are_remote: true, config, ..Setup::default() });
    eventually("the job runs", || node.job(&id)["state"] == "running");
    node.close();

    let node = Node::open_as(dir.path(), Setup { are_remote: true, ..Setup::default() });
    node.stop(&id, StopMode::Graceful);
    assert_eq!(node.ended(&id)["state"], "stopped");
    node.close();
}

#[test]
fn a_server_that_speaks_no_tls_gets_nothing_over_https() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answering = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut begin = [0; 5];
        socket.read_exact(&mut begin).unwrap();
        socket.write_all(b"HTTP/1.1 204 X\r\n\r\n").unwrap();
        begin
    });
    let ended = node.ended(&node.run(&job(&json!({"url": format!("https://{address}/"), "retries": 0}))));
    assert_eq!(ended["error"]["code"], "http_unreachable", "{ended:#}");
    assert_eq!(answering.join().unwrap()[..2], [22, 3], "a handshake of TLS");
    node.close();
}

#[test]
fn requests_of_several_keys_are_on_their_way_at_a_time_and_those_of_one_key_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&received);
    // Two requests are answered together, so a sink with one request at a time would wait for ever.
    let both = Arc::new(std::sync::Barrier::new(2));
    let firsts = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (log, both, firsts) = (Arc::clone(&log), Arc::clone(&both), Arc::clone(&firsts));
            thread::spawn(move || {
                let mut socket = BufReader::new(socket.unwrap());
                while let Some(request) = read_request(&mut socket) {
                    log.lock().unwrap().push(request.body);
                    if firsts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2 {
                        both.wait();
                    }
                    socket.get_mut().write_all(b"HTTP/1.1 204 X\r\n\r\n").unwrap();
                }
            });
        }
    });
    let records: Vec<Value> = (0..40).map(|n| json!({"$key": format!("k{}", n % 8), "k": n % 8, "n": n})).collect();
    let mut job = job(&json!({"url": format!("http://{address}/"), "per": "record", "concurrency": 4}));
    job["sources"]["in"] = json!({"type": "list", "config": {"records": records}});
    assert_eq!(node.ended(&node.run(&job))["state"], "completed");
    let received = received.lock().unwrap();
    for k in 0..8 {
        let of_key = received.iter().filter(|record| record["k"] == k);
        let numbers: Vec<i64> = of_key.map(|record| record["n"].as_i64().unwrap()).collect();
        assert_eq!(numbers, (0..40).filter(|n| n % 8 == k).collect::<Vec<_>>(), "key {k}");
    }
    node.close();
}

#[test]
fn a_server_whose_authority_the_settings_name_is_trusted_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(dir.path()).output();
        let output = output.expect("openssl is there: scripts/setup-clients installs it");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let authority = ["req", "-x509", "-days", "2", "-subj", "/CN=Authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&authority[..], &new_key].concat());
    let server = ["req", "-x509", "-days", "2", "-subj", "/CN=Receiver", "-CA", "ca.pem", "-CAkey", "ca.key"];
    let names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"];
    openssl(&[&server[..], &new_key, &names, &["-keyout", "key.pem", "-out", "cert.pem"]].concat());

    let certificate = CertificateDer::from_pem_file(dir.path().join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.path().join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = Arc::new(tls.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let session = ServerConnection::new(Arc::clone(&tls)).unwrap();
            let mut socket = BufReader::new(StreamOwned::new(session, socket.unwrap()));
            // A client that trusts nobody ends the handshake.
            if read_request(&mut socket).is_some() {
                let _ = socket.get_mut().write_all(b"HTTP/1.1 204 X\r\nconnection: close\r\n\r\n");
            }
        }
    });
    let job = job(&json!({"url": format!("https://{address}/"), "retries": 0}));
    let foreign = ["req", "-x509", "-days", "2", "-subj", "/CN=Other", "-keyout", "other.key", "-out", "other.pem"];
    openssl(&[&foreign[..], &new_key].concat());
    for (ca_file, state) in [("", "failed"), ("other.pem", "failed"), ("ca.pem", "completed")] {
        let file = dir.path().join(ca_file).display().to_string();
        let http_ca_file = if ca_file.is_empty() { String::new() } else { file };
        let config = FlowConfig { http_ca_file, ..FlowConfig::default() };
        let node = Node::open_with(&dir.path().join(format!("data-{ca_file}")), config, Functions::default());
        let ended = node.ended(&node.run(&job));
        assert_eq!(ended["state"], state, "{ca_file}: {ended:#}");
        if state == "failed" {
            assert_eq!(ended["error"]["code"], "http_unreachable", "{ca_file}: {ended:#}");
            assert!(ended["reason"].as_str().unwrap().contains("UnknownIssuer"), "{ca_file}: {ended:#}");
        }
        node.close();
    }
}

/// The job with a sink for the errors of `out`, and its error routes.
fn with_dead_letters(mut job: Value, routes: Value) -> Value {
    job["sinks"]["dead"] = json!({"type": "collect", "inputs": ["out"]});
    job["routes"] = routes;
    job
}

#[test]
fn a_refused_record_takes_the_error_route_of_its_sink_and_the_others_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let (address, received) = serve(&[204, 422]);
    let config = json!({"url": format!("http://{address}/"), "per": "record"});
    let routes = json!([{"from": "out", "on_error": true, "to": ["dead"], "stop": true}]);
    let id = node.run(&with_dead_letters(job(&config), routes));
    let ended = node.ended(&id);
    assert_eq!((&ended["state"], &ended["restarts"]), (&json!("completed"), &json!(0)), "{ended:#}");
    let sent: Vec<Value> = received.lock().unwrap().iter().map(|request| request.body.clone()).collect();
    assert!(sent.len() > 2, "{sent:?}");
    let dead = node.collected(&id, "dead");
    assert_eq!(
        (dead.len(), &dead[0]["error"]["code"], &dead[0]["error"]["node"]),
        (1, &json!("http_status"), &json!("out"))
    );
    assert_eq!(serde_json::from_str::<Value>(dead[0]["input"].as_str().unwrap()).unwrap(), sent[1]);
    node.close();
}

#[test]
fn a_record_is_tried_again_after_a_pause_and_becomes_a_dead_letter_after_its_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let (address, received) = serve(&[422, 422, 422]);
    let mut job = job(&json!({"url": format!("http://{address}/"), "per": "record"}));
    job["sources"]["in"]["config"]["records"] = json!([{"n": 1}]);
    let routes = json!([
        {"from": "out", "on_error": true, "to": "none", "stop": true, "action": "retry", "max_attempts": 2},
        {"from": "out", "on_error": true, "to": ["dead"], "stop": true, "action": "dead_letter"},
    ]);
    let begun = std::time::Instant::now();
    let id = node.run(&with_dead_letters(job, routes));
    let ended = node.ended(&id);
    assert_eq!(ended["state"], "completed", "{ended:#}");
    assert_eq!(received.lock().unwrap().len(), 3, "the first attempt and two further ones");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(300), "pauses of 100 and 200 ms");
    let dead = node.collected(&id, "dead");
    assert_eq!((dead.len(), &dead[0]["input"]), (1, &json!("{\"n\":1}")), "{dead:?}");
    node.close();
}
