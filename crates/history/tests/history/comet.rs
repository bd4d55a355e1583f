//! Reads in the shapes of STH-Comet.

use millstream_types::iso_time;
use serde_json::{Value, json};

use crate::world::{HOUR_MS, NEW_YEAR_MS, Served, World, quiet};

const V1: &str = "/STH/v1/contextEntities/type/Room/id/room1/attributes";
const V2: &str = "/STH/v2/entities/room1/attrs";

fn at(hour: i64) -> String {
    iso_time(NEW_YEAR_MS + hour * HOUR_MS)
}

fn value(hour: i64) -> Value {
    json!({"recvTime": at(hour), "attrType": "Number", "attrValue": hour})
}

/// The values of an answer in the second version.
async fn get(served: &Served, query: &str) -> Value {
    let answer = served.ask(&format!("GET {V2}/{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    let mut attribute = answer.json();
    assert_eq!(attribute["type"], "StructuredValue", "{attribute}");
    attribute["value"].take()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_the_same_wherever_the_points_lie() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for hour in 0..30 {
        world.measure("room1", "t", &hour.to_string(), NEW_YEAR_MS + hour * HOUR_MS);
        let door = ["\"open\"", "\"shut, locked\"", "3"][hour as usize % 3];
        world.measure("room1", "door", door, NEW_YEAR_MS + hour * HOUR_MS);
    }
    world.change(("default", "Car", "room1"), "t", "-5", NEW_YEAR_MS);
    world.alter("room1", "entityDelete", "t", NEW_YEAR_MS + 40 * HOUR_MS);
    ask_everything(&world).await;
    world.flush();
    ask_everything(&world).await;
    world.close();
}

async fn ask_everything(world: &World) {
    let served = world.serve().await;
    assert_eq!(get(&served, "t?type=Room&lastN=2").await, json!([value(28), value(29)]), "a deletion is no value");
    assert_eq!(get(&served, "t?type=Room&hLimit=2&hOffset=5").await, json!([value(5), value(6)]));
    assert_eq!(get(&served, "t?type=Room&lastN=9&hLimit=2&hOffset=1").await, json!([value(22), value(23)]));
    assert_eq!(get(&served, "t?type=Room&lastN=0").await, json!([]));
    let between = format!("t?type=Room&lastN=100&dateFrom={}&dateTo={}", at(3), NEW_YEAR_MS + 4 * HOUR_MS);
    assert_eq!(get(&served, &between).await, json!([value(3), value(4)]));
    for nothing in ["t?type=None&lastN=3", "none?type=Room&lastN=3", "t?type=Room&lastN=3&dateFrom=2027-01-01"] {
        assert_eq!(get(&served, nothing).await, json!([]), "{nothing}");
    }
    let counted = served.ask(&format!("GET {V2}/t?type=Room&hLimit=1&hOffset=29&count=true&dateFrom={}", at(2))).await;
    assert_eq!(counted.header("fiware-total-count"), Some("28"));
    let first = served.ask(&format!("GET {V1}/t?lastN=1")).await.json();
    let element = json!({
        "attributes": [{"name": "t", "values": [value(29)]}], "id": "room1", "isPattern": false, "type": "Room"
    });
    let status = json!({"code": "200", "reasonPhrase": "OK"});
    assert_eq!(first, json!({"contextResponses": [{"contextElement": element, "statusCode": status}]}));
    let csv = served.ask(&format!("GET {V1}/door?lastN=2&filetype=csv")).await;
    assert!(csv.header("content-disposition").unwrap().starts_with("attachment"), "{csv:?}");
    let line = |text: &str, hour| format!("door,Number,{text},{}\r\n", at(hour));
    let lines = format!("attrName,attrType,attrValue,recvTime\r\n{}{}", line("\"shut, locked\"", 28), line("3", 29));
    assert_eq!(csv.body, lines);
    sums(&served).await;
    refusals(&served).await;
    served.stop().await;
}

async fn sums(served: &Served) {
    let of_hours = get(served, "t?type=Room&aggrMethod=all&aggrPeriod=hour").await;
    let point = |offset: i64, value: i64| json!({"offset": offset, "samples": 1, "max": value, "min": value, "sum": value, "sum2": value * value});
    assert_eq!(of_hours[0]["_id"], json!({"attrName": "t", "origin": at(0), "resolution": "hour"}));
    assert_eq!((&of_hours[0]["points"][23], &of_hours[1]["points"][5]), (&point(23, 23), &point(5, 29)));
    let of_days = get(served, "t?type=Room&aggrMethod=sum&aggrPeriod=day").await;
    let points = json!([{"offset": 1, "samples": 24, "sum": 276}, {"offset": 2, "samples": 6, "sum": 159}]);
    assert_eq!(of_days, json!([{"_id": {"attrName": "t", "origin": at(0), "resolution": "day"}, "points": points}]));
    let day_two = format!("t?type=Room&aggrMethod=max&aggrPeriod=month&dateFrom={}", at(24));
    assert_eq!(get(served, &day_two).await[0]["points"], json!([{"offset": 1, "samples": 6, "max": 29}]));
    let texts = get(served, "door?type=Room&aggrMethod=occur&aggrPeriod=month").await;
    assert_eq!(
        texts[0]["points"],
        json!([{"offset": 1, "samples": 20, "occur": {"open": 10, "shut, locked": 10}}]),
        "numbers are no texts"
    );
    assert_eq!(
        get(served, "door?type=Room&aggrMethod=max&aggrPeriod=month").await[0]["points"],
        json!([{"offset": 1, "samples": 10, "max": 3}]),
        "texts are no numbers"
    );
    assert_eq!(get(served, "t?type=Room&aggrMethod=occur&aggrPeriod=month").await, json!([]));
}

async fn refusals(served: &Served) {
    for (query, status, reason) in [
        ("t", 400, "Bad Request"),
        ("t?lastN=x", 400, "Bad Request"),
        ("t?lastN=1000000", 400, "Bad Request"),
        ("t?aggrMethod=max", 400, "Bad Request"),
        ("t?lastN=1&color=red", 400, "Bad Request"),
    ] {
        let first = served.ask(&format!("GET {V1}/{query}")).await;
        assert_eq!(first.status, status, "{query}");
        assert_eq!((&first.json()["statusCode"], &first.json()["error"]), (&json!(status), &json!(reason)), "{query}");
        let second = served.ask(&format!("GET {V2}/{query}")).await;
        assert_eq!(second.status, status, "{query}");
        assert_eq!(second.json()["error"], reason.replace(' ', ""), "{query}");
    }
    let several = served.ask(&format!("GET {V2}/t?lastN=1")).await;
    assert_eq!((several.status, &several.json()["error"]), (409, &json!("Conflict")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &quiet());
    for version in [V1, V2] {
        for (kind, id) in [("Room", "room1"), ("Room", "room2"), ("Car", "room1")] {
            for attribute in ["t", "u"] {
                world.change(("default", kind, id), attribute, "1", NEW_YEAR_MS);
            }
        }
        let served = world.serve().await;
        let left = async |kind: &str, id: &str, attribute: &str| {
            let path = format!("/STH/v2/entities/{id}/attrs/{attribute}?type={kind}&lastN=10");
            served.ask(&format!("GET {path}")).await.json()["value"].as_array().unwrap().len()
        };
        let delete = async |path: &str| assert_eq!(served.ask(&format!("DELETE {path}")).await.status, 204, "{path}");
        let (one, whole, all) = match version {
            V1 => (format!("{V1}/t"), V1.strip_suffix("/attributes").unwrap().to_owned(), "/STH/v1/contextEntities"),
            _ => (format!("{V2}/t?type=Room"), "/STH/v2/entities/room1?type=Room".to_owned(), "/STH/v2/entities"),
        };
        delete(&one).await;
        assert_eq!((left("Room", "room1", "t").await, left("Room", "room1", "u").await), (0, 1));
        assert_eq!(left("Car", "room1", "t").await, 1);
        delete(&whole).await;
        assert_eq!((left("Room", "room1", "u").await, left("Room", "room2", "t").await), (0, 1));
        delete(&format!("{all}\nfiware-servicepath: /other")).await;
        assert_eq!(left("Room", "room2", "t").await, 1);
        delete(all).await;
        assert_eq!((left("Room", "room2", "t").await, left("Car", "room1", "u").await), (0, 0));
        served.stop().await;
    }
    world.close();
}
