//! The weather stations as FIWARE's WeatherObserved, by the mapping in the examples; and what the guide to mappings shows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use millstream_load::weather::Observation;
use millstream_types::TopicKind;
use serde_json::{Value, json};

use crate::guide::blocks;
use crate::process::{Answer, Process, ask, until};
use crate::readme::{alone, paste};
use crate::replay::{OBSERVATIONS, records, replay, run};

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
    until("every observation to be an entity's change", || {
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

/// Sends what a block of the guide shows: method and path, headers, a blank line, the body.
fn send(process: &Process, block: &str) -> Answer {
    let (head, body) = block.split_once("\n\n").unwrap_or((block.trim_end(), ""));
    let mut lines = head.lines();
    let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
    let headers: Vec<_> =
        lines.filter_map(|line| line.split_once(": ")).chain((!body.is_empty()).then_some(JSON)).collect();
    let url = if path == "/telemetry" { process.devices_url() } else { process.applications_url() };
    // A device is registered by POST; the guide's reader may have done that long ago.
    if let ("PUT", Some(device)) = (method, path.strip_prefix("/v1/devices/default/")) {
        let created = ask(address(&url), "POST", path, &[JSON], b"{}");
        assert!([201, 409].contains(&created.status));
        let login = json!([{"type": "hashed-password", "auth-id": device, "secrets": [{"pwd-plain": "secret"}]}]);
        let path = format!("/v1/credentials/default/{device}");
        assert_eq!(ask(address(&url), "PUT", &path, &[JSON], login.to_string().as_bytes()).status, 204);
    }
    ask(address(&url), method, path, &headers, body.as_bytes())
}

#[test]
fn every_request_of_the_guide_to_mappings_has_the_answer_that_it_shows() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let guide = example("docs/context-mapping.md");
    let blocks = guide.split("\n```").skip(1).filter_map(|rest| rest.split_once('\n'));
    let (mut request, mut compared) = (String::new(), 0);
    for (language, block) in blocks {
        match language {
            "http" => {
                request = block.to_owned();
                if !request.starts_with("GET") && !request.contains("/t-2") {
                    let answer = send(&process, &request);
                    assert!(answer.status < 300, "{request}: {}", answer.text());
                }
            }
            "json" if request.starts_with("GET") => {
                let expected: Value = serde_json::from_str(block).unwrap();
                until("the entity to be there", || send(&process, &request).status == 200);
                assert_eq!(send(&process, &request).json(), expected);
                compared += 1;
            }
            "json" => {
                let answer = send(&process, &request);
                let expected: Value = serde_json::from_str(block).unwrap();
                let shown = answer.json();
                for (name, value) in expected.as_object().unwrap() {
                    assert_eq!(shown[name], *value, "{}", answer.text());
                }
                compared += 1;
            }
            _ => {}
        }
    }
    assert_eq!(compared, 2);
    process.stop();
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
