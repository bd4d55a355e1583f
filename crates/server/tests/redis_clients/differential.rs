//! The same random commands to two servers, pipelined at random, and their replies compared. Debian's `redis-server` says
//! what is right. A run fails with its seed and the shortest list of commands that still shows the difference.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use millstream_testkit::resp::{Command, Connection, Reply, command, encode, shown};

use crate::compare::Comparison;
use crate::generate::{Generator, Step};
use crate::server::{Redis, Server};

/// Number of commands that `make test` compares; `MILLSTREAM_REDIS_COMMANDS` sets another number.
const COMMANDS: usize = 20_000;
/// Each seed starts with empty servers; odd ones speak RESP3.
const COMMANDS_A_SEED: usize = 10_000;
/// At most so many commands are under way at once.
const PIPELINE: usize = 100;
/// An answer or an expiry that takes longer is a failure.
const PATIENCE: Duration = Duration::from_secs(60);
/// For so long at most a shorter list of commands is looked for.
const SHORTENING: Duration = Duration::from_secs(60);

/// A difference between two servers.
struct Difference {
    seed: u64,
    /// The commands up to the one with the difference.
    steps: Vec<Step>,
    replies: [String; 2],
    /// `true` if these commands alone show the difference on empty servers, and all of them are needed.
    is_shortest: bool,
}

impl std::fmt::Debug for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what =
            if self.is_shortest { "the shortest list that shows it" } else { "not seen again; the last commands" };
        writeln!(f, "seed {}: the replies differ ({what}):", self.seed)?;
        for step in &self.steps {
            match step {
                Step::Send(command) => writeln!(f, "  {}", shown(command))?,
                Step::Elsewhere(command) => writeln!(f, "  {}    on another connection", shown(command))?,
                Step::Expire { commands, key } => {
                    let sent: Vec<String> = commands.iter().map(shown).collect();
                    writeln!(f, "  {}, until {} is gone", sent.join(", "), key.escape_ascii())?;
                }
                Step::Scan(options) => writeln!(f, "  SCAN with [{}] to its end", shown(options))?,
            }
        }
        writeln!(f, "  this server: {}\n  Redis:       {}", self.replies[0], self.replies[1])
    }
}

/// Two servers that should be the same to a client.
struct Pair {
    connections: [Connection; 2],
    others: [Connection; 2],
    comparison: Comparison,
    /// A key that is to expire at once is there for no longer.
    patience: Duration,
}

impl Pair {
    /// Connects to both and empties them.
    fn open(addresses: &[String; 2], is_resp3: bool, patience: Duration) -> io::Result<Self> {
        let connect = || -> io::Result<[Connection; 2]> {
            Ok([Connection::open(&addresses[0])?, Connection::open(&addresses[1])?])
        };
        let (mut connections, mut others) = (connect()?, connect()?);
        for connection in connections.iter_mut().chain(&mut others) {
            let hello = connection.ask(&command(&["HELLO", if is_resp3 { "3" } else { "2" }]))?;
            assert!(!hello.is_error(), "{}", hello.shown());
            let emptied = connection.ask(&command(&["FLUSHALL"]))?;
            assert!(emptied.is("+OK"), "{}", emptied.shown());
        }
        Ok(Self { connections, others, comparison: Comparison::default(), patience })
    }

    /// The time of the second one, in seconds.
    fn now_s(&mut self) -> io::Result<u64> {
        let time = self.connections[1].ask(&command(&["TIME"]))?;
        let seconds = time.elements[0].bulk.clone().unwrap();
        Ok(String::from_utf8(seconds).unwrap().parse().unwrap())
    }

    /// Sends commands to both, each in pieces that end anywhere; answers the first whose replies differ, with them.
    fn pipeline(&mut self, commands: &[&Command], random: &mut Rng) -> io::Result<Option<(usize, [String; 2])>> {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        let cuts: Vec<usize> = if random.bool() { vec![] } else { vec![random.usize(..bytes.len())] };
        let [mut one, mut other] = [self.connections[0].writer()?, self.connections[1].writer()?];
        std::thread::scope(|threads| {
            // Replies are read meanwhile, so that neither side waits for the other for ever.
            let writers = threads.spawn(|| -> io::Result<()> {
                let mut start = 0;
                for end in cuts.iter().copied().chain([bytes.len()]) {
                    one(&bytes[start..end])?;
                    other(&bytes[start..end])?;
                    start = end;
                }
                Ok(())
            });
            let mut found = None;
            for (at, command) in commands.iter().enumerate() {
                let [one, other] = [self.connections[0].read()?, self.connections[1].read()?];
                if found.is_none() && !self.comparison.same(command, &one, &other) {
                    found = Some((at, [one.shown(), other.shown()]));
                }
            }
            writers.join().unwrap()?;
            Ok(found)
        })
    }

    /// Does one step alone; answers both replies if they differ.
    fn step(&mut self, step: &Step) -> io::Result<Option<[String; 2]>> {
        match step {
            Step::Send(command) => {
                let [one, other] = self.ask(command)?;
                let is_same = self.comparison.same(command, &one, &other);
                Ok((!is_same).then(|| [one.shown(), other.shown()]))
            }
            Step::Elsewhere(command) => {
                let [one, other] = &mut self.others;
                let (one, other) = (one.ask(command)?, other.ask(command)?);
                Ok((one != other).then(|| [one.shown(), other.shown()]))
            }
            Step::Expire { commands, key } => {
                for command in commands {
                    if let Some(replies) = self.step(&Step::Send(command.clone()))? {
                        return Ok(Some(replies));
                    }
                }
                let (exists, deadline) = (vec![b"EXISTS".to_vec(), key.clone()], Instant::now() + self.patience);
                loop {
                    let replies = self.ask(&exists)?;
                    if replies.iter().all(|reply| reply.is(":0")) {
                        return Ok(None);
                    }
                    if Instant::now() > deadline {
                        return Ok(Some(replies.map(|reply| format!("EXISTS {}", reply.shown()))));
                    }
                }
            }
            Step::Scan(options) => {
                let [one, other] = [0, 1].map(|of| self.scan(of, options));
                let (one, other) = (one?, other?);
                let shown = |keys: &[Vec<u8>]| shown(&keys.to_vec());
                Ok((one != other).then(|| [shown(&one), shown(&other)]))
            }
        }
    }

    fn ask(&mut self, command: &Command) -> io::Result<[Reply; 2]> {
        let [one, other] = &mut self.connections;
        Ok([one.ask(command)?, other.ask(command)?])
    }

    /// All keys that one of the servers has, each once, sorted.
    fn scan(&mut self, of: usize, options: &[Vec<u8>]) -> io::Result<Vec<Vec<u8>>> {
        let (mut cursor, mut keys) = (b"0".to_vec(), Vec::new());
        loop {
            let mut scan = vec![b"SCAN".to_vec(), cursor];
            scan.extend_from_slice(options);
            let reply = self.connections[of].ask(&scan)?;
            let [next, part] = &reply.elements[..] else { panic!("{} is no reply of SCAN", reply.shown()) };
            keys.extend(part.elements.iter().map(|key| key.bulk.clone().unwrap()));
            cursor = next.bulk.clone().unwrap();
            if cursor == b"0" {
                keys.sort_unstable();
                keys.dedup();
                return Ok(keys);
            }
        }
    }
}

/// Compares so many commands of a seed.
fn compare(addresses: &[String; 2], seed: u64, commands: usize) -> io::Result<Result<(), Difference>> {
    let mut pair = Pair::open(addresses, seed % 2 == 1, PATIENCE)?;
    let mut generator = Generator::new(seed, pair.now_s()?);
    let mut random = Rng::with_seed(!seed);
    let mut done: Vec<Step> = Vec::new();
    while done.len() < commands {
        let start = done.len();
        let length = 1 + random.usize(..PIPELINE);
        let mut alone = None;
        while done.len() < start + length && alone.is_none() {
            for step in generator.next() {
                // What has to wait for the replies before it ends the pipeline.
                if matches!(step, Step::Send(_)) && alone.is_none() {
                    done.push(step);
                } else {
                    alone.get_or_insert_with(Vec::new).push(step);
                }
            }
        }
        let sent: Vec<&Command> = done[start..]
            .iter()
            .map(|step| if let Step::Send(command) = step { command } else { unreachable!() })
            .collect();
        if !sent.is_empty()
            && let Some((at, replies)) = pair.pipeline(&sent, &mut random)?
        {
            done.truncate(start + at + 1);
            return Ok(Err(shortened(addresses, seed, done, replies)));
        }
        for step in alone.into_iter().flatten() {
            done.push(step);
            if let Some(replies) = pair.step(&done[done.len() - 1])? {
                return Ok(Err(shortened(addresses, seed, done, replies)));
            }
        }
    }
    Ok(Ok(()))
}

/// The replies that differ first when these steps are done one by one on empty servers, and after how many steps.
fn first_difference(addresses: &[String; 2], seed: u64, steps: &[Step]) -> Option<(usize, [String; 2])> {
    let mut pair = Pair::open(addresses, seed % 2 == 1, Duration::from_secs(1)).ok()?;
    steps.iter().enumerate().find_map(|(at, step)| Some((at + 1, pair.step(step).ok()??)))
}

/// Leaves out all steps without which the replies still differ.
fn shortened(addresses: &[String; 2], seed: u64, mut steps: Vec<Step>, replies: [String; 2]) -> Difference {
    let deadline = Instant::now() + SHORTENING;
    // The end of the list is enough for most.
    let lengths = [1, 2, 4, 16, 64, 256, 1024, steps.len()].into_iter().map(|length| length.min(steps.len()));
    let found = lengths.map(|length| &steps[steps.len() - length..]).find_map(|tail| {
        let (count, replies) = first_difference(addresses, seed, tail)?;
        Some((tail[..count].to_vec(), replies))
    });
    let Some((mut shortest, mut replies)) = found else {
        let last = steps.split_off(steps.len().saturating_sub(20));
        return Difference { seed, steps: last, replies, is_shortest: false };
    };
    let mut size = shortest.len().div_ceil(2);
    while size > 0 && Instant::now() < deadline {
        let mut at = 0;
        while at < shortest.len() && Instant::now() < deadline {
            let end = (at + size).min(shortest.len());
            let without = [&shortest[..at], &shortest[end..]].concat();
            match first_difference(addresses, seed, &without) {
                Some((count, differing)) => {
                    shortest = without[..count].to_vec();
                    replies = differing;
                }
                None => at = end,
            }
        }
        size /= 2;
    }
    Difference { seed, steps: shortest, replies, is_shortest: true }
}

#[test]
fn random_commands_get_the_replies_of_redis() {
    let (server, redis) = (Server::start(), Redis::start(""));
    let commands = std::env::var("MILLSTREAM_REDIS_COMMANDS").map_or(COMMANDS, |count| count.parse().unwrap());
    let addresses = [server.address.clone(), redis.address.to_string()];
    // `MILLSTREAM_TEST_SEED` repeats one seed alone.
    let seeds: Vec<u64> = match std::env::var("MILLSTREAM_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..commands.div_ceil(COMMANDS_A_SEED) as u64).collect(),
    };
    for seed in seeds {
        compare(&addresses, seed, COMMANDS_A_SEED).unwrap().unwrap();
    }
}

/// A server in front of `to` that changes the bytes that go back to its clients; ends with the test program.
fn relay(to: String, change: impl Fn(&mut Vec<u8>) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&to).unwrap());
            let (mut requests, mut forwarded) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                drop(io::copy(&mut requests, &mut forwarded));
                forwarded.shutdown(Shutdown::Write)
            });
            let change = change.clone();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(count @ 1..) = server.read(&mut buffer) {
                    let mut piece = buffer[..count].to_vec();
                    change(&mut piece);
                    if client.write_all(&piece).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// Replaces the first occurrence, if there is one.
fn replace(piece: &mut Vec<u8>, what: &[u8], by: &[u8]) -> bool {
    let at = piece.windows(what.len()).position(|window| window == what);
    if let Some(at) = at {
        piece.splice(at..at + what.len(), by.iter().copied());
    }
    at.is_some()
}

#[test]
fn one_changed_reply_among_thousands_is_found() {
    let (one, other) = (Redis::start(""), Redis::start(""));
    let replies = Arc::new(AtomicUsize::new(0));
    let changed = relay(one.address.to_string(), move |piece| {
        if piece.windows(5).any(|window| window == b"+OK\r\n") && replies.fetch_add(1, Ordering::Relaxed) == 50 {
            replace(piece, b"+OK\r\n", b"+ON\r\n");
        }
    });
    let found = compare(&[changed, other.address.to_string()], 4, 5000).unwrap().unwrap_err();
    let told = format!("{found:?}");
    assert!(!found.is_shortest && told.contains("seed 4") && told.contains("this server: "), "{told}");
    assert!(found.steps.len() <= 20 && found.replies[0] != found.replies[1], "{told}");
}

#[test]
fn a_difference_is_told_by_the_shortest_list_of_commands() {
    let (one, other) = (Redis::start(""), Redis::start(""));
    // A server that has an error of Redis in other words.
    let changed = relay(one.address.to_string(), |piece| {
        replace(piece, b"value is not an integer", b"value is no integer");
    });
    let found = compare(&[changed, other.address.to_string()], 4, 5000).unwrap().unwrap_err();
    let told = format!("{found:?}");
    assert!(found.is_shortest && found.steps.len() <= 2, "{told}");
    assert!(told.contains("this server: -ERR value is no integer") && told.contains("-ERR value is not an"), "{told}");
}
