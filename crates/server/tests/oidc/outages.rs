//! Keys that change, and a provider that is away.

use millstream_testkit::{Authority, Events, eventually, own_addresses};
use serde_json::{Value, json};

use crate::provider::Provider;
use crate::world::{World, programs, settings, start};

#[test]
fn new_keys_are_fetched_when_a_token_names_one_and_tokens_of_withdrawn_keys_end() {
    let (mut provider, world) = start();
    let old = provider.token("acme");
    assert_eq!(world.reads(&old), 200);
    let topic = world.call(&old, "PUT", "/api/streams/orders", &json!({"partitions": 1}));
    assert_eq!(topic.status, 201, "{}", topic.text());
    let bearer = format!("Bearer {old}");
    let headers = [("Accept", "text/event-stream"), ("Authorization", &*bearer)];
    let mut tail = Events::get(&world.process, "/api/streams/orders", &headers);
    assert_eq!(provider.rotate(), "RS256-2");
    assert_eq!(world.reads(&old), 200, "nobody has told the server yet");
    let new = provider.token("acme");
    // At most one question a second: the first refusals may still be those of the old keys.
    eventually("the new key is known", || world.reads(&new) == 200);
    assert!(tail.next().is_none(), "the key of its token is withdrawn");
    let refused = world.call(&old, "GET", "/api/streams", &Value::Null);
    assert!(refused.status == 401 && refused.text().contains("no such key"), "{}", refused.text());
    world.process.stop();
}

#[test]
fn known_keys_go_on_while_the_provider_is_away_and_unknown_ones_are_told_so() {
    let mut provider = Provider::start(&programs());
    // The keys are old after a minute at the least, so that only unknown keys make the server ask.
    let world = World::start(&provider.issuer);
    let known = provider.token("acme");
    eventually("the provider is known", || world.reads(&known) == 200);
    let unseen = provider.token("reader");
    provider.rotate();
    let unknown = provider.token("acme");
    drop(provider);
    assert_eq!(world.reads(&known), 200);
    assert_eq!(world.reads(&unseen), 200, "its key is known, though the token was never seen");
    eventually("the failure is told", || {
        let refused = world.call(&unknown, "GET", "/api/streams", &Value::Null);
        refused.status == 503 && refused.text().contains("cannot be asked") && refused.header("retry-after").is_some()
    });
    assert_eq!(world.reads(&known), 200);
    assert_eq!(world.log_lines("keys cannot be fetched"), 1, "it is told once");
    world.process.stop();
}

#[test]
fn the_server_starts_without_the_provider_and_finds_it_later() {
    let [address, _] = own_addresses();
    let world = World::start(&format!("http://{address}"));
    let ready = millstream_testkit::ask(world.process.applications, "GET", "/readyz", &[], b"");
    assert!(ready.text().starts_with("ready\n"), "{}", ready.text());
    let login = || millstream_testkit::ask(world.process.applications, "GET", "/api/login", &[], b"").json();
    assert_eq!(login()["oidc"]["token_endpoint"], Value::Null);
    let mut options = programs();
    options["listen"] = address.to_string().into();
    let provider = Provider::start(&options);
    let token = provider.token("acme");
    eventually("the provider is found", || world.reads(&token) == 200);
    assert_eq!(login()["oidc"]["token_endpoint"], format!("http://{address}/token"));
    assert_eq!(world.log_lines("keys are known"), 1);
    world.process.stop();
}

#[test]
fn a_provider_over_https_is_asked_only_with_a_certificate_of_a_trusted_authority() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("provider");
    let [certificate, key] = authority.server(&["127.0.0.1"]).write(dir.path(), "provider");
    let file = |name: &str, authority: &Authority| {
        std::fs::write(dir.path().join(name), authority.pem()).unwrap();
        dir.path().join(name).display().to_string()
    };
    let (own, foreign) = (file("own.pem", &authority), file("foreign.pem", &Authority::new("foreign")));
    let mut provider = Provider::start(&json!({"tls": {"cert": certificate, "key": key}}));
    let claims = json!({
        "iss": provider.issuer, "aud": crate::provider::AUDIENCE, "sub": "s", "exp": 4_000_000_000_u64,
        "tenant": "acme", "realm_access": {"roles": ["ms-read"]},
    });
    let token = provider.sign(&json!({}), &claims);
    let trusting = |ca: &str| World::start_with(&settings(&provider.issuer, &format!("ca_file = \"{ca}\"")));
    let world = trusting(&own);
    eventually("the provider is trusted", || world.reads(&token) == 200);
    world.process.stop();
    let world = trusting(&foreign);
    eventually("the failure is told", || {
        let refused = world.call(&token, "GET", "/api/streams", &Value::Null);
        refused.status == 503 && refused.text().contains("no TLS with 127.0.0.1")
    });
    assert_eq!(world.log_lines("keys cannot be fetched"), 1);
    assert!(world.log_lines("UnknownIssuer") > 0);
    world.process.stop();
}
