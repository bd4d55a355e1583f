//! From a device's request to the record that applications read.

use millstream_types::{Kind, header};

use crate::world::{World, basic};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_messages_of_a_device_arrive_in_order_with_their_headers() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let login = basic("d@T", "pw");
    for n in 0..100 {
        let headers = [("authorization", login.as_str()), ("content-type", "text/plain")];
        let sent = world.device("POST /telemetry", &headers, n.to_string().as_bytes()).await;
        assert_eq!((sent.status, sent.body.as_str()), (202, ""));
    }
    let records = world.records(Kind::Telemetry, "T");
    let values: Vec<_> = records.iter().map(|record| String::from_utf8_lossy(&record.value).into_owned()).collect();
    assert_eq!(values, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    for record in &records {
        assert_eq!(record.key, "d");
        for (name, expected) in [
            (header::DEVICE_ID, "d"),
            (header::CONTENT_TYPE, "text/plain"),
            (header::ORIG_ADAPTER, "hono-http"),
            (header::ORIG_ADDRESS, "/telemetry"),
            (header::QOS, "0"),
        ] {
            assert_eq!(record.header(name), Some(expected));
        }
        assert!(record.header(header::CREATION_TIME).unwrap().parse::<u64>().unwrap() > 1_600_000_000_000);
        assert_eq!((record.header(header::TTD), record.header(header::TTL)), (None, None));
    }
    let text = world.metrics.text();
    let forwarded = "hono_telemetry_processing_duration_seconds_count{component_name=\"hono-http\",component_type=\"adapter\",qos=\"AT_MOST_ONCE\",status=\"forwarded\",tenant=\"T\",type=\"telemetry\"} 100";
    assert!(text.lines().any(|line| line == forwarded), "{text}");
    world.stop().await;
}
