//! Statistics over HTTP, and the metrics.

use std::io::Read as _;

use millstream_store::{BucketConfig, Categories, ExternalProvider, StatsConfig, StoreConfig};
use serde_json::{Value, json};

use super::world::{TOKEN, World, run};

const READS: u64 = 400;

/// A bucket with one key of 5 bytes, which was read often.
async fn filled(world: &World) {
    world.bucket("default", "photos", BucketConfig { cache_bytes: 1 << 20, ..BucketConfig::default() }).await;
    assert_eq!(world.ask("PUT /kv/photos/a", &[], b"hello").await.status, 201);
    for _ in 0..READS {
        assert_eq!(world.get("/kv/photos/a").await.body, b"hello");
    }
    assert_eq!(world.get("/kv/photos/missing").await.status, 404);
}

fn sum(grid: &Value) -> u64 {
    let rows = grid.as_array().unwrap().iter();
    rows.flat_map(|row| row.as_array().unwrap()).map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn each_category_tells_what_happened() {
    run(false, StoreConfig::default(), async |world| {
        filled(world).await;
        let route = "GET /kv/{bucket}/{*key}";
        let told =
            world.until("/stats/commands", |told| told["commands"]["protocols"]["http"][route]["failures"] == 1).await;
        let commands = &told["commands"];
        assert_eq!(commands["READ"]["cache"]["outside"]["successes"], READS);
        assert_eq!(commands["READ"]["disk"]["outside"]["successes"], 0);
        assert_eq!(commands["WRITE"]["disk"]["outside"]["successes"], 1);
        assert_eq!(commands["total"]["storage"], json!({"successes": READS + 1, "failures": 0}));
        assert_eq!(commands["protocols"]["http"][route]["successes"], READS);
        assert!(told["timestamp"]["tv_sec"].as_i64().unwrap() > 1_700_000_000, "{told}");
        assert!(told["backends"].is_null(), "{told}");

        let histograms = &world.get("/stats/io_histograms").await.json()["io_histograms"];
        let reads = sum(&histograms["since_start"]["read"]["cache"]["outside"]);
        assert!(reads > 0 && reads.is_multiple_of(16), "one of 16 is timed and counts for all of them: {reads}");
        assert_eq!(sum(&histograms["since_start"]["write"]["disk"]["outside"]), 1);

        let backend = &world.get("/stats/backend").await.json()["backends"]["0"];
        assert_eq!((&backend["bucket"], &backend["status"]["string_state"]), (&json!("photos"), &json!("enabled")));
        assert_eq!(backend["backend"]["summary_stats"]["records_total"], 1);
        assert_eq!(backend["backend"]["summary_stats"]["live_bytes"], 6);
        assert_eq!(backend["backend"]["global_stats"]["reads_missing"], 1);
        assert_eq!(backend["backend"]["base_stats"].as_array().unwrap().len(), 4);
        assert!(backend["cache"].is_null(), "{backend}");
        let cache = &world.get("/stats/cache").await.json()["backends"]["0"];
        assert_eq!(cache["cache"]["total_cache"]["hits"], READS);
        assert!(cache["backend"].is_null(), "{cache}");

        let top = world.get("/top").await.json();
        let hottest = &top["top"]["top_by_size"][0];
        assert_eq!((&hottest["bucket"], &hottest["key"]), (&json!("photos"), &json!("a")));
        assert_eq!(hottest["size"].as_u64().unwrap(), 5 * hottest["frequency"].as_u64().unwrap());

        let io = world.get("/stats/io").await.json();
        assert!(io["io"]["log"]["commits"].as_u64().unwrap() > 0 && io["io"]["blocked"] == false, "{io}");
        assert!(world.get("/stats/procfs").await.json()["procfs"]["stat"]["threads_num"].as_u64().unwrap() > 1);
        assert_eq!(world.get("/stats/call_tree").await.json()["stats"]["cache.READ.count"], READS);
    });
}

#[test]
fn unknown_statistics_are_refused_with_those_there_are() {
    run(false, StoreConfig::default(), async |world| {
        let refused = world.get("/stats/nothing").await;
        assert_eq!(refused.status, 404);
        for name in ["io_histograms", "procfs", "backend", "top"] {
            assert!(refused.text().contains(name), "{}", refused.text());
        }
    });
}

#[test]
fn answers_are_compressed_only_when_asked() {
    run(false, StoreConfig::default(), async |world| {
        assert_eq!(world.get("/stats/all").await.header("content-encoding"), None);
        let packed = world.ask("GET /stats/all", &[("accept-encoding", "deflate")], b"").await;
        assert_eq!(packed.header("content-encoding"), Some("deflate"));
        let mut text = String::new();
        flate2::read::ZlibDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
        let tree: Value = serde_json::from_str(&text).unwrap();
        for member in ["commands", "io", "io_histograms", "procfs", "stats", "top"] {
            assert!(tree[member].is_object() && tree[member]["error"].is_null(), "{member} in {tree}");
        }
    });
}

#[test]
fn providers_are_added_at_run_time_and_external_ones_by_settings() {
    let gone = ExternalProvider { name: "disks".to_owned(), url: "/nowhere.sock".to_owned(), deadline_ms: 5_000 };
    let stats = StatsConfig { external: vec![gone], ..StatsConfig::default() };
    run(false, StoreConfig { stats, ..StoreConfig::default() }, async |world| {
        assert_eq!(world.get("/stats/uploads").await.status, 404);
        world.statistics.register_fn("uploads", Categories::IO, |sink| sink.set("waiting", 3)).unwrap();
        assert_eq!(world.get("/stats/uploads").await.json()["uploads"]["waiting"], 3);
        assert_eq!(world.get("/stats/io").await.json()["uploads"]["waiting"], 3);
        assert!(world.statistics.remove("uploads"));
        assert_eq!(world.get("/stats/uploads").await.status, 404);
        let told = world.get("/stats/disks").await.json();
        assert!(told["disks"]["error"].as_str().unwrap().contains("/nowhere.sock"), "{told}");
    });
}

#[test]
fn a_caller_of_one_tenant_sees_its_buckets_only() {
    run(true, StoreConfig::default(), async |world| {
        world.bucket("default", "own", BucketConfig::default()).await;
        world.bucket("acme", "foreign", BucketConfig::default()).await;
        assert_eq!(world.get("/stats/all").await.status, 401);
        assert_eq!(world.get("/top").await.status, 401);
        let bearer = format!("Bearer {TOKEN}");
        let told = world.ask("GET /stats/all", &[("authorization", &bearer)], b"").await;
        assert!(told.text().contains("\"own\"") && !told.text().contains("foreign"), "{}", told.text());
        let told = told.json();
        assert!(told["commands"]["protocols"].is_null(), "counters of all tenants are an operator's: {told}");
    });
}

#[test]
fn metrics_tell_each_bucket() {
    run(false, StoreConfig::default(), async |world| {
        filled(world).await;
        let text = world.metrics.text();
        let labels = "bucket=\"photos\",tenant=\"default\"";
        for line in [
            "millstream_store_keys{bucket=\"photos\",tenant=\"default\"} 1".to_owned(),
            "millstream_store_bytes{bucket=\"photos\",tenant=\"default\"} 6".to_owned(),
            format!("millstream_store_cache_hits_total{{{labels}}} {READS}"),
            format!("millstream_store_disk_reads_total{{{labels}}} 0"),
            format!("millstream_store_writes_total{{{labels}}} 1"),
            format!("millstream_store_missing_total{{{labels}}} 1"),
            format!("millstream_store_expired_total{{{labels}}} 0"),
            "millstream_store_operation_seconds_count{bucket=\"photos\",operation=\"write\",place=\"disk\",tenant=\"default\"} 1"
                .to_owned(),
        ] {
            assert!(text.lines().any(|told| told == line), "{line} in\n{text}");
        }
        assert!(!text.contains("millstream_store_quota_bytes{"), "the bucket has no quota");
    });
}
