use serde_json::json;

use super::*;
use crate::registry::Device;

const HOUR_MS: i64 = 3_600_000;

fn usage() -> Usage {
    Usage {
        tenant: TenantId::default(),
        volume: RwLock::default(),
        connected: Mutex::default(),
        rate_limit: Mutex::default(),
        sender_limits: Mutex::default(),
        connects: Mutex::default(),
        partitions: Mutex::default(),
        noted: Mutex::default(),
        refusals: crate::usage::refusals(&millstream_http::Metrics::default()),
    }
}

/// A tenant, registered when time begins.
fn tenant(limits: serde_json::Value) -> Stored<Tenant> {
    let tenant: Tenant = serde_json::from_value(json!({ "resource-limits": limits })).unwrap();
    Stored::new(Arc::new(tenant), 0)
}

/// Sends one message of `bytes` at `hours`, which the log takes.
fn send(usage: &Usage, stored: &Stored<Tenant>, bytes: u64, hours: i64) -> bool {
    let device = Device::default();
    let sender = Sender::of("d", &device, stored);
    let now = Moment { wall_ms: hours * HOUR_MS, monotonic: Duration::from_millis((hours * HOUR_MS) as u64) };
    match usage.admit(&sender, Amount { messages: 1, bytes }, now) {
        Ok(admission) => {
            admission.keep();
            true
        }
        Err(problem) => {
            assert_eq!(problem.status().as_u16(), 429);
            false
        }
    }
}

fn connect(usage: &Usage, stored: &Stored<Tenant>, hours: i64) -> Result<(), (Limit, Problem)> {
    let now = Moment { wall_ms: hours * HOUR_MS, monotonic: Duration::from_millis((hours * HOUR_MS) as u64) };
    usage.connect(stored, ConnectingDevice { device: "d", per_second_max: None }, now)
}

#[test]
fn a_volume_is_used_up_to_the_byte_and_is_there_again_with_the_next_period() {
    let days = json!({"data-volume": {"max-bytes": 100, "period": {"mode": "days", "no-of-days": 1}}});
    let (usage, stored) = (usage(), tenant(days.clone()));
    assert!(send(&usage, &stored, 60, 1));
    assert!(!send(&usage, &stored, 41, 2), "one byte too many");
    assert!(send(&usage, &stored, 40, 3));
    assert!(!send(&usage, &stored, 1, 23) && connect(&usage, &stored, 23).is_err());
    assert!(send(&usage, &stored, 0, 23), "what weighs nothing passes");
    // Another version of the tenant with the same period goes on with what is used.
    let raised = json!({"data-volume": {"max-bytes": 101, "period": {"mode": "days", "no-of-days": 1}}});
    assert!(send(&usage, &tenant(raised.clone()), 1, 23) && !send(&usage, &tenant(raised), 1, 23));
    assert!(send(&usage, &stored, 100, 24) && !send(&usage, &stored, 1, 24));
    assert!(send(&usage, &tenant(json!({})), 1, 24), "without limit");
}

#[test]
fn a_message_that_the_log_does_not_store_uses_no_volume() {
    let (usage, stored) = (usage(), tenant(json!({"data-volume": {"max-bytes": 10}})));
    let device = Device::default();
    let now = Moment { wall_ms: 1, monotonic: Duration::ZERO };
    for _ in 0..3 {
        drop(usage.admit(&Sender::of("d", &device, &stored), Amount { messages: 1, bytes: 10 }, now).unwrap());
    }
    assert!(send(&usage, &stored, 10, 1) && !send(&usage, &stored, 1, 1));
}

#[test]
fn concurrent_senders_use_the_whole_volume_and_not_a_byte_more() {
    let (usage, stored) = (usage(), tenant(json!({"data-volume": {"max-bytes": 10_007}})));
    let sent: usize = std::thread::scope(|threads| {
        let work = || (0..2_000).filter(|_| send(&usage, &stored, 10, 1)).count();
        let threads: Vec<_> = (0..4).map(|_| threads.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sent, 1_000);
}

#[test]
fn the_time_of_all_connections_together_is_counted_within_the_period() {
    let limit = json!({"connection-duration": {"max-minutes": 120, "period": {"mode": "days", "no-of-days": 1}}});
    let (usage, stored) = (usage(), tenant(limit));
    let connect = |hours: i64| connect(&usage, &stored, hours).is_ok();
    assert!(connect(0) && connect(0));
    assert!(!connect(1), "two connections for an hour");
    usage.disconnect(2 * HOUR_MS);
    assert_eq!(usage.cut(&stored, 2 * HOUR_MS).connected_ms, 4 * HOUR_MS as u64);
    assert!(connect(25), "the one that has stayed counts for an hour in the new period");
    assert!(!connect(26), "and both for another");
}

#[test]
fn devices_and_tenants_keep_their_rates() {
    let (usage, stored) =
        (usage(), tenant(json!({"max-messages-per-second": 3, "max-messages-per-second-per-device": 2})));
    let quick: Device = serde_json::from_value(json!({"ext": {"max-messages-per-second": 5}})).unwrap();
    let usual = Device::default();
    let send = |id, device, ms| {
        let now = Moment { wall_ms: 1, monotonic: Duration::from_millis(ms) };
        let admitted = usage.admit(&Sender::of(id, device, &stored), Amount { messages: 1, bytes: 1 }, now);
        admitted.map(Admission::keep).map_err(|problem| problem.text())
    };
    send("a", &usual, 0).unwrap();
    send("a", &usual, 0).unwrap();
    let told = send("a", &usual, 0).unwrap_err();
    assert!(told.contains("device") && told.contains("max-messages-per-second-per-device"), "{told}");
    send("b", &quick, 0).unwrap();
    let told = send("b", &quick, 0).unwrap_err();
    assert!(told.contains("tenant") && told.contains("max-messages-per-second"), "{told}");
    send("a", &usual, 1_000).unwrap();
}

#[test]
fn byte_rates_are_separate_and_a_tenants_refusal_does_not_use_the_devices_rate() {
    let limits = json!({"max-bytes-per-second": 100, "max-bytes-per-second-per-device": 60});
    let (usage, stored) = (usage(), tenant(limits));
    let wide: Device = serde_json::from_value(json!({"ext": {"max-bytes-per-second": 1_000}})).unwrap();
    let usual = Device::default();
    let send = |id, device, bytes, ms| {
        let now = Moment { wall_ms: 1, monotonic: Duration::from_millis(ms) };
        let admitted = usage.admit(&Sender::of(id, device, &stored), Amount { messages: 2, bytes }, now);
        admitted.map(Admission::keep).map_err(|problem| problem.text())
    };
    send("a", &usual, 60, 0).unwrap();
    let told = send("a", &usual, 1, 0).unwrap_err();
    assert!(told.contains("device") && told.contains("max-bytes-per-second-per-device of its"), "{told}");
    let told = send("b", &wide, 41, 0).unwrap_err();
    assert!(told.contains("more bytes") && told.contains("resource-limits.max-bytes-per-second of the tenant = 100"));
    send("b", &wide, 40, 0).unwrap();
    // Ten times what the tenant may, refused each time: the device has its whole rate all the same.
    (0..10).for_each(|_| drop(send("c", &usual, 60, 100).unwrap_err()));
    send("c", &usual, 60, 600).unwrap();
}

#[test]
fn devices_and_tenants_connect_as_often_as_they_may() {
    let (usage, stored) = (usage(), tenant(json!({"max-connects-per-second": 3})));
    let connect = |device, per_second_max, ms| {
        let now = Moment { wall_ms: 1, monotonic: Duration::from_millis(ms) };
        let connected = usage.connect(&stored, ConnectingDevice { device, per_second_max }, now);
        connected.map_err(|(limit, problem)| (limit.name(), problem.text()))
    };
    connect("a", Some(1), 0).unwrap();
    for _ in 0..5 {
        let (limit, told) = connect("a", Some(1), 0).unwrap_err();
        assert_eq!(limit, "device-connect-rate");
        assert!(told.contains("connects more often") && told.contains("ext.max-connects-per-second"), "{told}");
    }
    // What the device may not is no use of its tenant's rate.
    connect("b", None, 0).unwrap();
    connect("b", None, 0).unwrap();
    let (limit, told) = connect("c", Some(1), 0).unwrap_err();
    assert_eq!(limit, "tenant-connect-rate");
    assert!(told.contains("resource-limits.max-connects-per-second of the tenant = 3"), "{told}");
    connect("c", Some(1), 334).unwrap();
    assert_eq!(usage.connected.lock().count, 4, "who is refused is no connection");
}
