//! The year of weather: every observation arrives once, becomes its station's entity, and answers a live query.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_load::replay::{ReplayProgress, Speed, WeatherReplay};
use millstream_load::weather::Weather;
use millstream_log::{Embedded, Log, LogConfig, SystemFiles, UpTo};
use millstream_testkit::{Live, Process, eventually, millstream, own_addresses};
use millstream_types::{BatchLimits, SystemClock, TenantId, TopicKind, TopicName, TopicPartition};
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const OBSERVATIONS: usize = 26_115;
/// Number of times that the server is killed during the replay; `MILLSTREAM_KILLS` sets another number.
const KILLS: u32 = 5;

fn weather() -> Weather {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/nyc-2013");
    Weather::read(&folder).unwrap()
}

pub(crate) fn replay(process: &Process) -> WeatherReplay {
    WeatherReplay {
        weather: weather(),
        devices_url: process.devices_url(),
        registry_url: process.applications_url(),
        registry_token: None,
        tenant: TenantId::DEFAULT.to_owned(),
        password: "secret".to_owned(),
        speed: Speed::AsFastAsPossible,
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn run(replay: &WeatherReplay) -> ReplayProgress {
    let (sender, _receiver) = watch::channel(ReplayProgress::default());
    runtime().block_on(async {
        replay.register().await.unwrap();
        replay.run(&sender).await.unwrap()
    })
}

/// Returns the expected entity of a station in its `keyValues` form: its last observation, and for measures that the
/// last one lacks the latest that had them.
fn expected_entity(weather: &Weather, station: &str) -> BTreeMap<String, Value> {
    let mut expected = BTreeMap::new();
    for observation in weather.of(station) {
        let Value::Object(members) = serde_json::to_value(observation).unwrap() else { unreachable!() };
        expected.extend(members);
    }
    expected
}

fn assert_entities_show_the_last_observations(process: &Process) {
    let weather = weather();
    let shown = || process.get_json("/v2/entities?options=keyValues&limit=100");
    let last = |station: &str| expected_entity(&weather, station)["time"].clone();
    eventually("the entities to show the last observations", || {
        let entities = shown();
        let entities = entities.as_array().unwrap();
        weather.stations().iter().all(|station| {
            entities
                .iter()
                .any(|entity| entity["time"] == last(&station.code) && entity["origin"] == json!(station.code))
        })
    });
    let entities = shown();
    let entities = entities.as_array().unwrap();
    assert_eq!(entities.len(), 3);
    for station in weather.stations() {
        let id = format!("urn:ngsi-ld:Device:{}", station.code);
        let entity = entities.iter().find(|entity| entity["id"] == json!(id)).unwrap();
        assert_eq!(entity["type"], json!("Device"));
        assert_eq!(entity["name"], json!(station.name));
        assert_eq!(entity["location"]["coordinates"], json!([station.longitude, station.latitude]));
        for (measure, value) in expected_entity(&weather, &station.code) {
            assert_eq!(entity[&measure], value, "{measure} of {}", station.code);
        }
    }
}

/// All records of a topic of the tenant `default`, read from the data directory of a server that has stopped.
pub(crate) fn records(data_dir: &Path, kind: TopicKind) -> Vec<(String, Value)> {
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: data_dir.join("log"), ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock).unwrap();
    let name = TopicName::reserved(kind, &TenantId::default());
    let partitions = log.topic(&name).unwrap().config.partitions;
    assert_eq!(partitions, 4);
    let mut records = Vec::new();
    for number in 0..partitions {
        let partition = log.partition(&TopicPartition::new(name.clone(), number)).unwrap();
        let mut next = partition.offsets().first;
        loop {
            let batches = partition.read(next, 1 << 20, UpTo::Stable).unwrap();
            let Some(last) = batches.last() else { break };
            next = last.next_offset();
            for batch in &batches {
                for record in batch.inflated(&BatchLimits::default()).unwrap().records() {
                    let record = record.unwrap();
                    let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                    records.push((key, serde_json::from_slice(record.value.unwrap()).unwrap()));
                }
            }
        }
    }
    log.close().unwrap();
    records
}

#[test]
fn a_year_of_weather_arrives_once_becomes_entities_and_answers_a_live_query() {
    if crate::log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let replay = replay(&process);
    let live = Live::ask(
        &process,
        "SELECT origin, time, temp FROM STREAM(600000, TIME) WHERE origin = 'JFK' AND temp > 90 LIMIT 51",
    );
    let progress = run(&replay);
    assert_eq!((progress.accepted, progress.total), (OBSERVATIONS as u64, OBSERVATIONS as u64));
    assert_eq!(progress.failures.values().sum::<u64>(), 0, "{:?}", progress.failures);
    let (rows, end) = live.finish();
    let expected: Vec<Value> = replay
        .weather
        .above("JFK", "temp", 90.0)
        .map(|observation| {
            let sent = serde_json::to_value(observation).unwrap();
            json!({"origin": "JFK", "time": sent["time"], "temp": sent["temp"]})
        })
        .collect();
    assert_eq!(rows, expected);
    assert_eq!((end["cause"].as_str(), end["matched"].as_u64()), (Some("size"), Some(expected.len() as u64)));
    assert_entities_show_the_last_observations(&process);
    process.stop();
    let telemetry = records(dir.path(), TopicKind::Telemetry);
    assert_eq!(telemetry.len(), OBSERVATIONS);
    let changes = records(dir.path(), TopicKind::Context);
    assert_eq!(changes.len(), OBSERVATIONS, "each measurement is one change of its entity");
}

#[test]
#[ignore = "takes long"]
fn killed_in_the_middle_of_the_replay_nothing_accepted_is_missing_and_nothing_counted_twice() {
    let dir = tempfile::tempdir().unwrap();
    let addresses = own_addresses();
    let start = || Process::start_at(millstream(), dir.path(), addresses, &[]);
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let mut process = start();
    let replay = replay(&process);
    let (sender, mut watching) = watch::channel(ReplayProgress::default());
    let sending = std::thread::spawn(move || {
        runtime().block_on(async {
            replay.register().await.unwrap();
            replay.run(&sender).await.unwrap()
        })
    });
    // Evenly over the replay, each at a moment that nobody chose: as far as the replay has come when this thread looks.
    for kill in 1..=u64::from(kills) {
        let due = kill * OBSERVATIONS as u64 / (u64::from(kills) + 1);
        eventually("the replay to come this far", || watching.borrow_and_update().accepted >= due);
        process.kill();
        process = start();
    }
    let progress = sending.join().unwrap();
    assert_eq!(progress.accepted, OBSERVATIONS as u64);
    assert_entities_show_the_last_observations(&process);
    process.stop();

    let perhaps_twice: BTreeSet<(String, String)> = progress.perhaps_twice.into_iter().collect();
    let mut arrived: HashMap<(String, String), u32> = HashMap::new();
    let telemetry = records(dir.path(), TopicKind::Telemetry);
    for (station, observation) in &telemetry {
        *arrived.entry((station.clone(), observation["time"].as_str().unwrap().to_owned())).or_default() += 1;
    }
    assert_eq!(arrived.len(), OBSERVATIONS, "no accepted observation is missing");
    for (observation, times) in &arrived {
        assert!(*times == 1 || perhaps_twice.contains(observation), "{observation:?} is there {times} times");
    }
    let changes = records(dir.path(), TopicKind::Context);
    assert_eq!(changes.len(), telemetry.len(), "each record changed its entity once, over {kills} crashes");
}

#[test]
#[ignore = "takes long"]
fn a_stopped_server_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    run(&replay(&process));
    assert_entities_show_the_last_observations(&process);
    let before = process.get_json("/v2/entities");
    process.stop();
    let process = Process::start(dir.path());
    assert_eq!(process.get_json("/v2/entities"), before);
    process.stop();
    assert_eq!(records(dir.path(), TopicKind::Context).len(), OBSERVATIONS);
}
