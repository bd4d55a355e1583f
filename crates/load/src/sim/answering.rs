//! The devices' side of commands: each waits for them, over MQTT or in requests that wait, and answers what it is told with
//! the same payload. What is measured is the application's side, which sends them.

mod http;
mod mqtt;

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::worker::{CONNECT_REST, CpuTime, Finished, finish, on_thread};
use super::{MessageKind, Protocol, SimArgs};
use crate::{Error, Failure};

/// The status with which every command is answered.
const STATUS: u16 = 200;

/// All devices, listening until they are ended or this is dropped.
#[derive(Debug)]
pub(super) struct Answering {
    threads: Vec<oneshot::Receiver<Finished>>,
    measured_from: watch::Sender<Option<Instant>>,
    /// Theirs alone: they answer what is under way when nothing more is sent.
    stop: CancellationToken,
}

/// Dropped by a device once it listens, or once it has failed to. Nothing is ever sent.
type Ready = Option<mpsc::Sender<Infallible>>;

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Answering {
    /// Lets every device listen, if commands are what is simulated; returns once each does or has failed to. Those that
    /// failed try again.
    pub(super) async fn start(args: &SimArgs, stop: &CancellationToken) -> Result<Self, Error> {
        args.check()?;
        let mut answering =
            Self { threads: Vec::new(), measured_from: watch::Sender::new(None), stop: CancellationToken::new() };
        if args.kind != MessageKind::Command {
            return Ok(answering);
        }
        let devices = Arc::new(Devices::of(args)?);
        let (ready, mut listening) = mpsc::channel(1);
        for thread in 0..args.threads() {
            let numbers = (thread as u64..args.devices).step_by(args.threads());
            let (devices, ready, stop) = (devices.clone(), ready.clone(), answering.stop.clone());
            let measured_from = answering.measured_from.subscribe();
            let work = move || listen(devices, numbers, ready, measured_from, stop);
            answering.threads.push(on_thread(format!("sim-device-{thread}"), work)?);
        }
        drop(ready);
        tokio::select! { _ = listening.recv() => {}, () = stop.cancelled() => {} }
        Ok(answering)
    }

    /// From when the CPU time of the devices counts.
    pub(super) fn count_from(&self, measured_from: Instant) {
        self.measured_from.send_replace(Some(measured_from));
    }

    /// Ends all; what they needed.
    pub(super) async fn end(mut self) -> Result<Vec<Finished>, Error> {
        self.stop.cancel();
        finish(std::mem::take(&mut self.threads)).await
    }
}

/// How devices listen.
enum Devices {
    Http(http::Devices),
    Mqtt(mqtt::Devices),
}

impl Devices {
    fn of(args: &SimArgs) -> Result<Self, Error> {
        Ok(match args.protocol {
            Protocol::Http => Self::Http(http::Devices::of(args)?),
            Protocol::Mqtt => Self::Mqtt(mqtt::Devices::of(args)?),
        })
    }

    /// Listens and answers until the connection breaks.
    async fn serve(&self, number: u64, ready: &mut Ready) -> Failure {
        match self {
            Self::Http(devices) => devices.serve(number, ready).await,
            Self::Mqtt(devices) => devices.serve(number, ready).await,
        }
    }
}

/// The devices of one thread.
async fn listen(
    devices: Arc<Devices>,
    numbers: impl Iterator<Item = u64>,
    ready: mpsc::Sender<Infallible>,
    mut measured_from: watch::Receiver<Option<Instant>>,
    stop: CancellationToken,
) -> Finished {
    let mut tasks = JoinSet::new();
    for number in numbers {
        let (devices, mut ready) = (devices.clone(), Some(ready.clone()));
        tasks.spawn(async move {
            loop {
                devices.serve(number, &mut ready).await;
                ready = None;
                sleep(CONNECT_REST).await;
            }
        });
    }
    drop(ready);
    let begin = async move {
        let told = measured_from.wait_for(Option::is_some).await.ok().and_then(|from| *from);
        told.unwrap_or_else(Instant::now)
    };
    let cpu = CpuTime::since(begin);
    stop.cancelled().await;
    Finished { at: None, cpu: cpu.taken().await }
}
