//! The calls of FIWARE's NGSI-v2 tutorials on relationships of entities and on context providers, as their readers send them.

use serde_json::{Value, json};

use crate::provider::Provider;
use crate::world::{Served, World};

const STORE: &str = "urn:ngsi-ld:Store:001";

async fn send(served: &Served, head: &str, status: u16, body: &Value) {
    let answer = served.ask(head, Some(&body.to_string())).await;
    assert_eq!(answer.status, status, "{head}: {}", answer.body);
}

async fn read(served: &Served, target: &str) -> Value {
    let answer = served.get(target).await;
    assert_eq!(answer.status, 200, "{target}: {}", answer.body);
    answer.json()
}

fn store() -> Value {
    json!({
        "id": STORE, "type": "Store",
        "address": {"type": "PostalAddress", "value": {
            "streetAddress": "Bornholmer Straße 65", "addressLocality": "Prenzlauer Berg", "postalCode": "10439",
        }, "metadata": {"verified": {"value": true, "type": "Boolean"}}},
        "location": {"type": "geo:json", "value": {"type": "Point", "coordinates": [13.3986, 52.5547]}},
        "name": {"type": "Text", "value": "Bösebrücke Einkauf"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_the_tutorial_on_relationships() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    send(&served, "POST /v2/entities", 201, &store()).await;
    let shelf = |number: usize| {
        json!({
            "id": format!("urn:ngsi-ld:Shelf:unit{number:03}"), "type": "Shelf",
            "location": {"type": "geo:json", "value": {"type": "Point", "coordinates": [13.3986103, 52.5547]}},
            "name": {"type": "Text", "value": format!("Unit {number}")},
            "maxCapacity": {"type": "Integer", "value": 50},
        })
    };
    let products = [("001", "Beer", 99), ("002", "Red Wine", 1_099)].map(|(id, name, price)| {
        json!({
            "id": format!("urn:ngsi-ld:Product:{id}"), "type": "Product", "name": {"type": "Text", "value": name},
            "size": {"type": "Text", "value": "M"}, "price": {"type": "Integer", "value": price},
        })
    });
    let new: Vec<Value> = (1..=3).map(shelf).chain(products).collect();
    let batch = |action: &str, entities: Vec<Value>| json!({"actionType": action, "entities": entities});
    send(&served, "POST /v2/op/update", 204, &batch("append_strict", new)).await;
    assert_eq!(read(&served, "/v2/entities/?type=Shelf&options=keyValues").await.as_array().unwrap().len(), 3);
    // Shelves belong to a store.
    let refer = |number: usize| {
        let store = json!({"type": "Relationship", "value": STORE});
        json!({"id": format!("urn:ngsi-ld:Shelf:unit{number:03}"), "type": "Shelf", "refStore": store})
    };
    send(&served, "POST /v2/op/update", 204, &batch("append", (1..=3).map(refer).collect())).await;
    let target = "/v2/entities/urn:ngsi-ld:Shelf:unit001/?type=Shelf&options=keyValues";
    assert_eq!(read(&served, target).await["refStore"], STORE);
    let target = "/v2/entities/urn:ngsi-ld:Shelf:unit001/?type=Shelf&options=values&attrs=refStore";
    assert_eq!(read(&served, target).await, json!([STORE]));
    let children = format!("/v2/entities/?q=refStore=={STORE}");
    let shelves: Vec<Value> =
        (1..=3).map(|number| json!({"id": format!("urn:ngsi-ld:Shelf:unit{number:03}"), "type": "Shelf"})).collect();
    let target = format!("{children}&options=count&attrs=type&type=Shelf");
    assert_eq!(read(&served, &target).await, Value::from(shelves));
    assert_eq!(served.get(&target).await.header("fiware-total-count"), Some("3"));
    let target = format!("{children}&type=Shelf&options=values&attrs=name");
    assert_eq!(read(&served, &target).await, json!([["Unit 1"], ["Unit 2"], ["Unit 3"]]));
    // An item is of a product, on a shelf, in a store.
    let relationship = |to: &str| json!({"type": "Relationship", "value": to});
    let item = |number: usize, product: &str| {
        json!({
            "id": format!("urn:ngsi-ld:InventoryItem:{number:03}"), "type": "InventoryItem",
            "refStore": relationship(STORE), "refShelf": relationship("urn:ngsi-ld:Shelf:unit001"),
            "refProduct": relationship(product), "stockCount": {"type": "Integer", "value": 10_000},
            "shelfCount": {"type": "Integer", "value": 50},
        })
    };
    send(&served, "POST /v2/entities", 201, &item(1, "urn:ngsi-ld:Product:001")).await;
    send(&served, "POST /v2/entities", 201, &item(2, "urn:ngsi-ld:Product:002")).await;
    let stores = "/v2/entities/?q=refProduct==urn:ngsi-ld:Product:001&options=values&attrs=refStore&type=InventoryItem";
    assert_eq!(read(&served, stores).await, json!([[STORE]]));
    let target = format!("{children}&options=values&attrs=refProduct&type=InventoryItem");
    assert_eq!(read(&served, &target).await, json!([["urn:ngsi-ld:Product:001"], ["urn:ngsi-ld:Product:002"]]));
    // All that would be left behind by a store.
    let related = read(&served, &format!("{children}&options=keyValues&attrs=type")).await;
    assert_eq!(related.as_array().unwrap().len(), 5);
    let named = |kind: &str, id: &str| json!({"id": format!("urn:ngsi-ld:{kind}:{id}"), "type": kind});
    let gone = vec![named("Shelf", "unit001"), named("InventoryItem", "001")];
    send(&served, "POST /v2/op/update", 204, &batch("delete", gone)).await;
    assert_eq!(read(&served, &format!("{children}&attrs=type")).await.as_array().unwrap().len(), 3);
    assert_eq!(served.ask(&format!("DELETE /v2/entities/{STORE}"), None).await.status, 204);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_the_tutorial_on_context_providers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    send(&served, "POST /v2/entities", 201, &store()).await;
    let value = |name: &str| match name {
        "temperature" => json!({"type": "Number", "value": 14, "metadata": {}}),
        "relativeHumidity" => json!({"type": "Number", "value": 81, "metadata": {}}),
        _ => json!({"type": "Array", "value": ["Lorem ipsum", "dolor sit"], "metadata": {}}),
    };
    let provider = Provider::answering(move |asked| {
        let Some(names) = asked.body["attrs"].as_array() else { return (204, String::new()) };
        let mut entity = asked.body["entities"][0].clone();
        names.iter().for_each(|name| entity[name.as_str().unwrap()] = value(name.as_str().unwrap()));
        (200, json!([entity]).to_string())
    })
    .await;
    let mut ids = Vec::new();
    for (what, path, attrs) in [
        ("Weather Data", "/random/weatherConditions", &["temperature", "relativeHumidity"][..]),
        ("Tweets", "/random/tweets", &["tweets"]),
    ] {
        let registration = json!({
            "description": format!("Get {what} for Store 1"),
            "dataProvided": {"entities": [{"id": STORE, "type": "Store"}], "attrs": attrs},
            "provider": {"http": {"url": provider.url(path)}, "legacyForwarding": false},
            "status": "active",
        });
        let made = served.ask("POST /v2/registrations", Some(&registration.to_string())).await;
        assert_eq!(made.status, 201, "{}", made.body);
        ids.push(made.header("location").unwrap().rsplit('/').next().unwrap().to_owned());
    }
    // The whole, one attribute, its value, and a list.
    let whole = read(&served, &format!("/v2/entities/{STORE}?type=Store&options=keyValues")).await;
    assert_eq!(
        [&whole["name"], &whole["temperature"], &whole["relativeHumidity"], &whole["tweets"][1]],
        [&json!("Bösebrücke Einkauf"), &json!(14), &json!(81), &json!("dolor sit")]
    );
    let asked: Vec<String> = provider.take().into_iter().map(|asked| asked.target).collect();
    let mut paths: Vec<&str> = asked.iter().map(|target| target.split('?').next().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/random/tweets/op/query", "/random/weatherConditions/op/query"]);
    let humidity = format!("/v2/entities/{STORE}/attrs/relativeHumidity");
    assert_eq!(read(&served, &format!("{humidity}?type=Store")).await["value"], 81);
    assert_eq!(served.get(&format!("{humidity}/value?type=Store")).await.body, "81");
    let target = format!("/v2/entities/{STORE}?type=Store&attrs=tweets&options=values");
    assert_eq!(read(&served, &target).await, json!([["Lorem ipsum", "dolor sit"]]));
    assert_eq!(provider.take().len(), 3);
    let list = read(&served, "/v2/entities/?type=Store&options=keyValues&attrs=name,temperature").await;
    assert_eq!(list, json!([{"id": STORE, "type": "Store", "name": "Bösebrücke Einkauf", "temperature": 14}]));
    // Registrations, with and without a slash behind them.
    for target in ["/v2/registrations", "/v2/registrations/"] {
        let all = read(&served, target).await;
        let found: Vec<&str> = all.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(found, ids, "{target}");
    }
    assert_eq!(read(&served, &format!("/v2/registrations/{}", ids[0])).await["provider"]["legacyForwarding"], false);
    assert_eq!(served.ask(&format!("DELETE /v2/registrations/{}", ids[0]), None).await.status, 204);
    let left = read(&served, &format!("/v2/entities/{STORE}?type=Store&options=keyValues")).await;
    assert!(left.get("temperature").is_none() && left.get("tweets").is_some(), "{left}");
    served.stop().await;
    world.close();
}
