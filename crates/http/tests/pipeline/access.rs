//! Access to routes by token, role and tenant.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use millstream_http::{
    Access, ApiToken, ApiTokens, Authenticator, Caller, Claim, Error, Identity, Listener, ListenerLimits,
    LoopbackApplications, Problem, Reach, RoleName, Route, Routes, Verdict,
};
use millstream_net::{LoginProtocol, LoginThrottle};
use millstream_types::{AccessScope, ManualClock, Principal, Role, Roles, TenantId};

use crate::server::{LIMITS, Server};

async fn who(caller: Caller) -> String {
    format!("{} in {}", caller.name, caller.tenant)
}

async fn anybody() -> &'static str {
    "welcome"
}

fn doors() -> Routes {
    let door = |path, access| Route::get(path, access, LIMITS, "A door").answers(200, "Open.");
    Routes::new("doors")
        .route(door("/public", Access::Public).to(anybody, ()))
        .route(door("/reader", Access::Role(Role::Reader)).to(who, ()))
        .route(door("/writer", Access::Role(Role::Writer)).to(who, ()))
        .route(door("/admin", Access::Role(Role::Admin)).to(who, ()))
        .route(door("/operator", Access::Operator(Role::Admin)).to(who, ()))
        .route(door("/device", Access::Device).to(who, ()))
        .route(
            door("/of/{tenant}", Access::Role(Role::Reader)).param("tenant", "Whose.").tenant_in("tenant").to(who, ()),
        )
}

fn tokens() -> Arc<ApiTokens> {
    Arc::new(api_tokens())
}

fn api_tokens() -> ApiTokens {
    let token = |name: &str, tenant: &str, roles: &[RoleName]| ApiToken {
        name: name.into(),
        token: format!("secret-of-{name}-0123456789"),
        tenant: tenant.into(),
        roles: roles.to_vec(),
    };
    let every = [RoleName::Reader, RoleName::Writer, RoleName::Admin];
    let tokens = [
        token("reader", "acme", &[RoleName::Reader]),
        token("both", "acme", &[RoleName::Reader, RoleName::Writer]),
        token("admin", "acme", &every),
        token("root", "*", &every),
    ];
    ApiTokens::new(&tokens).unwrap()
}

#[tokio::test]
async fn a_token_opens_the_doors_of_its_roles_and_no_other() {
    let server = Server::start(doors(), tokens(), ListenerLimits::default()).await;
    for (caller, open) in [
        ("reader", &["/public", "/reader"][..]),
        ("both", &["/public", "/reader", "/writer"]),
        ("admin", &["/public", "/reader", "/writer", "/admin"]),
        ("root", &["/public", "/reader", "/writer", "/admin", "/operator"]),
    ] {
        for path in ["/public", "/reader", "/writer", "/admin", "/operator", "/device"] {
            let head = format!("GET {path} HTTP/1.1\r\nauthorization: bearer secret-of-{caller}-0123456789");
            let answer = server.ask(&head, "").await;
            if open.contains(&path) {
                assert_eq!(answer.status, 200, "{caller} {path} {answer:?}");
            } else {
                let rule =
                    if path == "/operator" && caller == "admin" { "every tenant" } else { "for callers with role" };
                answer.expect_problem_of(403, "forbidden", None, rule);
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_token_acts_in_its_tenant_only_unless_it_is_good_for_all() {
    let server = Server::start(doors(), tokens(), ListenerLimits::default()).await;
    let ask = async |caller: &str, path: &str, headers: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nauthorization: Bearer secret-of-{caller}-0123456789{headers}");
        server.ask(&head, "").await
    };
    let check = async |caller: &str, path: &str, headers: &str, body: &str| {
        assert_eq!(ask(caller, path, headers).await.body, body);
    };
    check("reader", "/reader", "", "reader in acme").await;
    check("reader", "/reader", "\r\nfiware-service: acme", "reader in acme").await;
    check("reader", "/of/acme", "", "reader in acme").await;
    check("root", "/reader", "", "root in default").await;
    check("root", "/reader", "\r\nx-tenant: other", "root in other").await;
    check("root", "/reader", "\r\nx-tenant: Other", "root in Other").await;
    check("root", "/reader", "\r\nfiware-service: OTHER", "root in other").await;
    check("reader", "/reader", "\r\nfiware-service: Acme", "reader in acme").await;
    check("root", "/reader", "\r\nngsild-tenant: OTHER", "root in other").await;
    check("reader", "/reader", "\r\nngsild-tenant: Acme\r\nfiware-service: ACME", "reader in acme").await;
    check("root", "/of/other", "\r\nx-tenant: ignored", "root in other").await;
    let rule = "good for tenant 'acme'";
    ask("reader", "/reader", "\r\nx-tenant: other").await.expect_problem_of(403, "forbidden", Some("other"), rule);
    ask("reader", "/of/other", "").await.expect_problem_of(403, "forbidden", Some("other"), rule);
    server.stop().await;
}

#[tokio::test]
async fn without_a_known_token_the_answer_is_401_with_a_challenge() {
    let server = Server::start(doors(), tokens(), ListenerLimits::default()).await;
    for (header, challenge) in [
        ("", "Bearer realm=\"millstream\""),
        ("\r\nauthorization: Basic Zm9vOmJhcg==", "Bearer realm=\"millstream\""),
        ("\r\nauthorization: Bearer ", "Bearer realm=\"millstream\""),
        (
            "\r\nauthorization: Bearer secret-of-nobody-0123456789",
            "Bearer realm=\"millstream\", error=\"invalid_token\"",
        ),
    ] {
        let answer = server.ask(&format!("GET /reader HTTP/1.1{header}"), "").await;
        answer.expect_problem_of(401, "unauthenticated", None, "token");
        assert_eq!(answer.header("www-authenticate"), Some(challenge));
        assert!(!answer.body.contains("nobody"), "a secret is never repeated");
    }
    assert_eq!(server.ask("GET /public HTTP/1.1", "").await.body, "welcome");
    server.stop().await;
}

#[tokio::test]
async fn an_address_with_too_many_wrong_tokens_gets_429_for_a_time_and_right_tokens_pass() {
    let clock = Arc::new(ManualClock::at(0));
    let throttle = Arc::new(LoginThrottle::new(3, clock.clone()));
    let guarded = Arc::new(api_tokens().throttled_by(throttle.clone()));
    let server = Server::start(doors(), guarded, ListenerLimits::default()).await;
    let ask = async |local: &str, login: &str| {
        let login = if login.is_empty() { String::new() } else { format!("\r\nauthorization: {login}") };
        server.ask_from(local, &format!("GET /reader HTTP/1.1{login}"), "").await
    };
    let (wrong, right) = ("Bearer secret-of-nobody-0123456789", "Bearer secret-of-reader-0123456789");
    for login in ["", right, wrong, "Basic Zm9vOmJhcg==", "", wrong] {
        assert_eq!(ask("127.0.0.1", login).await.status, if login == right { 200 } else { 401 }, "{login}");
    }
    for login in [wrong, "Basic Zm9vOmJhcg=="] {
        let refused = ask("127.0.0.1", login).await;
        refused.expect_problem_of(429, "rate-limited", Some("127.0.0.1"), "listen.login_failures_per_minute = 3");
        assert!(refused.body.contains("the next is checked in 20 s"), "{refused:?}");
        assert_eq!(refused.header("retry-after"), Some("20"));
    }
    assert_eq!(ask("127.0.0.1", right).await.status, 200, "a right token always passes");
    assert_eq!(ask("127.0.0.2", wrong).await.status, 401, "another address is another client");
    clock.advance(Duration::from_secs(20));
    assert_eq!(ask("127.0.0.1", wrong).await.status, 401);
    assert_eq!(ask("127.0.0.1", wrong).await.status, 429);
    assert_eq!((throttle.failed(LoginProtocol::Http), throttle.throttled(LoginProtocol::Http)), (5, 3));
    server.stop().await;
}

#[tokio::test]
async fn applications_on_loopback_name_their_tenant_or_are_in_the_default_one() {
    let server = Server::of(doors()).await;
    for (headers, body) in [
        ("", "anonymous in default"),
        ("\r\nfiware-service: acme", "anonymous in acme"),
        ("\r\nx-tenant: acme", "anonymous in acme"),
        ("\r\nx-tenant: acme\r\nfiware-service: acme", "anonymous in acme"),
        ("\r\nfiware-service:", "anonymous in default"),
    ] {
        assert_eq!(server.ask(&format!("GET /operator HTTP/1.1{headers}"), "").await.body, body);
    }
    let refused = server.ask("GET /reader HTTP/1.1\r\nx-tenant: a/b", "").await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"].as_str().unwrap().contains("'a/b' is not a tenant id: use 1 to 50"));
    let refused = server.ask("GET /reader HTTP/1.1\r\nx-tenant: a\r\nfiware-service: b", "").await;
    refused.expect_problem_of(400, "invalid", Some("a"), "mean the same");
    server.ask("GET /device HTTP/1.1", "").await.expect_problem_of(
        403,
        "forbidden",
        Some("reader, writer, admin"),
        "'device'",
    );
    server.stop().await;
}

/// Authenticates after an asynchronous lookup, like a plane.
struct Devices;

impl Authenticator for Devices {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        Verdict::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            if claim.headers.get("authorization").is_none() {
                let challenge = HeaderValue::from_static("Basic realm=\"devices\"");
                return Err(Problem::unauthenticated(challenge, "devices log in").remedy("send credentials"));
            }
            let roles = Roles::NONE.with(Role::Device);
            let principal =
                Principal { tenant: TenantId::default(), name: "d1".to_owned(), roles, scope: AccessScope::default() };
            Ok(Identity { principal: Arc::new(principal), reach: Reach::OneTenant, revocation: None, expires_ms: None })
        }))
    }

    fn open_remedy(&self) -> Option<&'static str> {
        None
    }
}

#[tokio::test]
async fn a_planes_own_authenticator_may_take_its_time() {
    let server = Server::start(doors(), Arc::new(Devices), ListenerLimits::default()).await;
    let refused = server.ask("GET /device HTTP/1.1", "").await;
    refused.expect_problem_of(401, "unauthenticated", None, "log in");
    assert_eq!(refused.header("www-authenticate"), Some("Basic realm=\"devices\""));
    assert_eq!(server.ask("GET /device HTTP/1.1\r\nauthorization: Basic x", "").await.body, "d1 in default");
    assert_eq!(server.ask("GET /reader HTTP/1.1\r\nauthorization: Basic x", "").await.status, 403);
    server.stop().await;
}

#[tokio::test]
async fn a_listener_open_to_the_network_refuses_to_start_without_authentication() {
    let open = || Arc::new(LoopbackApplications::default());
    let limits = ListenerLimits::default;
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let refusal = Listener::bind("applications", address.parse().unwrap(), open(), limits()).await.unwrap_err();
        assert!(matches!(refusal, Error::OpenToTheNetwork { .. }));
        let text = refusal.to_string();
        for part in ["'applications'", address, "needs authentication", "configure API tokens", "127.0.0.1"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    for address in ["127.0.0.1:0", "127.1.2.3:0"] {
        assert!(Listener::bind("applications", address.parse().unwrap(), open(), limits()).await.is_ok());
    }
    let listener = Listener::bind("applications", "0.0.0.0:0".parse().unwrap(), tokens(), limits()).await.unwrap();
    assert_ne!(listener.address().port(), 0, "the real port is reported");
    let taken = Listener::bind("second", listener.address().into(), tokens(), limits()).await.unwrap_err();
    assert!(matches!(&taken, Error::Bind { .. }) && taken.to_string().contains("free the port"), "{taken}");
}
