//! One data directory through several lives: open, check, write, end by some crash, and again.

use std::path::Path;
use std::sync::Arc;

use millstream_log::{AckLevel, Embedded, Error, LogConfig};
use millstream_testkit::sim::{PowerLoss, Rng, SimFiles};
use millstream_testkit::small_log::{clock, new_disk, small_config};
use millstream_types::ManualClock;

use crate::clients::Clients;
use crate::crew::Drive;
use crate::oracle::{Ending, Oracle};
use crate::passes::{self, Cuts, Segments};
use crate::verdict::{self, Crash};
use crate::workload::{Life, World};

pub(crate) const LIVES: u64 = 5;
/// A life ends at one of this many changes to the disk, if it does not end before.
const CHANGES_PER_LIFE: u64 = 600;
/// A start is cut short at one of this many changes.
const CHANGES_PER_START: u64 = 40;
const CALLS_PER_WRITER: u64 = 100;

/// The way in which a life ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// In good order; then the power goes.
    Close,
    /// The process is killed.
    Kill,
    /// The power goes.
    PowerLoss(PowerLoss),
}

/// The medium that the log lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Keeps what was synced.
    Honest,
    /// Does not always, which shows that the checks see it.
    Forgetful,
    /// Does not always keep what compaction has written.
    ForgetfulOfPasses,
}

/// Syncs of a hundred that a forgetful medium does not carry out.
const FORGOTTEN_PERCENT: u64 = 20;

/// The findings in the lives of one seed.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The errors of the engine, if there are any.
    pub(crate) violations: Vec<String>,
    /// Lives that began to work.
    pub(crate) lives: u64,
    /// Those that lost their power while writers were at work.
    pub(crate) cut_at_work: u64,
    /// Starts that lost their power; they come on top.
    pub(crate) cut_starts: u64,
    /// Ends within a pass of compaction.
    pub(crate) cut_passes: Cuts,
    /// Stands for the bytes of the disk after the last one.
    pub(crate) fingerprint: u64,
}

/// Runs the lives that belong to `seed`.
pub(crate) fn run(seed: u64, medium: Medium, world: World, drive: Drive) -> Outcome {
    let mut lives = Lives {
        drive,
        rng: Rng::new(seed),
        files: new_disk(),
        medium,
        world,
        left: None,
        oracle: Oracle::default(),
        clock: clock(),
        crash: Crash::Kill,
        appends_before: 0,
        clients: Arc::default(),
        outcome: Outcome::default(),
    };
    for _ in 0..LIVES {
        lives.live();
        lives.outcome.violations = std::mem::take(&mut lives.oracle.ledger().violations);
        if !lives.outcome.violations.is_empty() {
            break;
        }
    }
    lives.outcome.fingerprint = lives.files.fingerprint();
    lives.outcome
}

struct Lives {
    drive: Drive,
    rng: Rng,
    files: SimFiles,
    medium: Medium,
    world: World,
    /// The segments that were there at the end of the last life, until a start has looked through them.
    left: Option<Segments>,
    oracle: Oracle,
    clock: Arc<ManualClock>,
    /// The worst that has happened since somebody looked.
    crash: Crash,
    /// Appends of earlier lives.
    appends_before: usize,
    clients: Arc<Clients>,
    outcome: Outcome,
}

impl Lives {
    fn live(&mut self) {
        let Some(log) = self.start() else { return };
        verdict::check(&self.oracle, &*log, self.crash, self.now_ms());
        self.clients.crashed(&self.oracle);
        self.crash = Crash::Kill;
        self.appends_before = self.oracle.ledger().appends.len();
        let end = match self.rng.below(10) {
            0..2 => End::Close,
            2..4 => End::Kill,
            4..6 => End::PowerLoss(PowerLoss::DropAll),
            _ => End::PowerLoss(PowerLoss::Torn),
        };
        if !matches!(end, End::Close) && !self.files.is_off() {
            self.files.crash_after(1 + self.rng.below(CHANGES_PER_LIFE));
        }
        let life = Life {
            log: Arc::clone(&log),
            files: self.files.clone(),
            oracle: self.oracle.clone(),
            clock: Arc::clone(&self.clock),
            clients: Arc::clone(&self.clients),
            drive: self.drive.clone(),
            world: self.world,
            calls: CALLS_PER_WRITER,
        };
        let powered = !self.files.is_off();
        life.run(&mut self.rng);
        self.outcome.lives += 1;
        self.outcome.cut_at_work += u64::from(powered && self.files.is_off());
        self.end(&log, end);
    }

    fn now_ms(&self) -> i64 {
        millstream_types::WallClock::now_ms(&*self.clock)
    }

    /// Opens the log; sometimes the power goes meanwhile, and again.
    fn start(&mut self) -> Option<Arc<Embedded>> {
        loop {
            let interrupted = self.rng.chance(30);
            if interrupted {
                self.files.crash_after(1 + self.rng.below(CHANGES_PER_START));
            }
            let forgets: Option<fn(&Path) -> bool> = match self.medium {
                Medium::Honest => None,
                Medium::Forgetful => Some(|_| true),
                Medium::ForgetfulOfPasses => Some(passes::is_written_by_a_pass),
            };
            if let Some(of) = forgets {
                self.files.forget_syncs_of(self.rng.bits(), FORGOTTEN_PERCENT, of);
            }
            match self.open() {
                Ok(log) => {
                    let left = self.left.take();
                    let cuts = left.map(|left| left.cuts(&Segments::on(&self.files)));
                    self.outcome.cut_passes.add(cuts.unwrap_or_default());
                    return Some(log);
                }
                Err(_) if self.files.is_off() => {
                    self.outcome.cut_starts += 1;
                    self.lose_power(PowerLoss::Torn);
                }
                Err(e) => {
                    self.oracle.violated(format!("does not start: {e}"));
                    return None;
                }
            }
        }
    }

    /// Turns of writeback, and with them passes of compaction, follow close on one another; a pass has memory for fewer
    /// keys than there are, or for all.
    fn open(&mut self) -> Result<Arc<Embedded>, Error> {
        let config = LogConfig {
            flush_interval_ms: 2,
            compaction_dirty_percent: 10,
            compaction_map_bytes: *self.rng.pick(&[1 << 10, 4 << 10]).unwrap(),
            ..small_config()
        };
        let log = self.drive.open(config, &self.files, &self.clock)?;
        // In every other life writers write the journal in the log's place.
        if self.outcome.lives.is_multiple_of(2) {
            log.prompt_with(|| true);
        }
        Ok(log)
    }

    fn lose_power(&mut self, loss: PowerLoss) {
        self.left.get_or_insert_with(|| Segments::on(&self.files));
        self.files = self.files.crash(self.rng.bits(), loss);
        self.crash = Crash::PowerLoss;
    }

    fn end(&mut self, log: &Embedded, end: End) {
        match end {
            End::Close => {
                match log.close() {
                    Ok(()) => self.closed_in_good_order(),
                    Err(_) if self.files.is_off() => {}
                    Err(e) => self.oracle.violated(format!("does not close: {e}")),
                }
                self.lose_power(PowerLoss::DropAll);
            }
            End::Kill => {
                let after = self.files.kill();
                self.left = Some(Segments::on(&self.files));
                drop(log.close());
                self.files = after;
            }
            End::PowerLoss(loss) => {
                self.lose_power(loss);
            }
        }
        // A disk without power takes no further write; this ends the threads and answers waiting writers.
        drop(log.close());
    }

    /// Whatever was accepted has been answered, and outlives everything.
    fn closed_in_good_order(&self) {
        let mut ledger = self.oracle.ledger();
        for history in ledger.partitions.values_mut() {
            if let Some(last) = history.placed.keys().next_back().copied() {
                history.secure(AckLevel::Synced, last.next());
            }
        }
        let unsure = ledger.appends[self.appends_before..].iter().filter(|append| append.ending != Ending::Answered);
        let unsure = unsure.filter(|append| append.ending != Ending::Refused).count();
        if unsure > 0 {
            ledger.violations.push(format!("{unsure} appends are in doubt after a close in good order"));
        }
    }
}
