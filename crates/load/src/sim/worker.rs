//! Generator threads, each with a task per connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use super::http::{self, Calls};
use super::mqtt::{self, Letters};
use super::{MessageKind, Pacing, Progress, Protocol, SimArgs, between};
use crate::Error;
use crate::client::Target;
use crate::cpu::thread_cpu;

/// How long a connection rests after it could not be opened, so that an absent server is not called in a tight loop.
pub(super) const CONNECT_REST: Duration = Duration::from_millis(100);

/// What all threads of a run know.
#[derive(Debug)]
pub(crate) struct Run {
    pub(super) target: Target,
    pub(super) pacing: Pacing,
    pub(super) period: Duration,
    connections: usize,
    threads: usize,
    /// Messages that may still be begun.
    tickets: AtomicU64,
    count: Option<u64>,
    pub(crate) start: Instant,
    /// End of the warm-up.
    pub(crate) measured_from: Instant,
    /// `None`: only the count ends the run.
    pub(super) end: Option<Instant>,
    pub(super) stop: CancellationToken,
    /// When a worker first found that the run is over.
    over: OnceLock<Instant>,
}

/// How a thread fared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    /// When its last answer was in; `None` if it waits for none.
    pub(crate) at: Option<Instant>,
    /// CPU time that it used after the warm-up.
    pub(crate) cpu: Duration,
}

/// Whether, and how, a message's time has come.
pub(super) enum Turn {
    /// It had to wait for its time.
    Waited,
    /// Its time had come before a connection was free.
    Late,
    /// The run is over.
    Over,
}

impl Run {
    pub(crate) fn new(args: &SimArgs, stop: CancellationToken) -> Result<Self, Error> {
        args.check()?;
        let start = Instant::now();
        let measured_from = start + args.warm_up;
        Ok(Self {
            target: args.target()?,
            pacing: args.pacing,
            period: args.period,
            connections: args.connections(),
            threads: args.threads(),
            tickets: AtomicU64::new(args.count.unwrap_or(u64::MAX)),
            count: args.count,
            start,
            measured_from,
            end: measured_from.checked_add(args.duration()),
            stop,
            over: OnceLock::new(),
        })
    }

    /// The figures so far.
    pub(crate) fn progress(&self, fleets: &[Arc<Mutex<Fleet>>]) -> Progress {
        let now = self.over.get().copied().unwrap_or_else(Instant::now);
        let elapsed = between(self.start, self.end.map_or(now, |end| end.min(now)));
        let mut progress = Progress { elapsed, sent: 0, accepted: 0, backlog: 0 };
        let (mut due, mut started) = (0, 0);
        for fleet in fleets {
            let fleet = fleet.lock();
            progress.sent += fleet.tally.sent();
            progress.accepted += fleet.tally.accepted;
            started += fleet.started;
            due += fleet.messages_due(self.period, elapsed);
        }
        if self.pacing == Pacing::Open {
            progress.backlog = self.count.map_or(due, |count| due.min(count)).saturating_sub(started);
        }
        progress
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over_at(Instant::now())
    }

    pub(super) fn is_over_at(&self, now: Instant) -> bool {
        let over = self.end.is_some_and(|end| now >= end) || self.stop.is_cancelled();
        if over {
            self.over.get_or_init(|| now);
        }
        over
    }

    /// Rests after a connection could not be opened.
    pub(super) async fn rest(&self) {
        tokio::select! { () = self.stop.cancelled() => {}, () = sleep(CONNECT_REST) => {} }
    }

    pub(super) async fn wait_until(&self, due: Instant) -> Turn {
        let waited = due > Instant::now();
        if waited {
            let wake = self.end.map_or(due, |end| due.min(end));
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep_until(wake) => {}
            }
        }
        match (self.is_over(), waited) {
            (true, _) => Turn::Over,
            (false, true) => Turn::Waited,
            (false, false) => Turn::Late,
        }
    }

    /// Whether one more message may be begun. The last one ends the run.
    pub(super) fn take_ticket(&self) -> bool {
        if self.count.is_none() {
            return true;
        }
        let taken = self.tickets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() || taken == Ok(1) {
            self.stop.cancel();
        }
        taken.is_ok()
    }
}

/// How the devices of a thread send.
#[derive(Debug)]
enum Sending {
    /// Over so many connections that they share; commands to them, too.
    Http(Arc<Calls>, usize),
    /// Each over its own.
    Mqtt(Arc<Letters>),
}

/// Starts the thread with this index; what is received is its end.
pub(crate) fn spawn(
    index: usize,
    run: Arc<Run>,
    fleet: Arc<Mutex<Fleet>>,
    args: &SimArgs,
) -> Result<oneshot::Receiver<Finished>, Error> {
    let connections = run.connections / run.threads + usize::from(index < run.connections % run.threads);
    let sending = match (args.protocol, args.kind) {
        (Protocol::Http, _) | (_, MessageKind::Command) => {
            Sending::Http(Arc::new(Calls::of(args, fleet.lock().ids())?), connections)
        }
        (Protocol::Mqtt, _) => Sending::Mqtt(Arc::new(Letters::of(args, fleet.lock().ids()))),
    };
    on_thread(format!("sim-{index}"), move || async move { send_all(&run, &fleet, &sending).await })
}

/// Does `work` on a thread of its own with this name; what is received is its end.
pub(super) fn on_thread<W>(
    name: String,
    work: impl FnOnce() -> W + Send + 'static,
) -> Result<oneshot::Receiver<Finished>, Error>
where
    W: Future<Output = Finished>,
{
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|source| Error::Thread { source })?;
    let (done, finished) = oneshot::channel();
    let body = move || {
        // Nobody listens any more when the whole simulation was dropped.
        let _ = done.send(runtime.block_on(work()));
    };
    std::thread::Builder::new().name(name).spawn(body).map_err(|source| Error::Thread { source })?;
    Ok(finished)
}

/// Waits for the ends of threads.
pub(super) async fn finish(threads: Vec<oneshot::Receiver<Finished>>) -> Result<Vec<Finished>, Error> {
    let mut all = Vec::with_capacity(threads.len());
    for thread in threads {
        all.push(thread.await.map_err(|_| Error::ThreadDied)?);
    }
    Ok(all)
}

/// CPU time that a thread uses from a moment on.
#[derive(Debug)]
pub(super) struct CpuTime(JoinHandle<Duration>);

impl CpuTime {
    /// Of the calling thread, from the moment that `begin` gives.
    pub(super) fn since(begin: impl Future<Output = Instant> + Send + 'static) -> Self {
        Self(tokio::spawn(async move {
            sleep_until(begin.await).await;
            thread_cpu()
        }))
    }

    /// What it has used; nothing if the moment has not come.
    pub(super) async fn taken(self) -> Duration {
        match self.0.is_finished() {
            true => self.0.await.map_or(Duration::ZERO, |before| thread_cpu().saturating_sub(before)),
            false => Duration::ZERO,
        }
    }
}

async fn send_all(run: &Arc<Run>, fleet: &Arc<Mutex<Fleet>>, sending: &Sending) -> Finished {
    let mut workers = JoinSet::new();
    match sending {
        Sending::Http(calls, connections) => {
            for _ in 0..*connections {
                workers.spawn(http::work(run.clone(), fleet.clone(), calls.clone()));
            }
        }
        Sending::Mqtt(letters) => {
            let next = || fleet.lock().take();
            while let Some((due, device)) = next() {
                workers.spawn(mqtt::work(run.clone(), fleet.clone(), letters.clone(), device, due));
            }
        }
    }
    let cpu = CpuTime::since(std::future::ready(run.measured_from));
    while workers.join_next().await.is_some() {}
    Finished { at: Some(Instant::now()), cpu: cpu.taken().await }
}
