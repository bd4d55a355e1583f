//! Devices that answer commands. Each device waits for commands over MQTT or in a long poll over HTTP and answers with
//! the payload of the command. The simulation measures the application that sends the commands.

mod http;
mod mqtt;

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::run::CONNECT_REST;
use super::worker::{CpuTime, ThreadResult, finish, on_thread};
use super::{MessageKind, Protocol, SimArgs};
use crate::{Error, RequestFailure};

/// Status of every answer to a command.
const STATUS: u16 = 200;

/// Threads of the responding devices. Dropping it ends them.
#[derive(Debug)]
pub(super) struct CommandResponders {
    threads: Vec<oneshot::Receiver<ThreadResult>>,
    measured_from: watch::Sender<Option<Instant>>,
    /// Separate from the run's token, because devices answer commands that are in flight at its end.
    stop: CancellationToken,
}

/// A device drops its sender once it listens or has failed to. No value is ever sent.
type ReadySignal = Option<mpsc::Sender<Infallible>>;

impl Drop for CommandResponders {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl CommandResponders {
    /// Starts the devices if the run sends commands. Returns once each device listens or has failed
    /// to; failed devices try again.
    pub(super) async fn start(args: &SimArgs, stop: &CancellationToken) -> Result<Self, Error> {
        args.check()?;
        let mut answering =
            Self { threads: Vec::new(), measured_from: watch::Sender::new(None), stop: CancellationToken::new() };
        if args.kind != MessageKind::Command {
            return Ok(answering);
        }
        let devices = Arc::new(Responder::of(args)?);
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

    /// Sets the time from which the CPU time of the devices counts.
    pub(super) fn count_from(&self, measured_from: Instant) {
        self.measured_from.send_replace(Some(measured_from));
    }

    /// Ends all devices and returns the results of their threads.
    pub(super) async fn end(mut self) -> Result<Vec<ThreadResult>, Error> {
        self.stop.cancel();
        finish(std::mem::take(&mut self.threads)).await
    }
}

enum Responder {
    Http(http::HttpResponder),
    Mqtt(mqtt::MqttResponder),
}

impl Responder {
    fn of(args: &SimArgs) -> Result<Self, Error> {
        Ok(match args.protocol {
            Protocol::Http => Self::Http(http::HttpResponder::of(args)?),
            Protocol::Mqtt => Self::Mqtt(mqtt::MqttResponder::of(args)?),
        })
    }

    /// Listens and answers until the connection breaks.
    async fn serve(&self, number: u64, ready: &mut ReadySignal) -> RequestFailure {
        match self {
            Self::Http(devices) => devices.serve(number, ready).await,
            Self::Mqtt(devices) => devices.serve(number, ready).await,
        }
    }
}

/// Runs the devices of one thread.
async fn listen(
    devices: Arc<Responder>,
    numbers: impl Iterator<Item = u64>,
    ready: mpsc::Sender<Infallible>,
    mut measured_from: watch::Receiver<Option<Instant>>,
    stop: CancellationToken,
) -> ThreadResult {
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
    ThreadResult { at: None, cpu: cpu.taken().await }
}
