//! Applications that send commands over AMQP 1.0 and receive the responses (connect-adapters.md, part A, 3 and 8).

use std::time::Duration;

use millstream_amqp::{MapBuilder, MessageDraft, Performative, Properties, Symbol, Value, condition};
use millstream_testkit::mqtt::Mqtt;
use millstream_types::{Role, Roles};

use crate::amqp::{stop, world};
use crate::amqp_client::{Amqp, SECRET, Users};
use crate::world::World;

const WHOLE: usize = usize::MAX;

/// A command to the device `d` of tenant `T`.
fn command(properties: Properties<'static>) -> MessageDraft<'static> {
    MessageDraft { properties, data: b"input", ..MessageDraft::default() }
}

fn to_d() -> Properties<'static> {
    Properties { to: Some(Value::String("command/T/d")), subject: Some("on"), ..Properties::default() }
}

/// A connection with a sender of commands on handle 0, once it has credit.
async fn sender(address: std::net::SocketAddr, target: Option<&str>) -> Amqp {
    let mut client = Amqp::open(address, 16 << 10).await;
    client.begin(0, 5_000).attach_sender(0, target).send().await;
    let credit = client.expect(|body| match body {
        Performative::Flow(flow) if flow.handle == Some(0) => flow.link_credit,
        Performative::Detach(detach) => panic!("{detach:?}"),
        _ => None,
    });
    assert_eq!(credit.await, 100);
    client
}

/// A device that listens for commands.
async fn listener(world: &World) -> Mqtt {
    let mut device = Mqtt::log_in(world.mqtt(), 5, "d@T").await;
    assert_eq!(device.subscribe("c///q/#", 1).await, 1);
    device
}

/// Takes the next command, and returns its request id and name.
async fn take(device: &mut Mqtt) -> (String, String) {
    let message = device.message().await;
    assert_eq!(message.payload, b"input");
    let [high, low] = message.id.to_be_bytes();
    device.send(&[0x40, 2, high, low]).await;
    let (id, name) = message.topic.strip_prefix("c///q/").unwrap().split_once('/').unwrap();
    (id.to_owned(), name.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_response_of_a_device_goes_to_the_receiver_that_the_command_names() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut device = listener(&world).await;
    let mut other = Amqp::open(amqp.address(), 16 << 10).await;
    other.receive("command_response/T/other", 10).await;
    for (target, id) in [
        (Some("command/T"), Value::String("text id")),
        (None, Value::Ulong(17)),
        (None, Value::Uuid([7; 16])),
        (None, Value::Binary(b"\0\x01")),
    ] {
        let mut client = sender(amqp.address(), target).await;
        client.attach(0, 1, "command_response/T/me/1", None).credit(1, None, 10).send().await;
        client.expect(|body| matches!(body, Performative::Attach(attach) if attach.handle == 1).then_some(())).await;
        let reply_to = Some(Value::String("command_response/T/me/1"));
        let with_reply = Properties { reply_to, correlation_id: Some(id), ..to_d() };
        client.transfer(0, 3, &command(with_reply), WHOLE).send().await;
        let (request, name) = take(&mut device).await;
        assert_eq!(name, "on");
        assert_eq!(client.outcome(3).await, "");
        device.publish(1, 7, &format!("c///s/{request}/404/?content-type=text%2Fr"), b"output").await;
        assert_eq!(device.next().await, (0x40, vec![0, 7]));
        let response = client.messages(1).await.remove(0);
        assert_eq!((response.handle, response.payload, response.status), (1, b"output".to_vec(), Some(404)));
        assert_eq!((response.correlation_id, response.device.as_str()), (format!("{id:?}"), "d"));
    }
    assert_eq!(other.messages_so_far().await, []);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_of_a_command_is_that_of_its_device() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut client = sender(amqp.address(), None).await;
    client.transfer(0, 0, &command(to_d()), WHOLE).send().await;
    assert_eq!(client.outcome(0).await, "released", "nobody listens");
    let mut ttl = MapBuilder::default();
    ttl.string("ttl", Value::Int(60_000));
    let waiting = MessageDraft { application_properties: ttl.as_map(), ..command(to_d()) };
    client.transfer(0, 1, &waiting, WHOLE).send().await;
    assert_eq!(client.outcome(1).await, "", "it waits for the device");
    let mut device = listener(&world).await;
    take(&mut device).await;
    client.transfer(0, 2, &command(to_d()), WHOLE).send().await;
    take(&mut device).await;
    assert_eq!(client.outcome(2).await, "");
    // A message in many frames, and one that is aborted before it.
    client.transfer(0, 3, &command(to_d()), 7).send().await;
    take(&mut device).await;
    assert_eq!(client.outcome(3).await, "");
    let long = "x".repeat(257);
    let of = |to| Some(Value::String(to));
    let answer_to = |reply_to, correlation_id| Properties { reply_to, correlation_id, ..to_d() };
    let wrong_reply = "hono:bad-request: property reply-to = 'r'; use command_response/T/REPLY";
    let mut id = 10;
    for (properties, told) in [
        (Properties { to: of("command/T/nobody"), ..to_d() }, "amqp:not-found: "),
        (Properties { to: of("command/U/d"), ..to_d() }, "amqp:not-found: "),
        (Properties { to: None, ..to_d() }, "hono:bad-request: property to = ''; use command/TENANT/DEVICE"),
        (Properties { to: of("command/T"), ..to_d() }, "hono:bad-request: property to"),
        (Properties { to: of("telemetry/T/d"), ..to_d() }, "hono:bad-request: property to"),
        (Properties { subject: None, ..to_d() }, "hono:bad-request: property subject = ''"),
        (Properties { subject: Some("a#b"), ..to_d() }, "hono:bad-request: property subject"),
        (answer_to(of("r"), of("c")), wrong_reply),
        (answer_to(of("command_response/U/r"), of("c")), "use command_response/T/REPLY"),
        (answer_to(of("command_response/T/r"), None), "neither correlation-id nor message-id"),
    ] {
        id += 1;
        client.transfer(0, id, &command(properties), WHOLE).send().await;
        let outcome = client.outcome(id).await;
        assert!(outcome.contains(told), "{outcome}, not {told}");
    }
    let too_long =
        Properties { reply_to: of("command_response/T/r"), correlation_id: Some(Value::String(&long)), ..to_d() };
    let draft = MessageDraft { properties: too_long, data: b"input", ..MessageDraft::default() };
    client.transfer(0, 30, &draft, WHOLE).send().await;
    assert!(client.outcome(30).await.contains("bytes together"));
    let large = vec![0; 65_537];
    let draft = MessageDraft { properties: to_d(), data: &large, ..MessageDraft::default() };
    client.transfer(0, 31, &draft, 10_000).send().await;
    assert!(client.outcome(31).await.contains("connect.commands.payload_max_bytes = 65536"));
    client.transfer(0, 32, &MessageDraft { data: &vec![0; 90_000], ..draft }, 10_000).send().await;
    let refusal = client.expect(|body| match body {
        Performative::Detach(detach) => detach.error.map(|error| error.condition.0.to_owned()),
        _ => None,
    });
    assert_eq!(refusal.await, condition::MESSAGE_SIZE_EXCEEDED);
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_bounds_the_commands_without_an_outcome_and_comes_back_with_it() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut client = sender(amqp.address(), Some("command/T")).await;
    let mut device = listener(&world).await;
    for id in 0..100 {
        client.transfer(0, id, &command(to_d()), WHOLE);
    }
    client.send().await;
    for _ in 0..100 {
        take(&mut device).await;
    }
    let granted = client.expect(|body| match body {
        Performative::Flow(flow) if flow.handle == Some(0) => {
            Some(flow.delivery_count.unwrap() + flow.link_credit.unwrap())
        }
        _ => None,
    });
    assert!(granted.await > 100);
    // One message too many, without credit.
    let mut client = sender(amqp.address(), Some("command/T")).await;
    for id in 0..101 {
        client.transfer(0, id, &command(to_d()), WHOLE);
    }
    client.send().await;
    let refusal = client.expect(|body| match body {
        Performative::Detach(detach) => detach.error.map(|error| error.condition.0.to_owned()),
        _ => None,
    });
    assert_eq!(refusal.await, condition::TRANSFER_LIMIT_EXCEEDED);
    // The connection lives on, whatever was on its way.
    client.transfer(0, 200, &command(to_d()), WHOLE).attach_sender(1, None).send().await;
    client.expect(|body| matches!(body, Performative::Attach(attach) if attach.handle == 1).then_some(())).await;
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_needs_the_role_of_a_writer_in_the_tenant() {
    let users = Users::default()
        .with("reader", "T", Roles::NONE.with(Role::Reader))
        .with("writer", "T", Roles::NONE.with(Role::Writer))
        .with("other", "U", Roles::NONE.with(Role::Writer));
    let (_dir, world, amqp) = world(users).await;
    for (user, target, refused) in [
        ("writer", Some("command/T"), ""),
        ("writer", Some("command/T/d"), ""),
        ("writer", Some("telemetry/T"), condition::NOT_FOUND),
        ("writer", Some("command/V"), condition::UNAUTHORIZED_ACCESS),
        ("reader", Some("command/T"), condition::UNAUTHORIZED_ACCESS),
        ("other", Some("command/T"), condition::UNAUTHORIZED_ACCESS),
        ("other", Some("command/U"), condition::NOT_FOUND),
        ("reader", None, ""),
    ] {
        let mut client = Amqp::connect(amqp.address()).await;
        let plain = format!("\0{user}\0{SECRET}");
        assert_eq!(client.log_in("PLAIN", Some(plain.as_bytes()), |_| Vec::new()).await, 0);
        client.open_logged_in().await;
        client.begin(0, 10).attach_sender(0, target).send().await;
        let refusal = client.expect(|body| match body {
            Performative::Detach(detach) => Some(detach.error.unwrap().condition.0.to_owned()),
            Performative::Flow(flow) if flow.handle == Some(0) => Some(String::new()),
            _ => None,
        });
        assert_eq!(refusal.await, refused, "{user} {target:?}");
        if user == "reader" && target.is_none() {
            client.transfer(0, 0, &command(to_d()), WHOLE).send().await;
            let outcome = client.outcome(0).await;
            assert!(outcome.starts_with("amqp:unauthorized-access: 'reader' may not send"), "{outcome}");
        }
    }
    stop(world, amqp).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_goes_before_the_outcome_is_told_nothing() {
    let (_dir, world, amqp) = world(Users::default()).await;
    let mut device = listener(&world).await;
    let mut client = sender(amqp.address(), None).await;
    client.transfer(0, 0, &command(to_d()), WHOLE);
    client.write(0, &Performative::Detach(millstream_amqp::Detach { handle: 0, closed: true, error: None }));
    client.attach_sender(0, None).send().await;
    take(&mut device).await;
    let typed = Properties { content_type: Some(Symbol("text/plain")), ..to_d() };
    client.transfer(0, 1, &command(typed), WHOLE).send().await;
    take(&mut device).await;
    let told = client.expect(|body| match body {
        Performative::Disposition(told) => Some(told.first),
        _ => None,
    });
    assert_eq!(told.await, 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop(world, amqp).await;
}
