//! Locations: what is one, what is refused, and every relation of the reference's section 13.

use serde_json::json;

use crate::filters::{encoded, listed};
use crate::refusals::{ask, check};
use crate::world::{Served, World};

const PLACES: [&str; 9] = [
    // Madrid, Toledo (67 km), Barcelona (505 km).
    r#"{"id":"madrid","type":"City","location":{"type":"geo:json","value":{"type":"Point","coordinates":[-3.7038,40.4168]}}}"#,
    r#"{"id":"toledo","type":"City","location":{"type":"geo:point","value":"39.8628, -4.0273"}}"#,
    r#"{"id":"barcelona","type":"City","location":{"type":"geo:json","value":{"type":"Feature","properties":{},
        "geometry":{"type":"Point","coordinates":[2.1734,41.3851]}}}}"#,
    r#"{"id":"road","type":"Road","location":{"type":"geo:json","value":{"type":"LineString",
        "coordinates":[[-3.70,40.42],[2.17,41.38]]}}}"#,
    r#"{"id":"field","type":"Field","location":{"type":"geo:polygon","value":["40.0,-4.0","40.0,-3.9","40.1,-3.9","40.0,-4.0"]}}"#,
    r#"{"id":"fiji","type":"City","location":{"type":"geo:json","value":{"type":"Point","coordinates":[179.9,-17.0]}}}"#,
    r#"{"id":"nowhere","type":"City","location":{"type":"geo:json","value":null}}"#,
    r#"{"id":"ignored","type":"City","location":{"type":"geo:point","value":"40.4,-3.7","metadata":{"ignoreType":{"type":"Boolean","value":true}}}}"#,
    r#"{"id":"thing","type":"Thing","location":{"value":"40.4,-3.7"}}"#,
];

async fn filled(dir: &std::path::Path) -> (World, Served) {
    let world = World::open(dir);
    let served = world.serve().await;
    for body in PLACES {
        let answer = served.ask("POST /v2/entities", Some(body)).await;
        assert_eq!(answer.status, 201, "{body}: {answer:?}");
    }
    (world, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_geo_relation_follows_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    let madrid = "40.4168,-3.7038";
    let spain = "43,-9;43,3;36,3;36,-9;43,-9";
    for (row, georel, geometry, coords, expected) in [
        ("near;maxDistance", "near;maxDistance:1000", "point", madrid, "madrid road"),
        ("near;maxDistance", "near;maxDistance:100000", "point", madrid, "madrid toledo road field"),
        ("near;minDistance", "near;minDistance:100000", "point", madrid, "barcelona fiji"),
        ("near, both", "near;minDistance:1000;maxDistance:100000", "point", madrid, "toledo field"),
        ("near over the date line", "near;maxDistance:50000", "point", "-17,-179.9", "fiji"),
        ("near the pole", "near;maxDistance:8100000", "point", "90,0", "madrid toledo barcelona road field"),
        ("near, however far", "near;minDistance:0", "point", madrid, "madrid toledo barcelona road field fiji"),
        ("coveredBy a polygon", "coveredBy", "polygon", spain, "madrid toledo barcelona road field"),
        ("coveredBy a box", "coveredBy", "box", "39,-5;41,-3", "madrid toledo field"),
        ("coveredBy, border included", "coveredBy", "box", "40.4168,-3.7038;41,-3", "madrid"),
        ("intersects a box", "intersects", "box", "41,-1;42,0", "road"),
        ("intersects a line", "intersects", "line", "40.05,-4.1;40.05,-3.8", "field"),
        ("intersects a point", "intersects", "point", madrid, "madrid"),
        ("equals a point", "equals", "point", "41.3851,2.1734", "barcelona"),
        ("equals a polygon", "equals", "polygon", "40.0,-4.0;40.1,-3.9;40.0,-3.9;40.0,-4.0", "field"),
        ("disjoint", "disjoint", "polygon", spain, "fiji"),
    ] {
        let parameters = [("georel", georel), ("geometry", geometry), ("coords", coords)];
        assert_eq!(listed(&served, &parameters).await, expected, "{row}");
        let plan: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let plan = served.get(&format!("/v2/entities?options=explain&{}", plan.join("&"))).await.json();
        assert_eq!(plan["index"], "location", "{row}: {plan}");
    }
    let near = [("georel", "near;maxDistance:1000000"), ("geometry", "point"), ("coords", madrid)];
    let by_distance = [&near[..], &[("orderBy", "geo:distance"), ("type", "City")]].concat();
    assert_eq!(listed(&served, &by_distance).await, "madrid toledo barcelona");
    let reversed = [&near[..], &[("orderBy", "!geo:distance"), ("type", "City"), ("limit", "2")]].concat();
    assert_eq!(listed(&served, &reversed).await, "barcelona toledo");
    let body = format!(
        r#"{{"entities":[{{"idPattern":"^[mt]"}}],"expression":{{"georel":"near;maxDistance:100000","geometry":"point","coords":"{madrid}"}}}}"#
    );
    let found = served.ask("POST /v2/op/query?options=values", Some(&body)).await.json();
    assert_eq!(found.as_array().unwrap().len(), 2);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_is_in_one_place_and_may_move() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    let near = |coords| [("georel", "near;maxDistance:1000"), ("geometry", "point"), ("coords", coords)];
    let second = r#"{"other":{"type":"geo:point","value":"1,1"}}"#;
    let refused = ask(&served, "POST /v2/entities/madrid/attrs", Some(second)).await;
    check(&refused, 413, "NoResourcesAvailable", "location, other", "a second location");
    let ignored = r#"{"other":{"type":"geo:point","value":"1,1","metadata":{"ignoreType":{"value":true}}}}"#;
    assert_eq!(served.ask("POST /v2/entities/madrid/attrs", Some(ignored)).await.status, 204);
    let moved = r#"{"location":{"type":"geo:point","value":"1,1"}}"#;
    assert_eq!(served.ask("PATCH /v2/entities/madrid/attrs", Some(moved)).await.status, 204);
    assert_eq!(listed(&served, &near("1,1")).await, "madrid");
    assert_eq!(listed(&served, &near("40.4168,-3.7038")).await, "road");
    assert_eq!(served.ask("DELETE /v2/entities/madrid/attrs/location", None).await.status, 204);
    assert_eq!(listed(&served, &near("1,1")).await, "");
    // Of a Feature the geometry alone is shown.
    let shown = served.get("/v2/entities/barcelona/attrs/location/value").await.json();
    assert_eq!(shown, json!({"type": "Point", "coordinates": [2.1734, 41.3851]}));
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_geo_query_or_location_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    let query = |georel: &str, geometry: &str, coords: &str| {
        format!("GET /v2/entities?georel={}&geometry={geometry}&coords={}", encoded(georel), encoded(coords))
    };
    for (head, status, name, why) in [
        ("GET /v2/entities?georel=near".to_owned(), 400, "BadRequest", "come together"),
        ("GET /v2/entities?coords=1,2".to_owned(), 400, "BadRequest", "come together"),
        ("GET /v2/entities?orderBy=geo:distance".to_owned(), 400, "BadRequest", "georel=near"),
        (query("near", "point", "1,2"), 400, "BadRequest", "no distance"),
        (query("coveredBy", "box", "1,2;1,2"), 400, "BadRequest", "no area"),
        (query("coveredBy", "box", "1,2;1,3"), 400, "BadRequest", "no area"),
        (query("intersects", "box", "1,2;3,2"), 400, "BadRequest", "no area"),
        (query("beside", "point", "1,2"), 400, "BadRequest", "beside"),
        (query("near;far:1", "point", "1,2"), 400, "BadRequest", "maxDistance"),
        (query("near;maxDistance:-1", "point", "1,2"), 400, "BadRequest", "not negative"),
        (query("near;maxDistance:1;maxDistance:2", "point", "1,2"), 400, "BadRequest", "twice"),
        (query("equals;maxDistance:1", "point", "1,2"), 400, "BadRequest", "only near"),
        (query("equals", "circle", "1,2"), 400, "BadRequest", "point, line, polygon or box"),
        (query("equals", "point", "1,2;3,4"), 400, "BadRequest", "1 pair"),
        (query("equals", "line", "1,2"), 400, "BadRequest", "at least 2"),
        (query("coveredBy", "polygon", "1,2;3,4;5,6"), 400, "BadRequest", "at least 4"),
        (query("coveredBy", "polygon", "1,2;3,4;5,6;7,8"), 400, "BadRequest", "the last as the first"),
        (query("coveredBy", "box", "1,2"), 400, "BadRequest", "2 corners"),
        (query("equals", "point", "91,0"), 400, "BadRequest", "out of range"),
        (query("equals", "point", "x,0"), 400, "BadRequest", "no pair"),
        (query("near;maxDistance:1", "line", "1,2;3,4"), 422, "NotSupportedQuery", "from a point"),
        (query("coveredBy", "point", "1,2"), 422, "NotSupportedQuery", "covers"),
        (query("coveredBy", "line", "1,2;3,4"), 422, "NotSupportedQuery", "covers"),
    ] {
        check(&ask(&served, &head, None).await, status, name, why, &head);
    }
    for (kind, value, why) in [
        ("geo:point", json!("north"), "no pair"),
        ("geo:json", json!({"type": "GeometryCollection", "geometries": []}), "GeometryCollection"),
        ("geo:json", json!({"type": "FeatureCollection", "features": []}), "exactly one"),
        ("geo:json", json!({"type": "Point", "coordinates": [200, 0]}), "out of range"),
    ] {
        let body = json!({"id": "new", "location": {"type": kind, "value": value}}).to_string();
        check(&ask(&served, "POST /v2/entities", Some(&body)).await, 400, "BadRequest", why, &body);
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_of_many_are_found_without_sorting_all() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let entity = |n: i32| {
        let (latitude, longitude) = (40.0 + f64::from(n / 30) * 0.01, 2.0 + f64::from(n % 30) * 0.013);
        json!({"id": n.to_string(), "type": "T", "location": {"type": "geo:point", "value": format!("{latitude:.3},{longitude:.3}")}})
    };
    let body = json!({"actionType": "append", "entities": (0..900).map(entity).collect::<Vec<_>>()}).to_string();
    assert_eq!(served.ask("POST /v2/op/update", Some(&body)).await.status, 204);
    for (min_m, page) in [(0, "limit=7"), (0, "limit=7&offset=30"), (3_000, "limit=20"), (0, "limit=1000")] {
        let query = format!(
            "/v2/entities?georel=near;minDistance:{min_m}&geometry=point&coords=40.1,2.2&orderBy=geo:distance,id&attrs=none&{page}"
        );
        let (nearest, sorted) = (served.get(&query).await, served.get(&format!("{query}&options=count")).await);
        assert_eq!(nearest.json(), sorted.json(), "{query}");
        let plan = served.get(&format!("{query}&options=explain")).await.json();
        let is_all = page == "limit=1000";
        assert_eq!(plan["candidates"].as_u64().unwrap() < 400, !is_all, "{query}: {plan}");
    }
    served.stop().await;
    world.close();
}
