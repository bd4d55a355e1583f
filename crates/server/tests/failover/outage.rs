//! Brokers that are gone for longer than an append waits for them: everything is refused with the reason, and goes on by itself
//! once they are back.

use std::ops::Range;
use std::sync::Mutex;
use std::thread;

use millstream_testkit::{Process, RealKafka, eventually};

use crate::load::{CHANGES, GO_ON, KINDS, Ledger, Listeners, check_all, create_all};
use crate::signal;

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
        eventually("it is told that no broker answers", || {
            let told = server.get("/readyz");
            told.status == 503 && told.text().contains("no broker has answered")
        });
        // The patience with appends ends after that with requests.
        let given_up: Vec<_> = in_flight.into_iter().skip(GO_ON).map(|change| change.join().unwrap()).collect();
        assert!(given_up.iter().all(|(status, _)| *status == 503), "{given_up:?}");
        send_all(503..504);
        signal(kafka.brokers()[0].pid, "-CONT");
    });
    for (at, change) in CHANGES.iter().enumerate() {
        eventually(change.name, || (200..300).contains(&send(at).0));
    }
    send_all(200..300);
    eventually("the server is ready", || server.get("/readyz").status == 200);
    check_all(&server, &ledgers);
}
