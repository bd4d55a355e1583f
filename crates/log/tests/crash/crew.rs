//! Callers of a log: each a thread, or all of them by turns in the order of a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use millstream_log::{Embedded, Error, LogConfig, SeededScheduler};
use millstream_testkit::sim::SimFiles;
use millstream_types::ManualClock;
use parking_lot::Mutex;

/// Longest time to wait for an answer: only an engine that never answers meets it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// One call, or a few; `false` if it was the last.
pub(crate) type Step = Box<dyn FnMut() -> bool + Send>;

/// The way in which calls and the engine's tasks come to their turns.
#[derive(Clone)]
pub(crate) enum Drive {
    /// As the system schedules their threads.
    Threads,
    /// In an order that a seed decides.
    ByHand(Arc<SeededScheduler>),
}

/// The callers of one life.
#[derive(Default)]
pub(crate) struct Crew {
    /// They make a number of calls.
    pub(crate) workers: Vec<Step>,
    /// They go on for as long as somebody works.
    pub(crate) companions: Vec<Step>,
}

impl Drive {
    /// Turns in the order of a seed.
    pub(crate) fn by_hand(seed: u64) -> Self {
        Self::ByHand(Arc::new(SeededScheduler::new(seed)))
    }

    pub(crate) fn open(
        &self,
        config: LogConfig,
        files: &SimFiles,
        clock: &Arc<ManualClock>,
    ) -> Result<Arc<Embedded>, Error> {
        match self {
            Self::Threads => {
                Embedded::open(config, Arc::new(files.clone()), Arc::clone(clock) as _, Arc::clone(clock) as _)
            }
            Self::ByHand(scheduler) => {
                let turns = Arc::clone(scheduler);
                files.pause_with(move || turns.interleave());
                Embedded::by_hand(config, Arc::new(files.clone()), Arc::clone(clock), Arc::clone(scheduler))
            }
        }
    }

    /// Runs until all workers have made their calls.
    pub(crate) fn run(&self, crew: Crew) {
        match self {
            Self::Threads => run_threads(crew),
            Self::ByHand(scheduler) => run_by_hand(crew, scheduler),
        }
    }

    /// `true` if the caller may make a call that waits.
    pub(crate) fn may_wait(&self) -> bool {
        match self {
            Self::Threads => true,
            Self::ByHand(scheduler) => scheduler.may_wait(),
        }
    }

    /// Waits until `holds`, or looks only: the caller comes back. `false` if it does not hold.
    pub(crate) fn until(&self, mut holds: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        while matches!(self, Self::Threads) && !holds() && start.elapsed() < ANSWER_TIMEOUT {
            thread::yield_now();
        }
        holds()
    }

    /// Lets others go on for a moment.
    pub(crate) fn pause(&self) {
        match self {
            Self::Threads => thread::yield_now(),
            Self::ByHand(scheduler) => scheduler.interleave(),
        }
    }
}

/// The answer that a caller waits for before its next call.
#[derive(Default)]
pub(crate) struct Awaited(Mutex<Option<Receiver<()>>>);

impl Awaited {
    /// Waits for an answer, or lets the next calls do so. `false` if there is none.
    pub(crate) fn wait_for(&self, answer: Receiver<()>, drive: &Drive) -> bool {
        if let Drive::ByHand(_) = drive {
            *self.0.lock() = Some(answer);
            return true;
        }
        answer.recv_timeout(ANSWER_TIMEOUT) != Err(RecvTimeoutError::Timeout)
    }

    /// `true` if the answer is still to come.
    pub(crate) fn is_out(&self) -> bool {
        let mut awaited = self.0.lock();
        let is_out = awaited.as_ref().is_some_and(|answer| answer.try_recv() == Err(TryRecvError::Empty));
        if !is_out {
            *awaited = None;
        }
        is_out
    }
}

fn run_threads(crew: Crew) {
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        for mut step in crew.companions {
            threads.spawn({
                let done = &done;
                move || while !done.load(Ordering::Acquire) && step() {}
            });
        }
        let workers = crew.workers.into_iter().map(|mut step| threads.spawn(move || while step() {}));
        let workers: Vec<_> = workers.collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Release);
    });
}

fn run_by_hand(crew: Crew, scheduler: &SeededScheduler) {
    let left = Arc::new(AtomicUsize::new(crew.workers.len()));
    let workers = crew.workers.into_iter().map(|mut step| {
        let (left, mut is_done) = (Arc::clone(&left), false);
        scheduler.add_caller("worker", move || {
            if !is_done && !step() {
                is_done = true;
                left.fetch_sub(1, Ordering::AcqRel);
            }
            !is_done
        })
    });
    let mut ids: Vec<_> = workers.collect();
    ids.extend(crew.companions.into_iter().map(|mut step| {
        let mut is_done = false;
        scheduler.add_caller("companion", move || {
            is_done = is_done || !step();
            !is_done
        })
    }));
    while left.load(Ordering::Acquire) > 0 {
        scheduler.turn();
    }
    ids.into_iter().for_each(|id| scheduler.remove(id));
}
