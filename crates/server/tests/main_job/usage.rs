//! A tenant's volume across `kill -9`: what the log has is what was counted, to the byte.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_testkit::{Process, ask, millstream, status};
use serde_json::json;

const MESSAGE: &[u8] = b"0123456789";
/// Messages that fit into the volume.
const MESSAGES: u64 = 3_000;
/// Number of times that the server is killed meanwhile; `MILLSTREAM_KILLS` sets another number.
const KILLS: u64 = 4;

const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

fn register(process: &Process) {
    let tenant = json!({
        "adapters": [{"type": "hono-http", "enabled": true, "device-authentication-required": false}],
        "resource-limits": {"data-volume": {"max-bytes": MESSAGES * MESSAGE.len() as u64}},
    });
    for (method, path, body, status) in [
        ("PUT", "/v1/tenants/default", tenant.to_string(), 204),
        ("POST", "/v1/devices/default/d", "{}".to_owned(), 201),
    ] {
        assert_eq!(ask(process.applications, method, path, &JSON, body.as_bytes()).status, status);
    }
}

/// Sends from several threads until the server is gone or refuses; whether it refused.
fn send_until(devices: SocketAddr, accepted: &AtomicU64, is_refused: &AtomicBool) {
    while !is_refused.load(Ordering::Relaxed) {
        match status(devices, "PUT", "/telemetry/default/d", &[("qos-level", "1")], MESSAGE) {
            Some(202) => drop(accepted.fetch_add(1, Ordering::Relaxed)),
            Some(429) => is_refused.store(true, Ordering::Relaxed),
            Some(other) => panic!("{other}"),
            None => return,
        }
    }
}

fn stored(process: &Process) -> u64 {
    let output = millstream()
        .args(["topic", "export", "telemetry.default"])
        .env("MILLSTREAM_SERVER", process.applications_url())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64
}

#[test]
#[ignore = "takes long"]
fn killed_again_and_again_a_tenant_gets_its_volume_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let (accepted, is_refused) = (AtomicU64::new(0), AtomicBool::new(false));
    for life in 0..=kills {
        let process = Process::start(dir.path());
        if life == 0 {
            register(&process);
        }
        let devices = process.devices;
        // A life's share of the volume; the last life goes on until it is refused.
        let share = (life + 1) * MESSAGES / (kills + 1);
        let last = std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| send_until(devices, &accepted, &is_refused));
            }
            if life == kills {
                return Some(process);
            }
            while accepted.load(Ordering::Relaxed) < share && !is_refused.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            process.kill();
            None
        });
        let Some(process) = last else { continue };
        assert!(is_refused.load(Ordering::Relaxed));
        let (stored, accepted) = (stored(&process), accepted.load(Ordering::Relaxed));
        assert_eq!(stored, MESSAGES, "{accepted} were answered");
        assert!(accepted <= stored && accepted + 3 * (kills + 1) >= stored, "{accepted} answered");
        process.stop();
    }
}
