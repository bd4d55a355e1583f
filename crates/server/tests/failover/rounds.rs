//! Rounds with random faults of brokers and servers under changes in all planes: nothing acknowledged is lost, doubled or torn, and
//! everything goes on by itself.
//!
//! `MILLSTREAM_FAULT_SEED` fixes the choices, `MILLSTREAM_FAULT_ROUNDS` the number of rounds.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Duration;

use millstream_testkit::sim::Rng;
use millstream_testkit::{Process, RealKafka, eventually};

use crate::load::{CHANGES, KINDS, Ledger, Listeners, check_all, create_all};
use crate::{has_ended, signal};

const ROUNDS: u64 = 20;
const PAUSE: Duration = Duration::from_millis(20);
/// Time of the load between two faults.
const QUIET: Duration = Duration::from_secs(2);
/// Longer than the sessions of brokers, and of servers.
const LONG: Duration = Duration::from_secs(7);

#[derive(Debug, Clone, Copy)]
enum Fault {
    BrokerKilled,
    BrokerPaused,
    AllBrokersPaused,
    ServerKilled,
    ServerPaused,
    ServerStopped,
}

const FAULTS: [Fault; 6] = [
    Fault::BrokerKilled,
    Fault::BrokerPaused,
    Fault::AllBrokersPaused,
    Fault::ServerKilled,
    Fault::ServerPaused,
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

/// The cluster and the servers on it.
struct Site {
    kafka: RealKafka,
    settings: Vec<String>,
    server: Option<Process>,
    /// The data directories of the server that works, and of the next one.
    dirs: [PathBuf; 2],
    rng: Rng,
}

impl Site {
    fn start(dir: &Path, settings: &[String]) -> Process {
        std::fs::create_dir_all(dir).unwrap();
        let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        Process::start_on(dir, &arguments)
    }

    fn server(&self) -> &Process {
        self.server.as_ref().unwrap()
    }

    /// Another server takes over once `fault` has happened to the one that works; `after` is done to that then.
    fn replace(&mut self, fault: impl FnOnce(Process) -> Option<Process>, after: impl FnOnce(Process)) {
        let (dir, settings) = (self.dirs[1].clone(), self.settings.clone());
        let next = thread::spawn(move || Self::start(&dir, &settings));
        let former = fault(self.server.take().unwrap());
        self.server = Some(next.join().unwrap());
        if let Some(former) = former {
            after(former);
        }
        self.dirs.swap(0, 1);
    }

    fn run(&mut self, fault: Fault) {
        let broker = self.rng.below(3) as usize;
        let pid = self.kafka.brokers()[broker].pid;
        match fault {
            Fault::BrokerKilled => {
                self.kafka.kill(broker);
                thread::sleep(LONG);
                self.kafka.start_again(broker);
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
    let kafka = RealKafka::with_settings(3, "broker.session.timeout.ms=4000\nbroker.heartbeat.interval.ms=1000\n");
    let installation = tempfile::tempdir().unwrap();
    let brokers: Vec<&str> = kafka.brokers().iter().map(|broker| &*broker.address).collect();
    let settings = vec![
        "log.engine=kafka".to_owned(),
        format!("log.kafka.brokers={brokers:?}"),
        "log.kafka.session_timeout_ms=4000".to_owned(),
    ];
    let dirs = ["one", "two"].map(|name| installation.path().join(name));
    let server = Site::start(&dirs[0], &settings);
    create_all(&server, "exactly_once");
    let load = Load {
        to: RwLock::new(Listeners::from(&server)),
        ledgers: Default::default(),
        has_ended: AtomicBool::new(false),
    };
    let mut site = Site { kafka, settings, server: Some(server), dirs, rng: Rng::new(seed) };
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
