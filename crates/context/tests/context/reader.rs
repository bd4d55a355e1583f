//! Single entities, as other planes of the process read them.

use millstream_context::{ContextConfig, EntityMatch, EntityQuery};
use millstream_types::{PartitionId, TenantId};

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_is_found_by_tenant_id_type_and_exact_path_and_has_the_chosen_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for (head, body) in [
        ("", r#"{"id": "p1", "type": "Pump", "n": 1, "site": {"x": [1, "a\\b"]}, "note": null}"#),
        ("\nFiware-ServicePath: /plant", r#"{"id": "p1", "type": "Pump", "n": 2}"#),
        ("\nFiware-ServicePath: /plant", r#"{"id": "p1", "type": "Spare", "n": 3}"#),
        ("\nFiware-Service: other", r#"{"id": "p1", "type": "Pump", "n": 4}"#),
        ("", r#"{"id": "gone", "type": "Pump", "n": 5, "dateExpires": "2001-01-01T00:00:00Z"}"#),
        ("", r#"{"id": "kept", "type": "Pump", "n": 6, "dateExpires": "2999-01-01T00:00:00Z"}"#),
    ] {
        let answer = served.ask(&format!("POST /v2/entities?options=keyValues{head}"), Some(body)).await;
        assert_eq!(answer.status, 201, "{head} {body}: {}", answer.body);
    }
    let reader = world.context.entity_reader();
    let check = |tenant: &str,
                 id: &str,
                 kind: Option<&str>,
                 path: &str,
                 attributes: &[&str],
                 expected: Result<&str, EntityMatch>| {
        let (tenant, mut out) = (TenantId::new(tenant).unwrap(), String::new());
        let attributes: Vec<String> = attributes.iter().map(|name| (*name).to_owned()).collect();
        let query = EntityQuery { tenant: &tenant, id, kind, service_path: path, attributes: &attributes };
        let found = reader.read(&query, &mut out).unwrap();
        let (wanted, text) = expected.map_or_else(|wanted| (wanted, ""), |text| (EntityMatch::One, text));
        assert_eq!((found, out.as_str()), (wanted, text), "{query:?}");
    };
    let whole = r#"{"id":"p1","type":"Pump","n":1,"site":{"x":[1,"a\\b"]},"note":null}"#;
    check("default", "p1", None, "/", &[], Ok(whole));
    check(
        "default",
        "p1",
        Some("Pump"),
        "/",
        &["note", "none", "n"],
        Ok(r#"{"id":"p1","type":"Pump","note":null,"n":1}"#),
    );
    check("default", "p1", Some("Spare"), "/", &[], Err(EntityMatch::None));
    check("default", "p1", Some("Pump"), "/plant", &[], Ok(r#"{"id":"p1","type":"Pump","n":2}"#));
    check("default", "p1", None, "/plant", &[], Err(EntityMatch::Several));
    check("default", "p1", None, "/plant/hall", &[], Err(EntityMatch::None));
    check("other", "p1", None, "/", &[], Ok(r#"{"id":"p1","type":"Pump","n":4}"#));
    check("nobody", "p1", None, "/", &[], Err(EntityMatch::None));
    check("default", "gone", None, "/", &[], Err(EntityMatch::None));
    check("default", "kept", None, "/", &[], Ok(r#"{"id":"kept","type":"Pump","n":6}"#));
    check("default", "", None, "/", &[], Err(EntityMatch::None));

    // Entities of another process are not taken as missing.
    (0..ContextConfig::default().partitions).for_each(|number| world.context.give(PartitionId(number), "b"));
    let tenant = TenantId::default();
    let query = EntityQuery { tenant: &tenant, id: "p1", kind: None, service_path: "/", attributes: &[] };
    let away = reader.read(&query, &mut String::new()).unwrap_err().to_string();
    assert!(away.contains("is kept by b"), "{away}");
    served.stop().await;
    world.close();
}
