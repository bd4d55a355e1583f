//! Headers of HTTP as RFC 9110 has them: those that describe a value, and conditions.

use millstream_store::{BucketConfig, BucketKind, StoreConfig};

use super::world::{World, run};

const PAST: (&str, &str) = ("if-unmodified-since", "Sun, 13 Sep 2020 12:26:40 GMT");
const FUTURE: (&str, &str) = ("if-unmodified-since", "Sun, 13 Sep 2099 12:26:40 GMT");

async fn buckets(world: &World) {
    world.bucket("default", "pages", BucketConfig { partitions: 1, ..BucketConfig::default() }).await;
    world.bucket("default", "cached", BucketConfig { kind: BucketKind::Cache, ..BucketConfig::default() }).await;
}

#[test]
fn headers_that_describe_a_value_are_stored_and_sent_with_it() {
    run(false, StoreConfig::default(), async |world| {
        buckets(world).await;
        let sent = [
            ("Content-Type", "text/html"),
            ("Content-Encoding", "gzip"),
            ("Content-Language", "de"),
            ("content-language", "en"),
            ("Content-Disposition", "attachment; filename=\"a.html\""),
            ("Cache-Control", "public, max-age=60"),
        ];
        for bucket in ["pages", "cached"] {
            let key = format!("/kv/{bucket}/page?ttl=1h");
            assert_eq!(world.ask(&format!("PUT {key}"), &sent, b"zipped").await.status, 201, "{bucket}");
            let key = format!("/kv/{bucket}/page");
            let told = world.get(&key).await;
            let found = ["content-encoding", "content-language", "content-disposition", "cache-control"]
                .map(|name| told.header(name).unwrap_or_default());
            let expected = ["gzip", "de, en", "attachment; filename=\"a.html\"", "public, max-age=60"];
            assert_eq!(found, expected, "{bucket}");
            let tag = told.header("etag").unwrap();
            let current = world.ask(&format!("GET {key}"), &[("if-none-match", tag)], b"").await;
            assert_eq!((current.status, current.header("content-encoding")), (304, None), "{bucket}");
            assert_eq!(world.ask(&format!("PUT {key}"), &[], b"plain").await.status, 200, "{bucket}");
            assert_eq!(world.get(&key).await.header("content-encoding"), None, "{bucket}: they go with the value");
        }
    });
}

#[test]
fn conditions_compare_tags_and_times_as_rfc_9110_says() {
    run(false, StoreConfig::default(), async |world| {
        buckets(world).await;
        for bucket in ["pages", "cached"] {
            let key = format!("/kv/{bucket}/page");
            let tag = world.ask(&format!("PUT {key}"), &[], b"0").await.header("etag").unwrap().to_owned();
            let (weak, inside) = (format!("W/{tag}"), format!("\"x,{}\"", tag.trim_matches('"')));
            let is_durable = bucket == "pages";
            let refused = [
                ("PUT", vec![("content-range", "bytes 0-1/9")], 400),
                ("PUT", vec![("if-match", &weak[..])], 412),
                ("PUT", vec![("if-match", &inside)], 412),
                ("PUT", vec![("if-match", "\"\u{fc}\"")], 412),
                ("PUT", vec![("if-match", "\"1\""), ("if-match", "\"2\"")], 412),
                ("PUT", vec![("if-none-match", &weak)], 412),
                ("PUT", vec![("if-none-match", "\"1\""), ("if-none-match", &tag)], 412),
                ("DELETE", vec![("if-match", &weak)], 412),
                ("GET", vec![("if-match", &weak)], 412),
                ("GET", vec![("if-none-match", &weak)], 304),
                ("GET", vec![("if-none-match", "\"1\""), ("if-none-match", &tag)], 304),
            ];
            // A cache knows no time of a write, and then the condition is passed over.
            let by_time = [("PUT", vec![PAST], 412), ("DELETE", vec![PAST], 412), ("GET", vec![PAST], 412)];
            for (method, headers, status) in refused.into_iter().chain(by_time.into_iter().filter(|_| is_durable)) {
                let body = if method == "PUT" { &b"1"[..] } else { b"" };
                let told = world.ask(&format!("{method} {key}"), &headers, body).await;
                assert_eq!(told.status, status, "{bucket} {method} {headers:?}: {}", told.text());
                let kept = world.get(&key).await;
                assert_eq!((kept.header("etag"), &kept.body[..]), (Some(&*tag), &b"0"[..]), "{method} {headers:?}");
            }
            let mut tag = tag.clone();
            for headers in [
                vec![("if-match", "\"1\""), ("If-Match", "TAG")],
                vec![("if-match", "TAG"), PAST],
                vec![("if-unmodified-since", "yesterday")],
                vec![FUTURE],
            ] {
                let headers: Vec<_> = headers
                    .into_iter()
                    .map(|(name, value)| (name, if value == "TAG" { &*tag } else { value }))
                    .collect();
                let told = world.ask(&format!("PUT {key}"), &headers, b"0").await;
                assert_eq!(told.status, 200, "{bucket} {headers:?}: {}", told.text());
                tag = told.header("etag").unwrap().to_owned();
            }
        }
    });
}
