//! Values that a browser would show as documents of this server.

use millstream_store::{BucketConfig, BucketKind, StoreConfig};

use super::world::run;

#[test]
fn a_value_whose_media_type_a_client_has_chosen_runs_no_script_in_a_browser() {
    run(false, StoreConfig::default(), async |world| {
        let durable = BucketConfig { partitions: 1, ..BucketConfig::default() };
        let cache = BucketConfig { kind: BucketKind::Cache, ..BucketConfig::default() };
        world.bucket("default", "pages", durable).await;
        world.bucket("default", "cached", cache).await;
        for bucket in ["pages", "cached"] {
            let html = [("content-type", "text/html")];
            let page = b"<script>fetch('/api/tokens')</script>";
            assert_eq!(world.ask(&format!("PUT /kv/{bucket}/page"), &html, page).await.status, 201, "{bucket}");
            assert_eq!(world.ask(&format!("PUT /kv/{bucket}/bytes"), &[], page).await.status, 201, "{bucket}");
            let told = world.get(&format!("/kv/{bucket}/page")).await;
            assert_eq!(told.header("content-type"), Some("text/html"), "{bucket}");
            assert_eq!(told.header("content-security-policy"), Some("sandbox"), "{bucket}");
            assert_eq!(told.header("x-content-type-options"), Some("nosniff"), "{bucket}");
            let told = world.get(&format!("/kv/{bucket}/bytes")).await;
            assert_eq!(told.header("content-type"), Some("application/octet-stream"), "{bucket}");
        }
    });
}
