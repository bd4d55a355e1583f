//! Reads in the shape of QuantumLeap.

use millstream_history::HistoryConfig;
use millstream_types::iso_time;
use serde_json::{Value, json};

use crate::world::{HOUR_MS, NEW_YEAR_MS, Served, World, quiet};

/// A time as QuantumLeap shows it.
fn at(hour: i64) -> String {
    iso_time(NEW_YEAR_MS + hour * HOUR_MS).replace('Z', "+00:00")
}

/// A day of two rooms: `t` each hour in one, `h` each second hour, `t` once in the other; a car, and another tenant's room.
fn fill(world: &World) {
    for hour in 0..24 {
        world.measure("room1", "t", &hour.to_string(), NEW_YEAR_MS + hour * HOUR_MS);
        if hour % 2 == 0 {
            world.measure("room1", "h", "\"damp\"", NEW_YEAR_MS + hour * HOUR_MS);
        }
    }
    world.measure("room2", "t", "99.5", NEW_YEAR_MS + 2 * HOUR_MS);
    world.change(("default", "Car", "car1"), "speed", "70", NEW_YEAR_MS + HOUR_MS);
    world.change(("default", "Car", "room2"), "t", "5", NEW_YEAR_MS);
    world.change(("acme", "Room", "room1"), "t", "-1", NEW_YEAR_MS);
}

async fn get(served: &Served, path: &str) -> Value {
    let answer = served.ask(&format!("GET /quantumleap/v2{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_the_same_wherever_the_points_lie() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    fill(&world);
    ask_everything(&world).await;
    world.flush();
    ask_everything(&world).await;
    world.close();
    let world = World::open(dir.path(), &quiet());
    ask_everything(&world).await;
    world.close();
}

async fn ask_everything(world: &World) {
    let served = world.serve().await;
    let rows = get(&served, "/entities/room1?type=Room&limit=3&offset=1").await;
    let attributes = json!([
        {"attrName": "h", "values": [null, "damp", null]},
        {"attrName": "t", "values": [1, 2, 3]},
    ]);
    let index = json!([at(1), at(2), at(3)]);
    assert_eq!(rows, json!({"entityId": "room1", "entityType": "Room", "index": index, "attributes": attributes}));
    let values = get(&served, "/entities/room1/value?limit=3&offset=1").await;
    assert_eq!(values, json!({"index": index, "attributes": attributes}));
    let one = get(&served, "/entities/room1/attrs/t?lastN=2").await;
    assert_eq!(
        one,
        json!({
            "attrName": "t", "entityId": "room1", "entityType": "Room", "index": [at(22), at(23)], "values": [22, 23]
        })
    );
    let earlier = get(&served, "/entities/room1/attrs/t/value?lastN=2&offset=1").await;
    assert_eq!(earlier, json!({"index": [at(21), at(22)], "values": [21, 22]}));
    let between = format!("/entities/room1/value?attrs=h&fromDate={}&toDate={}", &at(1)[..19], &at(4)[..19]);
    assert_eq!(
        get(&served, &between).await,
        json!({"index": [at(2), at(4)], "attributes": [{"attrName": "h", "values": ["damp", "damp"]}]})
    );

    let of_type = get(&served, "/types/Room/attrs/t?limit=4&id=room2,room1").await;
    assert_eq!(
        of_type,
        json!({"attrName": "t", "entityType": "Room", "entities": [
            {"entityId": "room2", "index": [at(2)], "values": [99.5]},
            {"entityId": "room1", "index": [at(0), at(1), at(2)], "values": [0, 1, 2]},
        ]}),
        "rows are counted by time over all entities, and room2 comes first at the same one"
    );
    let last = get(&served, "/types/Room/value?lastN=1&idPattern=1$&attrs=t").await;
    assert_eq!(
        last,
        json!({"values": [
            {"entityId": "room1", "index": [at(23)], "attributes": [{"attrName": "t", "values": [23]}]},
        ]})
    );
    let of_all = get(&served, "/attrs/t?limit=1").await;
    assert_eq!(
        of_all,
        json!({"attrName": "t", "types": [
            {"entityType": "Car", "entities": [{"entityId": "room2", "index": [at(0)], "values": [5]}]},
            {"entityType": "Room", "entities": [{"entityId": "room1", "index": [at(0)], "values": [0]}]},
        ]}),
        "a page is of each type"
    );
    let everything = get(&served, "/attrs?id=room2,car1&type=Car").await;
    assert_eq!(
        everything,
        json!({"attrs": [
            {"attrName": "speed", "types": [
                {"entityType": "Car", "entities": [{"entityId": "car1", "index": [at(1)], "values": [70]}]},
            ]},
            {"attrName": "t", "types": [
                {"entityType": "Car", "entities": [{"entityId": "room2", "index": [at(0)], "values": [5]}]},
            ]},
        ]})
    );
    assert_eq!(get(&served, "/attrs/value?id=car1").await["values"][0]["attrName"], "speed");
    assert_eq!(get(&served, "/attrs/t/value?limit=1").await["values"], of_all["types"]);

    aggregates(&served).await;
    assert_eq!(
        get(&served, "/entities").await,
        json!([
            {"entityId": "car1", "entityType": "Car", "index": at(1)},
            {"entityId": "room2", "entityType": "Car", "index": at(0)},
            {"entityId": "room1", "entityType": "Room", "index": at(23)},
            {"entityId": "room2", "entityType": "Room", "index": at(2)},
        ])
    );
    assert_eq!(get(&served, "/entities?type=Room&limit=1&offset=1").await[0]["entityId"], "room2");
    refusals(&served).await;
    served.stop().await;
}

async fn aggregates(served: &Served) {
    let by_day = get(served, "/entities/room1?aggrMethod=avg&aggrPeriod=day").await;
    assert_eq!(
        by_day,
        json!({
            "entityId": "room1", "entityType": "Room", "index": [at(0)],
            "attributes": [{"attrName": "t", "values": [11.5]}]
        }),
        "attributes without numbers are left out"
    );
    let by_hour = get(served, "/entities/room1/attrs/t/value?aggrMethod=max&aggrPeriod=hour&limit=2&offset=3").await;
    assert_eq!(by_hour, json!({"index": [at(3), at(4)], "values": [3, 4]}));
    let last_hours = get(served, "/entities/room1/attrs/t/value?aggrMethod=min&aggrPeriod=hour&lastN=2").await;
    assert_eq!(last_hours, json!({"index": [at(22), at(23)], "values": [22, 23]}));
    let counted = get(served, "/entities/room1/value?aggrMethod=count&aggrPeriod=month").await;
    let counts = json!([{"attrName": "h", "values": [12]}, {"attrName": "t", "values": [24]}]);
    assert_eq!(counted, json!({"index": [at(0)], "attributes": counts}));
    let whole = get(served, "/entities/room1/attrs/t/value?aggrMethod=sum").await;
    assert_eq!(whole, json!({"index": [], "values": [276]}), "one value for all times has no index");
    let of_type = get(served, "/types/Room/attrs/t/value?aggrMethod=min&fromDate=2026-01-01&id=room1,room2").await;
    assert_eq!(
        of_type["values"],
        json!([
            {"entityId": "room1", "index": ["2026-01-01"], "values": [0]},
            {"entityId": "room2", "index": ["2026-01-01"], "values": [99.5]},
        ])
    );
}

async fn refusals(served: &Served) {
    for (path, status, error) in [
        ("/v2/entities/nobody", 404, "Not Found"),
        ("/v2/entities/room1/attrs/none", 404, "Not Found"),
        ("/v2/entities/room1/attrs/h?aggrMethod=avg", 404, "Not Found"),
        ("/v2/entities/room1?fromDate=2027-01-01", 404, "Not Found"),
        ("/v2/entities/room1?limit=0", 404, "Not Found"),
        ("/v2/types/None", 404, "Not Found"),
        ("/v2/attrs/none", 404, "Not Found"),
        ("/v2/entities?type=None", 404, "Not Found"),
        ("/v2/nothing", 404, "Not Found"),
        ("/v2/entities/room2", 409, "Conflict"),
        ("/v2/entities/room1?lastN=0", 400, "Bad Request"),
        ("/v2/entities/room1?aggrPeriod=day", 400, "Bad Request"),
        ("/v2/entities/room1?georel=coveredBy&geometry=box&coords=1,2;3,4", 501, "Not Implemented"),
    ] {
        let refused = served.ask(&format!("GET /quantumleap{path}")).await;
        assert_eq!(refused.status, status, "{path}: {refused:?}");
        assert_eq!(refused.json()["error"], error, "{path}");
        assert!(refused.json()["description"].is_string(), "{path}");
    }
    for (path, found) in [("/", 24), ("/#", 24), ("/other", 0)] {
        let request = format!("GET /quantumleap/v2/entities/room1/attrs/t/value\nfiware-servicepath: {path}");
        let answer = served.ask(&request).await;
        assert_eq!(answer.json()["values"].as_array().map_or(0, Vec::len), found, "{path}");
    }
    let other = served.ask("GET /quantumleap/v2/entities/room1/attrs/t/value\nfiware-service: acme").await;
    assert_eq!(other.json()["values"], json!([-1]));
    for path in ["version", "v2/version", "health"] {
        assert_eq!(served.ask(&format!("GET /quantumleap/{path}")).await.status, 200);
    }
}

/// A deletion is no row; values of one moment are rows of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_are_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for value in ["1", "2"] {
        world.measure("room1", "t", value, NEW_YEAR_MS);
    }
    world.alter("room1", "entityDelete", "t", NEW_YEAR_MS + HOUR_MS);
    for is_in_files in [false, true] {
        if is_in_files {
            world.flush();
        }
        let served = world.serve().await;
        for query in ["", "?lastN=2", "?limit=2"] {
            let found = get(&served, &format!("/entities/room1/attrs/t/value{query}")).await;
            assert_eq!(found, json!({"index": [at(0), at(0)], "values": [1, 2]}), "{query} {is_in_files}");
        }
        assert_eq!(get(&served, "/entities").await[0]["index"], at(0));
        served.stop().await;
    }
    world.close();
}

/// More points than an answer of another shape may have are pages of rows here; what is too large is refused as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_rows_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &HistoryConfig { page_max_points: 10, ..quiet() });
    for n in 0..40_i64 {
        world.measure(&format!("room{}", n % 3), &format!("a{}", n % 4), &n.to_string(), NEW_YEAR_MS + n * 1_000);
        if n == 20 {
            world.flush();
        }
    }
    let served = world.serve().await;
    for direction in ["", "lastN=1000&"] {
        let mut found: Vec<i64> = Vec::new();
        for offset in (0..).step_by(10) {
            let answer = served.ask(&format!("GET /quantumleap/v2/types/Room/value?{direction}offset={offset}")).await;
            if answer.status == 404 {
                break;
            }
            let entities = answer.json()["values"].as_array().unwrap().clone();
            let values = entities.iter().flat_map(|entity| entity["attributes"].as_array().unwrap());
            found.extend(values.flat_map(|one| one["values"].as_array().unwrap()).filter_map(Value::as_i64));
        }
        found.sort_unstable();
        assert_eq!(found, (0..40).collect::<Vec<_>>(), "{direction}");
    }
    let refused = served.ask("GET /quantumleap/v2/types/Room?aggrMethod=avg&aggrPeriod=second").await;
    assert_eq!((refused.status, &refused.json()["error"]), (413, &json!("Payload Too Large")));
    served.stop().await;
    world.close();
}

/// The first and last rows of a type are read where all of them would be too large, of one attribute and of several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_many_entities_are_read_where_all_of_them_would_be_too_large() {
    const ROOMS: i64 = 20;
    const MINUTES: i64 = 120;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &HistoryConfig { page_max_bytes: 200_000, page_max_points: 100, ..quiet() });
    for minute in 0..MINUTES {
        for room in 0..ROOMS {
            for attribute in ["t", "u"] {
                let value = minute.to_string();
                world.measure(&format!("room{room:02}"), attribute, &value, NEW_YEAR_MS + minute * 60_000 + room);
            }
        }
        if minute == MINUTES / 2 {
            world.flush();
        }
    }
    let served = world.serve().await;
    assert_eq!(served.ask("GET /ngsi-ld/v1/temporal/entities?limit=20").await.status, 206);
    for attrs in ["", "&attrs=t"] {
        for (query, first) in
            [("limit=100", 0), ("limit=100&offset=100", 5), ("lastN=100", 115), ("lastN=100&offset=100", 110)]
        {
            let found = get(&served, &format!("/types/Room/value?{query}{attrs}")).await;
            for entity in found["values"].as_array().unwrap() {
                let expected: Vec<i64> = (first..first + 5).collect();
                for attribute in entity["attributes"].as_array().unwrap() {
                    assert_eq!(attribute["values"], json!(expected), "{query}{attrs}: {entity}");
                }
            }
            assert_eq!(found["values"].as_array().unwrap().len(), ROOMS as usize, "{query}{attrs}");
        }
    }
    // More attributes at one time than there is room for at first.
    for number in 0..60 {
        world.change(("default", "Wide", "wide"), &format!("a{number}"), "1", NEW_YEAR_MS);
    }
    let wide = get(&served, "/types/Wide/value?limit=1").await;
    assert_eq!(wide["values"][0]["attributes"].as_array().unwrap().len(), 60);
    served.stop().await;
    world.close();
}

/// A page that is too large is refused before much more than it may have is read, although one file has all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_too_large_is_refused_early() {
    const LIMIT: usize = 100_000;
    const VALUE: usize = 1_000;
    /// Rows that are read at a time.
    const STEP: usize = 4_096;
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &HistoryConfig { page_max_bytes: LIMIT, ..quiet() });
    for n in 0..12_000_i64 {
        world.measure("room1", "t", &format!("\"{n:0width$}\"", width = VALUE), NEW_YEAR_MS + n * 1_000);
    }
    world.flush();
    let served = world.serve().await;
    for (path, name) in [
        ("/quantumleap/v2/entities/room1/attrs/t?offset=1000000", "a deep page"),
        ("/quantumleap/v2/entities/room1/attrs/t?lastN=10000", "the last rows"),
        ("/STH/v2/entities/room1/attrs/t?type=Room&hLimit=10&hOffset=1000000", "values far on"),
        ("/ngsi-ld/v1/temporal/entities/room1", "NGSI-LD"),
    ] {
        let refused = served.ask(&format!("GET {path}")).await;
        assert_eq!(refused.status, 413, "{name}: {refused:?}");
        let taken = refused.body.split_once("would take ").unwrap().1.split(' ').next().unwrap();
        let taken: usize = taken.parse().unwrap();
        // What one step reads is there before it is counted.
        assert!(taken < LIMIT + STEP * (VALUE + 200), "{name}: {taken} bytes");
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    fill(&world);
    let served = world.serve().await;
    let status = async |request: &str| served.ask(request).await.status;
    assert_eq!(status("DELETE /quantumleap/v2/entities/nobody").await, 404);
    assert_eq!(status("DELETE /quantumleap/v2/entities/room2").await, 409);
    assert_eq!(status("DELETE /quantumleap/v2/entities/room1\nfiware-servicepath: /other").await, 404);
    assert_eq!(status("DELETE /quantumleap/v2/entities/room2?type=Car").await, 204);
    assert_eq!(status("GET /quantumleap/v2/entities/room2?type=Car").await, 404);
    assert_eq!(status("GET /quantumleap/v2/entities/room2").await, 200);
    assert_eq!(status("DELETE /quantumleap/v2/types/Room").await, 204);
    assert_eq!(get(&served, "/entities").await.as_array().unwrap().len(), 1);
    let other = served.ask("GET /quantumleap/v2/entities/room1\nfiware-service: acme").await;
    assert_eq!(other.status, 200);
    served.stop().await;
    world.close();
}
