//! The job of `millstream demo`: after a year of weather its topic and entities have the hot hours, and no others.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use millstream_load::weather::{Observation, Weather};
use millstream_testkit::{ask, eventually, millstream, terminate};
use serde_json::{Value, json};

/// `millstream demo` that has sent everything and goes on to serve; killed when dropped.
struct Demo {
    child: Child,
    applications: SocketAddr,
}

impl Demo {
    fn run(data_dir: &std::path::Path) -> Self {
        let mut child = millstream()
            .args(["demo", "--speed", "0", "--data-dir"])
            .arg(data_dir)
            .args(["--listen-applications", "127.0.0.1:0", "--listen-devices-http", "127.0.0.1:0"])
            .args(["--listen-kafka", "127.0.0.1:0", "--listen-devices-mqtt", "127.0.0.1:0"])
            .args(["--listen-redis", "127.0.0.1:0"])
            .args(["--set", "connect.http.send_timeout_ms=60000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut before = |part: &str| lines.find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part}"));
        let applications = before("  console  http://");
        let applications = applications.rsplit("//").next().unwrap().trim_end_matches('/').parse().unwrap();
        before("millstream job list --server http://");
        before("All 26,115 observations were accepted.");
        // Nothing is printed after this line, so nothing is missed when the pipe is closed.
        before("The server goes on");
        Self { child, applications }
    }

    fn get(&self, path: &str) -> Value {
        let answer = ask(self.applications, "GET", path, &[], b"");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// All records of a topic.
    fn records(&self, topic: &str) -> Vec<Value> {
        let (mut found, mut from) = (Vec::new(), "earliest".to_owned());
        loop {
            let mut page = self.get(&format!("/api/streams/{topic}?from={from}&limit=1000"));
            let Value::Array(records) = page["records"].take() else { panic!("{page}") };
            if records.is_empty() {
                return found;
            }
            found.extend(records);
            page["next"].as_str().unwrap().clone_into(&mut from);
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The temperature of an hour in degrees Celsius, if the job takes the hour for a hot one.
fn hot_celsius(observation: &Observation) -> Option<f64> {
    let is_valid = observation.measure("wind_speed").is_none_or(|mph| mph < 250.0);
    let celsius = (((observation.measure("temp")? - 32.0) / 1.8) * 10.0).round() / 10.0;
    (is_valid && celsius >= 25.0).then_some(celsius)
}

#[test]
#[ignore = "takes long"]
fn the_job_of_the_demo_finds_the_hot_hours_of_the_year() {
    let dir = tempfile::tempdir().unwrap();
    let demo = Demo::run(&dir.path().join("data"));
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/nyc-2013");
    let weather = Weather::read(&folder).unwrap();
    let hot = weather.observations().iter().filter_map(|observation| {
        Some(((observation.station.clone(), observation.time.clone()), hot_celsius(observation)?))
    });
    let hot: BTreeMap<(String, String), f64> = hot.collect();
    assert!(hot.len() > 3_000);

    let job = || demo.get("/api/jobs/demo-hot-hours");
    eventually("the job has read the year and written the hot hours", || {
        let (job, hot) = (job(), hot.len() as u64);
        job["records_in"].as_u64() >= Some(26_115) && job["records_out"].as_u64() >= Some(2 * hot)
    });
    assert_eq!((&job()["state"], &job()["name"]), (&json!("running"), &json!("hot-hours")));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    eventually("the topic has every hot hour", || demo.records("hot-hours").len() >= hot.len());
    let written = demo.records("hot-hours").into_iter().map(|record| {
        let value = &record["value"];
        assert_eq!(record["key"], value["station"], "{record}");
        ((text(&value["station"]), text(&value["time"])), value["celsius"].as_f64().unwrap())
    });
    assert_eq!(written.collect::<BTreeMap<_, _>>(), hot);
    assert!(demo.records("hot-hours-errors").is_empty());

    for station in weather.stations() {
        let of_station = hot.iter().filter(|((code, _), _)| *code == station.code);
        let ((_, time), celsius) = of_station.max_by_key(|((_, time), _)| time).unwrap();
        let path = format!("/v2/entities?type=HotHour&id=urn:ngsi-ld:HotHour:{}&options=keyValues", station.code);
        eventually("the entity has its last hot hour", || demo.get(&path)[0]["time"] == **time);
        assert_eq!(demo.get(&path)[0]["celsius"].as_f64(), Some(*celsius));
    }
    let mut demo = demo;
    terminate(&mut demo.child);
}
