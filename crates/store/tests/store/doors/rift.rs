//! Rift's routes: shapes of answers, ranges, and who may use them.

use millstream_store::{BucketConfig, RiftUser, StoreConfig};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::world::{LOGIN_FAILURES_PER_MINUTE, TOKEN, run};

// Signatures that Python's hmac computed: hmac.new(secret, text, hashlib.sha512).hexdigest().
/// Secret `ann-secret`, text `POST\n/upload/signed/k?offset=0&size=9\nx-ell-note:hi\n`.
const ANN_UPLOAD: &str = "39e3593516016e32730493f5fa770e27eaa82196e067b756a094b91149d8a7e2d74a4625cdd6d270281d9f5a317bb460d35e2458966e4257aeadc7ae2d265093";
/// Secret `ann-secret`, text `GET\n/get/signed/k\n`.
const ANN_GET: &str = "396ff36310fa19becb32eb67737ab706ed86f52d2fd2e5e038e765ac63cb695bc60265315fa4eb5e49d24759cb70e4cce52301f23c27dd9601d27d24669413b1";
/// Secret `bob-secret`, text `GET\n/get/signed/k\n`.
const BOB_GET: &str = "bb0d6ec17ef735a4351a1b385131989d12302ac04810bccd2e266fdfa9c0dc5f8134174c266ec9445863723a85029f3f6f8fbcd05723d4f9114a6a38a59f7621";
/// Secret `bob-secret`, text `POST\n/upload/signed/k\n`.
const BOB_UPLOAD: &str = "09de2cbcb41269b231ef4e30bf32d589777fe482ae8c5d0efb24fb7b3fcf3cb340c9fe5562c7c5c0e4d9bc7ded6b0103b9e3a9300a30fde0d96fcff74e38a491";
/// Secret `ann-secret`, text `GET\n/get/none/k\n`.
const ANN_NONE: &str = "c6d707f49d5c21ec65074d8752c4abe1d70b071890c0325eba8f3d42fac9d9ee3a1b5365245813cbeb4a0adaefd7c7be59388a9e0c91917eb7cf01e2d5f22b9f";

fn rift() -> StoreConfig {
    StoreConfig { rift: true, ..StoreConfig::default() }
}

fn user(user: &str, secret: &str, flags: u8) -> RiftUser {
    RiftUser { user: user.to_owned(), secret: secret.to_owned(), flags }
}

fn with_users(rift_access: Vec<RiftUser>) -> BucketConfig {
    BucketConfig { rift_access, partitions: 1, ..BucketConfig::default() }
}

#[test]
fn a_value_goes_in_and_out_in_rifts_shapes() {
    run(false, rift(), async |world| {
        world.bucket("default", "photos", with_users(Vec::new())).await;
        let told = world.ask("POST /upload/photos/a/b%20c", &[], b"hello world").await;
        assert_eq!(told.status, 200, "{}", told.text());
        let told = told.json();
        let info = &told["info"][0];
        assert_eq!(
            info["id"],
            "0d10a83bbc4a43595ee1b3235bf00cbef27b7ebddcac2378c0e40572ba4c5f18f51673e38e8a23c8e00c4c480f369f9c916df67ca7917f7012fdd56e0f35da90"
        );
        assert_eq!(
            info["csum"],
            "309ecc489c12d6eb4cc40f50c902f2b4d0ed77ee511a7c7a9bcd3ca86d4cd86f989dd35bc5ff499670da34255b45b0cfd830e81f605dcf7dc5542e93ae9cd76f"
        );
        assert_eq!((&info["size"], &info["server"]), (&json!(11), &json!("localhost")));
        assert_eq!(info["filename"], "kv.photos.default-0");
        assert!(info["offset-within-data-file"].is_u64() && info["mtime"]["time-raw"].is_string(), "{told}");
        assert_eq!((&told["success-groups"], &told["error-groups"]), (&json!([0]), &json!([])));
        assert_eq!(told["offset"], 0);
        assert!(told["bytes-per-second"].as_f64().unwrap() > 0.0);

        let got = world.get("/get/photos/a/b%20c").await;
        assert_eq!((got.status, &got.body[..]), (200, &b"hello world"[..]));
        assert_eq!(got.header("content-type"), Some("application/octet-stream"));
        let written = got.header("last-modified").unwrap().to_owned();
        for (query, headers, status, body) in [
            ("?offset=6", vec![], 200, "world"),
            ("?offset=6&size=3", vec![], 200, "wor"),
            ("?size=5", vec![], 200, "hello"),
            ("?offset=6&size=300", vec![], 200, "world"),
            ("", vec![("range", "bytes=0-4")], 206, "hello"),
            ("", vec![("range", "bytes=-5")], 206, "world"),
            ("?unknown=1", vec![], 200, "hello world"),
            ("", vec![("if-modified-since", &written[..])], 304, ""),
            ("", vec![("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")], 200, "hello world"),
        ] {
            let got = world.ask(&format!("GET /get/photos/a/b%20c{query}"), &headers, b"").await;
            assert_eq!((got.status, got.text().as_str()), (status, body), "{query} {headers:?}");
            assert_eq!(got.header("last-modified"), Some(&written[..]), "{query} {headers:?}");
        }
        let part = world.ask("GET /get/photos/a/b%20c", &[("range", "bytes=6-7")], b"").await;
        assert_eq!(part.header("content-range"), Some("bytes 6-7/11"));
        for (query, headers) in [("?offset=11", vec![]), ("", vec![("range", "bytes=11-")])] {
            let refused = world.ask(&format!("GET /get/photos/a/b%20c{query}"), &headers, b"").await;
            assert_eq!((refused.status, refused.header("content-range")), (416, Some("bytes */11")), "{query}");
        }
        assert_eq!(world.get("/get/photos/a/b%20c?offset=x").await.status, 400);

        let patched = world.ask("POST /upload/photos/a/b%20c?offset=6", &[], b"there, you").await;
        assert_eq!((patched.json()["info"][0]["size"].clone(), patched.status), (json!(16), 200));
        assert_eq!(world.get("/kv/photos/a/b%20c").await.body, b"hello there, you");
        let info = world.get("/download-info/photos/a/b%20c").await.json();
        assert_eq!(info["info"], patched.json()["info"]);

        world.ask("POST /upload/photos/z", &[], b"").await;
        let listed = world.get("/list/photos").await.json();
        let keys: Vec<_> = listed["indexes"].as_array().unwrap().iter().map(|entry| entry["key"].clone()).collect();
        assert_eq!(keys, ["a/b c", "z"]);
        assert_eq!(listed["indexes"][0]["id"], info["info"][0]["id"]);
        assert!(listed["indexes"][0]["timestamp"]["time-raw"].is_string(), "{listed}");

        assert_eq!(world.ask("POST /delete/photos/a/b%20c", &[], b"ignored").await.status, 200);
        for line in ["GET /get/photos/a/b%20c", "POST /delete/photos/a/b%20c", "GET /download-info/photos/a/b%20c"] {
            assert_eq!(world.ask(line, &[], b"").await.status, 404, "{line}");
        }
        for line in ["GET /get/none/k", "GET /list/none", "POST /upload/none/k"] {
            assert_eq!(world.ask(line, &[], b"").await.status, 404, "{line}");
        }
    });
}

/// The largest values of `/kv` before were those of one record, below 1 MiB.
#[test]
fn values_of_any_size_go_in_and_out_by_rifts_routes() {
    run(false, rift(), async |world| {
        world.bucket("default", "films", with_users(Vec::new())).await;
        let film: Vec<u8> = (0..5_000_003_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let told = world.ask("POST /upload/films/a", &[], &film).await;
        assert_eq!(told.status, 200, "{}", told.text());
        let told = told.json();
        let sum = |bytes: &[u8]| -> String { Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect() };
        let described = |bytes: &[u8]| (json!(sum(bytes)), json!(bytes.len()));
        let shown = |told: &Value| (told["info"][0]["csum"].clone(), told["info"][0]["size"].clone());
        assert_eq!(shown(&told), described(&film));
        assert_eq!(world.get("/download-info/films/a").await.json()["info"], told["info"]);
        assert!(world.get("/kv/films/a").await.body == film);
        for (query, range, status, expected) in [
            ("", "", 200, &film[..]),
            ("?offset=4000000", "", 200, &film[4_000_000..]),
            ("?offset=600000&size=1000000", "", 200, &film[600_000..1_600_000]),
            ("", "bytes=524280-524300", 206, &film[524_280..=524_300]),
            ("", "bytes=-3", 206, &film[5_000_000..]),
            ("?offset=5000003", "", 416, b""),
        ] {
            let headers: Vec<_> = Some(("range", range)).filter(|(_, range)| !range.is_empty()).into_iter().collect();
            let got = world.ask(&format!("GET /get/films/a{query}"), &headers, b"").await;
            assert_eq!(got.status, status, "{query} {range}");
            assert!(status == 416 || got.body == expected, "{query} {range}: {} bytes", got.body.len());
        }
        let since = [("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT")];
        assert_eq!(world.ask("GET /get/films/a", &since, b"").await.status, 304);

        // A large body at a place of the value, and a small one.
        let mut patched = film.clone();
        patched[100..1_000_100].copy_from_slice(&film[..1_000_000]);
        let told = world.ask("POST /upload/films/a?offset=100", &[], &film[..1_000_000]).await.json();
        assert_eq!(shown(&told), described(&patched));
        let told = world.ask("POST /upload/films/a?offset=5000003", &[], b"end").await.json();
        patched.extend_from_slice(b"end");
        assert_eq!((shown(&told), &told["offset"]), (described(&patched), &json!(5_000_003)));
        assert!(world.get("/get/films/a").await.body == patched);
        assert_eq!(world.ask("POST /delete/films/a", &[], b"").await.status, 200);
        assert_eq!(world.get("/get/films/a").await.status, 404);
    });
}

#[test]
fn the_server_answers_ping_echo_and_stat() {
    run(false, rift(), async |world| {
        for path in ["/ping/", "/ping"] {
            assert_eq!(world.get(path).await.status, 200, "{path}");
        }
        assert_eq!(world.ask("POST /echo/", &[], b"again").await.body, b"again");
        assert!(world.get("/stat/").await.json()["commands"].is_object());
    });
}

/// Requests with their status.
type Cases<'a> = &'a [(&'a str, Vec<(&'a str, String)>, u16)];

async fn check(world: &super::world::World, cases: Cases<'_>) {
    for (line, headers, status) in cases {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let got = world.ask(line, &headers, b"").await;
        assert_eq!(got.status, *status, "{line} {headers:?}: {}", got.text());
        assert_eq!(got.header("www-authenticate").is_some(), *status == 401, "{line} {headers:?}");
    }
}

fn signed(user: &str, hex: &str) -> Vec<(&'static str, String)> {
    vec![("authorization", format!("riftv1 {user}:{hex}"))]
}

fn bearer() -> Vec<(&'static str, String)> {
    vec![("authorization", format!("Bearer {TOKEN}"))]
}

#[test]
fn a_bucket_with_users_takes_their_signatures_only() {
    run(false, rift(), async |world| {
        let users = vec![user("ann", "ann-secret", 2), user("bob", "bob-secret", 0), user("eve", "", 1)];
        world.bucket("default", "signed", with_users(users)).await;
        let mut upload = signed("ann", ANN_UPLOAD);
        upload.push(("X-Ell-Note", "hi".to_owned()));
        let mut replayed = signed("ann", ANN_UPLOAD);
        replayed.push(("X-Ell-Note", "ho".to_owned()));
        let cases = [
            ("GET /get/signed/k", vec![], 401),
            ("GET /list/signed", vec![], 401),
            ("POST /delete/signed/k", vec![], 401),
            ("GET /get/signed/k", vec![("authorization", "Basic YTpi".to_owned())], 401),
            ("POST /upload/signed/k?size=9&offset=0", upload, 200),
            ("POST /upload/signed/k?size=9&offset=0", replayed, 403),
            ("GET /get/signed/k", signed("ann", ANN_GET), 200),
            ("GET /get/signed/k", signed("bob", BOB_GET), 200),
            ("POST /upload/signed/k", signed("bob", BOB_UPLOAD), 403),
            ("GET /get/signed/k", signed("bob", ANN_GET), 403),
            ("GET /get/signed/other", signed("bob", BOB_GET), 403),
            ("GET /get/signed/k", signed("bob", ""), 403),
            ("GET /get/signed/k", signed("zoe", BOB_GET), 403),
            ("GET /get/signed/k", signed("eve", ""), 200),
            ("POST /delete/signed/k", signed("eve", ""), 403),
            ("GET /get/none/k", signed("ann", ANN_NONE), 404),
        ];
        check(world, &cases).await;
        let shown = world.get("/buckets/signed").await;
        assert!(shown.text().contains("\"ann\"") && !shown.text().contains("ann-secret"), "{}", shown.text());
    });
}

#[test]
fn an_address_with_too_many_wrong_signatures_gets_429_and_right_ones_pass() {
    run(false, rift(), async |world| {
        world.bucket("default", "signed", with_users(vec![user("ann", "ann-secret", 2)])).await;
        let [wrong, right] = ["wrong-signature", ANN_GET].map(|hex| format!("riftv1 ann:{hex}"));
        let mut checked = 0;
        loop {
            let answer = world.ask("GET /get/signed/k", &[("authorization", &wrong)], b"").await;
            if answer.status == 429 {
                assert!(answer.header("retry-after").is_some() && answer.text().contains("= 20"), "{}", answer.text());
                break;
            }
            assert_eq!(answer.status, 403);
            checked += 1;
            assert!(checked < 200, "the limit is never reached");
        }
        assert!(checked >= LOGIN_FAILURES_PER_MINUTE, "{checked}");
        let answer = world.ask("GET /get/signed/k", &[("authorization", &right)], b"").await;
        assert_eq!(answer.status, 404, "the signature is right and the key is not there");
    });
}

#[test]
fn a_bucket_for_everyone_takes_requests_without_a_signature() {
    run(false, rift(), async |world| {
        world.bucket("default", "open", with_users(vec![user("*", "", 0)])).await;
        let cases = [
            ("GET /list/open", vec![], 200),
            ("POST /upload/open/k", vec![], 403),
            // A page of another site that calls this machine is refused as on all routes.
            ("GET /list/open", vec![("host", "evil.example".to_owned())], 403),
        ];
        check(world, &cases).await;
    });
}

#[test]
fn with_tokens_an_unsigned_request_needs_one_unless_everyone_may() {
    run(true, rift(), async |world| {
        world.bucket("default", "plain", with_users(Vec::new())).await;
        world.bucket("default", "signed", with_users(vec![user("bob", "bob-secret", 0)])).await;
        world.bucket("default", "open", with_users(vec![user("*", "", 2)])).await;
        world.bucket("acme", "open", with_users(Vec::new())).await;
        let other_tenant = || vec![("x-tenant", "acme".to_owned())];
        let cases = [
            ("GET /list/plain", vec![], 401),
            ("POST /upload/plain/k", vec![], 401),
            ("GET /list/none", vec![], 401),
            ("GET /list/plain", signed("bob", BOB_GET), 401),
            ("POST /upload/plain/k", bearer(), 200),
            ("GET /list/signed", vec![], 401),
            ("POST /upload/signed/k", bearer(), 200),
            ("GET /get/signed/k", signed("bob", BOB_GET), 200),
            ("POST /upload/open/k", vec![], 200),
            ("GET /get/open/k", vec![], 200),
            ("GET /get/open/k", other_tenant(), 401),
            ("GET /kv/open/k", vec![], 401),
            ("GET /stat/", vec![], 401),
            ("GET /stat/", bearer(), 200),
            ("POST /echo/", vec![], 401),
            ("GET /ping/", vec![], 200),
        ];
        check(world, &cases).await;
    });
}
