//! Tokens that are wrong: each is refused with its reason, and none is repeated.

use millstream_testkit::{eventually, millstream};
use millstream_types::{SystemClock, WallClock as _};
use serde_json::{Value, json};

use crate::provider::{AUDIENCE, Provider};
use crate::world::{programs, settings, start};

#[test]
fn tokens_that_break_a_rule_are_refused_with_the_rule_and_are_not_repeated() {
    let (mut provider, world) = start();
    let now_s = SystemClock::default().now_ms() / 1_000;
    let good = json!({
        "iss": provider.issuer, "aud": ["x", AUDIENCE], "sub": "somebody", "iat": now_s, "exp": now_s + 600,
        "tenant": "acme", "realm_access": {"roles": ["ms-read"]},
    });
    let mut signed = |header: Value, changes: Value| {
        let mut claims = good.clone();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        provider.sign(&header, &claims)
    };
    let (none, right) = (json!({}), signed(json!({}), json!({})));
    assert_eq!(world.reads(&right), 200, "the rows below differ from this one");
    assert_eq!(world.reads(&signed(json!({"alg": "ES256", "typ": "JWT"}), json!({}))), 200);
    let (head, tail) = right.split_once('.').unwrap();
    let tampered = format!("{head}.{}", tail.replacen("ey", "ew", 1));
    let [_, claims, signature] = right.split('.').collect::<Vec<_>>()[..] else { panic!("{right}") };
    let other_claims = signed(none.clone(), json!({"tenant": "*"}));
    let swapped = format!("{head}.{}.{signature}", other_claims.split('.').nth(1).unwrap());
    let rows = [
        ("expired", signed(none.clone(), json!({"exp": now_s - 1})), 401, "it has expired at"),
        ("early", signed(none.clone(), json!({"nbf": now_s + 600})), 401, "(nbf)"),
        ("made later", signed(none.clone(), json!({"iat": now_s + 600})), 401, "(iat)"),
        ("without an end", signed(none.clone(), json!({"exp": null})), 401, "lacks the claim exp"),
        (
            "wrong audience",
            signed(none.clone(), json!({"aud": "urn:other"})),
            401,
            "oidc.audience = urn:millstream:api",
        ),
        ("wrong issuer", signed(none.clone(), json!({"iss": "https://evil.example"})), 401, "iss is http://127.0.0.1"),
        ("alg none", signed(json!({"alg": "none"}), none.clone()), 401, "its alg is none"),
        ("public key as secret", signed(json!({"alg": "HS256"}), none.clone()), 401, "its alg is HS256"),
        ("not allowed", signed(json!({"alg": "PS256"}), none.clone()), 401, "oidc.algorithms are RS256, ES256"),
        ("of logout", signed(json!({"typ": "logout+jwt"}), none.clone()), 401, "typ is JWT or at+jwt"),
        ("extension", signed(json!({"crit": ["b64"], "b64": false}), none.clone()), 401, "crit"),
        ("unknown key", signed(json!({"kid": "another"}), none.clone()), 401, "no such key"),
        ("key of another kind", signed(json!({"kid": "ES256-1"}), none.clone()), 401, "no such key"),
        ("tampered", tampered, 401, "the token is refused"),
        ("claims of another", swapped, 401, "its signature is wrong"),
        ("without signature", format!("{head}.{claims}."), 401, "its signature is wrong"),
        ("without tenant", signed(none.clone(), json!({"tenant": null})), 403, "lacks the claim 'tenant'"),
        (
            "without roles",
            signed(none.clone(), json!({"realm_access": {}})),
            403,
            "lacks the claim 'realm_access.roles'",
        ),
        ("other roles", signed(none.clone(), json!({"realm_access": {"roles": ["user"]}})), 403, "no role here"),
        ("too long", signed(none, json!({"more": "x".repeat(9_000)})), 401, "at most 8192"),
    ];
    for (name, token, status, told) in &rows {
        for path in ["/api/streams", "/api/login"] {
            let answer = world.call(token, "GET", path, &Value::Null);
            let text = answer.text();
            assert!(answer.status == *status && text.contains(told), "{name}: {} {text}", answer.status);
            assert!(!text.contains(token) && !text.contains(&token[token.len() - 20..]), "{name}: {text}");
            let challenge = answer.header("www-authenticate");
            assert_eq!(challenge.is_some_and(|value| value.contains("invalid_token")), *status == 401, "{name}");
        }
    }
    let root = provider.token("root");
    let is_login = |event: &Value| event["action"] == "login" && event["listener"] == "http";
    eventually("refused logins are in the audit trail", || world.audit(&root).iter().any(is_login));
    for (_, token, ..) in &rows {
        assert_eq!(world.log_lines(token), 0);
    }
    world.process.stop();
}

#[test]
fn tokens_of_the_provider_for_others_and_of_other_providers_are_refused() {
    let (provider, world) = start();
    let other = Provider::start(&programs());
    for (token, status, told) in [
        (provider.token("acme"), 200, ""),
        (provider.token_for("acme", "urn:other"), 401, "meant for others"),
        (other.token("acme"), 401, "its iss"),
        (provider.token("stranger"), 403, "no role here is in the claim 'realm_access.roles'"),
        (provider.token("homeless"), 403, "lacks the claim 'tenant'"),
    ] {
        let answer = world.call(&token, "GET", "/api/streams", &Value::Null);
        assert!(answer.status == status && answer.text().contains(told), "{} {}", answer.status, answer.text());
    }
    world.process.stop();
}

#[test]
fn settings_that_cannot_work_are_named_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("millstream.toml");
    let good = settings("https://id.example", "");
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from));
        good.replacen(from, to, 1)
    };
    for (text, told) in [
        (changed("https://id.example", "http://id.example"), ["oidc.issuer", "http://id.example", "use https://"]),
        (changed("clock_skew_s = 0", "clock_skew_s = 3600"), ["oidc.clock_skew_s", "3600", "use 0 to 600"]),
        (changed("keys_retry_s = 1", "algorithms = [\"none\"]"), ["oidc.algorithms", "none", "RS256"]),
        (changed("keys_retry_s = 1", "algorithms = [\"HS256\"]"), ["oidc.algorithms", "HS256", "RS256"]),
        (
            changed("keys_retry_s = 1", "ca_file = \"absent.pem\""),
            ["oidc.ca_file", "absent.pem", "certificates in PEM"],
        ),
        (changed("roles_claim", "role_claim"), ["oidc.role_claim", "did you mean", "roles_claim"]),
        (changed("issuer = \"https://id.example\"\n", ""), ["oidc.issuer = \"\"", "need it", "remove them"]),
    ] {
        std::fs::write(&config, text).unwrap();
        let output = millstream().args(["serve", "--config"]).arg(&config).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.iter().all(|part| said.contains(part)), "{told:?}: {said}");
    }
}
