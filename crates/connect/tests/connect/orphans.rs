//! The deletion of a device or tenant also deletes its data in the private space. A successor with the same name finds
//! none of it in its own space.

use std::collections::BTreeMap;

use millstream_testkit::mqtt::{Hello, Mqtt, publish};
use millstream_testkit::{eventually_async, found_by};
use millstream_types::{StateTopic, TopicName};

use crate::world::World;

const HOUR: [u8; 5] = [0x11, 0, 0, 0x0E, 0x10];

fn kept<'a>(client: &'a str, user: &'a str) -> Hello<'a> {
    let login = Some((user, "pw"));
    Hello { level: 5, keep_alive_s: 60, client, clean: false, login, properties: &HOUR, will: None }
}

/// Connects until the server's answer is `wanted`: session present, and the code.
async fn connect_until(world: &World, hello: &Hello<'_>, wanted: [u8; 2]) -> Mqtt {
    let connect = async || {
        let (client, answer) = Mqtt::connect(world.mqtt(), hello).await;
        (answer[..2] == wanted).then_some(client)
    };
    found_by(&format!("the answer {wanted:?}"), connect).await
}

/// Waits until nothing of `tenant` is kept.
async fn until_forgotten(world: &World, tenant: &str) {
    let is_forgotten = || {
        let records = world.records_in(&TopicName::internal(StateTopic::Mqtt));
        let last: BTreeMap<_, _> = records.iter().map(|record| (&record.key, &record.value)).collect();
        let of_tenant = format!("{tenant}\0");
        // Two bytes say what a record is.
        let is_of_tenant =
            |key: &str| key.as_bytes().get(2..).is_some_and(|name| name.starts_with(of_tenant.as_bytes()));
        last.iter().all(|(key, value)| value.is_empty() || !is_of_tenant(key))
    };
    eventually_async(&format!("the end of what is kept of {tenant}"), is_forgotten).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_with_their_device_and_all_else_with_their_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path()).await;
    for (tenant, device) in [("T", "d"), ("T", "e"), ("U", "d")] {
        world.register(tenant, device).await;
    }
    let (mut gone, answer) = Mqtt::connect(world.mqtt(), &kept("c", "d@T")).await;
    assert_eq!(answer[..2], [0, 0]);
    assert_eq!(gone.subscribe("q/#", 1).await, 1);
    let (_, answer) = Mqtt::connect(world.mqtt(), &kept("c", "e@T")).await;
    assert_eq!(answer[1], 0x85, "the client id belongs to d");
    let (mut bystander, _) = Mqtt::connect(world.mqtt(), &kept("own", "d@U")).await;
    assert_eq!(bystander.subscribe("q/#", 1).await, 1);
    bystander.finish().await;

    world.do_registry("DELETE /v1/devices/T/d", "", 204).await;
    assert!(gone.expect_end().await.is_some());
    let mut heir = connect_until(&world, &kept("c", "e@T"), [0, 0]).await;
    let mut retained = publish(5, 1, 1, "q/1", &[], b"old");
    retained[0] |= 1;
    heir.send(&retained).await;
    assert_eq!(heir.next().await.0, 0x40);
    // Not to what it has just published: that may come before the answer.
    assert_eq!(heir.subscribe("s/#", 1).await, 1);
    heir.finish().await;

    // Also if nobody of the tenant has connected since the start.
    world.stop().await;
    let world = World::open(dir.path()).await;
    world.do_registry("DELETE /v1/tenants/T", "", 204).await;
    until_forgotten(&world, "T").await;
    world.do_registry("POST /v1/tenants/T", "", 201).await;
    world.register("T", "e").await;
    let (mut later, answer) = Mqtt::connect(world.mqtt(), &kept("c", "e@T")).await;
    assert_eq!(answer[..2], [0, 0]);
    assert_eq!(later.subscribe("q/#", 1).await, 1);
    later.publish(1, 7, "q/2", b"new").await;
    let told = [later.next().await, later.next().await];
    assert!(told.iter().all(|(first_byte, _)| matches!(first_byte, 0x32 | 0x40)), "nothing is retained: {told:?}");
    assert!(told.iter().any(|(_, body)| body.ends_with(b"new")), "{told:?}");
    later.finish().await;
    let (mut bystander, answer) = Mqtt::connect(world.mqtt(), &kept("own", "d@U")).await;
    assert_eq!(answer[..2], [1, 0], "the session of a device that is there goes on");
    bystander.finish().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_is_deleted_and_at_once_made_again_inherits_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(dir.path()).await;
    // While its space runs, and while nobody has connected since the start.
    for is_running in [true, false] {
        world.register("T", "d").await;
        let (mut first, answer) = Mqtt::connect(world.mqtt(), &kept("c", "d@T")).await;
        assert_eq!(answer[..2], [0, 0], "nothing of the one before");
        assert_eq!(first.subscribe("q/#", 1).await, 1);
        let mut retained = publish(5, 1, 1, "r/1", &[], b"old");
        retained[0] |= 1;
        first.send(&retained).await;
        assert_eq!(first.next().await.0, 0x40);
        first.finish().await;
        if !is_running {
            world.stop().await;
            world = World::open(dir.path()).await;
        }
        world.do_registry("DELETE /v1/tenants/T", "", 204).await;
        world.register("T", "d").await;
        let (mut heir, answer) = Mqtt::connect(world.mqtt(), &kept("c", "d@T")).await;
        assert_eq!(answer[..2], [0, 0], "no session of its former name");
        assert_eq!(heir.subscribe("r/#", 0).await, 0);
        heir.publish(1, 7, "r/2", b"new").await;
        let told = [heir.next().await, heir.next().await];
        assert!(told.iter().all(|(first_byte, _)| matches!(first_byte, 0x30 | 0x40)), "nothing is retained: {told:?}");
        assert!(told.iter().any(|(_, body)| body.ends_with(b"new")), "{told:?}");
        heir.finish().await;
        world.do_registry("DELETE /v1/tenants/T", "", 204).await;
    }
    world.stop().await;
}
