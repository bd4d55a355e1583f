//! Time series of entities as FIWARE's users ask QuantumLeap and STH-Comet for them: the calls of its two tutorials, and filip.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use millstream_testkit::{Answer, Process, ask, installed};
use serde_json::{Value, json};

const OPENIOT: [(&str, &str); 2] = [("Fiware-Service", "openiot"), ("Fiware-ServicePath", "/")];
const JSON: (&str, &str) = ("Content-Type", "application/json");

fn get(to: SocketAddr, path: &str) -> Value {
    let answer = ask(to, "GET", path, &OPENIOT, b"");
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Updates entities at once, as an IoT agent does.
fn update(to: SocketAddr, entities: &[Value]) {
    let body = json!({"actionType": "append", "entities": entities}).to_string();
    let answer = ask(to, "POST", "/v2/op/update", &[OPENIOT[0], OPENIOT[1], JSON], body.as_bytes());
    assert_eq!(answer.status, 204, "{}", answer.text());
}

/// Two lamps and a motion sensor, five values each, one a minute.
fn measure(to: SocketAddr) {
    for minute in 0..5 {
        let instant = json!({"TimeInstant": {"type": "DateTime", "value": format!("2018-06-27T10:0{minute}:00Z")}});
        let number = |value: i64| json!({"type": "Integer", "value": value, "metadata": instant});
        let mut lamps = vec![
            json!({"id": "Lamp:001", "type": "Lamp", "luminosity": number(minute)}),
            json!({"id": "Lamp:002", "type": "Lamp", "luminosity": number(minute + 100)}),
        ];
        if minute % 2 == 0 {
            let state = if minute == 2 { "off" } else { "on" };
            lamps[0]["state"] = json!({"type": "Text", "value": state, "metadata": instant});
        }
        update(to, &lamps);
    }
}

fn values(series: &Value) -> Value {
    series["values"].clone()
}

#[test]
fn the_calls_of_fiwares_tutorials_on_time_series_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    let to = server.applications;
    measure(to);
    for minute in 0..6 {
        let instant = json!({"TimeInstant": {"type": "DateTime", "value": format!("2018-06-27T10:0{minute}:30Z")}});
        let count = json!({"type": "Integer", "value": minute % 2, "metadata": instant});
        update(to, &[json!({"id": "Motion:001", "type": "Motion", "count": count})]);
    }
    let lamp = "/quantumleap/v2/entities/Lamp:001/attrs/luminosity";
    let motion = "/quantumleap/v2/entities/Motion:001/attrs/count";
    assert!(get(to, "/quantumleap/v2/version")["version"].is_string());
    assert_eq!(values(&get(to, &format!("{lamp}?=3&limit=3"))), json!([0, 1, 2]));
    assert_eq!(values(&get(to, &format!("{motion}?offset=3&limit=3"))), json!([1, 0, 1]));
    assert_eq!(values(&get(to, &format!("{motion}?lastN=3"))), json!([1, 0, 1]));
    let counted = get(to, &format!("{motion}?aggrMethod=count&aggrPeriod=minute&lastN=3"));
    assert_eq!((values(&counted), &counted["index"][0]), (json!([1, 1, 1]), &json!("2018-06-27T10:03:00.000+00:00")));
    assert_eq!(values(&get(to, &format!("{lamp}?aggrMethod=min&aggrPeriod=minute&lastN=3"))), json!([2, 3, 4]));
    let in_june = "fromDate=2018-06-27T09:00:00&toDate=2018-06-30T23:59:59";
    assert_eq!(values(&get(to, &format!("{lamp}?aggrMethod=max&{in_june}"))), json!([4]));

    let motion = "/STH/v1/contextEntities/type/Motion/id/Motion:001/attributes/count";
    let lamp = "/STH/v1/contextEntities/type/Lamp/id/Lamp:001/attributes/luminosity";
    let read = |path: &str| get(to, path)["contextResponses"][0]["contextElement"]["attributes"][0]["values"].clone();
    let told = |path: &str| -> Vec<Value> {
        read(path).as_array().unwrap().iter().map(|one| one["attrValue"].clone()).collect()
    };
    assert_eq!(told(&format!("{lamp}?hLimit=3&hOffset=0")), [0, 1, 2]);
    assert_eq!(told(&format!("{motion}?hLimit=3&hOffset=3")), [1, 0, 1]);
    assert_eq!(told(&format!("{motion}?lastN=3")), [1, 0, 1]);
    let of_minutes = |path: &str, attribute: &str, member: &str, values: &[i64]| {
        let id = json!({"attrName": attribute, "origin": "2018-06-27T10:00:00.000Z", "resolution": "minute"});
        let point = |(offset, value): (usize, &i64)| json!({"offset": offset, "samples": 1, member: value});
        let points: Vec<Value> = values.iter().enumerate().map(point).collect();
        assert_eq!(read(path), json!([{"_id": id, "points": points}]), "{path}");
    };
    of_minutes(&format!("{motion}?aggrMethod=sum&aggrPeriod=minute"), "count", "sum", &[0, 1, 0, 1, 0, 1]);
    for method in ["min", "max", "sum"] {
        let path = format!("{lamp}?aggrMethod={method}&aggrPeriod=minute");
        of_minutes(&path, "luminosity", method, &[0, 1, 2, 3, 4]);
    }
    server.stop();
}

/// `scripts/setup-clients` installs the library.
#[test]
fn filip_reads_and_deletes_time_series() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path());
    measure(server.applications);
    let python = installed("context/venv/bin/python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/main_job/filip_series.py");
    let output = Command::new(python).arg(script).arg(server.applications_url()).output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{wrong}");
    assert!(said.contains("answers as expected"), "{said}");
    server.stop();
}

/// Each role may do here what it may do on the temporal routes; another tenant's history is neither read nor deleted.
#[test]
fn reading_and_deleting_time_series_takes_a_role_in_the_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("settings.toml");
    let token = |name: &str, tenant: &str, roles: &str| {
        let secret = format!("{name}-0123456789abcdef");
        format!(
            "[[applications.tokens]]\nname = \"{name}\"\ntoken = \"{secret}\"\ntenant = \"{tenant}\"\nroles = [{roles}]\n"
        )
    };
    let tokens = [
        token("reader", "openiot", "\"reader\""),
        token("writer", "openiot", "\"reader\", \"writer\""),
        token("admin", "openiot", "\"reader\", \"writer\", \"admin\""),
        token("stranger", "other", "\"reader\", \"writer\", \"admin\""),
    ];
    std::fs::write(&file, tokens.concat()).unwrap();
    let server = Process::start_on(dir.path(), &["--config", file.to_str().unwrap()]);
    let call = |name: &str, method: &str, path: &str| -> Answer {
        let bearer = format!("Bearer {name}-0123456789abcdef");
        ask(server.applications, method, path, &[("Authorization", &*bearer), OPENIOT[0]], b"")
    };
    let bearer = "Bearer writer-0123456789abcdef";
    let lamp = br#"{"id": "Lamp:001", "type": "Lamp", "luminosity": {"value": 1}}"#;
    let made = ask(server.applications, "POST", "/v2/entities", &[("Authorization", bearer), OPENIOT[0], JSON], lamp);
    assert_eq!(made.status, 201, "{}", made.text());
    let (ql, sth) = ("/quantumleap/v2/entities/Lamp:001", "/STH/v2/entities/Lamp:001/attrs/luminosity");
    for (name, method, path, status) in [
        ("nobody", "GET", ql, 401),
        ("nobody", "GET", &*format!("{sth}?lastN=1"), 401),
        ("stranger", "GET", ql, 403),
        ("stranger", "DELETE", ql, 403),
        ("stranger", "DELETE", sth, 403),
        ("reader", "DELETE", ql, 403),
        ("reader", "DELETE", sth, 403),
        ("writer", "DELETE", "/quantumleap/v2/types/Lamp", 403),
        ("writer", "DELETE", "/STH/v1/contextEntities", 403),
        ("reader", "GET", ql, 200),
        ("reader", "GET", &*format!("{sth}?lastN=1"), 200),
        ("writer", "DELETE", sth, 204),
        ("reader", "GET", ql, 404),
        ("admin", "DELETE", "/quantumleap/v2/types/Lamp", 204),
        ("admin", "DELETE", "/STH/v1/contextEntities", 204),
    ] {
        let answer = call(name, method, path);
        assert_eq!(answer.status, status, "{name} {method} {path}: {}", answer.text());
    }
    server.stop();
}
