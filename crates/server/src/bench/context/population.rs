//! The entities of the cases, and the requests about them.

use std::fmt::Write as _;
use std::io::Write as _;

use super::ground::Place;

/// Entities in one request that makes them.
const BATCH: u64 = 400;
/// Requests that make entities, at once.
const MAKERS: usize = 4;
/// Entities that share the attribute `station`.
pub(super) const OF_ONE_STATION: u64 = 20;
/// About 1.1 km.
const STEP_DEGREES: f64 = 0.01;

/// An entity as it is made; its JSON in the form in which it is read.
fn push_entity(number: u64, many: u64, out: &mut String) {
    let (latitude, longitude) = location(number, many);
    let _ = write!(
        out,
        "{{\"id\":\"{}\",\"type\":\"WeatherObserved\",\
         \"temperature\":{{\"type\":\"Number\",\"value\":{},\"metadata\":{{}}}},\
         \"humidity\":{{\"type\":\"Number\",\"value\":0.5{},\"metadata\":{{}}}},\
         \"windSpeed\":{{\"type\":\"Number\",\"value\":{},\"metadata\":{{}}}},\
         \"station\":{{\"type\":\"Text\",\"value\":\"{}\",\"metadata\":{{}}}},\
         \"dateObserved\":{{\"type\":\"DateTime\",\"value\":\"2026-01-01T00:00:00.000Z\",\"metadata\":{{}}}},\
         \"location\":{{\"type\":\"geo:json\",\"value\":{{\"type\":\"Point\",\"coordinates\":[{longitude:.4},{latitude:.4}]}},\
         \"metadata\":{{}}}}}}",
        id(number),
        value(number),
        number % 90 + 1,
        number % 30,
        station(number),
    );
}

pub(super) fn id(number: u64) -> String {
    format!("urn:ngsi-ld:WeatherObserved:{number:07}")
}

pub(super) fn station(number: u64) -> String {
    format!("st{:06}", number / OF_ONE_STATION)
}

/// Latitude and longitude: places on a square lattice, in no order.
pub(super) fn location(number: u64, many: u64) -> (f64, f64) {
    let side = (many as f64).sqrt().ceil() as u64;
    // A step that shares no factor with the count of places visits each once.
    let place = number.wrapping_mul(1_000_003) % (side * side);
    (30.0 + (place / side) as f64 * STEP_DEGREES, 2.0 + (place % side) as f64 * STEP_DEGREES)
}

/// A temperature; that of the next update of the same entity is another.
fn value(number: u64) -> f64 {
    (number % 997) as f64 / 10.0
}

/// Some number below `below`; different ones for different `number`s.
pub(super) fn any(number: u64, below: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % below
}

/// Makes the entities from `first` to `end`; how many bytes of JSON they are.
pub(super) fn make(place: &Place, first: u64, end: u64, many: u64) -> anyhow::Result<u64> {
    let bytes = std::cell::Cell::new(0);
    place.send_all(MAKERS, (end - first).div_ceil(BATCH), |batch, _, request| {
        let mut body = String::from("{\"actionType\":\"append\",\"entities\":[");
        let from = first + batch * BATCH;
        for number in from..(from + BATCH).min(end) {
            if number > from {
                body.push(',');
            }
            let before = body.len();
            push_entity(number, many, &mut body);
            bytes.set(bytes.get() + (body.len() - before) as u64);
        }
        body.push_str("]}");
        with_body("POST", "/v2/op/update", "application/json", &body, request);
    })?;
    Ok(bytes.get())
}

pub(super) fn get(target: &str, request: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(request, "GET {target} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n\r\n");
}

pub(super) fn with_body(method: &str, target: &str, kind: &str, body: &str, request: &mut Vec<u8>) {
    let length = body.len();
    let _ = write!(
        request,
        "{method} {target} HTTP/1.1\r\nHost: bench\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
}

/// Sets one attribute of one entity out of so many.
pub(super) fn update(number: u64, entities: u64, request: &mut Vec<u8>) {
    let target = format!("/v2/entities/{}/attrs", id(any(number, entities)));
    let body = format!("{{\"temperature\":{{\"type\":\"Number\",\"value\":{}}}}}", value(number));
    with_body("PATCH", &target, "application/json", &body, request);
}

/// Sets the bare value of one attribute of one entity out of so many.
pub(super) fn set_value(number: u64, entities: u64, request: &mut Vec<u8>) {
    let target = format!("/v2/entities/{}/attrs/temperature/value", id(any(number, entities)));
    with_body("PUT", &target, "text/plain", &value(number).to_string(), request);
}

/// Reads one entity out of so many.
pub(super) fn read(number: u64, entities: u64, request: &mut Vec<u8>) {
    get(&format!("/v2/entities/{}", id(any(number, entities))), request);
}

/// Sets when it was sent, in microseconds since the run began.
pub(super) fn stamp(number: u64, entities: u64, at_us: u128, request: &mut Vec<u8>) {
    let target = format!("/v2/entities/{}/attrs", id(any(number, entities)));
    with_body(
        "POST",
        &target,
        "application/json",
        &format!("{{\"stamp\":{{\"type\":\"Number\",\"value\":{at_us}}}}}"),
        request,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_as_they_are_read_and_lie_in_different_places() {
        let mut places = std::collections::BTreeSet::new();
        for number in 0..1_000 {
            let (mut json, (latitude, longitude)) = (String::new(), location(number, 1_000));
            push_entity(number, 1_000, &mut json);
            let entity: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(entity["id"], id(number));
            assert_eq!(entity["location"]["value"]["coordinates"][1].as_f64().unwrap(), (latitude * 1e4).round() / 1e4);
            places.insert(((latitude * 1e4) as i64, (longitude * 1e4) as i64));
        }
        assert_eq!(places.len(), 1_000);
    }
}
