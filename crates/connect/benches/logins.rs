//! Measures first and repeated logins per second for each password hash function.
//!
//! Each login opens its own connection over a real socket. Client and server share one process.
//! `--quick` uses a tenth of the devices.
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_connect::{Connect, ConnectConfig};
use millstream_http::{Api, Listener, ListenerLimits, LoopbackApplications, Metrics, Serving};
use millstream_log::{Embedded, LogConfig, SystemFiles};
use millstream_testkit::{ask, open};
use millstream_types::SystemClock;
use millstream_view::{Checkpoints, Shards, ViewRuntime};
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};
use tokio::runtime::Runtime;

/// Devices that log in at the same time.
const AT_ONCE: usize = 32;
const SALT: [u8; 4] = [1, 2, 3, 4];

/// A secret with the password `pw`.
fn secret(function: &str) -> Value {
    match function {
        "sha-256" => {
            let hash = BASE64.encode(Sha256::digest([&SALT[..], b"pw"].concat()));
            json!({"hash-function": function, "pwd-hash": hash, "salt": BASE64.encode(SALT)})
        }
        "sha-512" => {
            let hash = BASE64.encode(Sha512::digest([&SALT[..], b"pw"].concat()));
            json!({"hash-function": function, "pwd-hash": hash, "salt": BASE64.encode(SALT)})
        }
        "bcrypt" => json!({"hash-function": function, "pwd-hash": bcrypt::hash("pw", 10).unwrap()}),
        _ => json!({"pwd-plain": "pw"}),
    }
}

/// The registry and the adapter over HTTP behind two listeners.
struct World {
    runtime: Runtime,
    log: Arc<Embedded>,
    connect: Connect,
    applications: Serving,
    devices: Serving,
}

impl World {
    fn open(dir: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let metrics = Metrics::default();
        let mut config = ConnectConfig::default();
        config.http.request_timeout_ms = 60_000;
        let clock = Arc::new(SystemClock::default());
        let log_config = LogConfig { dir: dir.join("log"), ..LogConfig::default() };
        let log = Embedded::open(log_config, Arc::new(SystemFiles), clock.clone(), clock.clone()).unwrap();
        let view_runtime = ViewRuntime {
            log: log.clone(),
            checkpoints: Checkpoints::open(&dir.join("views")).unwrap(),
            shards: Shards::start(2).unwrap(),
            wall: clock.clone(),
        };
        let opened = Connect::open(&view_runtime, &config, Arc::new(()), Arc::default(), clock, &metrics);
        let connect = opened.unwrap();
        let api = |name, routes: Vec<_>| {
            let api = routes.into_iter().fold(Api::builder(name, name, "1"), |api, routes| api.with(routes));
            Arc::new(api.build(&metrics).unwrap())
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (applications, devices) = runtime.block_on(async {
            let everybody = Arc::new(LoopbackApplications::default());
            let applications = Listener::bind("applications", any.into(), everybody, ListenerLimits::default());
            let logins = connect.device_authenticator();
            let devices = Listener::bind("devices", any.into(), logins, ListenerLimits::default());
            let (applications, devices) = (applications.await.unwrap(), devices.await.unwrap());
            (
                applications.serve(api("applications", connect.application_routes().into()), &metrics),
                devices.serve(api("devices", connect.device_routes().into()), &metrics),
            )
        });
        Self { runtime, log, connect, applications, devices }
    }

    fn close(self) {
        self.runtime.block_on(async {
            self.devices.shut_down(Duration::from_secs(60)).await;
            self.applications.shut_down(Duration::from_secs(60)).await;
        });
        self.connect.stop();
        drop(self.connect);
        self.log.close().unwrap();
    }

    fn registry(&self, method: &str, path: &str, body: &str) {
        let json = [("Content-Type", "application/json")];
        let answer = ask(self.applications.address(), method, path, &json, body.as_bytes());
        assert!(matches!(answer.status, 201 | 204), "{method} {path}: {}", answer.text());
    }
}

fn register(world: &World, function: &str, devices: usize) {
    world.registry("POST", "/v1/tenants/T", "{}");
    let secret = secret(function);
    for device in 0..devices {
        world.registry("POST", &format!("/v1/devices/T/{device}"), "{}");
        let credentials = json!([{"type": "hashed-password", "auth-id": device.to_string(), "secrets": [secret]}]);
        world.registry("PUT", &format!("/v1/credentials/T/{device}"), &credentials.to_string());
    }
}

/// Returns the time until every device has sent one message.
fn log_in(world: &World, devices: usize) -> Duration {
    let (started, address) = (Instant::now(), world.devices.address());
    std::thread::scope(|threads| {
        for first in 0..AT_ONCE.min(devices) {
            threads.spawn(move || {
                for device in (first..devices).step_by(AT_ONCE) {
                    let login = format!("Basic {}", BASE64.encode(format!("{device}@T:pw")));
                    let headers = [("Connection", "keep-alive"), ("Authorization", &login)];
                    assert_eq!(open(address, "POST", "/telemetry", &headers, b"x").0, 202);
                }
            });
        }
    });
    started.elapsed()
}

fn measure(function: &str, devices: usize) {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    register(&world, function, devices);
    let cold = log_in(&world, devices);
    let warm = log_in(&world, devices);
    let rate = |took: Duration| devices as f64 / took.as_secs_f64();
    println!("{function:>8}: {devices} devices, first time {:.0}/s, again {:.0}/s", rate(cold), rate(warm));
    world.close();
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let scale = if is_quick { 10 } else { 1 };
    for (function, devices) in [("sha-256", 2_000), ("sha-512", 2_000), ("bcrypt", 200), ("argon2id", 400)] {
        measure(function, devices / scale);
    }
}
