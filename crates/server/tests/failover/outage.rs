//! Brokers that are gone, or out of reach, for longer than an append waits for them: everything is refused with the reason, and goes
//! on by itself once they are back, unless another server has taken over.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;

use millstream_testkit::{Process, RealKafka, ask, eventually};

use crate::load::{CHANGES, GO_ON, KINDS, LOGIN, Ledger, Listeners, check_all, create_all};
use crate::{has_ended, signal, until_told};

/// Checks that a server that is cut off takes nothing, also not once `end_cut` has ended that, and ends then: another one works.
pub(crate) fn is_refused_and_ends(former: &Process, end_cut: impl FnOnce()) {
    until_told(former);
    // Each of its numbers is there already, and would be there twice.
    let refused: [Mutex<Ledger>; KINDS] = Default::default();
    let send_all = |expected: fn(u16) -> bool| {
        for (change, ledger) in CHANGES.iter().zip(&refused) {
            let (status, text) = change.send(Listeners::from(former), ledger);
            assert!(expected(status), "{}: {status} {text}", change.name);
        }
    };
    send_all(|status| status == 503);
    end_cut();
    eventually("the former server ends", || {
        send_all(|status| !(200..300).contains(&status));
        has_ended(former)
    });
}

/// Checks what devices, applications and operators are told while no broker answers.
fn check_refusals(server: &Process) {
    let json = [("Content-Type", "application/json")];
    let login = [json[0], ("Authorization", LOGIN), ("qos-level", "1")];
    for (listener, method, path, headers) in [
        (server.devices, "POST", "/telemetry", &login[..]),
        (server.devices, "POST", "/event", &login[..2]),
        (server.applications, "PATCH", "/v2/entities/e/attrs", &json[..]),
        (server.applications, "PUT", "/kv/keys/k", &json[..]),
    ] {
        let refused = ask(listener, method, path, headers, br#"{"n": {"value": 1}}"#);
        assert_eq!(refused.status, 503, "{path}: {}", refused.text());
        assert!(refused.header("retry-after").is_some(), "{path}");
    }
    let stats = ask(server.applications, "GET", "/stats", &[], b"");
    assert_eq!(stats.status, 200, "{}", stats.text());
    let stats: serde_json::Value = serde_json::from_slice(&stats.body).unwrap();
    assert!(stats["log"]["engine"]["brokers"][0]["silent_s"].is_u64(), "{}", stats["log"]["engine"]);
}

#[test]
fn every_plane_goes_on_by_itself_after_brokers_were_gone_for_long() {
    let kafka = RealKafka::start(1);
    let dir = tempfile::tempdir().unwrap();
    let brokers = format!("log.kafka.brokers=[{:?}]", kafka.bootstrap());
    let settings = [
        "log.engine=kafka",
        &brokers,
        "log.kafka.replication_factor=1",
        "log.kafka.min_insync_replicas=1",
        "log.kafka.request_timeout_ms=1000",
        "log.kafka.delivery_timeout_ms=2000",
        "connect.http.send_timeout_ms=1000",
    ];
    let arguments: Vec<&str> = settings.into_iter().flat_map(|setting| ["--set", setting]).collect();
    let server = Process::start_on(dir.path(), &arguments);
    create_all(&server, "at_least_once");
    let ledgers: [Mutex<Ledger>; KINDS] = Default::default();
    let send = |at: usize| CHANGES[at].send(Listeners::from(&server), &ledgers[at]);
    let send_all = |expected: Range<u16>| {
        for (at, change) in CHANGES.iter().enumerate() {
            let (status, text) = send(at);
            assert!(expected.contains(&status), "{}: {status} {text}", change.name);
        }
    };
    (0..3).for_each(|_| send_all(200..300));

    signal(kafka.brokers()[0].pid, "-STOP");
    thread::scope(|scope| {
        let send = &send;
        let in_flight: Vec<_> = (0..CHANGES.len()).map(|at| scope.spawn(move || send(at))).collect();
        until_told(&server);
        // The patience with appends ends after that with requests.
        let given_up: Vec<_> = in_flight.into_iter().skip(GO_ON).map(|change| change.join().unwrap()).collect();
        assert!(given_up.iter().all(|(status, _)| *status == 503), "{given_up:?}");
        send_all(503..504);
        check_refusals(&server);
        signal(kafka.brokers()[0].pid, "-CONT");
    });
    for (at, change) in CHANGES.iter().enumerate() {
        eventually(change.name, || (200..300).contains(&send(at).0));
    }
    send_all(200..300);
    eventually("the server is ready", || server.get("/readyz").status == 200);
    check_all(&server, &ledgers);
}

#[test]
fn a_server_that_is_cut_off_is_refused_in_everything_once_another_one_works_and_ends() {
    let kafka = RealKafka::behind_relays(1, "", 2);
    let dir = tempfile::tempdir().unwrap();
    let start = |way: usize| {
        let dir = dir.path().join(way.to_string());
        std::fs::create_dir(&dir).unwrap();
        let settings = [
            "log.engine=kafka",
            &format!("log.kafka.brokers=[\"{}\"]", kafka.way(way)[0].address()),
            "log.kafka.replication_factor=1",
            "log.kafka.min_insync_replicas=1",
            "log.kafka.request_timeout_ms=1000",
            "log.kafka.session_timeout_ms=3000",
        ];
        Process::start_on(&dir, &settings.into_iter().flat_map(|setting| ["--set", setting]).collect::<Vec<_>>())
    };
    let first = start(0);
    create_all(&first, "exactly_once");
    let ledgers: [Mutex<Ledger>; KINDS] = Default::default();
    let send_all = |server: &Process| {
        for (change, ledger) in CHANGES.iter().zip(&ledgers) {
            let (status, text) = change.send(Listeners::from(server), ledger);
            assert!((200..300).contains(&status), "{}: {status} {text}", change.name);
        }
    };
    let relay = &kafka.way(0)[0];
    (0..100).for_each(|_| send_all(&first));
    let second = thread::scope(|scope| {
        let second = scope.spawn(|| start(1));
        relay.cut();
        second.join().unwrap()
    });
    send_all(&second);
    is_refused_and_ends(&first, || relay.reset());
    send_all(&second);
    check_all(&second, &ledgers);
}
