//! `/api/streams` gives only the records whose key, headers and value are as the request wants them, and none that expired.

use millstream_testkit::{Events, Server};
use serde_json::json;

use crate::streams::{Socket, append, create};

#[test]
fn only_records_with_the_requested_key_and_headers_are_given() {
    let server = crate::tenant();
    create(&server, "n", &json!({"partitions": 4}));
    let lines: Vec<String> = (0..40)
        .map(|n| {
            json!({"key": format!("d-{}", n % 8), "value": n, "headers": {"qos": (n % 2).to_string()}}).to_string()
        })
        .collect();
    append(&server, "n/records", &lines.join("\n"));
    let values = |query: &str| {
        let page = server.get_json(&format!("/api/streams/n?{query}"));
        let values = page["records"].as_array().unwrap().iter().map(|record| record["value"].as_u64().unwrap());
        (values.collect::<Vec<_>>(), page["next"].as_str().unwrap().to_owned())
    };
    let (of_one, end) = values("key=d-3");
    assert_eq!(of_one, [3, 11, 19, 27, 35]);
    assert_eq!(values("key=d-3&header.qos=0").0, [0; 0]);
    assert_eq!(values("key=d-?&header.qos=1").0.len(), 20);
    assert_eq!(values(&format!("key=d-3&from={end}")).0, [0; 0], "what was passed over is behind the position");
    let (first, next) = values("key=d-3&limit=2");
    assert_eq!((first, values(&format!("key=d-3&from={next}")).0), (vec![3, 11], vec![19, 27, 35]));

    let mut socket = Socket::open(&server, "/api/streams/n?from=earliest&key=d-5&header.qos=*", &[]).unwrap();
    for n in [5, 13, 21, 29, 37] {
        assert_eq!(socket.next().unwrap()["value"], n);
    }
    socket.close();
}

#[test]
fn only_records_whose_value_has_the_text_in_it_are_given() {
    let server = crate::tenant();
    create(&server, "n", &json!({"partitions": 1}));
    let lines = [
        r#"{"key":"a","value":{"door":"open"}}"#,
        r#"{"key":"b","value_text":"The door is OPEN"}"#,
        r#"{"key":"c","value":null}"#,
        r#"{"key":"d","value_base64":"/29wZW7/"}"#,
        r#"{"key":"open","value":{"door":"shut"}}"#,
    ];
    append(&server, "n/records", &lines.join("\n"));
    let end = format!("0:{}", 5 + crate::end_offsets());
    for (query, keys) in [
        ("contains=open", &["a", "d"][..]),
        ("contains=door&contains=OPEN", &["b"]),
        ("contains=door&key=o*", &["open"]),
        ("contains=%22door%22%3A%22open%22", &["a"]),
        ("contains=window", &[]),
    ] {
        let page = server.get_json(&format!("/api/streams/n?{query}&until=latest"));
        let found: Vec<&str> = page["records"].as_array().unwrap().iter().map(|r| r["key"].as_str().unwrap()).collect();
        assert_eq!((found.as_slice(), page["next"].as_str()), (keys, Some(&*end)), "{query}");
    }
    let headers = [("Accept", "text/event-stream")];
    let mut events = Events::get(&server, "/api/streams/n?from=earliest&until=latest&contains=OPEN", &headers);
    let at_end = end;
    let [record, end] = [events.next().unwrap(), events.next().unwrap()];
    assert_eq!((record.id.as_str(), end.name.as_str(), end.id.as_str()), ("0:2", "end", &*at_end));
}

#[test]
fn expired_messages_of_devices_are_not_given() {
    let server = crate::tenant();
    let of_devices = format!("event.{}", server.tenant());
    let lines = [
        json!({"key": "d", "value": 1, "headers": {"ttl": "1000", "creation-time": "1000"}}),
        json!({"key": "d", "value": 2, "headers": {"ttl": "1000", "creation-time": "99999999999999"}}),
        json!({"key": "d", "value": 3}),
    ];
    let lines = lines.map(|line| line.to_string()).join("\n");
    create(&server, "own", &json!({"partitions": 1}));
    let values = |topic: &str| {
        let answer = append(&server, &format!("{topic}/records"), &lines);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = server.get_json(&format!("/api/streams/{topic}"));
        page["records"].as_array().unwrap().iter().map(|record| record["value"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(values(&of_devices), [2, 3]);
    assert_eq!(values("own"), [1, 2, 3], "what a header means in a topic of one's own is nobody else's business");
}
