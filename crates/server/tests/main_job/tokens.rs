//! API tokens that are made and revoked while the server runs, on every listener.

use std::io::Read as _;

use millstream_testkit::{
    Answer, Events, Process, Raw, Server, Target, ask, eventually, has_kafka_listener, millstream,
};
use serde_json::{Value, json};

/// Asks with a token, if there is one.
pub(crate) fn call(to: impl Into<Target>, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Content-Type", "application/json")];
    headers.extend((!token.is_empty()).then_some(("Authorization", &*bearer)));
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    if body.is_empty() {
        headers.remove(0);
    }
    ask(to, method, path, &headers, &body)
}

fn status(server: &impl Server, token: &str, method: &str, path: &str, body: &Value) -> u16 {
    call(server.applications(), token, method, path, body).status
}

/// Makes a token; its secret.
pub(crate) fn make(server: &impl Server, token: &str, new: &Value) -> String {
    let made = call(server.applications(), token, "POST", "/api/tokens", new);
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header("cache-control"), Some("no-store"));
    made.json()["token"].as_str().unwrap().to_owned()
}

pub(crate) fn every_role(name: &str, tenant: &str) -> Value {
    json!({"name": name, "tenant": tenant, "roles": ["reader", "writer", "admin"]})
}

/// Prints what the command prints.
fn token_command(server: &impl Server, token: &str, arguments: &[&str]) -> String {
    let mut command = millstream();
    command.args(["token", "--server", &server.applications_url()]).args(arguments);
    if let Some(tenant) = server.applications().tenant {
        command.args(["--tenant", tenant]);
    }
    if !token.is_empty() {
        command.env("MILLSTREAM_TOKEN", token);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_first_token_closes_every_listener_and_a_revoked_one_ends_what_it_has_begun() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let put = |token: &str, path: &str| status(&process, token, "PUT", path, &json!({"partitions": 1}));
    assert_eq!(put("", "/api/streams/orders"), 201, "nobody needs a token before there is one");
    let events = [("Accept", "text/event-stream")];
    let mut open_tail = Events::get(&process, "/api/streams/orders", &events);
    let connect_to_kafka = || has_kafka_listener().then(|| Raw::connect(process.kafka));
    let (mut open_kafka, mut open_redis) = (connect_to_kafka(), Raw::connect(process.redis));
    assert!(open_kafka.iter_mut().all(Raw::kafka_serves));
    assert_eq!(open_redis.redis(&["PING"]), "+PONG");
    let root = token_command(
        &process,
        "",
        &["create", "root", "--every-tenant", "--role", "admin", "--role", "reader", "--role", "writer"],
    );
    let root = root.trim_end();
    assert!(root.starts_with("mst_") && root.len() == 47, "{root}");
    assert!(open_tail.next().is_none(), "a reader without a token is told to go");
    assert!(!open_kafka.iter_mut().any(Raw::kafka_serves));
    assert_eq!(open_redis.redis(&["PING"]), "");
    assert_eq!(status(&process, "", "GET", "/api/streams", &Value::Null), 401);
    assert_eq!(status(&process, root, "GET", "/api/streams", &Value::Null), 200);

    let shop = make(&process, root, &every_role("shop", "default"));
    let bearer = format!("Bearer {shop}");
    let mut tail = Events::get(&process, "/api/streams/orders", &[events[0], ("Authorization", &bearer)]);
    let (mut kafka, mut idle_kafka) = (connect_to_kafka(), connect_to_kafka());
    assert!([&mut kafka, &mut idle_kafka].into_iter().flatten().all(|kafka| kafka.kafka_login("shop", &shop) == 0));
    let (mut redis, mut listening) = (Raw::connect(process.redis), Raw::connect(process.redis));
    assert_eq!(redis.redis(&["AUTH", "shop", &shop]), "+OK");
    assert_eq!(redis.redis(&["SET", "a", "1"]), "+OK");
    assert_eq!(listening.redis(&["AUTH", &shop]), "+OK");
    assert_eq!(listening.redis(&["SUBSCRIBE", "news"]), "*3");
    assert!(kafka.iter_mut().all(Raw::kafka_serves));
    assert_eq!(status(&process, &shop, "GET", "/api/streams", &Value::Null), 200);

    assert_eq!(token_command(&process, root, &["revoke", "shop"]), "token shop is revoked\n");
    assert_eq!(status(&process, &shop, "GET", "/api/streams", &Value::Null), 401);
    assert!(tail.next().is_none());
    assert!(!kafka.iter_mut().any(Raw::kafka_serves) && idle_kafka.iter_mut().all(Raw::is_closed));
    assert_eq!(redis.redis(&["GET", "a"]), "");
    let mut rest = Vec::new();
    listening.0.read_to_end(&mut rest).unwrap();
    assert!(connect_to_kafka().is_none_or(|mut kafka| kafka.kafka_login("shop", &shop) != 0));
    assert!(Raw::connect(process.redis).redis(&["AUTH", "shop", &shop]).starts_with("-WRONGPASS"));
    process.stop();
}

#[test]
fn the_login_route_tells_everybody_whether_a_token_is_needed_and_a_caller_who_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let login = |token: &str| call(process.applications, token, "GET", "/api/login", &Value::Null);
    assert_eq!(login("").json(), json!({"required": false, "oidc": null, "caller": null}));
    let root = make(&process, "", &every_role("root", "*"));
    let reader = make(&process, &root, &json!({"name": "r", "tenant": "acme", "roles": ["reader"], "topics": ["y"]}));
    assert_eq!(login("").json(), json!({"required": true, "oidc": null, "caller": null}));
    let limits = json!({"topics": ["y"], "types": [], "keys": [], "groups": [], "transactional_ids": []});
    for (token, caller) in [
        (&root, json!({"name": "root", "tenant": "*", "roles": ["reader", "writer", "admin"], "limits": null})),
        (&reader, json!({"name": "r", "tenant": "acme", "roles": ["reader"], "limits": limits})),
    ] {
        let answer = login(token);
        assert_eq!(answer.json(), json!({"required": true, "oidc": null, "caller": caller}));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let wrong = login("mst_wrong");
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("not known") && wrong.header("www-authenticate").is_some(), "{}", wrong.text());
    let basic = ask(process.applications, "GET", "/api/login", &[("Authorization", "Basic YTpi")], b"");
    assert!(basic.status == 401 && basic.text().contains("not a bearer token"), "{}", basic.text());
    process.stop();
}

#[test]
fn tokens_survive_a_crash_and_revoked_ones_stay_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let root = make(&process, "", &every_role("root", "*"));
    let gone = make(&process, &root, &every_role("gone", "acme"));
    let kept =
        make(&process, &root, &json!({"name": "kept", "tenant": "acme", "roles": ["reader"], "lifetime": "365d"}));
    assert_eq!(status(&process, &root, "DELETE", "/api/tokens/gone", &Value::Null), 204);
    process.kill();
    let process = Process::start(dir.path());
    assert_eq!(status(&process, "", "GET", "/api/tokens", &Value::Null), 401, "it does not open again");
    assert_eq!(status(&process, &gone, "GET", "/api/streams", &Value::Null), 401);
    assert_eq!(status(&process, &kept, "GET", "/api/streams", &Value::Null), 200);
    if has_kafka_listener() {
        assert_eq!(Raw::connect(process.kafka).kafka_login("kept", &kept), 0);
    }
    let listed = call(process.applications, &root, "GET", "/api/tokens", &Value::Null);
    let names: Vec<_> = listed.json().as_array().unwrap().iter().map(|token| token["name"].clone()).collect();
    assert_eq!(names, ["kept", "root"]);
    assert!(crate::log_has_no_files() || std::fs::read_dir(dir.path().join("log")).unwrap().count() > 0);
    for secret in [&root, &gone, &kept] {
        assert!(!listed.text().contains(&**secret));
        let found = std::process::Command::new("grep").args(["-raq", secret]).arg(dir.path()).status().unwrap();
        assert_eq!(found.code(), Some(1), "no file has a secret");
    }
    // All tokens gone: nobody comes in until a restart, on loopback.
    for name in ["kept", "root"] {
        assert_eq!(status(&process, &root, "DELETE", &format!("/api/tokens/{name}"), &Value::Null), 204);
    }
    assert_eq!(status(&process, "", "GET", "/api/tokens", &Value::Null), 401);
    process.stop();
    let process = Process::start(dir.path());
    assert_eq!(status(&process, "", "GET", "/api/tokens", &Value::Null), 200);
    process.stop();
}

#[test]
fn an_admin_of_a_tenant_manages_the_tokens_of_that_tenant_only() {
    let (server, root) = (crate::tenant_with_logins(), crate::ROOT);
    let (own, elsewhere) = (server.tenant(), crate::tenant_with_logins().tenant());
    let [boss, guest, stranger, late] = ["boss", "guest", "stranger", "late"].map(|name| format!("{name}-of-{own}"));
    let acme = make(&server, root, &every_role(&boss, own));
    make(&server, &acme, &json!({"name": guest, "roles": ["reader"]}));
    make(&server, root, &json!({"name": stranger, "tenant": elsewhere, "roles": ["reader"]}));
    for tenant in ["*", elsewhere] {
        let refused = call(server.applications(), &acme, "POST", "/api/tokens", &every_role("more", tenant));
        assert!(refused.status == 403 && refused.text().contains(&format!("tenant '{own}'")), "{}", refused.text());
    }
    let listed = |token: &str| -> Vec<String> {
        let listed = call(server.applications(), token, "GET", "/api/tokens", &Value::Null).json();
        listed.as_array().unwrap().iter().map(|one| format!("{} {}", one["name"], one["tenant"])).collect()
    };
    let of_own = [&boss, &guest].map(|name| format!("\"{name}\" \"{own}\""));
    assert_eq!(listed(&acme), of_own);
    let all = listed(root);
    assert!(of_own.iter().all(|one| all.contains(one)), "{all:?}");
    assert!(all.contains(&format!("\"{stranger}\" \"{elsewhere}\"")), "{all:?}");
    for name in [&*stranger, "root", "nobody"] {
        assert_eq!(status(&server, &acme, "DELETE", &format!("/api/tokens/{name}"), &Value::Null), 404, "{name}");
    }
    assert_eq!(status(&server, &acme, "DELETE", &format!("/api/tokens/{guest}"), &Value::Null), 204);
    let reader = make(&server, root, &json!({"name": late, "tenant": own, "roles": ["reader"]}));
    for (method, path) in [("GET", "/api/tokens"), ("DELETE", &*format!("/api/tokens/{boss}"))] {
        assert_eq!(status(&server, &reader, method, path, &Value::Null), 403, "{method} {path}");
    }
    let table = token_command(&server, root, &["list"]);
    assert!(table.lines().any(|line| line.split_whitespace().eq([&*late, own, "reader", "-", "never"])), "{table}");
}

#[test]
fn tokens_that_cannot_be_are_refused_with_value_rule_and_remedy() {
    let (server, root) = (crate::tenant_with_logins(), crate::ROOT);
    let with = |member: &str, value: Value| {
        let mut new = every_role("new", server.tenant());
        new[member] = value;
        new
    };
    let (many, long) = (vec!["x"; 101], "x".repeat(257));
    for (new, status, parts) in [
        (with("name", json!("a b")), 400, &["a b", "1 to 100 of the characters"][..]),
        (with("name", json!("")), 400, &["1 to 100"]),
        (with("name", json!("root")), 409, &["root", "names of tokens differ", "choose another name"]),
        (with("roles", json!([])), 400, &["reader, writer, admin"]),
        (with("roles", json!(["root"])), 400, &["root"]),
        (with("tenant", json!("a b")), 400, &["a b", "tenant id"]),
        (with("topics", json!([])), 400, &["topics", "leave it out"]),
        (with("types", json!([""])), 400, &["types", "1 to 256"]),
        (with("topics", json!(many)), 400, &["101", "1 to 100 prefixes"]),
        (with("topics", json!([long])), 400, &["1 to 256 characters"]),
        (with("expires", json!("2020-01-01T00:00:00Z")), 400, &["2020-01-01", "a time to come"]),
        (with("expires", json!("tomorrow")), 400, &["tomorrow", "a time to come"]),
        (with("lifetime", json!("1y")), 400, &["1y", "such as 7d"]),
        (with("lifetime", json!("0d")), 400, &["0d", "30d"]),
        (with("lifetime", json!("99999999999d")), 400, &["99999999999d", "30d"]),
        (with("token", json!("my own secret")), 400, &["token"]),
    ] {
        let refused = call(server.applications(), root, "POST", "/api/tokens", &new);
        let said = refused.text();
        assert_eq!(refused.status, status, "{new}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{new}: {said}");
    }
    let told = call(server.applications(), root, "DELETE", "/api/tokens/root", &Value::Null);
    assert!(told.status == 404 && told.text().contains("remove it from the file"), "{}", told.text());
    let made = call(server.applications(), root, "GET", "/api/tokens", &Value::Null).text();
    assert!(!made.contains(r#""name":"new""#) && !made.contains(r#""name":"root""#), "{made}");
}

#[test]
fn a_token_is_refused_and_its_connections_end_when_its_lifetime_is_over() {
    let (server, root) = (crate::tenant_with_logins(), crate::ROOT);
    let name = format!("brief-of-{}", server.tenant());
    let brief = make(
        &server,
        root,
        &json!({"name": name, "tenant": server.tenant(), "roles": ["reader", "writer"], "lifetime": "3s"}),
    );
    let mut kafka = has_kafka_listener().then(|| Raw::connect(server.kafka()));
    assert!(kafka.iter_mut().all(|kafka| kafka.kafka_login(&name, &brief) == 0));
    eventually("the token to expire", || status(&server, &brief, "GET", "/api/streams", &Value::Null) == 401);
    assert!(kafka.iter_mut().all(Raw::is_closed));
    let listed = call(server.applications(), root, "GET", "/api/tokens", &Value::Null).text();
    assert!(listed.contains(&format!("\"{name}\"")), "it is listed until it is revoked: {listed}");
}

#[test]
fn a_token_that_is_limited_to_topics_or_types_has_these_and_nothing_else() {
    let (server, root) = (crate::tenant_with_logins(), crate::ROOT);
    let limited = |name: &str, member: &str, prefixes: Value| {
        let mut new = every_role(&format!("{name}-of-{}", server.tenant()), server.tenant());
        new[member] = prefixes;
        make(&server, root, &new)
    };
    let (topics, types) = (limited("t", "topics", json!(["ord"])), limited("e", "types", json!(["Room"])));
    let (nothing, made) = (Value::Null, json!({"partitions": 1}));
    assert_eq!(status(&server, root, "PUT", "/api/streams/secret", &made), 201);
    let room = |id: &str, kind: &str| json!({"id": id, "type": kind, "t": {"value": 1, "type": "Number"}});
    assert_eq!(status(&server, root, "POST", "/v2/entities", &room("car", "Car")), 201);
    let records = json!([{"value": 1}]);
    let update = |kind: &str| json!({"actionType": "append", "entities": [room("r3", kind)]});
    let typed = |kind: &str| json!({"entities": [{"idPattern": ".*", "type": kind}]});
    let value = json!({"t": {"value": 2, "type": "Number"}});
    for (token, method, path, body, expected) in [
        (&topics, "PUT", "/api/streams/orders", &made, 201),
        (&topics, "PUT", "/api/streams/bolts", &made, 403),
        (&topics, "POST", "/api/streams/orders/records", &records, 200),
        (&topics, "POST", "/api/streams/secret/records", &records, 403),
        (&topics, "GET", "/api/streams/orders", &nothing, 200),
        (&topics, "GET", "/api/streams/secret", &nothing, 403),
        (&topics, "GET", "/api/streams/secret/info", &nothing, 403),
        (&topics, "DELETE", "/api/streams/secret", &nothing, 403),
        (&topics, "GET", "/v2/entities?type=Room", &nothing, 403),
        (&topics, "GET", "/v2/subscriptions", &nothing, 403),
        (&topics, "GET", "/api/jobs", &nothing, 403),
        (&topics, "GET", "/api/tokens", &nothing, 403),
        (&topics, "GET", "/api/queries", &nothing, 403),
        (&topics, "GET", "/buckets", &nothing, 403),
        (&types, "GET", "/api/streams/orders", &nothing, 403),
        (&types, "POST", "/v2/entities", &room("r1", "Room"), 201),
        (&types, "POST", "/v2/entities", &room("r2", "RoomOfServers"), 201),
        (&types, "POST", "/v2/entities", &room("c", "Car"), 403),
        (&types, "POST", "/v2/entities", &json!({"id": "x"}), 403),
        (&types, "GET", "/v2/entities", &nothing, 403),
        (&types, "GET", "/v2/entities?type=Room", &nothing, 200),
        (&types, "GET", "/v2/entities?type=Room,Car", &nothing, 403),
        (&types, "GET", "/v2/entities?typePattern=Room", &nothing, 403),
        (&types, "GET", "/v2/entities/r1", &nothing, 200),
        (&types, "GET", "/v2/entities/car", &nothing, 403),
        (&types, "GET", "/v2/entities/car/attrs/t/value", &nothing, 403),
        (&types, "PATCH", "/v2/entities/r1/attrs?type=Room", &value, 204),
        (&types, "PATCH", "/v2/entities/r1/attrs", &value, 403),
        (&types, "PATCH", "/v2/entities/car/attrs?type=Car", &value, 403),
        (&types, "DELETE", "/v2/entities/car", &nothing, 403),
        (&types, "DELETE", "/v2/entities/r2?type=RoomOfServers", &nothing, 204),
        (&types, "POST", "/v2/op/update", &update("Room"), 204),
        (&types, "POST", "/v2/op/update", &update("Car"), 403),
        (&types, "POST", "/v2/op/query", &typed("Room"), 200),
        (&types, "POST", "/v2/op/query", &typed("Car"), 403),
        (&types, "POST", "/v2/op/query", &json!({"attrs": ["t"]}), 403),
        (&types, "GET", "/v2/types", &nothing, 403),
    ] {
        let answer = call(server.applications(), token, method, path, body);
        assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text());
    }
    let seen = call(server.applications(), &topics, "GET", "/api/streams", &Value::Null).json();
    let names: Vec<_> = seen.as_array().unwrap().iter().map(|topic| topic["name"].clone()).collect();
    assert_eq!(names, ["orders"]);
    assert!(
        Raw::connect(server.redis())
            .redis(&["AUTH", &format!("t-of-{}", server.tenant()), &topics])
            .starts_with("-NOPERM")
    );
}

#[test]
fn a_token_is_limited_to_groups_and_transactional_ids_beside_its_topics() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let root = make(&process, "", &every_role("root", "*"));
    for member in ["groups", "transactional_ids"] {
        let mut new = every_role("wide", "default");
        new[member] = json!(["shop-"]);
        let refused = call(process.applications, &root, "POST", "/api/tokens", &new);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains("limited to topics"), "{}", refused.text());
    }
    let arguments = ["create", "shop", "--role", "reader", "--role", "writer", "--topics", "ord", "--groups", "shop-"];
    let ids = ["--groups", "till-", "--transactional-ids", "shop-"];
    let shop = token_command(&process, &root, &[&arguments[..], &ids].concat());
    let shop = shop.trim_end();
    let check = |process: &Process| {
        let listed = token_command(process, &root, &["list"]);
        assert!(listed.contains("topics=ord groups=shop-,till- transactional_ids=shop-"), "{listed}");
        let shown = call(process.applications, &root, "GET", "/api/tokens", &Value::Null).json();
        let shown = shown.as_array().unwrap().iter().find(|token| token["name"] == "shop").unwrap().clone();
        assert_eq!((&shown["groups"], &shown["transactional_ids"]), (&json!(["shop-", "till-"]), &json!(["shop-"])));
        let own = call(process.applications, shop, "GET", "/api/login", &Value::Null).json();
        assert_eq!(own["caller"]["limits"]["groups"], json!(["shop-", "till-"]));
        if has_kafka_listener() {
            assert_eq!(Raw::connect(process.kafka).kafka_login("shop", shop), 0);
        }
    };
    check(&process);
    process.stop();
    let process = Process::start_on(dir.path(), &[]);
    check(&process);
    process.stop();
}

#[test]
fn a_revoked_token_leaves_a_list_of_its_running_jobs_which_are_stopped_if_asked_for() {
    let (server, root) = (crate::tenant_with_logins(), crate::ROOT);
    let named = |name: &str| format!("{name}-of-{}", server.tenant());
    let submit = |token: &str, name: &str| {
        let job = json!({
            "version": 1, "kind": "Job", "name": name,
            "sources": {"in": {"type": "list", "config": {"records": [{"n": 1}], "open": true}}},
            "sinks": {"out": {"type": "blackhole", "inputs": ["in"]}},
        });
        let made = call(server.applications(), token, "POST", "/api/jobs", &job);
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let job = |token: &str, id: &str| {
        call(server.applications(), token, "GET", &format!("/api/jobs/{id}/status"), &Value::Null).json()
    };
    let acme = make(&server, root, &every_role(&named("boss"), server.tenant()));
    let [left, stopped] =
        ["left", "stopped"].map(|name| make(&server, root, &every_role(&named(name), server.tenant())));
    let ids = [submit(&left, "a"), submit(&stopped, "b"), submit(&acme, "c")];
    assert_eq!(job(&acme, &ids[0])["submitted_by"], named("left"));

    let told = call(server.applications(), &acme, "DELETE", &format!("/api/tokens/{}", named("left")), &Value::Null);
    assert_eq!((told.status, &told.json()["stopped"]), (200, &json!(false)));
    let listed = told.json()["jobs"].clone();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["id"], &listed[0]["name"]),
        (1, &json!(ids[0]), &json!("a"))
    );
    let printed = token_command(&server, &acme, &["revoke", &named("stopped"), "--and-stop"]);
    assert_eq!(printed, format!("token {} is revoked\nits job b ({}) is stopped\n", named("stopped"), ids[1]));
    eventually("the job of the second token is stopped", || job(&acme, &ids[1])["state"] == "stopped");
    for id in [&ids[0], &ids[2]] {
        assert_eq!(job(&acme, id)["state"], "running", "the others go on");
    }
}

#[test]
fn private_hosts_are_called_once_callers_log_in_only_if_they_are_listed() {
    let subscription = |host: &str| {
        let url = format!("http://{host}/");
        json!({"subject": {"entities": [{"idPattern": ".*"}]}, "notification": {"http": {"url": url}}})
    };
    let job = |host: &str| {
        let sink = json!({"type": "http", "inputs": ["in"], "config": {"url": format!("http://{host}/")}});
        json!({
            "version": 1, "kind": "Job", "name": format!("to-{}", host.replace(['.', ':'], "-")), "sinks": {"out": sink},
            "sources": {"in": {"type": "stream", "config": {"topic": "in"}}},
        })
    };
    for (settings, hosts) in [
        (&[][..], [("127.0.0.1:9", false), ("localhost:9", false), ("10.0.0.1", false), ("169.254.169.254", false)]),
        (
            &[
                "--set=flow.http_allowed_targets=[\"private\"]",
                "--set=context.notifications.allowed_targets=[\"private\"]",
            ],
            [("127.0.0.1:9", true), ("localhost:9", true), ("10.0.0.1", true), ("169.254.169.254", false)],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start_on(dir.path(), settings);
        let statuses = |token: &str, host: &str| {
            let subscribed = status(&process, token, "POST", "/v2/subscriptions", &subscription(host));
            [subscribed, status(&process, token, "POST", "/api/jobs", &job(host))]
        };
        assert_eq!(status(&process, "", "PUT", "/api/streams/in", &json!({"partitions": 1})), 201);
        assert_eq!(statuses("", "127.0.0.2"), [201, 201], "without a login all callers are on this machine");
        let root = make(&process, "", &every_role("root", "*"));
        for (host, is_allowed) in hosts {
            let expected = if is_allowed { [201, 201] } else { [400, 422] };
            assert_eq!(statuses(&root, host), expected, "{host} with {settings:?}");
        }
        process.stop();
    }
}

#[test]
fn a_token_that_is_limited_to_keys_has_these_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start_on(dir.path(), &["--set=store.rift=true"]);
    let root = make(&process, "", &every_role("root", "*"));
    for (path, body) in [
        ("/buckets/shop", json!({"partitions": 2})),
        ("/buckets/films", json!({})),
        ("/buckets/fast", json!({"kind": "cache", "max_bytes": 1_000_000})),
        ("/kv/shop/img/a", json!(1)),
        ("/kv/shop/price", json!(2)),
        ("/api/streams/orders", json!({"partitions": 1})),
    ] {
        assert_eq!(status(&process, &root, "PUT", path, &body), 201, "{path}");
    }
    let roles = json!(["reader", "writer", "admin"]);
    let refused = |new: Value| call(process.applications, &root, "POST", "/api/tokens", &new);
    for prefix in ["shop", "/a", ""] {
        let answer = refused(json!({"name": "wrong", "roles": roles, "keys": [prefix]}));
        assert_eq!(answer.status, 400, "{prefix}: {}", answer.text());
    }
    let limits = ["shop/img/", "films/", "fast/session:"];
    let arguments = ["create", "shop", "--role", "reader", "--role", "writer", "--role", "admin"];
    let keys: Vec<&str> = limits.iter().flat_map(|limit| ["--keys", limit]).collect();
    let limited = token_command(&process, &root, &[&arguments[..], &keys].concat());
    let limited = limited.trim_end();
    assert!(token_command(&process, &root, &["list"]).contains("keys=shop/img/,films/,fast/session:"));
    for (method, path, body, expected) in [
        ("GET", "/kv/shop/img/a", Value::Null, 200),
        ("PUT", "/kv/shop/img/b", json!(3), 201),
        ("PUT", "/kv/shop/img%2Fc", json!(3), 201),
        ("DELETE", "/kv/shop/img/b", Value::Null, 204),
        ("POST", "/kv/shop/img/big?uploads", Value::Null, 201),
        ("GET", "/kv/shop?prefix=img/", Value::Null, 200),
        ("GET", "/kv/shop?prefix=img/a&start=a", Value::Null, 200),
        ("PUT", "/kv/films/a", json!(1), 201),
        ("GET", "/kv/films", Value::Null, 200),
        ("GET", "/kv/films/_iterate", Value::Null, 200),
        ("GET", "/list/films", Value::Null, 200),
        ("GET", "/get/shop/img/a", Value::Null, 200),
        ("GET", "/buckets/films", Value::Null, 200),
        ("PUT", "/kv/fast/session:1", json!(1), 201),
        // Other keys, also by another spelling and with a range or an upload.
        ("GET", "/kv/shop/price", Value::Null, 403),
        ("GET", "/kv/shop/img", Value::Null, 403),
        ("GET", "/kv/shop/%70rice", Value::Null, 403),
        ("GET", "/kv/shop/img/../price", Value::Null, 404),
        ("PUT", "/kv/shop/price", json!(1), 403),
        ("DELETE", "/kv/shop/price", Value::Null, 403),
        ("POST", "/kv/shop/price?append", json!(1), 403),
        ("POST", "/kv/shop/price?uploads", Value::Null, 403),
        ("GET", "/kv/shop/price?uploads", Value::Null, 403),
        ("PUT", "/kv/fast/other", json!(1), 403),
        ("GET", "/kv/fast/other", Value::Null, 403),
        ("GET", "/kv/none/a", Value::Null, 403),
        ("GET", "/kv/shop", Value::Null, 403),
        ("GET", "/kv/shop?prefix=im", Value::Null, 403),
        ("GET", "/kv/shop/_iterate", Value::Null, 403),
        ("GET", "/kv/shop/_watch", Value::Null, 403),
        ("GET", "/kv/shop/_watch?prefix=p", Value::Null, 403),
        ("GET", "/list/shop", Value::Null, 403),
        ("GET", "/get/shop/price", Value::Null, 403),
        ("POST", "/upload/shop/price", json!(1), 403),
        ("POST", "/delete/shop/price", Value::Null, 403),
        ("GET", "/download-info/shop/price", Value::Null, 403),
        // Buckets, and all else of the tenant.
        ("GET", "/buckets", Value::Null, 403),
        ("GET", "/buckets/shop", Value::Null, 403),
        ("PUT", "/buckets/films", json!({}), 403),
        ("DELETE", "/buckets/films", Value::Null, 403),
        ("GET", "/api/streams/orders", Value::Null, 403),
        ("GET", "/v2/entities?type=Room", Value::Null, 403),
        ("GET", "/api/tokens", Value::Null, 403),
        ("GET", "/api/jobs", Value::Null, 403),
    ] {
        let answer = call(process.applications, limited, method, path, &body);
        assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text());
    }
    let lines = "{\"op\":\"get\",\"key\":\"img/a\"}\n{\"op\":\"get\",\"key\":\"price\"}\n{\"op\":\"delete\",\"key\":\"price\"}\n";
    let bearer = format!("Bearer {limited}");
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/x-ndjson")];
    let done = ask(process.applications, "POST", "/kv/shop/_bulk", &headers, lines.as_bytes());
    let statuses: Vec<Value> =
        done.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].clone()).collect();
    assert_eq!(statuses, [200, 403, 403]);
    assert_eq!(status(&process, &root, "GET", "/kv/shop/price", &Value::Null), 200);

    let mut redis = Raw::connect(process.redis);
    assert!(
        redis.redis(&["AUTH", "shop", limited]).starts_with("-NOPERM"),
        "keys over Redis have no bucket in their names"
    );
    process.stop();
    // The limit outlives the server.
    let process = Process::start_on(dir.path(), &[]);
    assert_eq!(status(&process, limited, "GET", "/kv/shop/img/a", &Value::Null), 200);
    assert_eq!(status(&process, limited, "GET", "/kv/shop/price", &Value::Null), 403);
    process.stop();
}

#[test]
fn a_revoked_token_leaves_a_list_of_its_kept_queries_which_end_if_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(dir.path());
    let root = make(&process, "", &every_role("root", "*"));
    let [left, stopped, acme] =
        ["left", "stopped", "acme"].map(|name| make(&process, &root, &every_role(name, "default")));
    for topic in ["orders", "answers"] {
        let made =
            call(process.applications, &root, "PUT", &format!("/api/streams/{topic}"), &json!({"partitions": 1}));
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let ask = |process: &Process, token: &str| {
        let query =
            json!({"query": "SELECT COUNT(*) AS c FROM \"orders\"", "keep": true, "deliver": {"topic": "answers"}});
        let asked = call(process.applications, token, "POST", "/api/queries", &query);
        assert_eq!(asked.status, 201, "{}", asked.text());
        asked.json()["id"].as_str().unwrap().to_owned()
    };
    let ids = [&left, &stopped, &acme].map(|token| ask(&process, token));
    let look = |process: &Process, id: &str| {
        call(process.applications, &acme, "GET", &format!("/api/queries/{id}"), &Value::Null)
    };
    process.kill();
    let process = Process::start(dir.path());
    assert_eq!(look(&process, &ids[0]).json()["submitted_by"], "left", "a restart keeps the name");

    let told = call(process.applications, &acme, "DELETE", "/api/tokens/left", &Value::Null);
    assert_eq!((told.status, &told.json()["stopped"]), (200, &json!(false)));
    let listed = told.json()["queries"].clone();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(ids[0])));
    let printed = token_command(&process, &acme, &["revoke", "stopped", "--and-stop"]);
    assert!(printed.contains(&format!("({}) is stopped\n", ids[1])), "{printed}");
    eventually("the query of the second token has ended", || {
        let asked = look(&process, &ids[1]);
        asked.status == 404 || asked.json()["cause"] == "killed"
    });
    for id in [&ids[0], &ids[2]] {
        assert_eq!(look(&process, id).json()["cause"], Value::Null, "the others go on");
    }
    process.stop();
}
