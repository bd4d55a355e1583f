//! Rounds with random faults of brokers, servers and the network between them under changes in all planes: nothing acknowledged is
//! lost, doubled or torn, and everything goes on by itself.
//!
//! `MILLSTREAM_FAULT_SEED` fixes the choices, `MILLSTREAM_FAULT_ROUNDS` the number of rounds.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Duration;

use millstream_testkit::sim::Rng;
use millstream_testkit::{Process, RealKafka, Relay, eventually};

use crate::load::{CHANGES, KINDS, Ledger, Listeners, check_all, create_all};
use crate::outage::is_refused_and_ends;
use crate::{has_ended, signal};

const ROUNDS: u64 = 20;
const PAUSE: Duration = Duration::from_millis(20);
/// Time of the load between two faults.
const QUIET: Duration = Duration::from_secs(2);
/// Longer than the sessions of brokers, and of servers.
const LONG: Duration = Duration::from_secs(7);
const CUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
enum Fault {
    BrokerKilled,
    /// The broker that coordinates the transactions of a writer that is at work.
    CoordinatorKilled,
    BrokerPaused,
    AllBrokersPaused,
    /// Between the server and one broker, or all.
    NetworkCut,
    ServerKilled,
    ServerPaused,
    /// From all brokers, while another server reaches them.
    ServerCutOff,
    ServerStopped,
}

const FAULTS: [Fault; 9] = [
    Fault::BrokerKilled,
    Fault::CoordinatorKilled,
    Fault::BrokerPaused,
    Fault::AllBrokersPaused,
    Fault::NetworkCut,
    Fault::ServerKilled,
    Fault::ServerPaused,
    Fault::ServerCutOff,
    Fault::ServerStopped,
];

/// The changes that are made all the time.
struct Load {
    /// Held for reading while a change is sent.
    to: RwLock<Listeners>,
    ledgers: [Mutex<Ledger>; KINDS],
    has_ended: AtomicBool,
}

/// Ends the load, also if a check panics.
struct EndsLoad<'a>(&'a Load);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
    }
}

impl Load {
    fn run(&self, at: usize) {
        while !self.has_ended.load(Ordering::Acquire) {
            let to = self.to.read().unwrap();
            CHANGES[at].send(*to, &self.ledgers[at]);
            drop(to);
            thread::sleep(PAUSE);
        }
    }

    fn acknowledged(&self) -> [usize; KINDS] {
        self.ledgers.each_ref().map(|ledger| ledger.lock().unwrap().acknowledged.len())
    }
}

/// The place of a server: its data directory, and its way to the brokers.
#[derive(Debug, Clone)]
struct Place {
    dir: PathBuf,
    way: Vec<Relay>,
}

impl Place {
    fn start(&self) -> Process {
        std::fs::create_dir_all(&self.dir).unwrap();
        let brokers: Vec<String> = self.way.iter().map(|relay| relay.address().to_string()).collect();
        let brokers = format!("log.kafka.brokers={brokers:?}");
        // Files of history are written all the time.
        let settings =
            ["log.engine=kafka", &brokers, "log.kafka.session_timeout_ms=4000", "history.flush_interval_ms=500"];
        let arguments: Vec<&str> = settings.into_iter().flat_map(|setting| ["--set", setting]).collect();
        Process::start_on(&self.dir, &arguments)
    }
}

/// The cluster and the servers on it.
struct Site {
    kafka: RealKafka,
    server: Option<Process>,
    /// The places of the server that works, and of the next one.
    places: [Place; 2],
    /// The ids of writers that are at work.
    writers: [String; 2],
    rng: Rng,
}

impl Site {
    fn server(&self) -> &Process {
        self.server.as_ref().unwrap()
    }

    /// Another server takes over once `fault` has happened to the one that works; `after` is done to that then.
    fn replace(&mut self, fault: impl FnOnce(Process) -> Option<Process>, after: impl FnOnce(Process)) {
        let place = self.places[1].clone();
        let next = thread::spawn(move || place.start());
        let former = fault(self.server.take().unwrap());
        self.server = Some(next.join().unwrap());
        if let Some(former) = former {
            after(former);
        }
        self.places.swap(0, 1);
    }

    fn kill_and_start_again(&mut self, broker: usize) {
        self.kafka.kill(broker);
        thread::sleep(LONG);
        self.kafka.start_again(broker);
    }

    fn run(&mut self, fault: Fault) {
        let broker = self.rng.below(3) as usize;
        let pid = self.kafka.brokers()[broker].pid;
        match fault {
            Fault::BrokerKilled => self.kill_and_start_again(broker),
            Fault::CoordinatorKilled => {
                let writer = self.rng.pick(&self.writers).unwrap();
                let coordinator = self.kafka.coordinator(writer);
                println!("broker {coordinator} coordinates '{writer}'");
                self.kill_and_start_again(coordinator);
            }
            Fault::BrokerPaused => {
                signal(pid, "-STOP");
                thread::sleep(LONG);
                signal(pid, "-CONT");
            }
            Fault::AllBrokersPaused => {
                let all: Vec<u32> = self.kafka.brokers().iter().map(|broker| broker.pid).collect();
                all.iter().for_each(|pid| signal(*pid, "-STOP"));
                thread::sleep(Duration::from_secs(10));
                all.iter().for_each(|pid| signal(*pid, "-CONT"));
            }
            Fault::NetworkCut => {
                let way = &self.places[0].way;
                let cut = if self.rng.chance(50) { &way[broker..=broker] } else { way };
                println!("{} of {} brokers", cut.len(), way.len());
                cut.iter().for_each(Relay::cut);
                thread::sleep(CUT);
                end_cut(cut, &mut self.rng);
            }
            Fault::ServerKilled => self.replace(
                |server| {
                    server.kill();
                    None
                },
                drop,
            ),
            Fault::ServerPaused => self.replace(
                |server| {
                    signal(server.id(), "-STOP");
                    Some(server)
                },
                |former| {
                    signal(former.id(), "-CONT");
                    eventually("the former server ends", || has_ended(&former));
                },
            ),
            Fault::ServerCutOff => {
                let (way, mut rng) = (self.places[0].way.clone(), self.rng.fork());
                self.replace(
                    |server| {
                        way.iter().for_each(Relay::cut);
                        Some(server)
                    },
                    |former| is_refused_and_ends(&former, || end_cut(&way, &mut rng)),
                );
            }
            Fault::ServerStopped => self.replace(
                |server| {
                    server.stop();
                    None
                },
                drop,
            ),
        }
    }
}

/// Ends a cut: what was sent in it arrives now, or is lost with its connections.
fn end_cut(cut: &[Relay], rng: &mut Rng) {
    let is_reset = rng.chance(50);
    println!("the cut ends, {}", if is_reset { "and its connections" } else { "and all arrives" });
    cut.iter().for_each(if is_reset { Relay::reset } else { Relay::mend });
}

fn number(variable: &str) -> Option<u64> {
    Some(std::env::var(variable).ok()?.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

#[test]
#[ignore = "takes long"]
fn random_faults_of_brokers_and_servers_lose_double_and_tear_nothing() {
    let seed =
        number("MILLSTREAM_FAULT_SEED").unwrap_or_else(|| u64::from(RandomState::new().build_hasher().finish() as u32));
    let rounds = number("MILLSTREAM_FAULT_ROUNDS").unwrap_or(ROUNDS);
    println!("MILLSTREAM_FAULT_SEED={seed}, {rounds} rounds");
    let settings = "broker.session.timeout.ms=4000\nbroker.heartbeat.interval.ms=1000\n";
    let kafka = RealKafka::behind_relays(3, settings, 2);
    let installation = tempfile::tempdir().unwrap();
    let places =
        [0, 1].map(|way| Place { dir: installation.path().join(way.to_string()), way: kafka.way(way).to_vec() });
    let server = places[0].start();
    create_all(&server, "exactly_once");
    let load = Load {
        to: RwLock::new(Listeners::from(&server)),
        ledgers: Default::default(),
        has_ended: AtomicBool::new(false),
    };
    let job = server.get_json("/api/jobs")[0]["id"].as_str().unwrap().to_owned();
    let writers = ["millstream.streams".to_owned(), format!("millstream.job/default/{job}")];
    let mut site = Site { kafka, server: Some(server), places, writers, rng: Rng::new(seed) };
    thread::scope(|scope| {
        let load = &load;
        let _ends = EndsLoad(load);
        (0..KINDS).for_each(|at| drop(scope.spawn(move || load.run(at))));
        for round in 0..rounds {
            thread::sleep(QUIET);
            let fault = *site.rng.pick(&FAULTS).unwrap();
            println!("round {round}: {fault:?}, {:?} acknowledged", load.acknowledged());
            site.run(fault);
            // Nothing is in flight while it is looked at what is there.
            let mut to = load.to.write().unwrap();
            *to = Listeners::from(site.server());
            drop(to);
            let before = load.acknowledged();
            eventually("every plane goes on", || {
                load.acknowledged().iter().zip(&before).all(|(now, before)| now > before)
            });
            let quiet = load.to.write().unwrap();
            check_all(site.server(), &load.ledgers);
            drop(quiet);
        }
    });
    let sent = load.ledgers.each_ref().map(|ledger| ledger.lock().unwrap().last);
    println!("{sent:?} sent, {:?} acknowledged", load.acknowledged());
}
