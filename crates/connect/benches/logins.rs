//! Measures first and repeated logins per second for each password hash function.
//!
//! Each login opens its own connection over a real socket. Client and server share one process.
//! `--quick` uses a tenth of the devices.
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]
#![allow(dead_code, reason = "the tests' world can do more")]

#[path = "../tests/connect/gate.rs"]
mod gate;
#[path = "../tests/connect/world.rs"]
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_connect::ConnectConfig;
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};
use world::{World, basic};

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

async fn register(world: &World, function: &str, devices: usize) {
    world.do_registry("POST /v1/tenants/T", "", 201).await;
    let secret = secret(function);
    for device in 0..devices {
        world.do_registry(&format!("POST /v1/devices/T/{device}"), "", 201).await;
        let credentials = json!([{"type": "hashed-password", "auth-id": device.to_string(), "secrets": [secret]}]);
        world.do_registry(&format!("PUT /v1/credentials/T/{device}"), &credentials.to_string(), 204).await;
    }
}

/// Returns the time until every device has sent one message.
async fn log_in(world: &Arc<World>, devices: usize) -> Duration {
    let started = Instant::now();
    let mut tasks = Vec::new();
    for first in 0..AT_ONCE.min(devices) {
        let world = world.clone();
        tasks.push(tokio::spawn(async move {
            for device in (first..devices).step_by(AT_ONCE) {
                let login = basic(&format!("{device}@T"), "pw");
                let answer = world.device("POST /telemetry", &[("authorization", &login)], b"x").await;
                assert_eq!(answer.status, 202, "{answer:?}");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    started.elapsed()
}

async fn measure(function: &str, devices: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = ConnectConfig::default();
    config.http.request_timeout_ms = 60_000;
    let world = World::open_with(dir.path(), config).await;
    register(&world, function, devices).await;
    let world = Arc::new(world);
    let cold = log_in(&world, devices).await;
    let warm = log_in(&world, devices).await;
    let rate = |took: Duration| devices as f64 / took.as_secs_f64();
    println!("{function:>8}: {devices} devices, first time {:.0}/s, again {:.0}/s", rate(cold), rate(warm));
    Arc::into_inner(world).unwrap().stop().await;
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let scale = if is_quick { 10 } else { 1 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for (function, devices) in [("sha-256", 2_000), ("sha-512", 2_000), ("bcrypt", 200), ("argon2id", 400)] {
        runtime.block_on(measure(function, devices / scale));
    }
}
