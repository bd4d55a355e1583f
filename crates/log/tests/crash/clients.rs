//! Idempotent producers that outlive the crashes: what a client does not know to be stored it sends again, in order.
//!
//! One client writes one partition, from one thread. It keeps every batch until it has heard an answer, which it may miss
//! though it was given, and has no more of them than the engine keeps apart.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::mpsc;

use millstream_log::{Done, Error, KafkaPartition};
use millstream_testkit::sim::Rng;
use millstream_types::{BatchBuilder, Epoch, Offset, Producer, RecordBatch};
use parking_lot::Mutex;

use crate::crew::Awaited;
use crate::oracle::{Ending, Oracle, Place, is_compacted};
use crate::record::Sent;
use crate::workload::{CODECS, Life};

/// Batches that a client has under way at most.
const PENDING_MAX: usize = 5;

/// The clients of all lives, by the writer that speaks for them and their partition.
#[derive(Default)]
pub(crate) struct Clients(Mutex<HashMap<(u64, Place), Client>>);

/// A batch that may not be stored.
struct Pending {
    append: usize,
    serials: Range<u64>,
    base_sequence: i32,
}

struct Client {
    id: i64,
    epoch: i16,
    next_sequence: i32,
    pending: VecDeque<Pending>,
    /// The last record that the client knows to be stored.
    heard: Option<u64>,
    /// The client sends pending batches again before anything new.
    sends_again: bool,
}

impl Clients {
    /// After a crash, once it is known what is left. Who has heard of records that are rightly gone begins a new epoch,
    /// as its sequence has a gap; whatever it sent later is gone with them.
    pub(crate) fn crashed(&self, oracle: &Oracle) {
        let ledger = oracle.ledger();
        for client in self.0.lock().values_mut() {
            client.sends_again = true;
            if client.heard.is_some_and(|serial| ledger.records[serial as usize].gone) {
                client.begin_epoch();
            }
        }
    }

    /// Lets the client of `writer` in a partition do something.
    pub(crate) fn act(
        &self,
        writer: u64,
        place: Place,
        caller: (&Life, &Awaited),
        partition: &dyn KafkaPartition,
        rng: &mut Rng,
    ) {
        let client = self.0.lock().remove(&(writer, place));
        let mut client = client.unwrap_or_else(|| Client::new(writer, rng));
        client.act(place, caller, partition, rng);
        self.0.lock().insert((writer, place), client);
    }
}

impl Client {
    /// Half of them soon pass the largest sequence number.
    fn new(writer: u64, rng: &mut Rng) -> Self {
        let next_sequence = if rng.chance(50) { i32::MAX - rng.below(30) as i32 } else { 0 };
        let (pending, id) = (VecDeque::new(), writer as i64);
        Self { id, epoch: 0, next_sequence, pending, heard: None, sends_again: false }
    }

    fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.next_sequence = 0;
        self.heard = None;
        for pending in &mut self.pending {
            pending.base_sequence = self.next_sequence;
            self.next_sequence += (pending.serials.end - pending.serials.start) as i32;
        }
    }

    fn act(&mut self, place: Place, (life, awaited): (&Life, &Awaited), partition: &dyn KafkaPartition, rng: &mut Rng) {
        if !self.sends_again {
            self.hear(&life.oracle, rng);
        }
        if self.sends_again || self.pending.len() == PENDING_MAX || rng.chance(20) {
            let sent = |pending: &Pending| {
                self.send(pending, life.oracle.resending(pending.append), (life, awaited), partition, rng)
            };
            self.sends_again = !self.pending.iter().all(sent);
            return;
        }
        let count = 1 + rng.below(6);
        let level = life.level(rng);
        let (append, mut serials) = life.oracle.sending(level, &[(place, count)], Vec::new(), life.now_ms());
        let pending = Pending { append, serials: serials.remove(0), base_sequence: self.next_sequence };
        self.next_sequence = self.next_sequence.wrapping_add(count as i32) & i32::MAX;
        self.sends_again = !self.send(&pending, Ending::Refused, (life, awaited), partition, rng);
        self.pending.push_back(pending);
    }

    /// Takes note of answers, unless they are lost on the way.
    fn hear(&mut self, oracle: &Oracle, rng: &mut Rng) {
        let ledger = oracle.ledger();
        while let Some(oldest) = self.pending.front()
            && ledger.appends[oldest.append].ending == Ending::Answered
            && rng.chance(60)
        {
            self.heard = Some(oldest.serials.end - 1);
            self.pending.pop_front();
        }
    }

    /// Returns whether the batch was taken or had been. If not, it ends as `otherwise` says.
    fn send(
        &self,
        pending: &Pending,
        otherwise: Ending,
        (life, awaited): (&Life, &Awaited),
        partition: &dyn KafkaPartition,
        rng: &mut Rng,
    ) -> bool {
        let (append, level) = (pending.append, life.level(rng));
        let (sender, answer) = mpsc::channel();
        let told = life.oracle.clone();
        let done = Done::call(move |result| {
            told.answered(append, level, result.map(|appended| vec![appended]));
            sender.send(()).ok();
        });
        let batch = self.batch(pending, is_compacted(&partition.topic().config), rng);
        match partition.append_batch(batch, level, done) {
            Ok(()) => {
                if rng.chance(30) && !awaited.wait_for(answer, &life.drive) {
                    life.oracle.violated(format!("append {append} was not answered"));
                }
                true
            }
            Err(e) => {
                life.oracle.refused(append, otherwise);
                if !matches!(e, Error::Overloaded { .. }) {
                    life.accept::<()>(Err(e));
                }
                false
            }
        }
    }

    fn batch(&self, pending: &Pending, are_changes: bool, rng: &mut Rng) -> RecordBatch {
        let mut builder = BatchBuilder::default();
        for sent in Sent::many(pending.serials.clone(), are_changes) {
            builder.push(&sent.record(&sent.headers()));
        }
        builder.set_producer(Producer { id: self.id, epoch: self.epoch, base_sequence: pending.base_sequence });
        builder.seal(Offset(0), Epoch(0), *rng.pick(&CODECS).unwrap())
    }
}
