//! Tests of the answers about a stream's fields.

use std::time::Duration;

use millstream_log::{AckLevel, TopicConfig};
use millstream_query::{Config, Error, Schema, SchemaConfig};
use millstream_types::{Header, Record, TenantId, TopicPartition};
use serde_json::{Value, json};

use crate::common::fixture::{Fixture, append, disk, fixture, memory, two_threads};

fn look(fixture: &Fixture) -> Schema {
    // What was seen is told again for a second.
    fixture.clock.advance(Duration::from_secs(2));
    fixture.stored();
    (*fixture.engine.schema(&fixture.tenant, None).unwrap()).clone()
}

fn send(fixture: &Fixture, payloads: &[&str]) {
    fixture.send("k", &payloads.iter().map(ToString::to_string).collect::<Vec<_>>());
    fixture.stored();
}

/// The schema's fields as JSON, by path.
fn fields(schema: &Schema) -> Value {
    schema.fields.iter().map(|field| (field.path.clone(), serde_json::to_value(field).unwrap())).collect()
}

fn with(limits: SchemaConfig) -> Config {
    Config { schema: limits, ..two_threads() }
}

#[test]
fn fields_have_a_path_types_a_share_and_examples() {
    let fixture = fixture(&memory(), two_threads());
    send(
        &fixture,
        &[
            r#"{"id": "a", "temp": 21, "at": {"lat": 1.5, "odd name": [{"x": true}, {"y": 1}]}}"#,
            r#"{"id": "b", "temp": 21.5, "temp": "second of its name", "at": null}"#,
            r#"{"id": "a", "temp": 21, "big": 18446744073709551615}"#,
            "no JSON",
            "[1]",
        ],
    );
    let schema = look(&fixture);
    assert_eq!((&*schema.stream, schema.records, schema.objects, schema.cut), ("telemetry.acme", 5, 3, false));
    let paths: Vec<&str> = schema.fields.iter().map(|field| &*field.path).collect();
    let expected =
        ["$key", "id", "temp", "at", "at.lat", "at['odd name']", "at['odd name'][0]", "at['odd name'][0].x", "big"];
    assert_eq!(paths, expected);
    let fields = fields(&schema);
    assert_eq!(fields["id"], json!({"path": "id", "types": {"STRING": 3}, "present": 0.6, "examples": ["a", "b"]}));
    assert_eq!(fields["temp"]["types"], json!({"LONG": 2, "DOUBLE": 1}));
    assert_eq!(fields["temp"]["examples"], json!([21, 21.5]));
    assert_eq!((&fields["at"]["types"], &fields["at"]["present"]), (&json!({"MAP": 1, "NULL": 1}), &json!(0.2)));
    assert_eq!(fields["at"]["examples"], json!([]));
    assert_eq!(fields["at['odd name']"]["types"], json!({"LIST": 1}));
    assert_eq!(fields["big"]["types"], json!({"DOUBLE": 1}));
    assert_eq!((&fields["$key"]["present"], &fields["$key"]["examples"]), (&json!(1.0), &json!(["k"])));
}

#[test]
fn a_query_can_select_each_path_of_the_schema() {
    let fixture = fixture(&memory(), two_threads());
    send(&fixture, &[r#"{"a": {"b c": {"select": [1]}, "it's": 1}, "order": 2, "x\"y": 3, "$key": 4, "ä": [[5]]}"#]);
    for field in &look(&fixture).fields {
        fixture.engine.validate(&format!("SELECT {} AS x FROM STREAM()", field.path)).unwrap();
    }
}

#[test]
fn headers_are_fields_too() {
    let fixture = fixture(&memory(), two_threads());
    let partition = fixture.log.partition(&TopicPartition::new(fixture.topic.clone(), 0)).unwrap();
    let headers = [Header { key: "device_id", value: Some(b"d1") }, Header { key: "none", value: None }];
    let records = [Record { headers: &headers, ..Record::default() }, Record::default()];
    append(&*partition, &records, AckLevel::Memory);
    let schema = look(&fixture);
    let fields = fields(&schema);
    assert_eq!(schema.fields.len(), 1, "{schema:?}");
    assert_eq!((&fields["$header['device_id']"]["present"], schema.objects), (&json!(0.5), 0));
}

#[test]
fn limits_of_the_schema_hold_and_are_reported() {
    let limits =
        SchemaConfig { records_max: 10, fields_max: 4, depth_max: 2, example_max_bytes: 5, ..SchemaConfig::default() };
    let fixture = fixture(&TopicConfig { partitions: 1, ..memory() }, with(limits));
    let payloads: Vec<String> =
        (0..100).map(|n| format!(r#"{{"text": "grüße", "a": {{"b": {{"c": 1}}}}, "n{n}": 0}}"#)).collect();
    let partition = fixture.log.partition(&TopicPartition::new(fixture.topic.clone(), 0)).unwrap();
    for payload in &payloads {
        let record = Record { value: Some(payload.as_bytes()), ..Record::default() };
        append(&*partition, &[record], AckLevel::Memory);
    }
    let schema = look(&fixture);
    assert_eq!((schema.records, schema.cut), (10, true));
    let paths: Vec<&str> = schema.fields.iter().map(|field| &*field.path).collect();
    assert_eq!(paths.len(), 4);
    assert!(paths[..3] == ["text", "a", "a.b"] && paths[3].starts_with('n'), "{paths:?}");
    assert_eq!(schema.fields[0].examples, [json!("grü…")], "cut between characters");
}

#[test]
fn half_of_the_records_are_the_latest_and_older_ones_are_seen_too() {
    let fixture = fixture(&TopicConfig { partitions: 1, ..disk() }, two_threads());
    let partition = fixture.log.partition(&TopicPartition::new(fixture.topic.clone(), 0)).unwrap();
    for n in 0..20_000 {
        let payload = format!(r#"{{"era{}": 1}}"#, n / 4000);
        let record = Record { value: Some(payload.as_bytes()), ..Record::default() };
        append(&*partition, &[record], AckLevel::Memory);
    }
    let schema = look(&fixture);
    assert_eq!((schema.records, schema.fields.len()), (1000, 5), "{:?}", schema.fields);
    let latest = schema.fields.iter().find(|field| field.path == "era4").unwrap();
    assert!(latest.present >= 0.5, "{}", latest.present);
}

#[test]
fn a_schema_holds_for_a_second_and_foreign_streams_are_refused() {
    let fixture = fixture(&memory(), two_threads());
    let records = || {
        fixture.stored();
        fixture.engine.schema(&fixture.tenant, Some("telemetry.acme")).unwrap().records
    };
    assert_eq!(records(), 0);
    send(&fixture, &["{}"]);
    assert_eq!(records(), 1, "that there was nothing is not told again");
    send(&fixture, &["{}"]);
    assert_eq!(records(), 1, "not looked at again within a second");
    assert_eq!(look(&fixture).records, 2);
    let other = TenantId::new("other").unwrap();
    let refused = |tenant, stream| fixture.engine.schema(tenant, Some(stream)).unwrap_err();
    assert!(matches!(refused(&other, "telemetry.acme"), Error::ForeignStream { .. }));
    assert!(matches!(refused(&other, "telemetry.other"), Error::UnknownStream { .. }));
    assert!(matches!(refused(&fixture.tenant, "_context"), Error::ForeignStream { .. }));
    assert!(matches!(refused(&fixture.tenant, "a b"), Error::Name(_)));
}

#[test]
fn a_field_that_no_record_has_gets_a_hint_if_another_has_nearly_its_name() {
    let fixture = fixture(&memory(), two_threads());
    let hints = |text: &str| fixture.engine.hints(&fixture.tenant, text).unwrap();
    assert_eq!(hints("SELECT tmep FROM STREAM()"), [], "nothing is known of a stream without records");
    let place = r#"{"temp": 1, "place": {"city": "x", "zip code": 5}, "list": [{"value": 1}], "odd name": 1}"#;
    // What was seen holds for a second, but not that there was nothing.
    send(&fixture, &[place, r#"{"id": 7}"#]);
    for (text, found) in [
        ("SELECT temp, place.city, list[3].value, \"odd name\" FROM STREAM() WHERE id = 7", &[][..]),
        // What is far from every known name may come yet.
        ("SELECT humidity, place.street FROM STREAM() WHERE place.city.part = 1", &[]),
        ("SELECT tmep FROM STREAM()", &[(1, 8, "tmep", "temp")]),
        ("SELECT temp FROM STREAM()\n  WHERE tempp > 5 AND tempp < 7", &[(2, 9, "tempp", "temp")]),
        ("SELECT place.ctiy FROM STREAM()", &[(1, 14, "place.ctiy", "city")]),
        ("SELECT plaec.city FROM STREAM()", &[(1, 8, "plaec", "place")]),
        ("SELECT list[5].vlaue FROM STREAM()", &[(1, 16, "list[5].vlaue", "value")]),
        ("SELECT \"odd nmae\" FROM STREAM()", &[(1, 8, "\"odd nmae\"", "\"odd name\"")]),
        (
            "SELECT ABS(tmp) + 1 AS t FROM STREAM() WHERE LOWER(place.ctiy) = 'x'",
            &[(1, 12, "tmp", "temp"), (1, 58, "place.ctiy", "city")],
        ),
        ("SELECT idd, SUM(tepm) FROM STREAM() GROUP BY idd", &[(1, 8, "idd", "id"), (1, 17, "tepm", "temp")]),
        ("SELECT COUNT(*) FROM STREAM() GROUP BY idd", &[(1, 40, "idd", "id")]),
        (
            "SELECT list[1].vlaue FROM STREAM() GROUP BY list[1].vlaue, list[2].vlaue",
            &[(1, 16, "list[1].vlaue", "value")],
        ),
        ("SELECT TOP(3, tepm) FROM STREAM()", &[(1, 15, "tepm", "temp")]),
        (r#"{"filters": [{"field": "tmep", "operation": "==", "values": ["1"]}]}"#, &[]),
    ] {
        let mut told: Vec<_> = hints(text)
            .into_iter()
            .map(|hint| (hint.place.line, hint.place.column, hint.message, hint.suggestion.unwrap()))
            .collect();
        told.sort();
        let message = |path: &str| format!("no record of 'telemetry.acme' that was looked at has {path}");
        let expected: Vec<_> = found
            .iter()
            .map(|(line, column, path, meant)| (*line, *column, message(path), (*meant).to_owned()))
            .collect();
        assert_eq!(told, expected, "{text}");
    }
    let quoted = hints("SELECT temp FROM STREAM() WHERE id = \"it's bolt\" AND nowhere = 1");
    assert_eq!((quoted.len(), quoted[0].place.column, quoted[0].found.as_str()), (1, 38, "\"it's bolt\""));
    assert!(quoted[0].message.contains("single ones around texts"), "{quoted:?}");
    assert_eq!(quoted[0].suggestion.as_deref(), Some("'it''s bolt'"));
    assert!(matches!(fixture.engine.hints(&fixture.tenant, "SELECT"), Err(Error::Refused { .. })));
    let unknown = fixture.engine.hints(&fixture.tenant, "SELECT a FROM \"none\"");
    assert!(matches!(unknown, Err(Error::UnknownStream { .. })));
}

#[test]
fn bullet_gets_fields_with_types_as_it_knows_them() {
    let fixture = fixture(&memory(), two_threads());
    send(
        &fixture,
        &[
            r#"{"s": "x", "n": 1, "d": 1, "b": true, "u": null, "mixed": {"a": 1, "b": "x"}, "tags": ["x"], "none": []}"#,
            r#"{"d": 1.5, "of": {"k": 1}, "maps": {"A": {"a": 1.5}, "B": {"b": 2}}, "list": [{"x": "y"}], "deep": [[1]]}"#,
        ],
    );
    let columns = look(&fixture).bullet_columns();
    let field = |name: &str, rest: Value| {
        let mut attributes = json!({"name": name});
        attributes.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json!({"id": name, "type": "field", "attributes": attributes})
    };
    let plain = |name, kind| field(name, json!({"type": kind}));
    let names = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Value>();
    let expected = json!({
        "data": [
            plain("s", "STRING"),
            plain("n", "LONG"),
            plain("d", "DOUBLE"),
            plain("b", "BOOLEAN"),
            plain("u", "UNKNOWN"),
            field("mixed", json!({"type": "UNKNOWN_MAP", "subFields": names(&["a", "b"])})),
            plain("tags", "STRING_LIST"),
            plain("none", "UNKNOWN_LIST"),
            field("of", json!({"type": "LONG_MAP", "subFields": names(&["k"])})),
            field("maps", json!({"type": "DOUBLE_MAP_MAP", "subFields": names(&["A", "B"]), "subSubFields": names(&["a", "b"])})),
            field("list", json!({"type": "STRING_MAP_LIST", "subListFields": names(&["x"])})),
            plain("deep", "UNKNOWN_LIST"),
        ],
        "meta": {"version": "1.2"},
    });
    assert_eq!(columns, expected);
}
