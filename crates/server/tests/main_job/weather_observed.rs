//! The weather stations as FIWARE's WeatherObserved, by the mapping in the examples; and what the guide to mappings shows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use millstream_load::weather::Observation;
use millstream_testkit::{Process, ask, eventually};
use millstream_types::TopicKind;
use serde_json::{Value, json};

use crate::readme::{alone, paste, pasted};
use crate::replay::{OBSERVATIONS, records, replay, run};
use millstream_testkit::guide::blocks;

const JSON: (&str, &str) = ("content-type", "application/json");

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

fn example(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The attributes that an observation should give its station's entity: name, value; none where nothing was measured.
fn expected(observation: &Observation) -> Vec<(&'static str, Value)> {
    let measure = |name: &str| observation.measure(name);
    let celsius = |name: &str| measure(name).map(|fahrenheit| (fahrenheit - 32.0) / 1.8);
    let visibility = |miles: f64| match miles {
        miles if miles < 1.0 => "veryPoor",
        miles if miles < 3.0 => "poor",
        miles if miles < 6.0 => "moderate",
        _ => "good",
    };
    let numbers = [
        ("temperature", celsius("temp")),
        ("dewPoint", celsius("dewp")),
        ("relativeHumidity", measure("humid").map(|percent| percent / 100.0)),
        ("windDirection", measure("wind_dir")),
        ("windSpeed", measure("wind_speed").map(|mph| mph * 0.44704)),
        ("gustSpeed", measure("wind_gust").map(|mph| mph * 0.44704)),
        ("precipitation", measure("precip").map(|inches| inches * 25.4)),
        ("atmosphericPressure", measure("pressure")),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, json!(value?))));
    let texts = [("stationCode", observation.station.as_str()), ("refDevice", &observation.station)];
    let texts = texts.into_iter().map(|(name, text)| (name, json!(text)));
    let visibility = measure("visib").map(|miles| ("visibility", json!(visibility(miles))));
    numbers.chain(texts).chain(visibility).collect()
}

/// Equal, numbers up to the rounding of their arithmetic.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
        _ => a == b,
    }
}

#[test]
#[ignore = "takes long"]
fn a_year_of_weather_becomes_fiwares_weather_observed() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let document = example("examples/weather-observed/tenant.json");
    let applications = address(&process.applications_url());
    let put = ask(applications, "PUT", "/v1/tenants/default", &[JSON], document.as_bytes());
    assert_eq!(put.status, 204, "{}", put.text());
    let replay = replay(&process);
    assert_eq!(run(&replay).accepted, OBSERVATIONS as u64);
    eventually("every observation to be an entity's change", || {
        process.get_json("/stats")["context"]["updates_total"] == json!(OBSERVATIONS)
    });
    let stats = process.get_json("/stats");
    assert_eq!(
        (&stats["context"]["unmapped_total"], &stats["context"]["skipped_attributes_total"]),
        (&json!(0), &json!(0))
    );
    let shown = process.get_json("/v2/entities?type=WeatherObserved");
    assert_eq!(shown.as_array().unwrap().len(), 3);
    for station in replay.weather.stations() {
        let id = json!(format!("urn:ngsi-ld:WeatherObserved:NYC-{}", station.code));
        let own = shown.as_array().unwrap().iter().find(|entity| entity["id"] == id).unwrap();
        assert_eq!(own["name"]["value"], json!(station.name), "the station's own");
        assert_eq!(own["location"]["value"]["coordinates"], json!([station.longitude, station.latitude]));
        assert_eq!(own["address"]["value"]["addressCountry"], json!("US"));
        assert_eq!(own["temperature"]["metadata"]["unitCode"]["value"], json!("CEL"));
        assert_eq!((&own["temp"], &own["humid"]), (&Value::Null, &Value::Null), "the rest is dropped");
    }
    process.stop();

    let observations: HashMap<(&str, &str), &Observation> =
        replay.weather.observations().iter().map(|seen| ((&*seen.station, &*seen.time), seen)).collect();
    let changes = records(dir.path(), TopicKind::Context);
    assert_eq!(changes.len(), OBSERVATIONS, "each observation changes its entity once");
    let mut seen = 0;
    for (_, entity) in &changes {
        let date = entity["dateObserved"]["value"].as_str().unwrap();
        assert_eq!(entity["dateObserved"]["type"], json!("DateTime"));
        let station = entity["stationCode"]["value"].as_str().unwrap();
        let observation = observations[&(station, &*date.replace(".000Z", "Z"))];
        for (name, value) in expected(observation) {
            assert!(same(&entity[name]["value"], &value), "{name} at {date}: {} for {value}", entity[name]);
            seen += 1;
        }
    }
    println!("{seen} values compared");
    assert!(seen > 9 * OBSERVATIONS);
}

#[test]
fn the_commands_of_the_guide_to_mappings_run_and_print_what_it_shows() {
    alone(|process, dir| {
        let outputs = pasted("docs/context-mapping.md", process, dir);
        let shown = blocks("docs/context-mapping.md", "json");
        let [_, _, entity, refusal] = outputs.as_slice() else { panic!("{outputs:?}") };
        let [expected_entity, expected_refusal] = shown.as_slice() else { panic!("{shown:?}") };
        let parsed = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        assert_eq!(parsed(entity), parsed(expected_entity));
        let refusal = parsed(refusal);
        for (name, value) in parsed(expected_refusal).as_object().unwrap() {
            assert_eq!(refusal[name], *value, "{refusal}");
        }
    });
}

#[test]
fn the_commands_of_the_weather_example_run() {
    alone(|process, dir| {
        let document = example("examples/weather-observed/tenant.json");
        std::fs::write(dir.join("tenant.json"), &document).unwrap();
        let [block] = &blocks("examples/weather-observed/README.md", "sh")[..] else { panic!("one block") };
        // The example starts a server on the usual ports; here one runs already, on others.
        let rest = block.strip_prefix("millstream serve --data-dir data &\n").expect("it begins with the server");
        let printed = paste(rest, process, dir);
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(process.get_json("/v1/tenants/default")["ext"], document["ext"], "{printed}");
    });
}
