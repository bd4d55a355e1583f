//! Transactions over several partitions, cut by crashes: each is there as a whole or not at all, as its end says.
//!
//! A producer is a thread and a Kafka client in one: it begins a transaction, sends to partitions of its choice, and ends
//! it with a commit, a position of its group and a note, or aborts it. What it does not know to be stored when the power
//! goes it aborts under its next epoch, as a coordinator does for a producer that starts again. Beside them owners with
//! fenced writers do the same; for those the log itself aborts.

mod model;
mod owner;
mod producer;
mod verdict;

use std::sync::Arc;

use millstream_log::{AckLevel, Embedded, Error, KafkaLog, KafkaPartition, Log, TopicConfig};
use millstream_testkit::sim::{PowerLoss, Rng, SimFiles};
use millstream_testkit::small_log::{clock, name, new_disk, small_config};
use millstream_types::{ManualClock, TopicPartition};
use parking_lot::Mutex;

use crate::crew::{Awaited, Crew, Drive};
use model::Model;
use owner::Owner;
use producer::Producer;

/// Lives of one seed.
pub(crate) const LIVES: u64 = 5;
/// Producers with transactions; one without comes on top.
const PRODUCERS: usize = 3;
/// Owners with fenced writers; their numbers follow those of the producers.
const OWNERS: usize = 2;
/// Partitions that they write to, of two topics of different levels.
const PARTITIONS: u32 = 3;
const CALLS_PER_PRODUCER: u64 = 60;
/// A life ends at one of this many changes to the disk, if it does not end before.
const CHANGES_PER_LIFE: u64 = 400;
/// A start is cut short at one of this many changes.
const CHANGES_PER_START: u64 = 40;

/// The findings in the lives of one seed, or of several.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) lives: u64,
    pub(crate) cut_at_work: u64,
    pub(crate) committed: u64,
    pub(crate) aborted: u64,
    /// Those that nobody has ended.
    pub(crate) left_open: u64,
    /// Those of which a crash has taken everything, and those that owners left or aborted.
    pub(crate) void: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Self) {
        self.lives += other.lives;
        self.cut_at_work += other.cut_at_work;
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.left_open += other.left_open;
        self.void += other.void;
    }
}

/// Those that write, over all lives.
struct Writers {
    producers: Vec<Arc<Mutex<Producer>>>,
    owners: Vec<Arc<Mutex<Owner>>>,
}

/// The state that the callers of one life share.
struct Life {
    log: Arc<Embedded>,
    files: SimFiles,
    clock: Arc<ManualClock>,
    model: Model,
    drive: Drive,
    /// Those that the transactions write to.
    partitions: Vec<Arc<dyn KafkaPartition>>,
    notes: TopicPartition,
}

impl Life {
    /// An error is a violation, unless the power has gone or there is no room just now.
    fn accept<T>(&self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::Overloaded { .. }) => None,
            Err(_) if self.files.is_off() => None,
            Err(e) => {
                self.model.violated(format!("refused without a reason: {e}"));
                None
            }
        }
    }
}

/// Runs the lives that belong to `seed`.
pub(crate) fn run(seed: u64, drive: &Drive) -> Outcome {
    let mut rng = Rng::new(seed ^ 0x7472_616e_7361_6374);
    let (mut files, clock, model) = (new_disk(), clock(), Model::default());
    let producers = (0..PRODUCERS).map(|number| Arc::new(Mutex::new(Producer::new(number, &mut rng)))).collect();
    let owners = (PRODUCERS..PRODUCERS + OWNERS).map(|number| Arc::new(Mutex::new(Owner::new(number)))).collect();
    let writers = Writers { producers, owners };
    let mut outcome = Outcome::default();
    for _ in 0..LIVES {
        let Some(log) = start(&mut files, &clock, &model, drive, &mut rng) else { break };
        let ends = live(&log, &files, &clock, &model, (&writers, drive), &mut rng);
        outcome.lives += 1;
        outcome.cut_at_work += u64::from(ends == Some(true));
        files = end(&log, &files, ends.is_none(), &mut rng);
        outcome.violations = model.take_violations();
        if !outcome.violations.is_empty() {
            break;
        }
    }
    model.count(&mut outcome);
    outcome
}

/// Opens the log; sometimes the power goes meanwhile, and again.
fn start(
    files: &mut SimFiles,
    clock: &Arc<ManualClock>,
    model: &Model,
    drive: &Drive,
    rng: &mut Rng,
) -> Option<Arc<Embedded>> {
    loop {
        if rng.chance(30) {
            files.crash_after(1 + rng.below(CHANGES_PER_START));
        }
        match drive.open(small_config(), files, clock) {
            Ok(log) => return Some(log),
            Err(_) if files.is_off() => *files = files.crash(rng.bits(), PowerLoss::Torn),
            Err(e) => {
                model.violated(format!("does not start: {e}"));
                return None;
            }
        }
    }
}

/// Checks what is there and goes on. `None` if the life ends in good order, else whether it was cut while at work.
fn live(
    log: &Arc<Embedded>,
    files: &SimFiles,
    clock: &Arc<ManualClock>,
    model: &Model,
    (writers, drive): (&Writers, &Drive),
    rng: &mut Rng,
) -> Option<bool> {
    let base =
        TopicConfig { retention: None, segment_bytes: 4 << 10, partitions: PARTITIONS, ..TopicConfig::default() };
    let topics = [
        ("synced", base.clone()),
        ("written", TopicConfig { level: AckLevel::Written, ..base.clone() }),
        ("notes", TopicConfig { partitions: 1, ..base }),
    ];
    for (topic, config) in &topics {
        if log.create_topic(&name(topic), config).is_err() {
            return Some(false);
        }
    }
    let partition = |topic, number| log.kafka_partition(&TopicPartition::new(name(topic), number)).unwrap();
    let targets = ["synced", "written"].into_iter().flat_map(|topic| (0..PARTITIONS).map(move |n| (topic, n)));
    let partitions = targets.map(|(topic, number)| partition(topic, number)).collect();
    let life = Life {
        log: Arc::clone(log),
        files: files.clone(),
        clock: Arc::clone(clock),
        model: model.clone(),
        drive: drive.clone(),
        partitions,
        notes: TopicPartition::new(name("notes"), 0),
    };
    verdict::check(&life);
    writers.producers.iter().for_each(|producer| producer.lock().restarted(model));
    writers.owners.iter().for_each(|owner| owner.lock().restarted());
    let is_closed = rng.chance(15);
    if !is_closed && !files.is_off() {
        files.crash_after(1 + rng.below(CHANGES_PER_LIFE));
    }
    let powered = !files.is_off();
    work(life, writers, rng);
    (!is_closed).then(|| powered && files.is_off())
}

/// One call of somebody who writes.
type Act = Box<dyn FnMut(&Life, &Awaited, &mut Rng) + Send>;

fn work(life: Life, writers: &Writers, rng: &mut Rng) {
    let life = Arc::new(life);
    let mut crew = Crew::default();
    let (mut reader_rng, reader) = (rng.fork(), Arc::clone(&life));
    crew.companions.push(Box::new(move || {
        verdict::follow(&reader, &mut reader_rng);
        true
    }));
    let mut add = |mut act: Act| {
        let (life, mut rng, mut calls) = (Arc::clone(&life), rng.fork(), CALLS_PER_PRODUCER);
        let awaited = Awaited::default();
        crew.workers.push(Box::new(move || {
            if !awaited.is_out() {
                calls -= 1;
                act(&life, &awaited, &mut rng);
            }
            calls > 0 && !life.files.is_off()
        }));
    };
    add(Box::new(producer::write_plain));
    for producer in &writers.producers {
        let producer = Arc::clone(producer);
        add(Box::new(move |life, awaited, rng| producer.lock().act(life, awaited, rng)));
    }
    for owner in &writers.owners {
        let owner = Arc::clone(owner);
        add(Box::new(move |life, awaited, rng| owner.lock().act(life, awaited, rng)));
    }
    life.drive.run(crew);
}

/// Ends the life; the disk that the next one finds.
fn end(log: &Embedded, files: &SimFiles, in_order: bool, rng: &mut Rng) -> SimFiles {
    let after = match rng.below(10) {
        _ if in_order => {
            drop(log.close());
            files.crash(rng.bits(), PowerLoss::DropAll)
        }
        0..3 => files.kill(),
        3..5 => files.crash(rng.bits(), PowerLoss::DropAll),
        _ => files.crash(rng.bits(), PowerLoss::Torn),
    };
    drop(log.close());
    after
}
