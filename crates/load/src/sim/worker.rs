//! Generator threads, each with a task per connection.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::fleet::Fleet;
use super::http::{self, DeviceRequests};
use super::mqtt::{self, Publishers};
use super::run::SimRun;
use super::{MessageKind, Protocol, SimArgs};
use crate::Error;
use crate::cpu::thread_cpu;

/// End time and CPU time of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadResult {
    /// Time of the last answer; `None` for threads of responding devices.
    pub(crate) at: Option<Instant>,
    /// CPU time after the warm-up.
    pub(crate) cpu: Duration,
}

/// Protocol and requests of the devices of a thread.
#[derive(Debug)]
enum Transport {
    /// HTTP requests over this number of shared connections; also carries commands to MQTT devices.
    Http(Arc<DeviceRequests>, usize),
    /// MQTT messages; each device has its own connection.
    Mqtt(Arc<Publishers>),
}

/// Starts the thread with this index. The receiver yields its result.
pub(crate) fn spawn(
    index: usize,
    run: Arc<SimRun>,
    fleet: Arc<Mutex<Fleet>>,
    args: &SimArgs,
) -> Result<oneshot::Receiver<ThreadResult>, Error> {
    let connections = run.connections / run.threads + usize::from(index < run.connections % run.threads);
    let sending = match (args.protocol, args.kind) {
        (Protocol::Http, _) | (_, MessageKind::Command) => {
            Transport::Http(Arc::new(DeviceRequests::of(args, fleet.lock().ids())?), connections)
        }
        (Protocol::Mqtt, _) => Transport::Mqtt(Arc::new(Publishers::of(args, fleet.lock().ids())?)),
    };
    on_thread(format!("sim-{index}"), move || async move { send_all(&run, &fleet, &sending).await })
}

/// Runs `work` on a new thread with this name. The receiver yields its result.
pub(super) fn on_thread<W>(
    name: String,
    work: impl FnOnce() -> W + Send + 'static,
) -> Result<oneshot::Receiver<ThreadResult>, Error>
where
    W: Future<Output = ThreadResult>,
{
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|source| Error::Thread { source })?;
    let (done, finished) = oneshot::channel();
    let body = move || {
        // The receiver is gone once the simulation was dropped.
        let _ = done.send(runtime.block_on(work()));
    };
    std::thread::Builder::new().name(name).spawn(body).map_err(|source| Error::Thread { source })?;
    Ok(finished)
}

/// Waits until all threads have ended.
pub(super) async fn finish(threads: Vec<oneshot::Receiver<ThreadResult>>) -> Result<Vec<ThreadResult>, Error> {
    let mut all = Vec::with_capacity(threads.len());
    for thread in threads {
        all.push(thread.await.map_err(|_| Error::ThreadDied)?);
    }
    Ok(all)
}

/// Measures the CPU time of a thread from a start time on.
#[derive(Debug)]
pub(super) struct CpuTime(JoinHandle<Duration>);

impl CpuTime {
    /// Starts measuring the calling thread at the time that `begin` yields.
    pub(super) fn since(begin: impl Future<Output = Instant> + Send + 'static) -> Self {
        Self(tokio::spawn(async move {
            sleep_until(begin.await).await;
            thread_cpu()
        }))
    }

    /// Returns the CPU time so far; zero if the start time has not come.
    pub(super) async fn taken(self) -> Duration {
        match self.0.is_finished() {
            true => self.0.await.map_or(Duration::ZERO, |before| thread_cpu().saturating_sub(before)),
            false => Duration::ZERO,
        }
    }
}

async fn send_all(run: &Arc<SimRun>, fleet: &Arc<Mutex<Fleet>>, sending: &Transport) -> ThreadResult {
    let mut workers = JoinSet::new();
    match sending {
        Transport::Http(requests, connections) => {
            for _ in 0..*connections {
                workers.spawn(http::work(run.clone(), fleet.clone(), requests.clone()));
            }
        }
        Transport::Mqtt(publishers) => {
            let next = || fleet.lock().take();
            while let Some((due, device)) = next() {
                workers.spawn(mqtt::work(run.clone(), fleet.clone(), publishers.clone(), device, due));
            }
        }
    }
    let cpu = CpuTime::since(std::future::ready(run.measured_from));
    while workers.join_next().await.is_some() {}
    ThreadResult { at: Some(Instant::now()), cpu: cpu.taken().await }
}
