//! The four tasks of the engine: each has a thread, or takes its turns by hand.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::appender::Appender;
use crate::catalog::TopicCatalog;
use crate::queues::Queues;
use crate::sched::{run_as_batch, run_in_background};
use crate::seeded::TaskId;
use crate::shared::EngineShared;
use crate::writeback::Writeback;
use crate::{Error, SeededScheduler, compaction, syncer, writeback};

/// Of a hundred turns of the syncer that nobody has asked for so many come after its interval.
const LATE_SYNCS_PERCENT: u64 = 25;
/// Of a hundred turns of writeback that nobody has asked for so many come after its interval.
const LATE_FLUSHES_PERCENT: u64 = 10;

/// The parts of the engine that the tasks work on.
pub(crate) struct TaskContext<'a> {
    pub(crate) shared: &'a Arc<EngineShared>,
    pub(crate) queues: &'a Arc<Queues>,
    pub(crate) catalog: &'a Arc<TopicCatalog>,
    pub(crate) appender: &'a Arc<Appender>,
}

/// The tasks at work.
pub(crate) enum EngineTasks {
    Threads(EngineThreads),
    ByHand(TasksByHand),
}

pub(crate) struct EngineThreads {
    appender: JoinHandle<()>,
    syncer: JoinHandle<()>,
    compaction: JoinHandle<()>,
    writeback: JoinHandle<Result<(), Error>>,
}

pub(crate) struct TasksByHand {
    scheduler: Arc<SeededScheduler>,
    ids: [TaskId; 4],
    writeback: Arc<parking_lot::Mutex<Writeback>>,
}

impl EngineTasks {
    /// Starts a thread for each task, or adds all of them to the scheduler.
    ///
    /// # Errors
    /// [`Error::Io`] if the system cannot start a thread.
    pub(crate) fn start(context: &TaskContext<'_>, writeback: Writeback) -> Result<Self, Error> {
        match &context.shared.scheduler {
            Some(scheduler) => Ok(Self::ByHand(by_hand(context, Arc::clone(scheduler), writeback))),
            None => threads(context, writeback).map(Self::Threads),
        }
    }

    /// Lets the tasks finish what has been accepted, one after the other, and ends them. The log accepts nothing more.
    pub(crate) fn finish(self, context: &TaskContext<'_>) -> Result<(), Error> {
        let TaskContext { shared, queues, catalog, appender } = context;
        match self {
            Self::Threads(threads) => {
                queues.work.stop();
                let appended = threads.appender.join();
                // Another thread may still be writing, or may have left work behind.
                appender.turn();
                queues.sync.stop();
                let synced = threads.syncer.join();
                queues.compaction.stop();
                let compacted = threads.compaction.join();
                queues.flush.stop();
                match (appended, synced, compacted, threads.writeback.join()) {
                    (Ok(()), Ok(()), Ok(()), Ok(result)) => result,
                    _ => Err(Error::Stopped),
                }
            }
            Self::ByHand(TasksByHand { scheduler, ids, writeback }) => {
                queues.work.stop();
                while appender.turn_if_free(false) {}
                queues.sync.stop();
                while syncer::turn_if_due(shared, queues, catalog, true) {}
                ids.into_iter().for_each(|id| scheduler.remove(id));
                queues.compaction.stop();
                queues.compaction.take_now();
                queues.flush.stop();
                let mut writeback = writeback.lock();
                loop {
                    let last = queues.flush.take_now(true).and_then(|request| writeback.serve(request));
                    if let Some(result) = last {
                        return result;
                    }
                }
            }
        }
    }
}

fn threads(context: &TaskContext<'_>, writeback: Writeback) -> Result<EngineThreads, Error> {
    let TaskContext { shared, queues, catalog, appender } = context;
    let refuse = |e| Error::io("start a thread for", shared.layout.dir(), e);
    let (appender, for_syncer, topics) = (Arc::clone(appender), Arc::clone(shared), Arc::clone(catalog));
    let (for_compaction, compaction_queues) = (Arc::clone(shared), Arc::clone(queues));
    let syncer_queues = Arc::clone(queues);
    let appender = spawn("log-appender", move || appender.run()).map_err(refuse)?;
    let syncer = spawn("log-sync", move || syncer::run(&for_syncer, &syncer_queues, &topics)).map_err(refuse)?;
    let writeback = spawn("log-writeback", move || {
        run_in_background();
        writeback::run(writeback)
    });
    let writeback = writeback.map_err(refuse)?;
    let compaction = spawn("log-compaction", move || {
        run_in_background();
        compaction::run(&for_compaction, &compaction_queues)
    });
    let compaction = compaction.map_err(refuse)?;
    Ok(EngineThreads { appender, syncer, compaction, writeback })
}

/// Starts a thread of the log with batch scheduling.
fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> std::io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(|| {
        run_as_batch();
        body()
    })
}

fn by_hand(context: &TaskContext<'_>, scheduler: Arc<SeededScheduler>, writeback: Writeback) -> TasksByHand {
    let TaskContext { shared, queues, catalog, appender } = context;
    let (chance, of, topics) = (Arc::clone(&scheduler), (Arc::clone(shared), Arc::clone(queues)), Arc::clone(catalog));
    let sync = move || syncer::turn_if_due(&of.0, &of.1, &topics, chance.chance(LATE_SYNCS_PERCENT));
    let writeback = Arc::new(parking_lot::Mutex::new(writeback));
    let (chance, own, requests) = (Arc::clone(&scheduler), Arc::clone(&writeback), Arc::clone(queues));
    let flush = move || {
        let request = requests.flush.take_now(chance.chance(LATE_FLUSHES_PERCENT));
        // Only the last turn has a result, and `finish` takes that one.
        request.map(|request| drop(own.lock().serve(request))).is_some()
    };
    let of = (Arc::clone(shared), Arc::clone(queues));
    let compact = move || compaction::pass_if_due(&of.0, &of.1);
    let (sync, flush) = (scheduler.add("log-sync", sync), scheduler.add("log-writeback", flush));
    let (appender, turns) = (Arc::clone(appender), Arc::clone(&scheduler));
    // Those that free journal files cannot do so while the appender stops them in the middle.
    let append = move || appender.turn_if_free(turns.is_in_turn(sync) || turns.is_in_turn(flush));
    let ids = [scheduler.add("log-appender", append), sync, flush, scheduler.add("log-compaction", compact)];
    TasksByHand { scheduler, ids, writeback }
}
