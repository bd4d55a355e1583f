use millstream_types::{BatchBuilder, Compression, Epoch, Offset, Record};
use serde_json::{Map, Value, json};

use super::*;

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else { panic!("{value}") };
    members
}

fn tenant(context: Value) -> Result<TenantMappings, String> {
    let ext = object(json!({"context": context}));
    TenantMappings::of_ext(&ext, &ParserLimits::default()).map_err(|error| error.to_string())
}

fn device(tenant: &TenantMappings, context: Value) -> Result<Arc<Mapping>, String> {
    let ext = object(json!({"context": context}));
    tenant.of_device(&ext, &ParserLimits::default()).map_err(|error| error.to_string())
}

/// A mapping of the device itself.
fn own(context: Value) -> Arc<Mapping> {
    device(&TenantMappings::default(), context).unwrap()
}

/// Maps a payload of the device `d`, measured at 7 ms.
fn mapped(mapping: &Mapping, payload: &Value) -> Result<Mapped, String> {
    let text = payload.to_string();
    let mut builder = BatchBuilder::default();
    builder.push(&Record { timestamp_ms: 7, key: Some(b"d"), value: Some(text.as_bytes()), headers: &[] });
    let batch = builder.seal(Offset(0), Epoch(0), Compression::None);
    let record = batch.records().next().unwrap().unwrap();
    let members = object(payload.clone());
    mapping.apply(MappingInput { device: "d", record: &record, members, now_ms: 9, metadata: Default::default() })
}

fn shown(mapped: &Mapped) -> Vec<(&str, &str, &str)> {
    mapped.attributes.iter().map(|a| (&*a.name, &*a.kind, &*a.value)).collect()
}

#[test]
fn a_device_without_a_mapping_becomes_an_entity_of_its_payload_members() {
    let mapped = mapped(&TenantMappings::default().default_mapping(), &json!({"t": 20.0, "x": null})).unwrap();
    assert_eq!((&*mapped.id, &*mapped.kind), ("urn:ngsi-ld:Device:d", "Device"));
    assert_eq!(shown(&mapped), [("t", "Number", "20"), ("x", "None", "null")]);
}

#[test]
fn attributes_are_computed_renamed_fixed_placed_kept_and_dropped() {
    let mapping = json!({
        "id": "station:${origin}-${floor + 1}", "type": "${kind}Observed",
        "static": {"owner": "city"},
        "attributes": {
            "temperature": {"value": "(temp - 32) / 1.8", "metadata": {"unitCode": {"value": "CEL"}}},
            "windDirection": "\"wind-dir\"",
            "when": {"value": "$timestamp", "type": "DateTime"},
            "level": {"value": "IF(temp > 60, 'high', 'low')", "type": "Level"},
            "location": {"point": ["pos.lon", "pos.lat"]},
            "missing": "nothing",
        },
        "skip": ["noise"],
    });
    let payload = json!({
        "origin": "JFK", "floor": 1, "kind": "Weather", "temp": 50, "wind-dir": 270, "pos": {"lon": -73.5, "lat": 40}, "noise": 1,
        "more": [1],
    });
    let kept = mapped(&own(mapping.clone()), &payload).unwrap();
    assert_eq!((&*kept.id, &*kept.kind), ("station:JFK-2", "WeatherObserved"));
    let computed = [
        ("owner", "Text", "\"city\""),
        ("temperature", "Number", "10"),
        ("windDirection", "Number", "270"),
        ("when", "DateTime", "\"1970-01-01T00:00:00.007Z\""),
        ("level", "Level", "\"low\""),
        ("location", "geo:json", r#"{"type":"Point","coordinates":[-73.5,40]}"#),
    ];
    assert_eq!(shown(&kept), [&computed[..], &[("more", "StructuredValue", "[1]")]].concat());
    assert_eq!(
        (&*kept.attributes[1].metadata[0].name, &*kept.attributes[1].metadata[0].value),
        ("unitCode", "\"CEL\"")
    );
    let mut dropping = mapping;
    dropping["rest"] = json!("drop");
    assert_eq!(shown(&mapped(&own(dropping), &payload).unwrap()), computed);
}

#[test]
fn a_device_adds_to_the_mapping_of_its_type_and_overrides_it() {
    let tenant = tenant(json!({
        "default": {"type": "Thing", "static": {"owner": "city"}},
        "deviceTypes": {"lamp": {"type": "Lamp", "attributes": {"on": "state = 1", "power": "p"}, "rest": "drop"}},
    }))
    .unwrap();
    let payload = json!({"state": 1, "p": 5, "q": 7});
    let of = |context: Value| mapped(&device(&tenant, context).unwrap(), &payload).unwrap();
    let lamp = of(json!({"deviceType": "lamp"}));
    assert_eq!((&*lamp.kind, shown(&lamp)), ("Lamp", vec![("on", "Boolean", "true"), ("power", "Number", "5")]));
    let own =
        of(json!({"deviceType": "lamp", "id": "lamp7", "static": {"street": "A"}, "attributes": {"power": "p * 2"}}));
    let expected = vec![("street", "Text", "\"A\""), ("on", "Boolean", "true"), ("power", "Number", "10")];
    assert_eq!((&*own.id, shown(&own)), ("lamp7", expected));
    assert_eq!(&*of(json!({})).kind, "Thing");
    assert_eq!(of(json!({"static": {"street": "B"}})).attributes.len(), 5, "owner, street, state, p and q");
    let unknown = device(&tenant, json!({"deviceType": "lmp"})).unwrap_err();
    assert!(unknown.contains("'lmp'") && unknown.contains("lamp"), "{unknown}");
}

#[test]
fn an_invalid_mapping_is_refused_with_the_place() {
    for (mapping, named) in [
        (json!(7), "7 must be an object"),
        (json!({"idd": "x"}), "idd"),
        (json!({"id": "a b"}), "a b"),
        (json!({"id": ""}), "id ''"),
        (json!({"type": ""}), "type ''"),
        (json!({"id": "urn:${origin"}), "id: an expression begins by ${ and is not closed"),
        (json!({"id": "urn:${origin +}"}), "id: line 1, column 15: expected"),
        (json!({"id": "urn:${'}' + 1}"}), "id: line 1, column 7"),
        (json!({"static": {"id": 1}}), "static.id: 'id'"),
        (json!({"static": {"n": "a(b)"}}), "a(b)"),
        (json!({"static": {"t": {"value": "x", "type": "DateTime"}}}), "DateTime"),
        (json!({"attributes": {"b c": "a"}}), "b c"),
        (json!({"attributes": {"b": 7}}), "attributes.b is 7"),
        (json!({"attributes": {"b": {"type": "x"}}}), "attributes.b needs one of value"),
        (json!({"attributes": {"b": {"value": "a", "point": ["x", "y"]}}}), "attributes.b needs one of value"),
        (json!({"attributes": {"b": {"value": "a", "unit": "x"}}}), "unit"),
        (json!({"attributes": {"b": {"point": ["x"]}}}), "attributes.b.point"),
        (json!({"attributes": {"b": {"point": ["x", "y +"]}}}), "attributes.b.point[1]: line 1, column 4"),
        (json!({"attributes": {"b": "(temp - 32) / "}}), "attributes.b: line 1, column 15: expected"),
        (json!({"attributes": {"b": "AVG(temp)"}}), "one record"),
        (json!({"attributes": {"b": "SUBSTRNG(a, 1)"}}), "did you mean SUBSTRING?"),
        (json!({"attributes": {"b": "$partition"}}), "$partition"),
        (json!({"rest": "forget"}), "forget"),
        (json!({"rename": {"a": "b"}}), "rename"),
    ] {
        let error = device(&TenantMappings::default(), mapping.clone()).unwrap_err();
        assert!(error.contains(named), "{mapping}: {error}");
        if mapping.is_object() {
            let error = tenant(json!({"deviceTypes": {"lamp": mapping}})).unwrap_err();
            assert!(error.contains("deviceTypes.lamp"), "{error}");
        }
    }
    for (context, named) in [
        (json!([]), "[] must be an object"),
        (json!({"defaults": {}}), "default and deviceTypes"),
        (json!({"deviceTypes": []}), "deviceTypes is []"),
        (json!({"default": {"id": "${"}}), "default.id"),
    ] {
        let error = tenant(context).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
    let error = device(&TenantMappings::default(), json!({"deviceType": 7})).unwrap_err();
    assert!(error.contains("deviceType is 7"), "{error}");
}

#[test]
fn numbers_in_ids_are_written_as_those_of_attributes() {
    let mapping = own(json!({"id": "f${n}", "type": "T${n}"}));
    for (n, expected) in [
        ("5.0", "5"),
        ("5", "5"),
        ("-0.0", "0"),
        ("5.25", "5.25"),
        ("1e3", "1000"),
        ("9007199254740993", "9007199254740993"),
        ("true", "true"),
    ] {
        let mapped = mapped(&mapping, &serde_json::from_str(&format!("{{\"n\":{n}}}")).unwrap()).unwrap();
        assert_eq!((&*mapped.id, &*mapped.kind), (&*format!("f{expected}"), &*format!("T{expected}")), "{n}");
    }
}

#[test]
fn members_that_can_be_no_attributes_of_their_names_are_left_out_and_told() {
    let of = |payload: Value| mapped(&own(json!({"attributes": {"a": "b"}})), &payload).unwrap();
    for (name, value) in [
        ("id", json!("x")),
        ("type", json!("x")),
        ("dateExpires", json!("2040-01-01")),
        ("dateExpires", json!("soon")),
        ("dateExpires", json!(4_070_908_800_000_i64)),
        ("dateExpires", json!(null)),
        ("dateExpires", json!({"value": "2040-01-01"})),
    ] {
        let left = of(json!({name: value, "b": 1}));
        assert_eq!(shown(&left), [("a", "Number", "1")], "{name} {value}");
        let [why] = &left.left_out[..] else { panic!("{name} {value}: {left:?}") };
        assert!(why.contains(name), "{why}");
    }
}

#[test]
fn a_payload_ends_its_entity_only_where_the_mapping_says_so() {
    let says_so = own(json!({"attributes": {"dateExpires": "until"}}));
    let ends = mapped(&says_so, &json!({"until": "2040-01-01"})).unwrap();
    assert!(shown(&ends).contains(&("dateExpires", "DateTime", "\"2040-01-01T00:00:00.000Z\"")), "{ends:?}");
    let silent = mapped(&own(json!({})), &json!({"dateExpires": "2001-01-01", "b": 1})).unwrap();
    assert_eq!(shown(&silent), [("b", "Number", "1")]);
    assert!(silent.left_out[0].contains("only a mapping"), "{silent:?}");
}

#[test]
fn a_mapping_that_can_never_work_is_not_taken_anew_and_read_where_it_is() {
    let limits = ParserLimits::default();
    let check = |mapping: &Value| {
        let device = |of: &TenantMappings, own: &Value| {
            of.check_device(&object(json!({"context": own})), &limits).map_err(|error| error.to_string())
        };
        device(&TenantMappings::default(), &json!({})).unwrap();
        let own = device(&TenantMappings::default(), mapping);
        let of_tenant = tenant(json!({"deviceTypes": {"lamp": mapping}})).unwrap();
        let told = of_tenant.check().map_err(|error| error.to_string());
        match (&own, &told) {
            (Ok(()), Ok(())) => {}
            (Err(own), Err(told)) => {
                assert!(told.contains("deviceTypes.lamp"), "{told}");
                assert_eq!(own.split(": ").last(), told.split(": ").last());
            }
            other => panic!("{mapping}: {other:?}"),
        }
        device(&of_tenant, &json!({"deviceType": "lamp"})).unwrap();
        own
    };
    let point = json!({"point": ["x", "y"]});
    let plain = json!({"point": ["x", "y"], "metadata": {"ignoreType": {"value": true}}});
    let fixed = json!({"type": "geo:json", "value": {"type": "Point", "coordinates": [1, 2]}});
    let geo = json!({"value": "x", "type": "geo:json"});
    for (mapping, named) in [
        (json!({"attributes": {"b": point, "a": point}}), "locations a, b"),
        (json!({"attributes": {"a": point, "b": geo}}), "locations a, b"),
        (json!({"static": {"here": fixed}, "attributes": {"a": point}}), "locations a, here"),
        (json!({"static": {"here": fixed, "there": fixed}}), "locations here, there"),
        (json!({"attributes": {"a": {"point": ["x", "y"], "type": "geo:point"}}}), "attributes.a"),
        (json!({"attributes": {"a": {"point": ["x", "y"], "type": "DateTime"}}}), "attributes.a"),
        (json!({"attributes": {"dateExpires": {"point": ["x", "y"]}}}), "attributes.dateExpires"),
        (json!({"static": {"a": {"value": {"$inc": 1}}}}), "static.a"),
        (json!({"static": {"a": {"$unset": {"b": 1}}}}), "static.a"),
    ] {
        let error = check(&mapping).unwrap_err();
        assert!(error.contains(named), "{mapping}: {error}");
    }
    for mapping in [
        json!({"attributes": {"a": point, "b": plain}}),
        json!({"static": {"a": fixed}, "attributes": {"a": point}}),
        json!({"attributes": {"a": {"point": ["x", "y"], "type": "geo:json"}, "b": {"point": ["x", "y"], "type": "Pair"}}}),
        json!({"static": {"a": {"type": "geo:json", "value": null}}, "attributes": {"b": point}}),
    ] {
        check(&mapping).unwrap_or_else(|error| panic!("{mapping}: {error}"));
    }
    let of_tenant = tenant(json!({"default": {"attributes": {"a": point}}})).unwrap();
    let own = object(json!({"context": {"attributes": {"b": point}}}));
    let error = of_tenant.check_device(&own, &limits).unwrap_err().to_string();
    assert!(error.contains("locations a, b"), "beside what the tenant says: {error}");
}

#[test]
fn an_expression_that_fails_is_an_error_of_its_record_only() {
    let mapping = own(json!({
        "id": "x:${name}",
        "attributes": {
            "ratio": "a / b", "whole": "CAST(c AS LONG)", "at": {"value": "d", "type": "DateTime"},
            "place": {"point": ["e", "f"]}, "ends": {"value": "g", "type": "DateTime"}, "free": {"value": "h", "type": "TextUnrestricted"},
            "dateExpires": "i",
        },
    }));
    let of = |payload: Value| mapped(&mapping, &payload);
    let good = of(json!({
        "name": "n", "a": 1, "b": 2.0, "c": "5", "d": "2020-01-01", "e": 1, "f": 2, "h": "a(b)", "i": 86_400_000, "k": 1,
    }))
    .unwrap();
    assert_eq!(good.left_out, Vec::<String>::new());
    assert_eq!(
        shown(&good),
        [
            ("ratio", "Number", "0.5"),
            ("whole", "Number", "5"),
            ("at", "DateTime", "\"2020-01-01T00:00:00.000Z\""),
            ("place", "geo:json", r#"{"type":"Point","coordinates":[1,2]}"#),
            ("free", "TextUnrestricted", "\"a(b)\""),
            ("dateExpires", "DateTime", "\"1970-01-02T00:00:00.000Z\""),
            ("k", "Number", "1"),
        ]
    );
    let bad =
        of(json!({"name": "n", "a": 1, "b": 0, "c": "x", "d": "soon", "e": 1, "f": 200, "g": [1], "k": "<"})).unwrap();
    assert_eq!(shown(&bad), []);
    let named = ["ratio", "whole", "at", "place", "ends", "'k'"];
    assert_eq!(bad.left_out.len(), named.len(), "{:?}", bad.left_out);
    for (why, name) in bad.left_out.iter().zip(named) {
        assert!(why.contains(name), "{why}");
    }
    for (payload, named) in [
        (json!({"a": 1}), "id: its expression is NULL"),
        (json!({"name": {"x": 1}}), "id: its expression is a list or a map"),
        (json!({"name": "a b"}), "entity id 'x:a b'"),
    ] {
        let error = of(payload).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
}
