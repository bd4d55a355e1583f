//! Redis clients pipeline writes, MULTI among them, while the server is killed and started again, over and over.
//!
//! After each start every acknowledged write is there, nothing deleted or expired is back, and the keys that MULTI sets
//! together are equal. `MILLSTREAM_STORE_KILLS` sets another number of kills.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_testkit::resp::{Command, Connection, Reply, command, encode};
use millstream_testkit::{Process, eventually};

use crate::{make, start};

const KILLS: u64 = 3;
const CLIENTS: u64 = 4;
/// Rounds of commands that a client sends before it reads replies.
const DEPTH: u64 = 8;
/// Fewest and most replies of all clients before the server is killed.
const REPLIES: std::ops::Range<u64> = 60..1_500;
/// Keys that each MULTI sets to the same number.
const TOGETHER: u64 = 4;
/// Keys that are set one by one.
const ALONE: u64 = 5;
/// A value that is longer than most, so that segments are written.
const FILL: usize = 700;

/// The writes of a client and their replies. Each write has a number, greater than all before it.
#[derive(Debug, Clone)]
struct Known {
    sent: u64,
    /// The last number that MULTI set and EXEC acknowledged.
    together: u64,
    /// For each key that is set alone, the last number that was acknowledged.
    alone: [u64; ALONE as usize],
    /// The last acknowledged write of the key that comes and goes and all later ones, each with the number that it leaves.
    changing: Vec<(u64, Option<u64>)>,
    /// INCR commands that were acknowledged, and those that were sent.
    counted: u64,
    counts_sent: u64,
}

impl Known {
    fn nothing() -> Self {
        Self { sent: 0, together: 0, alone: [0; ALONE as usize], changing: vec![(0, None)], counted: 0, counts_sent: 0 }
    }
}

/// The commands of a round, with the number of replies.
fn round(client: u64, number: u64) -> (Vec<Command>, usize) {
    let key = |name: &str| format!("client-{client}/{name}");
    let text = number.to_string();
    let long = format!("{number} {}", "x".repeat(number as usize % FILL));
    let mut commands = vec![command(&["SET", &key(&format!("alone-{}", number % ALONE)), &long]), command(&["MULTI"])];
    commands.extend((0..TOGETHER).map(|at| command(&["SET", &key(&format!("together-{at}")), &text])));
    commands.push(command(&["EXEC"]));
    commands.push(match number % 2 {
        0 => command(&["DEL", &key("changing")]),
        _ => command(&["SET", &key("changing"), &text]),
    });
    commands.push(command(&["SET", &key("passing"), &long, "PX", "1"]));
    commands.push(command(&["INCR", &key("count")]));
    let replies = commands.len();
    (commands, replies)
}

/// Takes the replies of a round; `None` once the server has gone.
fn take(connection: &mut Connection, replies: usize, number: u64, known: &Mutex<Known>) -> Option<()> {
    for at in 0..replies {
        let reply = connection.read().ok()?;
        assert!(!reply.is_error(), "{}", reply.shown());
        let mut known = known.lock().unwrap();
        match at {
            0 => known.alone[(number % ALONE) as usize] = number,
            6 => {
                assert!(reply.elements.len() as u64 == TOGETHER && reply.elements.iter().all(|set| set.is("+OK")));
                known.together = number;
            }
            7 => known.changing.retain(|(later, _)| *later >= number),
            9 => {
                known.counted += 1;
                let count = reply.integer().unwrap() as u64;
                assert!(count >= known.counted, "INCR answers {count} after {} of them", known.counted);
            }
            _ => {}
        }
    }
    Some(())
}

/// Writes until the server has gone. Odd clients use a database whose writes are acknowledged once they are written.
fn client(client: u64, to: SocketAddr, known: &Mutex<Known>, answered: &AtomicU64) -> Option<()> {
    let mut connection = Connection::open(&to.to_string()).ok()?;
    connection.ask(&command(&["SELECT", &(client % 2).to_string()])).ok()?;
    let mut write = connection.writer().ok()?;
    loop {
        let (mut pipeline, mut rounds) = (Vec::new(), Vec::new());
        for _ in 0..DEPTH {
            let mut known = known.lock().unwrap();
            known.sent += 1;
            known.counts_sent += 1;
            let number = known.sent;
            known.changing.push((number, (number % 2 == 1).then_some(number)));
            let (commands, replies) = round(client, number);
            commands.iter().for_each(|command| pipeline.extend(encode(command)));
            rounds.push((number, replies));
        }
        write(&pipeline).ok()?;
        for (number, replies) in rounds {
            take(&mut connection, replies, number, known)?;
            answered.fetch_add(replies as u64, Ordering::AcqRel);
        }
    }
}

fn number_in(reply: &Reply) -> Option<u64> {
    let text = String::from_utf8(reply.bulk.clone()?).unwrap();
    Some(text.split(' ').next().unwrap().parse().unwrap())
}

/// Checks the keys of a client after a start, and takes what is there as acknowledged. Returns the number of its keys.
fn check(client: u64, process: &Process, known: &mut Known) -> u64 {
    let mut connection = Connection::open(&process.redis.to_string()).unwrap();
    let mut ask = |words: &[&str]| {
        let reply = connection.ask(&command(words)).unwrap();
        assert!(!reply.is_error(), "{words:?}: {}", reply.shown());
        reply
    };
    ask(&["SELECT", &(client % 2).to_string()]);
    let mut get = |name: &str| ask(&["GET", &format!("client-{client}/{name}")]);
    let mut keys = 0;

    let together: Vec<_> = (0..TOGETHER).map(|at| number_in(&get(&format!("together-{at}"))).unwrap_or(0)).collect();
    assert!(together.iter().all(|number| *number == together[0]), "half of a MULTI of client {client}: {together:?}");
    assert!((known.together..=known.sent).contains(&together[0]), "client {client}: {} of {known:?}", together[0]);
    known.together = together[0];
    keys += if together[0] > 0 { TOGETHER } else { 0 };

    for at in 0..ALONE {
        let found = get(&format!("alone-{at}"));
        let (number, acknowledged) = (number_in(&found).unwrap_or(0), known.alone[at as usize]);
        let is_whole = number == 0 || found.bulk == Some(round(client, number).0[0][2].clone());
        let is_it = number == 0 || number % ALONE == at;
        assert!(is_whole && is_it && (acknowledged..=known.sent).contains(&number), "{at}: {number} of {known:?}");
        known.alone[at as usize] = number;
        keys += u64::from(number > 0);
    }

    let changing = number_in(&get("changing"));
    let may_be = known.changing.iter().any(|(_, state)| *state == changing);
    assert!(may_be, "client {client} finds {changing:?}: {known:?}");
    known.changing = vec![(0, changing)];
    keys += u64::from(changing.is_some());

    assert_eq!(get("passing").bulk, None, "what has expired is back");
    let count = number_in(&get("count")).unwrap_or(0);
    assert!((known.counted..=known.counts_sent).contains(&count), "client {client} counts {count}: {known:?}");
    (known.counted, known.counts_sent) = (count, count);
    keys + u64::from(count > 0)
}

#[test]
#[ignore = "takes long"]
fn what_redis_clients_were_told_holds_although_the_server_is_killed_again_and_again() {
    let kills = std::env::var("MILLSTREAM_STORE_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut process = start(dir.path());
    make(&process, "db1", r#"{"partitions": 1, "ack": "written"}"#);
    let all: Vec<_> = (0..CLIENTS).map(|_| Mutex::new(Known::nothing())).collect();
    let mut replies = 0;
    for _ in 0..kills {
        let (to, answered) = (process.redis, AtomicU64::new(0));
        let enough = fastrand::u64(REPLIES);
        std::thread::scope(|threads| {
            for (number, known) in all.iter().enumerate() {
                let answered = &answered;
                threads.spawn(move || client(number as u64, to, known, answered));
            }
            eventually("the clients have replies", || answered.load(Ordering::Acquire) >= enough);
            process.kill();
        });
        replies += answered.into_inner();
        process = start(dir.path());
        let mut keys = [0; 2];
        for (number, known) in all.iter().enumerate() {
            keys[number % 2] += check(number as u64, &process, &mut known.lock().unwrap());
        }
        for (database, keys) in keys.into_iter().enumerate() {
            let mut connection = Connection::open(&process.redis.to_string()).unwrap();
            connection.ask(&command(&["SELECT", &database.to_string()])).unwrap();
            let counted = connection.ask(&command(&["DBSIZE"])).unwrap().integer();
            assert_eq!(counted, Some(keys as i64), "keys of database {database}");
        }
    }
    let all: Vec<Known> = all.into_iter().map(|known| known.into_inner().unwrap()).collect();
    println!("{kills} kills, {replies} replies before them");
    assert!(replies >= kills * REPLIES.start && all.iter().any(|known| known.together > 0), "{all:?}");
    process.stop();
}
