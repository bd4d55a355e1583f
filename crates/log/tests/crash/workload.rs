//! One life of the engine: writers at all levels, a reader, and somebody who creates and deletes topics.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use millstream_log::{
    AckLevel, Appended, AtomicAppend, Cleanup, Done, Embedded, Error, KafkaLog, KafkaPartition, Log, Offsets,
    PositionCommit, Storage, Topic, TopicConfig, UpTo,
};
use millstream_testkit::sim::{Rng, SimFiles};
use millstream_testkit::small_log::{append_atomic, name};
use millstream_types::{
    BatchBuilder, BatchLimits, Compression, Epoch, ManualClock, Offset, Record, TopicName, TopicPartition, WallClock,
};

use crate::clients::Clients;
use crate::crew::{Awaited, Crew, Drive};
use crate::oracle::{Ending, Expected, Oracle, Place, level_of};
use crate::record::Sent;
use crate::state::is_state;

const WRITERS: u64 = 3;
/// Of the lasting topics the first keep all their records.
const WHOLE_TOPICS: usize = 2;
/// These, and those that follow, keep the last of each key.
const KEPT_TOPICS: usize = 5;
const LEVELS: [AckLevel; 3] = [AckLevel::Memory, AckLevel::Written, AckLevel::Synced];
pub(crate) const CODECS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// The state that the threads of one life share.
pub(crate) struct Life {
    pub(crate) log: Arc<Embedded>,
    pub(crate) files: SimFiles,
    pub(crate) oracle: Oracle,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) drive: Drive,
    pub(crate) world: World,
    /// Number of calls of each writer.
    pub(crate) calls: u64,
}

/// The kinds of topics in the lives of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// All kinds.
    Mixed,
    /// Only compacted ones.
    States,
    /// Only those at `written`, and hardly anybody waits for more: the writeback thread makes most of it durable.
    Unwaited,
}

/// Topics that keep a state, with segments of few records.
fn state_topics() -> [(&'static str, TopicConfig); 3] {
    let base = TopicConfig {
        partitions: 2,
        cleanup: Cleanup::Compact,
        retention: None,
        segment_bytes: 1 << 10,
        delete_retention: Duration::from_millis(30),
        ..TopicConfig::default()
    };
    // Its records are too young to go.
    let (level, compression) = (AckLevel::Written, Compression::Zstd);
    let retention = TopicConfig::default().retention;
    let packed = TopicConfig { level, compression, cleanup: Cleanup::CompactDelete, retention, ..base.clone() };
    // Segments of some ten records: often one of them lives on.
    let bucket = TopicConfig { segment_bytes: 6 << 10, compaction_live_percent: Some(50), ..base.clone() };
    [("state", base), ("packed", packed), ("bucket", bucket)]
}

/// Topics that exist in every life: one of each kind, with segments so small that they are often closed. Those come first
/// whose records all stay, then those of which the last of each key does.
fn lasting_topics(world: World) -> Vec<(&'static str, TopicConfig)> {
    if world == World::States {
        return state_topics().to_vec();
    }
    if world == World::Unwaited {
        let base = TopicConfig { level: AckLevel::Written, retention: None, ..TopicConfig::default() };
        let plain = TopicConfig { partitions: 5, segment_bytes: 8 << 10, ..base.clone() };
        let packed = TopicConfig { segment_bytes: 4 << 10, compression: Compression::Lz4, ..base };
        let states = state_topics().map(|(name, config)| (name, TopicConfig { level: AckLevel::Written, ..config }));
        return [("plain", plain), ("compressed", packed)].into_iter().chain(states).collect();
    }
    let base = TopicConfig { retention: None, segment_bytes: 8 << 10, ..TopicConfig::default() };
    let mut topics = vec![
        ("synced", TopicConfig { partitions: 5, ..base.clone() }),
        ("written", TopicConfig { level: AckLevel::Written, compression: Compression::Lz4, ..base.clone() }),
    ];
    topics.extend(state_topics());
    topics.extend([
        ("trimmed", TopicConfig { partitions: 2, segment_bytes: 2 << 10, ..base.clone() }),
        ("expiring", TopicConfig { retention: Some(Duration::from_millis(200)), ..base.clone() }),
        ("live", TopicConfig { storage: Storage::Memory { max_bytes: 8 << 10 }, ..base }),
    ]);
    topics
}

/// One of the topics that writers know.
pub(crate) struct Target {
    pub(crate) topic: Arc<Topic>,
    pub(crate) partitions: Vec<Arc<dyn KafkaPartition>>,
}

impl Target {
    fn id(&self, partition: usize) -> TopicPartition {
        TopicPartition::new(self.topic.name.clone(), partition as u32)
    }
}

/// A partition of one of the targets.
#[derive(Clone, Copy)]
pub(crate) struct Aim<'t> {
    pub(crate) target: &'t Target,
    pub(crate) partition: usize,
}

impl Aim<'_> {
    fn place(self) -> Place {
        (self.target.topic.id, self.partition as u32)
    }

    fn log(self) -> Arc<dyn KafkaPartition> {
        self.target.partitions[self.partition].clone()
    }
}

impl Life {
    /// Runs until every writer has made its calls or the power has gone.
    pub(crate) fn run(self, rng: &mut Rng) {
        let Some(targets) = self.create_lasting_topics() else { return };
        let (life, targets) = (Arc::new(self), Arc::new(targets));
        let mut rngs: Vec<Rng> = (0..WRITERS + 2).map(|_| rng.fork()).collect();
        let (mut churn_rng, mut reader_rng) = (rngs.remove(0), rngs.remove(0));
        let mut crew = Crew::default();
        if life.world != World::Unwaited {
            let life = Arc::clone(&life);
            crew.companions.push(Box::new(move || life.churn(&mut churn_rng).is_some()));
        }
        let (reader, followed) = (Arc::clone(&life), Arc::clone(&targets));
        crew.companions.push(Box::new(move || reader.read(&followed, &mut reader_rng).is_some()));
        for (number, mut rng) in (0..).zip(rngs) {
            let (life, targets, mut calls) = (Arc::clone(&life), Arc::clone(&targets), life.calls);
            let awaited = Awaited::default();
            crew.workers.push(Box::new(move || {
                if !awaited.is_out() {
                    calls -= 1;
                    Writer { life: &life, targets: &targets, number, awaited: &awaited }.call(&mut rng);
                }
                calls > 0 && !life.files.is_off()
            }));
        }
        life.drive.run(crew);
    }

    /// `None` if the power has gone.
    fn create_lasting_topics(&self) -> Option<Vec<Target>> {
        let topics = lasting_topics(self.world).into_iter();
        topics.map(|(topic, config)| self.create(&name(topic), &config)).collect()
    }

    fn create(&self, name: &TopicName, config: &TopicConfig) -> Option<Target> {
        self.oracle.changing(name, Expected::Present(None, config.clone()));
        let topic = self.accept(self.log.create_topic(name, config))?;
        self.oracle.changed(name, Some(&topic));
        self.target(topic)
    }

    fn target(&self, topic: Arc<Topic>) -> Option<Target> {
        let ids = (0..topic.config.partitions).map(|partition| TopicPartition::new(topic.name.clone(), partition));
        let partitions = self.accept(ids.map(|id| self.log.kafka_partition(&id)).collect())?;
        Some(Target { topic, partitions })
    }

    /// An error is a violation, unless the power has gone.
    pub(crate) fn accept<T>(&self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(_) if self.files.is_off() => None,
            Err(e) => {
                self.oracle.violated(format!("refused without a reason: {e}"));
                None
            }
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Chooses the level that an append asks for.
    pub(crate) fn level(&self, rng: &mut Rng) -> AckLevel {
        let is_hardly_waited_for = self.world == World::Unwaited && !rng.chance(3);
        let levels = if is_hardly_waited_for { &LEVELS[..2] } else { &LEVELS[..] };
        *rng.pick(levels).unwrap()
    }

    /// Creates a topic and appends to it, or alters or deletes it. `None` if the power has gone.
    fn churn(&self, rng: &mut Rng) -> Option<()> {
        let [(_, state), ..] = state_topics();
        let plain = TopicConfig { retention: None, ..TopicConfig::default() };
        if self.files.is_off() {
            return None;
        }
        if !self.drive.may_wait() {
            return Some(());
        }
        let number = rng.below(3);
        let (name, config) = (name(&format!("passing-{number}")), if number == 0 { &state } else { &plain });
        match self.log.topic(&name) {
            None => self.create(&name, config).map(|target| self.fill(target, rng)),
            Some(topic) if rng.chance(40) => self.alter(&topic, rng),
            Some(topic) if number > 0 && rng.chance(30) => self.grow(&topic, rng),
            Some(topic) => self.delete(&topic),
        }
    }

    fn fill(&self, target: Target, rng: &mut Rng) {
        let writer = Writer { life: self, targets: &[target], number: u64::MAX, awaited: &Awaited::default() };
        (0..rng.below(5)).for_each(|_| writer.append(rng));
    }

    fn grow(&self, topic: &Topic, rng: &mut Rng) -> Option<()> {
        let config = TopicConfig { partitions: topic.config.partitions + 1, ..topic.config.clone() };
        let partitions = config.partitions;
        self.oracle.changing(&topic.name, Expected::Present(Some(topic.id), config));
        let grown = self.accept(self.log.add_partitions(&topic.name, partitions))?;
        self.oracle.changed(&topic.name, Some(&grown));
        let target = self.target(grown)?;
        self.fill(target, rng);
        Some(())
    }

    fn alter(&self, topic: &Topic, rng: &mut Rng) -> Option<()> {
        let compaction_live_percent = rng.chance(50).then_some(50);
        let config =
            TopicConfig { segment_bytes: (4 + rng.below(8)) << 10, compaction_live_percent, ..topic.config.clone() };
        self.oracle.changing(&topic.name, Expected::Present(Some(topic.id), config.clone()));
        let altered = self.accept(self.log.alter_topic(&topic.name, &config))?;
        self.oracle.changed(&topic.name, Some(&altered));
        Some(())
    }

    fn delete(&self, topic: &Topic) -> Option<()> {
        self.oracle.changing(&topic.name, Expected::Absent);
        self.accept(self.log.delete_topic(&topic.name))?;
        self.oracle.changed(&topic.name, None);
        Some(())
    }

    /// Reads from a lasting topic, now up to what is stable and now up to the tail. `None` if there is none.
    fn read(&self, targets: &[Target], rng: &mut Rng) -> Option<()> {
        let aim = aim(targets, rng)?;
        if is_state(aim) && rng.chance(10) {
            self.read_through(aim, rng);
            return Some(());
        }
        let (partition, place) = (aim.log(), aim.place());
        let level = level_of(&aim.target.topic.config);
        let offsets = partition.offsets();
        self.oracle.ends(place, offsets, level);
        let up_to = if rng.chance(50) { UpTo::Stable } else { UpTo::Tail };
        let from = Offset(offsets.tail.0.saturating_sub(rng.below(60)).max(offsets.first.0));
        match partition.read(from, 16 << 10, up_to) {
            Ok(batches) => {
                for batch in batches {
                    let batch = batch.inflated(&BatchLimits::default()).unwrap();
                    for record in batch.records() {
                        let record = record.unwrap();
                        // What a batch holds below was perhaps trimmed.
                        if record.offset >= from {
                            self.oracle.seen(place, batch.epoch(), &record.into());
                        }
                    }
                    if up_to == UpTo::Stable && level == Some(AckLevel::Synced) {
                        self.oracle.read_as_stable(place, batch.epoch(), batch.last_offset().next());
                    }
                }
            }
            Err(Error::Trimmed { .. }) => {}
            Err(e) => {
                self.accept::<()>(Err(e));
            }
        }
        Some(())
    }
}

fn aim<'t>(targets: &'t [Target], rng: &mut Rng) -> Option<Aim<'t>> {
    let target = rng.pick(targets)?;
    Some(Aim { target, partition: rng.below(target.partitions.len() as u64) as usize })
}

/// One thread that appends.
struct Writer<'a> {
    life: &'a Life,
    targets: &'a [Target],
    number: u64,
    awaited: &'a Awaited,
}

impl Writer<'_> {
    fn call(&self, rng: &mut Rng) {
        match rng.below(100) {
            0..60 => self.append(rng),
            60..67 => self.append_batch(rng),
            67..80 => self.append_idempotent(rng),
            80..91 => self.append_atomic(rng),
            91..93 if self.life.drive.may_wait() => self.trim(rng),
            _ => self.life.clock.advance(Duration::from_millis(rng.below(40))),
        }
        if self.number.is_multiple_of(2) {
            self.life.log.write_accepted();
        }
    }

    fn append(&self, rng: &mut Rng) {
        let Some(aim) = aim(self.targets, rng) else { return };
        self.send(rng, &[(aim, 1 + rng.clone().below(8))], Vec::new(), |_, level, records, done| {
            aim.target.partitions[aim.partition].append(&records[0], level, one(done))
        });
    }

    fn append_batch(&self, rng: &mut Rng) {
        let Some(aim) = aim(self.targets, rng) else { return };
        let codec = *rng.pick(&CODECS).unwrap();
        self.send(rng, &[(aim, 1 + rng.clone().below(20))], Vec::new(), |_, level, records, done| {
            let mut builder = BatchBuilder::default();
            records[0].iter().for_each(|record| builder.push(record));
            let batch = builder.seal(Offset(0), Epoch(0), codec);
            aim.target.partitions[aim.partition].append_batch(batch, level, one(done))
        });
    }

    /// Lets an idempotent producer send to a topic whose records do not expire.
    fn append_idempotent(&self, rng: &mut Rng) {
        let Some(aim) = aim(self.kept(KEPT_TOPICS), rng) else { return };
        self.life.clients.act(self.number, aim.place(), (self.life, self.awaited), &*aim.log(), rng);
    }

    /// Appends to topics whose records do not expire, and commits a position that somebody has read up to.
    fn append_atomic(&self, rng: &mut Rng) {
        let whole = self.kept(WHOLE_TOPICS);
        let mut counts: Vec<_> = aim(whole, rng).into_iter().map(|aim| (aim, 1 + rng.below(4))).collect();
        let more = u64::from(whole.is_empty()) + rng.below(4);
        counts.extend((0..more).filter_map(|_| Some((aim(self.kept(KEPT_TOPICS), rng)?, 1 + rng.below(4)))));
        let read =
            whole.first().map(|target| Aim { target, partition: rng.below(target.partitions.len() as u64) as usize });
        // Whoever commits a position waits for it.
        let read = read.filter(|_| self.life.world != World::Unwaited || rng.chance(10));
        let commit = read.and_then(|read| {
            Some(PositionCommit {
                group: format!("group-{}", self.number),
                partition: read.target.id(read.partition),
                position: self.life.oracle.position(read.place())?,
                metadata: String::new(),
            })
        });
        self.send(rng, &counts, commit.into_iter().collect(), |commits, level, records, done| {
            let ids = counts.iter().map(|(aim, _)| aim.target.id(aim.partition));
            let append = AtomicAppend { records: ids.zip(records).collect(), positions: commits };
            append_atomic(&*self.life.log, &append, level, done)
        });
    }

    /// The first so many topics, as far as there are others than those that keep a state.
    fn kept(&self, count: usize) -> &[Target] {
        match self.life.world {
            World::Mixed | World::Unwaited => &self.targets[..count],
            World::States => &self.targets[..count - WHOLE_TOPICS],
        }
    }

    /// Trims some partition of the topic that is there for it.
    fn trim(&self, rng: &mut Rng) {
        let Some(target) = self.targets.iter().find(|target| target.topic.name == name("trimmed")) else { return };
        let aim = Aim { target, partition: rng.below(target.partitions.len() as u64) as usize };
        let (partition, place) = (aim.log(), aim.place());
        let Offsets { first, stable, .. } = partition.offsets();
        let before = Offset(first.0 + rng.below(stable.0 - first.0 + 1));
        self.life.oracle.trimming(place, before);
        if let Some(first) = self.life.accept(partition.trim(before)) {
            self.life.oracle.trimmed(place, before, first);
        }
    }

    /// Makes one append of `counts` records for each aim; waits for the answer, or not.
    fn send(
        &self,
        rng: &mut Rng,
        counts: &[(Aim<'_>, u64)],
        commits: Vec<PositionCommit>,
        call: impl FnOnce(Vec<PositionCommit>, AckLevel, Vec<Vec<Record<'_>>>, Done<Vec<Appended>>) -> Result<(), Error>,
    ) {
        let level = self.life.level(rng);
        let places: Vec<_> = counts.iter().map(|(aim, count)| (aim.place(), *count)).collect();
        let oracle = &self.life.oracle;
        let (append, serials) = oracle.sending(level, &places, commits.clone(), self.life.now_ms());
        let are_changes = counts.iter().map(|(aim, _)| is_state(*aim));
        let sent: Vec<Vec<Sent>> =
            serials.into_iter().zip(are_changes).map(|(serials, are)| Sent::many(serials, are)).collect();
        let headers: Vec<Vec<_>> = sent.iter().map(|sent| sent.iter().map(Sent::headers).collect()).collect();
        let records = sent
            .iter()
            .zip(&headers)
            .map(|(sent, headers)| sent.iter().zip(headers).map(|(sent, headers)| sent.record(headers)).collect());

        let (sender, answer) = mpsc::channel();
        let told = oracle.clone();
        let done = Done::call(move |result| {
            told.answered(append, level, result);
            sender.send(()).ok();
        });
        match call(commits, level, records.collect(), done) {
            Ok(()) if rng.chance(40) => {
                if !self.awaited.wait_for(answer, &self.life.drive) {
                    oracle.violated(format!("append {append} was not answered"));
                }
            }
            Ok(()) => {}
            Err(e) => {
                oracle.refused(append, Ending::Refused);
                if !matches!(e, Error::Overloaded { .. }) {
                    self.life.accept::<()>(Err(e));
                }
            }
        }
    }
}

/// A [`Done`] for one partition that answers as one for several does.
fn one(done: Done<Vec<Appended>>) -> Done<Appended> {
    Done::call(move |result| done.finish(result.map(|appended| vec![appended])))
}
