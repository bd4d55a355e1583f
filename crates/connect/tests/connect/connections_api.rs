//! `/v1/connections`: operators see who is connected over MQTT and AMQP, and end a connection.

use std::sync::Arc;
use std::time::Duration;

use millstream_amqp::{Close, DeliveryState, Performative, condition};
use millstream_connect::{ConnectConfig, MqttConfig};
use millstream_http::{Api, ApiToken, ApiTokens, Listener, ListenerLimits, Metrics, RoleName};
use millstream_net::Serving;
use millstream_testkit::found_by;
use millstream_testkit::mqtt::{Hello, Mqtt, Will, connect, packet};
use millstream_types::{MemoryBudget, Role, Roles};
use serde_json::{Value, json};

use crate::amqp_client::{Amqp, SECRET, Users};
use crate::world::{World, ask, basic, quick};

const BOTH: [u8; 2] = [4, 5];
/// The reason code of MQTT 5 for a connection that an operator has ended.
const ADMINISTRATIVE_ACTION: u8 = 0x98;

fn listen_amqp(world: &World, users: Users) -> Serving {
    let memory = MemoryBudget::new("memory.budget_bytes", 1 << 30);
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    world.connect.listen_amqp(any.into(), Arc::new(users), &memory, &world.metrics).unwrap()
}

async fn stop(world: World, amqp: Serving) {
    assert_eq!(amqp.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
    world.stop().await;
}

fn hello(level: u8, client: &'static str, user: &'static str) -> Hello<'static> {
    let login = Some((user, "pw"));
    Hello { level, keep_alive_s: 60, client, clean: true, login, properties: &[], will: None }
}

async fn enter(world: &World, hello: &Hello<'_>) -> Mqtt {
    let (client, connack) = Mqtt::connect(world.mqtt(), hello).await;
    assert_eq!(connack[1], 0, "{connack:?}");
    client
}

async fn application(amqp: &Serving, name: &str) -> Amqp {
    let mut client = Amqp::connect(amqp.address()).await;
    let plain = format!("\0{name}\0{SECRET}");
    assert_eq!(client.log_in("PLAIN", Some(plain.as_bytes()), |_| Vec::new()).await, 0);
    client.open_logged_in().await;
    client
}

/// The list that `query` asks for, of a tenant that is known.
async fn listed(world: &World, tenant_and_query: &str) -> (u64, Vec<Value>) {
    let answer = world.do_registry(&format!("GET /v1/connections/{tenant_and_query}"), "", 200).await.json();
    (answer["total"].as_u64().unwrap(), answer["result"].as_array().unwrap().clone())
}

/// Waits until a tenant's connections show these values of a member.
async fn until_shown(world: &World, tenant: &str, member: &str, expected: &Value) -> Vec<Value> {
    found_by(&format!("{member} of the connections of {tenant}: {expected}"), async || {
        let (total, all) = listed(world, tenant).await;
        let shown: Vec<Value> = all.iter().map(|one| one[member].clone()).collect();
        (total as usize == all.len() && json!(shown) == *expected).then_some(all)
    })
    .await
}

async fn end(world: &World, tenant: &str, id: &str, status: u16) {
    world.do_registry(&format!("DELETE /v1/connections/{tenant}/{id}"), "", status).await;
}

/// The id of the connection with this client id.
async fn id_of(world: &World, tenant: &str, client: &str) -> String {
    let look = async || {
        let (_, all) = listed(world, tenant).await;
        all.iter().find(|one| one["client-id"] == client).map(|one| one["id"].as_str().unwrap().to_owned())
    };
    found_by(client, look).await
}

async fn is_alive(client: &mut Mqtt) {
    client.send(&[0xC0, 0]).await;
    assert_eq!(client.next().await.0, 0xD0);
}

async fn send_telemetry(world: &World, payload: &str) {
    let login = basic("d@T", "pw");
    let headers = [("authorization", login.as_str()), ("content-type", "text/plain"), ("qos-level", "1")];
    assert_eq!(world.device("POST /telemetry", &headers, payload.as_bytes()).await.status, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_sees_its_own_connections_of_both_protocols_and_nobody_else_s() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for tenant in ["T", "U"] {
        world.register(tenant, "d").await;
    }
    world.register("T", "e").await;
    let readers = || Roles::NONE.with(Role::Reader);
    let users = Users::default().with("app", "T", readers()).with("other", "U", readers());
    let amqp = listen_amqp(&world, users);
    assert_eq!(listed(&world, "T").await, (0, vec![]));

    let one_at_a_time = [0x21, 0, 1];
    let mut lamp = enter(&world, &Hello { properties: &one_at_a_time, ..hello(5, "lamp", "d@T") }).await;
    for (filter, code) in [("house/#", 1), ("command///req/#", 1), ("error///#", 0)] {
        assert_eq!(lamp.subscribe(filter, code).await, code, "{filter}");
    }
    let mut sensor = enter(&world, &hello(4, "sensor", "e@T")).await;
    let mut app = application(&amqp, "app").await;
    app.receive("telemetry/T", 5).await;
    let _others = (enter(&world, &hello(5, "lamp", "d@U")).await, application(&amqp, "other").await);

    for id in 1..=3 {
        sensor.publish(1, id, "house/x", b"x").await;
        assert_eq!(sensor.next().await.0, 0x40);
    }
    assert_eq!(lamp.message().await.text(), ("house/x", "x"));
    for payload in ["1", "2"] {
        send_telemetry(&world, payload).await;
    }
    let received = app.messages(2).await;
    let all = until_shown(&world, "T", "in-flight", &json!([1, 0, 2])).await;
    assert!(all.is_sorted_by_key(|one| one["since"].as_str().unwrap().to_owned()));
    let ids: std::collections::BTreeSet<&str> = all.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    let mut shown = all.clone();
    for one in &mut shown {
        let one = one.as_object_mut().unwrap();
        assert!(one.remove("id").unwrap().is_string());
        assert!(one.remove("address").unwrap().as_str().unwrap().starts_with("127.0.0.1:"));
        let since = one.remove("since").unwrap();
        assert!(since.as_str().unwrap().ends_with('Z') && since.as_str().unwrap().len() == 24, "{since}");
    }
    let expected = json!([
        {
            "protocol": "mqtt", "login": "d@T", "role": "device", "device": "d", "client-id": "lamp",
            "subscriptions": ["command///req/#", "error///#", "house/#"], "subscriptions-total": 3,
            "queued": 2, "in-flight": 1,
        },
        {
            "protocol": "mqtt", "login": "e@T", "role": "device", "device": "e", "client-id": "sensor",
            "subscriptions": [], "subscriptions-total": 0, "queued": 0, "in-flight": 0,
        },
        {
            "protocol": "amqp", "login": "app", "role": "application", "client-id": "test",
            "sessions": 1, "links": 1, "in-flight": 2,
        },
    ]);
    assert_eq!(json!(shown), expected);

    // Figures follow what the clients do.
    lamp.unsubscribe("command///req/#").await;
    lamp.unsubscribe("house/#").await;
    app.settle(received[0].id, received[1].id, DeliveryState::Accepted).send().await;
    let all = until_shown(&world, "T", "in-flight", &json!([1, 0, 0])).await;
    assert_eq!((&all[0]["subscriptions"], &all[0]["subscriptions-total"]), (&json!(["error///#"]), &json!(1)));

    until_shown(&world, "U", "login", &json!(["d@U", "other"])).await;
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_is_narrowed_by_protocol_and_login_and_read_by_page() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.register("T", "e").await;
    let amqp = listen_amqp(&world, Users::default().with("app", "T", Roles::NONE.with(Role::Reader)));
    let mut clients = Vec::new();
    for (client, user) in [("0", "d@T"), ("1", "e@T"), ("2", "d@T")] {
        clients.push(enter(&world, &hello(5, client, user)).await);
    }
    let _app = application(&amqp, "app").await;
    until_shown(&world, "T", "client-id", &json!(["0", "1", "2", "test"])).await;
    for (query, total, expected) in [
        ("?protocol=mqtt", 3, json!(["0", "1", "2"])),
        ("?protocol=amqp", 1, json!(["test"])),
        ("?login=d%40T", 2, json!(["0", "2"])),
        ("?login=app&protocol=amqp", 1, json!(["test"])),
        ("?login=app&protocol=mqtt", 0, json!([])),
        ("?login=nobody", 0, json!([])),
        ("?pageSize=2", 4, json!(["0", "1"])),
        ("?pageSize=2&pageOffset=3", 4, json!(["test"])),
        ("?pageSize=1&pageOffset=1&login=d%40T", 2, json!(["2"])),
        ("?pageSize=0", 4, json!([])),
    ] {
        let (found, page) = listed(&world, &format!("T{query}")).await;
        let clients: Vec<&Value> = page.iter().map(|one| &one["client-id"]).collect();
        assert_eq!((found, json!(clients)), (total, expected), "{query}");
    }
    for (query, value, rule) in [
        ("protocol=http", "http", "protocol is mqtt or amqp"),
        ("pageSize=201", "201", "pageSize is 0 to 200"),
        ("pageOffset=-1", "-1", "pageOffset is 0 or more"),
        ("sortJson=x", "sortJson", "pageSize, pageOffset, protocol and login"),
    ] {
        world.registry(&format!("GET /v1/connections/T?{query}"), &[], "").await.expect_problem(400, value, rule);
    }
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_in_flight_until_they_are_acknowledged_with_and_without_a_private_space() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for (tenant, user, ext) in [("T", "d@T", json!({})), ("U", "d@U", json!({"mqtt-broker": "off"}))] {
        world.register(tenant, "d").await;
        world.do_registry(&format!("PUT /v1/tenants/{tenant}"), &json!({"ext": ext}).to_string(), 204).await;
        let mut lamp = enter(&world, &hello(5, "lamp", user)).await;
        assert_eq!(lamp.subscribe("command///req/#", 1).await, 1);
        let mut messages = Vec::new();
        for name in ["one", "two"] {
            world.command(tenant, "d", &[("subject", name)], b"").await;
            messages.push(lamp.message().await);
        }
        let all = until_shown(&world, tenant, "in-flight", &json!([2])).await;
        assert_eq!((&all[0]["subscriptions"], &all[0]["queued"]), (&json!(["command///req/#"]), &json!(0)), "{tenant}");
        for (message, left) in messages.iter().zip([1, 0]) {
            lamp.send(&packet(0x40, &message.id.to_be_bytes())).await;
            until_shown(&world, tenant, "in-flight", &json!([left])).await;
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_list_is_read_page_by_page() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let mut clients = Vec::new();
    for _ in 0..300 {
        clients.push(Mqtt::log_in(world.mqtt(), 5, "d@T").await);
    }
    let mut ids = std::collections::BTreeSet::new();
    for (offset, count) in [(0, 200), (200, 100)] {
        let (total, page) = listed(&world, &format!("T?pageSize=200&login=d%40T&pageOffset={offset}")).await;
        assert_eq!((total, page.len()), (300, count));
        ids.extend(page.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
    }
    assert_eq!(ids.len(), 300);
    drop(clients);
    until_shown(&world, "T", "id", &json!([])).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mqtt_client_is_ended_with_its_will_while_others_live_on_and_may_connect_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.register("U", "d").await;
    let mut watcher = enter(&world, &hello(5, "watcher", "d@T")).await;
    assert_eq!(watcher.subscribe("will/#", 0).await, 0);
    let will = Some(Will { topic: "will/x", payload: b"gone", qos: 1, retain: false, properties: &[] });
    for level in BOTH {
        let mut lamp = enter(&world, &Hello { will, ..hello(level, "lamp", "d@T") }).await;
        let mut beside = enter(&world, &hello(level, "beside", "d@T")).await;
        let id = id_of(&world, "T", "lamp").await;
        end(&world, "U", &id, 404).await;
        is_alive(&mut lamp).await;
        end(&world, "T", &id, 204).await;
        assert_eq!(lamp.expect_end().await, (level == 5).then_some(ADMINISTRATIVE_ACTION), "level {level}");
        assert_eq!(watcher.message().await.text(), ("will/x", "gone"), "level {level}");
        is_alive(&mut beside).await;
        is_alive(&mut watcher).await;
        until_shown(&world, "T", "client-id", &json!(["watcher", "beside"])).await;
        end(&world, "T", &id, 404).await;

        // The credentials are as they were, and the next connection has an id of its own.
        let mut again = enter(&world, &hello(level, "lamp", "d@T")).await;
        assert_ne!(id_of(&world, "T", "lamp").await, id);
        end(&world, "T", &id, 404).await;
        is_alive(&mut again).await;
        for client in [&mut again, &mut beside] {
            client.send(&[0xE0, 0]).await;
            client.expect_end().await;
        }
        until_shown(&world, "T", "client-id", &json!(["watcher"])).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_amqp_receiver_is_ended_and_another_one_gets_what_it_has_not_settled() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let users = ["a", "b"]
        .into_iter()
        .fold(Users::default(), |users, name| users.with(name, "T", Roles::NONE.with(Role::Reader)));
    let amqp = listen_amqp(&world, users);
    let mut first = application(&amqp, "a").await;
    first.receive("telemetry/T", 1).await;
    send_telemetry(&world, "x").await;
    assert_eq!(first.messages(1).await[0].payload, b"x");
    let mut second = application(&amqp, "b").await;
    second.receive("telemetry/T", 1).await;
    let all = until_shown(&world, "T", "login", &json!(["a", "b"])).await;
    end(&world, "T", all[0]["id"].as_str().unwrap(), 204).await;
    let (told, why) = first.closed().await;
    assert_eq!((&*told, &*why), (condition::CONNECTION_FORCED, "an operator has ended the connection"));
    let again = second.messages(1).await;
    assert_eq!((&*again[0].payload, again[0].failed_deliveries), (&b"x"[..], 1));
    until_shown(&world, "T", "login", &json!(["b"])).await;
    let _back = application(&amqp, "a").await;
    until_shown(&world, "T", "login", &json!(["b", "a"])).await;
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_is_empty_once_the_clients_have_left_in_whatever_way() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    let amqp = listen_amqp(&world, Users::default().with("app", "T", Roles::NONE.with(Role::Reader)));
    for level in BOTH {
        let mut orderly = enter(&world, &hello(level, "orderly", "d@T")).await;
        let abrupt = enter(&world, &hello(level, "abrupt", "d@T")).await;
        let mut broken = enter(&world, &hello(level, "broken", "d@T")).await;
        let mut taken_over = enter(&world, &hello(level, "twice", "d@T")).await;
        let twice = enter(&world, &hello(level, "twice", "d@T")).await;
        taken_over.expect_end().await;
        let wrong = Hello { login: Some(("d@T", "wrong")), ..hello(level, "refused", "") };
        assert_ne!(Mqtt::connect(world.mqtt(), &wrong).await.1[1], 0);
        let unsaid = Mqtt::open(world.mqtt(), level).await;
        until_shown(&world, "T", "client-id", &json!(["orderly", "abrupt", "broken", "twice"])).await;
        orderly.send(&[0xE0, 0]).await;
        orderly.expect_end().await;
        broken.send(&[0x00, 0]).await;
        broken.expect_end().await;
        drop((abrupt, twice, unsaid));
        until_shown(&world, "T", "client-id", &json!([])).await;
    }
    let mut orderly = application(&amqp, "app").await;
    let mut abrupt = application(&amqp, "app").await;
    abrupt.receive("telemetry/T", 1).await;
    let mut refused = Amqp::connect(amqp.address()).await;
    assert_eq!(refused.log_in("PLAIN", Some(b"\0app\0wrong"), |_| Vec::new()).await, 1);
    until_shown(&world, "T", "links", &json!([0, 1])).await;
    orderly.write(0, &Performative::Close(Close::default())).send().await;
    drop(abrupt);
    until_shown(&world, "T", "links", &json!([])).await;
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_login_is_listed_by_the_tenant_that_it_speaks_for() {
    let dir = tempfile::tempdir().unwrap();
    let mqtt = MqttConfig { authentication_required: false, ..quick().mqtt };
    let world = World::open_with(dir.path(), ConnectConfig { mqtt, ..quick() }).await;
    let open = json!([{"type": "hono-mqtt", "enabled": true, "device-authentication-required": false}]);
    for tenant in ["T", "U"] {
        world.register(tenant, "d").await;
        world.do_registry(&format!("PUT /v1/tenants/{tenant}"), &json!({"adapters": open}).to_string(), 204).await;
    }
    world.register("default", "d").await;
    let mut client = Mqtt::open(world.mqtt(), 5).await;
    client.send(&connect(5, 60, None)).await;
    assert_eq!(client.next().await.0, 0x20);
    let all = until_shown(&world, "default", "login", &json!([null])).await;
    assert_eq!((&all[0]["role"], all[0].get("device")), (&json!("device"), None));
    for (tenant, before) in [("T", "default"), ("U", "T"), ("T", "U")] {
        assert_eq!(client.subscribe(&format!("command/{tenant}/d/req/#"), 0).await, 0);
        client.publish(1, 1, &format!("telemetry/{tenant}/d"), b"x").await;
        assert_eq!(client.next().await.0, 0x40);
        let all = until_shown(&world, tenant, "login", &json!([null])).await;
        assert_eq!(
            all[0]["subscriptions"],
            json!([format!("command/{tenant}/d/req/#")]),
            "those of others are not shown"
        );
        assert_eq!(listed(&world, before).await.0, 0, "{before}");
    }
    let id = listed(&world, "T").await.1[0]["id"].as_str().unwrap().to_owned();
    end(&world, "T", &id, 204).await;
    assert_eq!(client.expect_end().await, Some(ADMINISTRATIVE_ACTION));
    until_shown(&world, "T", "login", &json!([])).await;

    let amqp = listen_amqp(&world, Users::default());
    let _app = Amqp::open(amqp.address(), 16 << 10).await;
    let all = until_shown(&world, "default", "client-id", &json!(["test"])).await;
    assert_eq!((&all[0]["login"], &all[0]["role"]), (&json!(null), &json!("application")));
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_takes_a_reader_of_the_tenant_and_ending_an_admin() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    world.register("T", "d").await;
    world.register("U", "d").await;
    let mut client = enter(&world, &hello(5, "lamp", "d@T")).await;
    let id = id_of(&world, "T", "lamp").await;
    let token = |name: &str, tenant: &str, role| ApiToken {
        name: name.to_owned(),
        token: format!("secret-of-{name}-in-{tenant}"),
        tenant: tenant.to_owned(),
        roles: vec![role],
    };
    let tokens = [
        token("reader", "T", RoleName::Reader),
        token("writer", "T", RoleName::Writer),
        token("admin", "T", RoleName::Admin),
        token("reader", "U", RoleName::Reader),
        token("admin", "U", RoleName::Admin),
    ];
    let metrics = Metrics::default();
    let api = world
        .connect
        .application_routes()
        .into_iter()
        .fold(Api::builder("a", "a", "1"), |api, routes| api.with(routes));
    let api = api.build(&metrics).unwrap();
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let authenticator = Arc::new(ApiTokens::new(&tokens).unwrap());
    let listener = Listener::bind("a", any.into(), authenticator, ListenerLimits::default()).await.unwrap();
    let serving = listener.serve(Arc::new(api), &metrics);
    let status = async |line: &str, caller: &str| {
        let bearer = format!("Bearer secret-of-{caller}");
        let headers = if caller.is_empty() { vec![] } else { vec![("authorization", bearer.as_str())] };
        ask(serving.address(), line, &headers, b"").await.status
    };
    let (list, end, unknown) =
        ("GET /v1/connections/T", format!("DELETE /v1/connections/T/{id}"), "DELETE /v1/connections/T/no-such");
    for (line, caller, expected) in [
        (list, "", 401),
        (list, "nobody-in-T", 401),
        (list, "writer-in-T", 403),
        (list, "admin-in-T", 403),
        (list, "reader-in-U", 403),
        (list, "reader-in-T", 200),
        (&end, "", 401),
        (&end, "nobody-in-T", 401),
        (&end, "reader-in-T", 403),
        (&end, "writer-in-T", 403),
        (&end, "admin-in-U", 403),
        (unknown, "admin-in-T", 404),
    ] {
        assert_eq!(status(line, caller).await, expected, "{line} by {caller}");
    }
    is_alive(&mut client).await;
    assert_eq!(status(&end, "admin-in-T").await, 204);
    assert_eq!(client.expect_end().await, Some(ADMINISTRATIVE_ACTION));
    for line in ["GET /v1/connections/nowhere", "DELETE /v1/connections/nowhere/x"] {
        world.registry(line, &[], "").await.expect_problem(404, "nowhere", "a tenant is created before it is used");
    }
    assert_eq!(serving.shut_down(Duration::from_secs(60)).await, 0, "nothing had to be cut off");
    world.stop().await;
}
