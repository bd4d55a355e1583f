//! Merging, deletion, retention and rules.

use millstream_history::{HistoryConfig, HistoryRule};
use millstream_testkit::eventually;
use serde_json::json;

use crate::world::{HOUR_MS, NEW_YEAR_MS, World, files_below, quiet};

const DAY_MS: i64 = 24 * HOUR_MS;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_files_become_one_and_nothing_is_lost_or_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for n in 0..20 {
        world.measure("room1", "t", &n.to_string(), NEW_YEAR_MS + n);
        world.measure("room2", "t", &n.to_string(), NEW_YEAR_MS + n);
        world.flush();
    }
    eventually("files are merged", || world.history.stats().files <= 6);
    let served = world.serve().await;
    let count = served.get("?options=aggregatedValues&aggrMethods=totalCount,sum,distinctCount").await.json();
    for room in 0..2 {
        assert_eq!(
            count[room]["t"],
            json!({"type": "Property", "totalCount": [[20]], "sum": [[190]], "distinctCount": [[20]]})
        );
    }
    served.stop().await;
    eventually("replaced files are removed", || world.files().len() == world.history.stats().files as usize);
    assert!(world.history.stats().merges > 0);
    world.close();
}

/// Deletes an entity, an attribute, a type and a whole tenant; later points stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_history_is_gone_at_once_and_soon_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for part in 0..2 {
        for id in ["room1", "room2", "secret-room"] {
            for attribute in ["t", "u"] {
                world.measure(id, attribute, "1", NEW_YEAR_MS + part);
            }
        }
        world.change(("default", "Car", "car1"), "speed", "1", NEW_YEAR_MS + part);
        if part == 0 {
            world.flush();
        }
    }
    let served = world.serve().await;
    let delete = async |target: &str| {
        let answer = served.ask(&format!("DELETE /ngsi-ld/v1/temporal/entities{target}")).await;
        assert_eq!(answer.status, 204, "{answer:?}");
    };
    delete("/secret-room").await;
    delete("/room1/attrs/t").await;
    delete("?type=Car").await;
    world.measure("room1", "t", "2", NEW_YEAR_MS + 5);
    let expected = json!([
        {"id": "room1", "type": "Room", "t": {"type": "Property", "totalCount": [[1]]}, "u": {"type": "Property", "totalCount": [[2]]}},
        {"id": "room2", "type": "Room", "t": {"type": "Property", "totalCount": [[2]]}, "u": {"type": "Property", "totalCount": [[2]]}},
    ]);
    let counts = async || served.get("?options=aggregatedValues&aggrMethods=totalCount").await.json();
    assert_eq!(counts().await, expected);
    assert_eq!(served.get("/secret-room").await.status, 404);
    let names_it = || {
        let bytes = |path: &std::path::PathBuf| std::fs::read(path).unwrap_or_default();
        world.files().iter().any(|path| bytes(path).windows(11).any(|window| window == b"secret-room"))
    };
    eventually("the deleted entity is gone from the disk", || !names_it());
    assert_eq!(counts().await, expected);
    served.stop().await;
    world.close();

    let world = World::open(dir.path(), &quiet());
    let served = world.serve().await;
    let answer = served.get("?options=aggregatedValues&aggrMethods=totalCount").await;
    assert_eq!(answer.json(), expected);
    assert_eq!(served.ask("DELETE /ngsi-ld/v1/temporal/entities").await.status, 204);
    assert_eq!(served.get("").await.json(), json!([]));
    served.stop().await;
    eventually("no file is left", || world.history.stats().files == 0);
    world.close();
}

/// A deletion of an attribute, alone or with its entity, is a point of its own, which aggregation does not count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_in_the_context_are_points_of_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for (id, alteration, changed) in [
        ("one", "entityChange", "u"),
        ("whole", "entityDelete", "t,u"),
        ("over", "entityExpire", "t,u,dateExpires"),
        ("kept", "entityChange", "dateExpires"),
    ] {
        world.measure(id, "u", "1", NEW_YEAR_MS);
        world.measure(id, "t", "2", NEW_YEAR_MS + 1_000);
        world.alter(id, alteration, changed, NEW_YEAR_MS + 2_000);
    }
    let at = |ms: i64| millstream_types::iso_time(NEW_YEAR_MS + ms);
    let gone =
        json!({"type": "Property", "value": "urn:ngsi-ld:null", "observedAt": at(2_000), "deletedAt": at(2_000)});
    let was = |value: i64, ms| json!({"type": "Property", "value": value, "observedAt": at(ms)});
    for is_flushed in [false, true] {
        if is_flushed {
            world.flush();
        }
        let served = world.serve().await;
        for (id, t, u) in [
            ("one", json!([was(2, 1_000)]), json!([was(1, 0), gone])),
            ("whole", json!([was(2, 1_000), gone]), json!([was(1, 0), gone])),
            ("over", json!([was(2, 1_000), gone]), json!([was(1, 0), gone])),
            ("kept", json!([was(2, 1_000)]), json!([was(1, 0)])),
        ] {
            let found = served.get(&format!("/{id}")).await.json();
            assert_eq!((&found["t"], &found["u"]), (&t, &u), "{id}, in files: {is_flushed}");
            for methods in ["totalCount", "distinctCount,totalCount", "sum,totalCount"] {
                let counted = served.get(&format!("/{id}?options=aggregatedValues&aggrMethods={methods}")).await.json();
                assert_eq!(counted["u"]["totalCount"], json!([[1]]), "{id} {methods}, in files: {is_flushed}");
            }
        }
        let brief = served.get("/whole?attrs=u&options=temporalValues&lastN=1").await.json();
        assert_eq!(brief["u"]["values"], json!([["urn:ngsi-ld:null", at(2_000)]]));
        served.stop().await;
    }
    assert_eq!(world.history.failures(), Vec::<String>::new());
    world.close();
}

/// The text that marks a deletion can also be a regular value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_reads_like_a_deletion_is_a_value() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    world.measure("one", "u", "\"urn:ngsi-ld:null\"", NEW_YEAR_MS);
    world.alter("one", "entityChange", "u", NEW_YEAR_MS + 1_000);
    world.measure("one", "u", "\"urn:ngsi-ld:null\"", NEW_YEAR_MS + 2_000);
    let at = |ms: i64| millstream_types::iso_time(NEW_YEAR_MS + ms);
    let was = |ms| json!({"type": "Property", "value": "urn:ngsi-ld:null", "observedAt": at(ms)});
    let gone =
        json!({"type": "Property", "value": "urn:ngsi-ld:null", "observedAt": at(1_000), "deletedAt": at(1_000)});
    for is_flushed in [false, true] {
        if is_flushed {
            world.flush();
        }
        let served = world.serve().await;
        let found = served.get("/one").await.json();
        assert_eq!(found["u"], json!([was(0), gone, was(2_000)]), "in files: {is_flushed}");
        let counted = served.get("/one?options=aggregatedValues&aggrMethods=distinctCount,totalCount").await.json();
        assert_eq!(counted["u"]["totalCount"], json!([[2]]), "in files: {is_flushed}");
        assert_eq!(counted["u"]["distinctCount"], json!([[1]]), "in files: {is_flushed}");
        let lines = served.ask("GET /ngsi-ld/v1/temporal/entities/one\naccept: text/csv").await.body;
        assert_eq!(lines.matches("urn:ngsi-ld:null").count(), 3, "{lines}");
        served.stop().await;
    }
    world.close();
}

#[test]
fn days_go_by_age_and_by_size_of_their_type() {
    let dir = tempfile::tempdir().unwrap();
    let rules = vec![
        HistoryRule { kind: "Short".into(), retention_ms: Some(3 * DAY_MS as u64), ..HistoryRule::default() },
        HistoryRule { kind: "Small".into(), retention_bytes: Some(1), ..HistoryRule::default() },
    ];
    let world = World::open(dir.path(), &HistoryConfig { rules, ..quiet() });
    for kind in ["Short", "Long"] {
        world.change(("default", kind, "x"), "t", "1", NEW_YEAR_MS);
    }
    world.flush();
    let of = |kind: &str| {
        let kind = format!("type={kind}");
        world.files().iter().filter(|path| path.to_string_lossy().contains(&kind)).count()
    };
    assert_eq!((of("Short"), of("Long")), (1, 1));
    // Another point two days later. The first is not old yet: its age counts from its flush, not from its observation.
    world.clock.advance(std::time::Duration::from_millis(DAY_MS as u64));
    world.change(("default", "Short", "x"), "t", "2", NEW_YEAR_MS + DAY_MS);
    world.flush();
    assert_eq!(of("Short"), 2);
    world.clock.advance(std::time::Duration::from_millis(DAY_MS as u64 + 1));
    eventually("the old file is gone", || of("Short") == 1);
    assert_eq!(of("Long"), 1);
    world.change(("default", "Small", "x"), "t", "1", NEW_YEAR_MS);
    world.flush();
    world.clock.advance(std::time::Duration::from_secs(60));
    eventually("what is too much is gone", || of("Small") == 0);
    world.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_choose_the_history_that_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let rules = vec![
        HistoryRule { attribute: "debug*".into(), keep: Some(false), ..HistoryRule::default() },
        HistoryRule { tenant: "acme".into(), kind: "Car".into(), keep: Some(false), ..HistoryRule::default() },
    ];
    let world = World::open(dir.path(), &HistoryConfig { rules, ..quiet() });
    world.measure("room1", "t", "1", NEW_YEAR_MS);
    world.measure("room1", "debug1", "1", NEW_YEAR_MS);
    world.change(("acme", "Car", "car1"), "t", "1", NEW_YEAR_MS);
    world.change(("beta", "Car", "car1"), "t", "1", NEW_YEAR_MS);
    let served = world.serve().await;
    let room = served.get("/room1").await.json();
    assert!(room["t"].is_array() && room["debug1"].is_null(), "{room}");
    for (tenant, status) in [("acme", 404), ("beta", 200)] {
        let head = format!("GET /ngsi-ld/v1/temporal/entities/car1\nfiware-service: {tenant}");
        assert_eq!(served.ask(&head).await.status, status, "{tenant}");
    }
    served.stop().await;
    world.close();
    assert!(files_below(&dir.path().join("history")).len() >= 2);
}
