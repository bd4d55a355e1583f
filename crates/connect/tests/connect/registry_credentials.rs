//! Credentials of all types, authorities of tenants and authorities of gateways, as the registry takes and shows them.

use serde_json::{Value, json};

use crate::signer::Signer;
use crate::world::{CA, World};

/// The certificate of an authority with the subject `CN=ca`.
const CERTIFICATE: &str = "MIIBcTCCARegAwIBAgIUM9QT9VuGe1sO/Wrxqln9weyws9MwCgYIKoZIzj0EAwIwDTELMAkGA1UEAwwCY2EwIBcNMjYxMTI1MDAzMzMyWhgPMjEyNjExMDEwMDMzMzJaMA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8Vr5GXurDac9lbm/g8ufnw0e4RoxF3oCvZJAVgFUE6g8JUsJ5p2wsK4eH8ZGOIvnhXLjfCNxRgeW15oiB3StOqNTMFEwHQYDVR0OBBYEFI6t4lMP6uVG5y9+Oq/rbg+m6a1dMB8GA1UdIwQYMBaAFI6t4lMP6uVG5y9+Oq/rbg+m6a1dMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgJLdj2IOGyUloktgZLvqUEgxHuVwKSpb3JAUrfU63/SgCIQDsnyEILrUUo2exQEvq/3E9HZUe1Rv7w0C0+MQTmoge3g==";

/// §7, the four types of credentials: what is stored, what is shown, and what is not.
/// A public key of RSA with 1,024 bits.
const SHORT_RSA: &str = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDWMacTiobvapqFub7snf1asepFa8xFOx7WwqVLUbwkwsZIxu7mM9GYTE7uiHy3vk/6eQ/QUcSV1QDhGFsf9uMPY05UMLO/mZaxZDBxTAlXW4Lob96XFIHLVX9F14M/Lf625Tb55pKUqBKzJA2syYjujh8OxIefkGyH+v3dOamYLQIDAQAB";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_each_type_of_credential_is_stored_and_shown_without_what_is_secret() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let key = Signer::new().public_key();
    let given = json!([
        {"type": "x509-cert", "auth-id": "cn=d , O=Example", "secrets": [{"not-after": "2036-01-01T00:00:00Z"}]},
        {"type": "rpk", "auth-id": "d", "secrets": [{"key": key, "algorithm": "EC"}, {"cert": CERTIFICATE}]},
        {"type": "psk", "auth-id": "d", "secrets": [{"key": "c2VjcmV0", "comment": "first"}]},
        {"type": "hashed-password", "auth-id": "d", "secrets": [{"pwd-plain": "pw"}]},
    ]);
    world.do_registry("PUT /v1/credentials/T/d", &given.to_string(), 204).await;
    let read = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
    assert_eq!(read[0]["auth-id"], "CN=d,O=Example", "one form");
    assert_eq!(read[0]["secrets"][0]["not-after"], "2036-01-01T00:00:00Z");
    assert_eq!((&read[1]["secrets"][0]["key"], &read[1]["secrets"][0]["algorithm"]), (&json!(key), &json!("EC")));
    assert_eq!(read[1]["secrets"][1]["algorithm"], "EC");
    assert_eq!(read[1]["secrets"][1]["not-before"], "2026-11-25T00:33:32Z", "the validity is the certificate's");
    assert_eq!(read[1]["secrets"][1]["not-after"], "2126-11-01T00:33:32Z");
    let shared = read[2]["secrets"][0].as_object().unwrap();
    let members: Vec<&str> = shared.keys().map(String::as_str).collect();
    assert_eq!(members, ["id", "enabled", "comment"], "the key is not shown");
    // What was read may be sent back: ids keep what they stand for.
    let mut again = read.clone();
    again[1]["secrets"] = json!([{"id": read[1]["secrets"][0]["id"]}]);
    world.do_registry("PUT /v1/credentials/T/d", &again.to_string(), 204).await;
    world.stop().await;
    let world = World::open(dir.path()).await;
    let after = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
    assert_eq!(after[1]["secrets"][0]["key"], json!(key));
    assert_eq!(after[2]["secrets"][0]["id"], read[2]["secrets"][0]["id"]);
    // The same auth-id under another type is another credential; a second device cannot have it under the same.
    world.do_registry("POST /v1/devices/T/e", "", 201).await;
    let taken = json!([{"type": "rpk", "auth-id": "d", "secrets": [{"key": key}]}]);
    world.registry("PUT /v1/credentials/T/e", &[], &taken.to_string()).await.expect_problem(
        409,
        "d",
        "belong to one device",
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auth_id_is_made_of_a_certificate_and_the_template_of_its_authority() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let ca: Value = serde_json::from_str(CA).unwrap();
    for (template, expected) in [(None, "CN=ca"), (Some("sensor-{{subject-cn}}"), "sensor-ca")] {
        let mut ca = ca.clone();
        if let Some(template) = template {
            ca["auth-id-template"] = json!(template);
        }
        world.do_registry("PUT /v1/tenants/T", &json!({"trusted-ca": [ca]}).to_string(), 204).await;
        for given in [
            json!([{"type": "x509-cert", "cert": CERTIFICATE}]),
            json!([{"type": "x509-cert", "auth-id": "CN=ca", "issuer-dn": "cn=ca", "secrets": [{}]}]),
        ] {
            world.do_registry("PUT /v1/credentials/T/d", &given.to_string(), 204).await;
            let read = world.do_registry("GET /v1/credentials/T/d", "", 200).await.json();
            assert_eq!((&read[0]["auth-id"], read[0].get("cert")), (&json!(expected), None), "{given}");
            assert_eq!(read[0]["secrets"].as_array().unwrap().len(), 1);
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_have_no_effect_or_cannot_be_is_refused_with_value_rule_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let key = Signer::new().public_key();
    let p521 = "MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQ".to_owned() + &"A".repeat(176) + "=";
    let credential = |text: &str| ("PUT /v1/credentials/T/d", format!("[{text}]"));
    let of =
        |kind: &str, secrets: &str| credential(&format!(r#"{{"type":"{kind}","auth-id":"d","secrets":[{secrets}]}}"#));
    let ca = |more: &str| {
        ("PUT /v1/tenants/T", format!(r#"{{"trusted-ca":[{}]}}"#, CA.replacen('{', &format!("{{{more},"), 1)))
    };
    let device = |text: &str| ("POST /v1/devices/T/f", text.to_owned());
    let rows = [
        (of("psk", "{}"), "", "has key, in base64"),
        (of("psk", r#"{"key":"?"}"#), "0 bytes", "base64"),
        (of("psk", r#"{"key":"c2VjcmV0","pwd-plain":"x"}"#), "pwd-plain", "has key, in base64"),
        (of("rpk", "{}"), "", "has key, a public key, or cert"),
        (of("rpk", r#"{"key":"MAA="}"#), "MAA=", "RSA, P-256 or P-384"),
        (of("rpk", &format!(r#"{{"key":"{p521}"}}"#)), "P-521", "ES512 is not verified"),
        (of("rpk", r#"{"cert":"abc"}"#), "abc", "certificate's DER"),
        (of("rpk", &format!(r#"{{"key":"{key}","algorithm":"RSA"}}"#)), "RSA", "as the key is"),
        (of("rpk", &format!(r#"{{"key":"{key}","cert":"{CERTIFICATE}"}}"#)), "key and cert", "by key or by cert"),
        (of("x509-cert", ""), "\"secrets\": []", "at least one"),
        (of("hashed-password", ""), "\"secrets\": []", "at least one"),
        (of("rpk", &format!(r#"{{"key":"{SHORT_RSA}"}}"#)), "a short key of RSA", "2048 bits or more"),
        (
            (
                "PUT /v1/tenants/T",
                format!(
                    r#"{{"trusted-ca":[{{"subject-dn":"CN=ca","public-key":"{SHORT_RSA}","not-before":"2020-01-01T00:00:00Z","not-after":"2040-01-01T00:00:00Z"}}]}}"#
                ),
            ),
            "a short key of RSA",
            "2048 bits or more",
        ),
        (of("x509-cert", "{},{}"), "2 secrets", "validity and nothing else"),
        (of("x509-cert", r#"{"key":"c2VjcmV0"}"#), "key", "validity and nothing else"),
        (credential(r#"{"type":"x509-cert","secrets":[{}]}"#), "auth-id", "or cert is the certificate itself"),
        (credential(r#"{"type":"x509-cert","auth-id":"X=a,Y=b","secrets":[{}]}"#), "X=a,Y=b", "CN=thermometer-7"),
        (credential(r#"{"type":"x509-cert","cert":"abc"}"#), "abc", "certificate's DER"),
        (credential(r#"{"type":"hashed-password","auth-id":"CN=a,O=b"}"#), "CN=a,O=b", "use 1 to 256"),
        (credential(r#"{"type":"rpk","auth-id":"d","cert":"abc"}"#), "cert", "x509-cert only"),
        (ca(r#""auth-id-template":"{{subject}}""#), "{{subject}}", "{{subject-cn}}"),
        (ca(r#""auto-provisioning-device-id-template":"d""#), "d", "{{subject-cn}}"),
        (
            (
                "PUT /v1/tenants/T",
                format!(
                    r#"{{"trusted-ca":[{}]}}"#,
                    CA.replace(r#""ocsp-revocation-enabled":false"#, r#""ocsp-revocation-enabled":true"#)
                ),
            ),
            "ocsp-revocation-enabled",
            "OCSP is not supported",
        ),
        (ca(r#""ocsp-responder-uri":"http://x""#), "ocsp-responder-uri", "OCSP is not supported"),
        (
            (
                "PUT /v1/tenants/T",
                format!(
                    r#"{{"trusted-ca":[{}]}}"#,
                    CA.replace(r#""auto-provision-as-gateway":false"#, r#""auto-provision-as-gateway":true"#)
                ),
            ),
            "auto-provision-as-gateway",
            "auto-provisioning-enabled = true",
        ),
        (ca(r#""algorithm":"RSA""#), "RSA", "that of public-key"),
        (
            ("PUT /v1/tenants/T", format!(r#"{{"trusted-ca":[{{"subject-dn":"CN=b","cert":"{CERTIFICATE}"}}]}}"#)),
            "CN=b",
            "subject of cert",
        ),
        (
            ("PUT /v1/tenants/T", format!(r#"{{"trusted-ca":[{}]}}"#, CA.replace("CN=ca", "ca"))),
            "ca",
            "distinguished name",
        ),
        (device(r#"{"authorities":["admin"]}"#), "admin", "auto-provisioning-enabled"),
        (device(r#"{"command-endpoint":{"uri":"ftp://x"}}"#), "ftp://x", "uri is a URL"),
        (device(r#"{"downstream-message-mapper":"m"}"#), "m", "a job can rewrite them"),
        (device(r#"{"upstream-message-mapper":"n"}"#), "n", "a job can rewrite them"),
    ];
    for ((line, body), value, rule) in rows {
        world.registry(line, &[], &body).await.expect_refusal(line, &body, 400, value, rule);
    }
    world.stop().await;
}
