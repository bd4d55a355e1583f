//! A year of weather, and hours of it, against a real server that answers, refuses and hangs up.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_load::replay::{ReplayProgress, Speed, WeatherReplay};
use millstream_load::weather::Weather;
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::{Reaction, Seen, Server};
use tokio::sync::watch;

/// Requests that a server has accepted, by login of the sender.
type Taken = Arc<Mutex<HashMap<String, Vec<Value>>>>;

fn take(taken: &Taken, seen: &Seen) {
    assert_eq!(
        (seen.method.as_str(), seen.path.as_str(), seen.headers["qos-level"].as_str()),
        ("POST", "/telemetry", "1")
    );
    let payload: Value = serde_json::from_slice(&seen.body).expect("the test is set up right");
    taken.lock().entry(seen.headers["authorization"].clone()).or_default().push(payload);
}

fn replay(weather: Weather, server: &Server) -> WeatherReplay {
    WeatherReplay {
        weather,
        devices_url: server.url.clone(),
        registry_url: server.url.clone(),
        registry_token: None,
        tenant: "default".to_owned(),
        password: "pw".to_owned(),
        speed: Speed::AsFastAsPossible,
    }
}

fn year() -> Weather {
    Weather::read(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/nyc-2013"))
        .expect("the test is set up right")
}

/// Twenty hours of two stations.
fn hours(folder: &Path) -> Weather {
    let head = "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";
    let row =
        |station: &str, hour: i32| format!("{station},{hour},NA,NA,NA,1.5,NA,0,1012,10,2013-01-01T{hour:02}:00:00Z\n");
    let rows: String = ["LGA", "EWR"].iter().flat_map(|station| (0..20).map(|hour| row(station, hour))).collect();
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut zipped, (head.to_owned() + &rows).as_bytes()).expect("the test is set up right");
    std::fs::write(folder.join("weather.csv.gz"), zipped.finish().expect("the test is set up right"))
        .expect("the test is set up right");
    let airports = "faa,name,lat,lon\nEWR,Newark,40.5,-74.5\nLGA,La Guardia,40.7,-73.5\nJFK,Kennedy,40.6,-73.7\n";
    std::fs::write(folder.join("airports.csv"), airports).expect("the test is set up right");
    Weather::read(folder).expect("the test is set up right")
}

/// The value of the `Authorization` header of a station with the password `pw`.
fn login(station: &str) -> &'static str {
    match station {
        "EWR" => "Basic RVdSQGRlZmF1bHQ6cHc=",
        "JFK" => "Basic SkZLQGRlZmF1bHQ6cHc=",
        _ => "Basic TEdBQGRlZmF1bHQ6cHc=",
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_year_arrives_in_order_over_one_connection_per_station() {
    let taken = Taken::default();
    let log = taken.clone();
    let server = Server::start(move |seen| {
        take(&log, &seen);
        async { Reaction::Answer(202, "") }
    })
    .await;
    let replay = replay(year(), &server);
    let (progress, watching) = watch::channel(ReplayProgress::default());
    let end = replay.run(&progress).await.expect("the test is set up right");
    assert_eq!((end.accepted, end.total, end.failures.len(), end.perhaps_twice.len()), (26_115, 26_115, 0, 0));
    assert_eq!(*watching.borrow(), end);
    assert_eq!(server.connections.load(Ordering::Relaxed), 3);
    let taken = taken.lock();
    for station in &end.stations {
        let code = &station.station.code;
        assert_eq!(station.latest.as_ref(), replay.weather.last(code));
        let expected: Vec<Value> =
            replay.weather.of(code).map(|o| serde_json::to_value(o).expect("the test is set up right")).collect();
        assert!(taken[login(code)] == expected, "{code}: what arrived is not what was observed");
        assert_eq!(station.accepted as usize, expected.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_observation_arrives_in_order_although_the_server_refuses_and_hangs_up() {
    let taken = Taken::default();
    let (log, number) = (taken.clone(), Arc::new(AtomicU64::new(0)));
    let server = Server::start(move |seen| {
        let reaction = match number.fetch_add(1, Ordering::Relaxed) % 9 {
            2 => Reaction::Busy,
            4 => Reaction::Close,
            number => {
                take(&log, &seen);
                // It was taken, and the device does not hear of it.
                if number == 6 { Reaction::Close } else { Reaction::Answer(202, "") }
            }
        };
        async move { reaction }
    })
    .await;
    let folder = tempfile::tempdir().expect("the test is set up right");
    let replay = replay(hours(folder.path()), &server);
    let end = replay.run(&watch::channel(ReplayProgress::default()).0).await.expect("the test is set up right");
    assert_eq!(end.accepted, 40);
    assert!(end.failures.len() == 2 && !end.perhaps_twice.is_empty(), "{end:?}");
    let taken = taken.lock();
    for station in ["EWR", "LGA"] {
        let times: Vec<_> = taken[login(station)]
            .iter()
            .map(|payload| payload["time"].as_str().expect("the test is set up right"))
            .collect();
        assert!(times.is_sorted(), "{station}: {times:?}");
        let mut counts = BTreeMap::new();
        times.iter().for_each(|time| *counts.entry(*time).or_insert(0) += 1);
        assert_eq!(counts.len(), 20);
        for (time, _) in counts.iter().filter(|(_, count)| **count > 1) {
            assert!(end.perhaps_twice.contains(&(station.to_owned(), (*time).to_owned())), "{station} {time}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observation_that_can_never_be_accepted_ends_the_replay_by_name() {
    let server = Server::start(|seen: Seen| async move {
        match String::from_utf8_lossy(&seen.body).contains("T07:00") {
            true => Reaction::Answer(404, "device unknown"),
            false => Reaction::Answer(202, ""),
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("the test is set up right");
    let error =
        replay(hours(folder.path()), &server).run(&watch::channel(ReplayProgress::default()).0).await.unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("at 2013-01-01T07:00:00Z was refused with 404: device unknown"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stations_are_registered_with_name_place_and_password() {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let log = seen.clone();
    let server = Server::start(move |request: Seen| {
        let body: Value = serde_json::from_slice(&request.body).expect("the test is set up right");
        log.lock().insert(format!("{} {}", request.method, request.path), body);
        let status = if request.method == "PUT" { 204 } else { 409 };
        async move { Reaction::Answer(status, "") }
    })
    .await;
    let folder = tempfile::tempdir().expect("the test is set up right");
    replay(hours(folder.path()), &server).register().await.expect("the test is set up right");
    let seen = seen.lock();
    let keys: Vec<_> = seen.keys().map(String::as_str).collect();
    let expected = [
        "POST /v1/devices/default/EWR",
        "POST /v1/devices/default/LGA",
        "POST /v1/tenants/default",
        "PUT /v1/credentials/default/EWR",
        "PUT /v1/credentials/default/LGA",
    ];
    assert_eq!(keys, expected);
    let place = &seen["POST /v1/devices/default/LGA"]["ext"]["context"]["static"]["location"]["value"];
    assert_eq!(*place, json!({ "type": "Point", "coordinates": [-73.5, 40.7] }));
    assert_eq!(seen["PUT /v1/credentials/default/LGA"][0]["auth-id"], "LGA");
}
