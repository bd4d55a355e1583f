//! Events over AMQP while the server is killed again and again: none that was not accepted is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{World, python};

/// `MILLSTREAM_KILLS` sets another number.
const KILLS: usize = 3;
/// Events that a client holds when the server is killed.
const HELD: usize = 100;

#[test]
fn events_are_accepted_or_come_again_although_the_server_is_killed() {
    let kills = std::env::var("MILLSTREAM_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    check(kills);
}

#[test]
#[ignore = "takes long"]
fn events_are_accepted_or_come_again_over_thirty_kills() {
    check(30);
}

fn check(kills: usize) {
    let mut world = World::start();
    let (mut sent, mut open, mut accepted) = (0, BTreeSet::new(), BTreeSet::new());
    for life in 0..kills {
        // Of those that were accepted in the last life some may come again.
        while open.len() < HELD + 50 {
            world.send("event", &sent.to_string());
            open.insert(sent);
            sent += 1;
        }
        let mut client = world.client(python("proton_events.py"), &[&HELD.to_string(), &life.to_string()]);
        let held = client.until("held");
        let taken: Vec<u32> = held.iter().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(taken.len(), HELD, "{held:?}");
        let told = client.until("settled");
        let settled = told.iter().filter_map(|line| line.strip_prefix("accepted ")?.parse::<u32>().ok());
        for id in settled {
            open.remove(&id);
            accepted.insert(id);
        }
        std::thread::sleep(Duration::from_millis(life as u64 * 97 % 900));
        let World { process, dir } = world;
        process.kill();
        drop(client.lines);
        client.child.wait().unwrap();
        world = World { process: World::process(&dir), dir };
    }
    // A client that takes all.
    let mut client = world.client(python("proton_events.py"), &["all", "0"]);
    let seen: BTreeSet<u32> = client.until("settled").iter().filter_map(|line| line.parse().ok()).collect();
    let lost: Vec<_> = open.difference(&seen).collect();
    assert_eq!(lost, Vec::<&u32>::new(), "of {sent} events, of which {} were accepted", accepted.len());
    client.child.wait().unwrap();
    // Nothing is left.
    std::thread::sleep(Duration::from_millis(1_500));
    let World { process, dir } = world;
    process.kill();
    let world = World { process: World::process(&dir), dir };
    let mut client = world.client(python("proton_events.py"), &["all", "0"]);
    assert_eq!(client.until("settled"), ["held", "settled"]);
    client.child.wait().unwrap();
}
