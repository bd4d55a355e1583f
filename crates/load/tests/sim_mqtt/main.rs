//! Simulated devices over MQTT against a server that confirms, stalls, refuses and hangs up.

mod server;

use std::collections::BTreeMap;

use clap::Parser;
use millstream_load::FailureKind;
use millstream_load::sim::{self, SimArgs, SimReport};
use server::{Heard, Manners, MqttServer};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

fn args(url: &str, line: &str) -> SimArgs {
    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: SimArgs,
    }
    let parsed = Command::parse_from(["sim", "--protocol", "mqtt"].into_iter().chain(line.split_whitespace())).args;
    SimArgs { devices_url: Some(url.to_owned()), ..parsed }
}

async fn measure(server: &MqttServer, line: &str) -> SimReport {
    sim::measure(&args(&server.url, line), &CancellationToken::new(), |_| {}).await.expect("the test is set up right")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_device_has_a_connection_of_its_own_and_each_quality_keeps_its_order() {
    for (qos, first) in [("0", 0x30), ("1", 0x32), ("2", 0x34)] {
        let (go, held) = watch::channel(false);
        let server = MqttServer::start(Manners { confirms: Some(held), ..Manners::default() }).await;
        let line = "-n 5 --threads 2 --period 0 --count 400 --template ${count} --tenant acme --password pw";
        let line = format!("{line} --qos {qos} --in-flight 4 --topic t/${{device}}");
        // On a busy machine the first devices would have sent everything before the last has connected.
        let (report, ()) = tokio::join!(measure(&server, &line), async {
            server.until_connected(5).await;
            go.send_replace(true);
        });
        assert_eq!((report.sent, report.accepted, report.failed()), (400, 400, 0), "{qos}");
        server.until_all_have_gone().await;
        let numbers = server.numbers();
        assert_eq!(numbers.iter().map(Vec::len).sum::<usize>(), 400);
        for of_one in &numbers {
            assert!(of_one.iter().copied().eq(0..of_one.len() as u64), "{qos}: {of_one:?}");
        }
        let mut heard: Vec<Heard> = server.heard.lock().clone();
        heard.sort_by(|a, b| a.hello.cmp(&b.hello));
        assert_eq!(heard.len(), 5);
        for (number, one) in heard.iter().enumerate() {
            let hello = format!("\0\x04MQTT\x04?\0<\0\x05sim-{number}\0\x0Asim-{number}@acme\0\x02pw");
            let said = String::from_utf8_lossy(&one.hello).replace('\u{FFFD}', "?");
            assert_eq!(said, hello);
            assert!(
                one.messages.iter().all(|(byte, topic, _)| (*byte, &**topic) == (first, &*format!("t/sim-{number}")))
            );
            assert_eq!(one.releases, if qos == "2" { one.messages.len() } else { 0 });
            let pings = if qos == "0" { one.messages.len().div_ceil(4) } else { 0 };
            assert_eq!((one.pings, one.ended_in_order), (pings, true), "{qos}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_confirms_eight_at_once_gets_eight_only_if_so_many_may_be_in_flight() {
    let server = MqttServer::start(Manners { confirms_together: 8, ..Manners::default() }).await;
    let report = measure(&server, "-n 2 --period 0 --ramp 0 --duration 100ms --qos 1 --in-flight 8 --timeout 1m").await;
    assert_eq!((report.failed(), report.accepted % 8), (0, 0));
    let report = measure(&server, "-n 2 --period 0 --count 2 --ramp 0 --qos 1 --in-flight 7 --timeout 50ms").await;
    assert_eq!((report.accepted, report.failures), (0, BTreeMap::from([(FailureKind::Timeout, 2)])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_counted_by_cause() {
    let refusing = MqttServer::start(Manners { welcome: 5, ..Manners::default() }).await;
    let report = measure(&refusing, "-n 3 --period 0 --count 6 --qos 1").await;
    assert_eq!((report.sent, report.failures), (6, BTreeMap::from([(FailureKind::Refused(5), 6)])));

    let closing = MqttServer::start(Manners { closes_with: Some(3), ..Manners::default() }).await;
    let report = measure(&closing, "-n 1 --period 0 --count 9 --qos 1").await;
    assert_eq!((report.accepted, report.failures), (6, BTreeMap::from([(FailureKind::Lost, 3)])));
    assert_eq!(closing.heard.lock().len(), 3, "each time it has connected again");

    let (_never, confirms) = watch::channel(false);
    let silent = MqttServer::start(Manners { confirms: Some(confirms), ..Manners::default() }).await;
    for qos in ["0", "1"] {
        let line = format!("-n 3 --period 0 --ramp 0 --count 3 --timeout 20ms --qos {qos}");
        let report = measure(&silent, &line).await;
        assert_eq!((report.accepted, report.failures), (0, BTreeMap::from([(FailureKind::Timeout, 3)])), "{qos}");
    }

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("the test is set up right");
    let nobody = format!("mqtt://{}", listener.local_addr().expect("the test is set up right"));
    drop(listener);
    let report = sim::measure(&args(&nobody, "-n 2 --period 0 --count 4"), &CancellationToken::new(), |_| {})
        .await
        .expect("the test is set up right");
    assert_eq!((report.sent, report.failures), (4, BTreeMap::from([(FailureKind::Connect, 4)])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_open_loop_counts_a_stall_against_every_message_that_it_held_up() {
    let (go, held) = watch::channel(false);
    let server = MqttServer::start(Manners { confirms: Some(held), ..Manners::default() }).await;
    let observe = |progress: sim::SimProgress| {
        if progress.backlog >= 10 {
            go.send_replace(true);
        }
    };
    let line = "-n 1 --loop open --period 10ms --count 20 --qos 1 --timeout 1m";
    let report = sim::measure(&args(&server.url, line), &CancellationToken::new(), observe)
        .await
        .expect("the test is set up right");
    assert_eq!((report.accepted, report.backlog.at_end), (20, 0));
    // As over HTTP: of ten that are due and not sent the first three are 90, 80 and 70 ms late, less the timer's lateness.
    assert!(report.latency_ms.max >= 88.0 && report.latency_ms.p90 >= Some(68.0), "{:?}", report.latency_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_no_ramp_every_device_begins_at_once() {
    let server = MqttServer::start(Manners::default()).await;
    let report = measure(&server, "-n 50 --period 1h --ramp 0 --count 50 --qos 1").await;
    assert_eq!(report.accepted, 50);
    assert!(server.heard.lock().iter().all(|one| one.messages.len() == 1));
}
