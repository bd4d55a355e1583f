//! Reads through the API, from memory, from files and from both.

use std::collections::BTreeMap;

use millstream_history::HistoryConfig;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{HOUR_MS, NEW_YEAR_MS, World, quiet};

/// Adds one point per hour of a day in one room, text in another, and points of another type and tenant.
fn fill(world: &World) {
    for hour in 0..24 {
        world.measure("room1", "t", &format!("{}", hour as f64 / 2.0), NEW_YEAR_MS + hour * HOUR_MS);
    }
    world.measure("room1", "state", "\"a, \\\"b\\\"\"", NEW_YEAR_MS);
    world.measure("room2", "t", "99", NEW_YEAR_MS + HOUR_MS);
    world.change(("default", "Car", "car1"), "speed", "70", NEW_YEAR_MS);
    world.change(("acme", "Room", "room1"), "t", "-1", NEW_YEAR_MS);
}

/// Sends the same requests before a flush, after it, between two flushes, and after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_the_same_wherever_the_points_lie() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    fill(&world);
    ask_everything(&world).await;
    world.flush();
    ask_everything(&world).await;
    world.close();
    let world = World::open(dir.path(), &quiet());
    assert_eq!(world.history.stats().file_points, 28);
    ask_everything(&world).await;
    assert_eq!(world.history.failures(), Vec::<String>::new());
    world.close();
}

async fn ask_everything(world: &World) {
    let served = world.serve().await;
    let get = async |query: &str| {
        let answer = served.get(query).await;
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        answer.json()
    };
    let at = |hour: i64| millstream_types::iso_time(NEW_YEAR_MS + hour * HOUR_MS);

    let last = get("/room1?lastN=2&attrs=t").await;
    assert_eq!(
        last,
        json!({"id": "room1", "type": "Room", "t": [
            {"type": "Property", "value": 11, "observedAt": at(22)},
            {"type": "Property", "value": 11.5, "observedAt": at(23)},
        ]})
    );
    assert_eq!(get("/room1/attrs/t?lastN=2").await, last);

    let brief = get(&format!("/room1?options=temporalValues&timerel=before&timeAt={}", at(1))).await;
    assert_eq!(brief["t"], json!({"type": "Property", "values": [[0, at(0)]]}));
    assert_eq!(brief["state"]["values"][0][0], json!("a, \"b\""));
    let after = get(&format!("/room1?attrs=t&timerel=after&timeAt={}", at(22))).await;
    assert_eq!(after["t"].as_array().unwrap().len(), 1);
    let between = get(&format!("/room1?attrs=t&timerel=between&timeAt={}&endTimeAt={}", at(1), at(3))).await;
    assert_eq!(between["t"].as_array().unwrap().len(), 2);
    // Changes are recorded 5 ms after their observation.
    let modified = get(&format!("/room1?attrs=t&timeproperty=modifiedAt&timerel=after&timeAt={}", at(23))).await;
    assert_eq!(modified["t"].as_array().unwrap().len(), 1);
    assert_eq!(modified["t"][0]["modifiedAt"], "2026-01-01T23:00:00.005Z");
    let last_modified = get("/room1?attrs=t&timeproperty=createdAt&lastN=3").await;
    assert_eq!(last_modified["t"][2]["value"], 11.5);

    let six_hours = "options=aggregatedValues&aggrPeriodDuration=PT6H&aggrMethods=avg,totalCount,distinctCount,max";
    let aggregated = get(&format!("/room1?attrs=t&{six_hours}")).await;
    assert_eq!(aggregated["t"]["avg"][1], json!([4.25, at(6), at(12)]));
    assert_eq!(
        aggregated["t"]["totalCount"],
        json!([[6, at(0), at(6)], [6, at(6), at(12)], [6, at(12), at(18)], [6, at(18), at(24)]])
    );
    assert_eq!(aggregated["t"]["distinctCount"][3][0], 6);
    assert_eq!(aggregated["t"]["max"][0][0], 2.5);
    let whole = get("/room1?options=aggregatedValues&aggrMethods=sum,stddev,sumsq,min").await;
    assert_eq!((&whole["t"]["sum"], &whole["t"]["min"]), (&json!([[138]]), &json!([[0]])));
    assert_eq!(whole["state"], json!({"type": "Property", "sum": [], "stddev": [], "sumsq": [], "min": []}));

    let ids = |list: &Value| {
        list.as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&get("").await), ["car1", "room1", "room2"]);
    assert_eq!(ids(&get("?type=Room&limit=1&offset=1").await), ["room2"]);
    assert_eq!(ids(&get("?attrs=speed").await), ["car1"]);
    assert_eq!(ids(&get("?idPattern=room%5B2-9%5D").await), ["room2"]);
    assert_eq!(ids(&get("?id=room2,car1&type=Room,Car").await), ["car1", "room2"]);
    let all = ["car1", "room1", "room2"];
    for (from, to, listed) in [(12, 13, &all[..]), (23, 30, &all), (24, 30, &[]), (-9, 0, &[]), (-9, 1, &all)] {
        let time = format!("?timerel=between&timeAt={}&endTimeAt={}", at(from), at(to));
        assert_eq!(ids(&get(&time).await), listed, "{time}");
    }
    assert_eq!(ids(&get(&format!("?timerel=before&timeAt={}", at(0))).await), [""; 0]);
    let counted = served.get("?type=Room&count=true&limit=0").await;
    assert_eq!((counted.header("ngsild-results-count"), &*counted.body), (Some("2"), "[]"));

    let csv = served.ask("GET /ngsi-ld/v1/temporal/entities?id=room1&lastN=1\naccept: text/csv").await;
    let lines: Vec<&str> = csv.body.lines().collect();
    assert_eq!(lines[0], "entityId,entityType,servicePath,attribute,attributeType,value,observedAt,modifiedAt");
    assert_eq!(
        lines[1],
        "room1,Room,/,state,Number,\"a, \"\"b\"\"\",2026-01-01T00:00:00.000Z,2026-01-01T00:00:00.005Z"
    );
    assert_eq!(lines[2], "room1,Room,/,t,Number,11.5,2026-01-01T23:00:00.000Z,2026-01-01T23:00:00.005Z");
    let csv =
        served.ask(&format!("GET /ngsi-ld/v1/temporal/entities/room1?attrs=t&{six_hours}\naccept: text/csv")).await;
    assert_eq!(csv.body.lines().nth(1).unwrap(), format!("room1,Room,/,t,avg,1.25,{},{}", at(0), at(6)));

    for tenant in ["acme", "ACME"] {
        let other = served.ask(&format!("GET /ngsi-ld/v1/temporal/entities/room1\nngsild-tenant: {tenant}")).await;
        assert_eq!(other.json()["t"][0]["value"], -1, "{tenant}");
    }
    assert_eq!(served.ask("GET /ngsi-ld/v1/temporal/entities/room1\nfiware-servicepath: /a").await.status, 404);
    for (query, status, name) in [
        ("/nobody", 404, "ResourceNotFound"),
        ("/room1?attrs=none", 404, "ResourceNotFound"),
        ("/room1?lastN=0", 400, "BadRequestData"),
        ("?timerel=never", 400, "BadRequestData"),
        ("?q=t%3E1", 400, "BadRequestData"),
    ] {
        let refused = served.get(query).await;
        assert_eq!(refused.status, status, "{query}");
        assert_eq!(refused.json()["type"], format!("https://uri.etsi.org/ngsi-ld/errors/{name}"), "{query}");
    }
    served.stop().await;
}

/// An answer with too many points tells the time that it covers, and the next request continues there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_is_paged_by_time() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &HistoryConfig { page_max_points: 10, ..quiet() });
    let mut expected: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for n in 0..40_i64 {
        // Three attributes, some with equal times.
        let attribute = format!("a{}", n % 3);
        let observed = NEW_YEAR_MS + n / 2 * 1_000;
        world.measure("room1", &attribute, &n.to_string(), observed);
        expected.entry(attribute).or_default().push(n);
        if n == 20 {
            world.flush();
        }
    }
    // Two attributes with one point each, at the end and at the start.
    for (attribute, second) in [("a3", 19), ("a4", 0)] {
        world.measure("room1", attribute, "99", NEW_YEAR_MS + second * 1_000);
        expected.insert(attribute.to_owned(), vec![99]);
    }
    let served = world.serve().await;
    for direction in ["", "&lastN=10"] {
        let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let mut next = String::new();
        let mut pages = 0;
        loop {
            let answer = served.get(&format!("?id=room1{direction}{next}")).await;
            assert!(answer.status == 200 || answer.status == 206, "{answer:?}");
            pages += 1;
            for (attribute, points) in answer.json()[0].as_object().unwrap() {
                let values = points.as_array().into_iter().flatten().map(|point| point["value"].as_i64().unwrap());
                found.entry(attribute.clone()).or_default().extend(values);
            }
            if answer.status == 200 {
                break;
            }
            let range = answer.header("content-range").unwrap().strip_prefix("date-time ").unwrap();
            let (first, last) = (&range[..24], &range[25..49]);
            next = match direction {
                "" => format!("&timerel=after&timeAt={last}"),
                _ => format!("&timerel=before&timeAt={first}"),
            };
        }
        found.values_mut().for_each(|values| values.sort_unstable());
        found.retain(|name, _| name.starts_with('a'));
        assert!(pages > 2, "{pages}");
        assert_eq!(found, expected, "{direction}");
    }
    let refused = served.get("?options=aggregatedValues&aggrMethods=avg&aggrPeriodDuration=PT1S").await;
    assert_eq!(refused.status, 413);
    assert!(refused.body.contains("history.page_max_points = 10"), "{}", refused.body);
    served.stop().await;
    world.close();
}

#[derive(Debug, Clone)]
enum Step {
    Change { id: u8, attribute: u8, second: i64 },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0_u8..3, 0_u8..2, 0_i64..200_000).prop_map(|(id, attribute, second)| Step::Change { id, attribute, second }),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Random points in any order and place: lastN gives the same points as a full sort.
    #[test]
    fn the_last_points_are_those_that_brute_force_finds(
        steps in prop::collection::vec(step(), 1..120),
        last in 1_usize..8,
        window in prop::option::of((0_i64..200_000, 1_i64..200_000)),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let world = World::open(dir.path(), &quiet());
            let mut all: BTreeMap<(u8, u8), Vec<(i64, usize)>> = BTreeMap::new();
            for (number, step) in steps.iter().enumerate() {
                match step {
                    Step::Flush => world.flush(),
                    Step::Change { id, attribute, second } => {
                        let observed = NEW_YEAR_MS + second * 1_000;
                        world.measure(&format!("room{id}"), &format!("a{attribute}"), &number.to_string(), observed);
                        all.entry((*id, *attribute)).or_default().push((observed, number));
                    }
                }
            }
            let (from, to) = window.map_or((i64::MIN, i64::MAX), |(from, length)| {
                (NEW_YEAR_MS + from * 1_000, NEW_YEAR_MS + (from + length) * 1_000)
            });
            let time = |ms| millstream_types::iso_time(ms);
            let bounds = match window {
                None => String::new(),
                Some(_) => format!("&timerel=between&timeAt={}&endTimeAt={}", time(from), time(to)),
            };
            let served = world.serve().await;
            for ((id, attribute), points) in &all {
                let mut expected: Vec<(i64, usize)> = points.iter().copied().filter(|(ms, _)| (from..to).contains(ms)).collect();
                expected.sort_unstable();
                let expected = &expected[expected.len().saturating_sub(last)..];
                let query = format!("?id=room{id}&attrs=a{attribute}&lastN={last}{bounds}");
                let answer = served.get(&query).await.json();
                let found = answer[0][format!("a{attribute}")].as_array().cloned().unwrap_or_default();
                let found: Vec<(String, i64)> = found
                    .iter()
                    .map(|point| (point["observedAt"].as_str().unwrap().to_owned(), point["value"].as_i64().unwrap()))
                    .collect();
                let expected: Vec<(String, i64)> = expected.iter().map(|(ms, number)| (time(*ms), *number as i64)).collect();
                assert_eq!(found, expected, "{query}");
            }
            served.stop().await;
            world.close();
        });
    }
}
