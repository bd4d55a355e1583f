//! Simulated devices that send messages or answer commands, and the figures of the run.
//!
//! ```text
//!  thread sim-0, HTTP                                    thread sim-1 …
//!   agenda: devices by due time ──► a worker per connection takes the earliest, waits until it is due,
//!        ▲                          sends, waits for the answer, counts it
//!        └──────── next due time ◄──────────┘
//! ```
//!
//! Over MQTT each device has its own connection and its own task, which keeps its timetable. The workers send commands
//! over HTTP, as an application does; the devices answer them on other threads.
//!
//! Always true
//! - A device has at most one HTTP request in flight, and one MQTT connection. Its messages keep their order.
//! - Waiting workers hold the devices that are due first. No device is late while a connection is idle.
//! - In the open loop, a message that could not be sent in time is sent late and counts as backlog.

mod args;
mod fleet;
mod http;
mod mqtt;
mod pacing;
mod progress_lines;
mod register;
mod responder;
mod result;
mod run;
mod worker;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

pub use args::{Auth, MessageKind, Method, Protocol, SimArgs};
pub use pacing::Pacing;
pub use result::{Backlog, Conditions, Generator, SimReport};
pub use run::SimProgress;

use crate::{Error, report};
use fleet::{Fleet, MessageCounts};
use progress_lines::ProgressLines;
use responder::CommandResponders;
use run::SimRun;
use worker::finish;

/// Period at which the progress of a running simulation is sampled.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Runs the whole command: registers the devices if requested, lets them send, prints a line a second and the result,
/// and writes it to a file if requested. Ctrl-C ends the sending early; the result covers the time until then.
///
/// # Errors
/// Two options contradict each other, the registry refuses a request, or a file cannot be written. Refused messages
/// are counted in the result; the call returns [`Error::NoneAccepted`] if all were refused.
pub async fn run(args: SimArgs) -> Result<SimReport, Error> {
    let stop = CancellationToken::new();
    let _stop_listening = stop.clone().drop_guard();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            tokio::select! {
                Ok(()) = tokio::signal::ctrl_c() => stop.cancel(),
                () = stop.cancelled() => {}
            }
        }
    });
    if args.register {
        let bar = ProgressBar::new(args.devices).with_style(style("registering {wide_bar} {pos}/{len}"));
        register(&args, &stop, |done| bar.set_position(done)).await?;
        bar.finish_and_clear();
    }
    let mut lines = ProgressLines::default();
    let show = |progress| {
        if let Some(line) = lines.of(&progress) {
            // A reader that is gone does not hold up the devices; the result's own failure is told.
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
    };
    let report = measure(&args, &stop, show).await?;
    if let Some(path) = &args.json {
        report::write_json(path, &report)?;
    }
    let printed = write!(std::io::stdout().lock(), "{report}");
    printed.map_err(|source| Error::Write { path: "standard output".into(), source })?;
    report.ensure_some_accepted()?;
    Ok(report)
}

/// Registers the tenant and all devices with their passwords. Existing devices keep everything but their passwords.
/// Calls `done` with the number of registered devices. Ends early, without an error, once `stop` is cancelled.
///
/// # Errors
/// [`Error::Registry`] or [`Error::NoAnswer`] for the first request that fails.
pub async fn register(args: &SimArgs, stop: &CancellationToken, done: impl FnMut(u64)) -> Result<(), Error> {
    register::all(args, stop, done).await
}

/// Lets the devices send until the duration or the count is reached, or `stop` is cancelled, then waits for the answers
/// in flight. Calls `observe` with the progress ten times a second.
///
/// # Errors
/// Two options contradict each other, or a thread could not be started.
pub async fn measure(
    args: &SimArgs,
    stop: &CancellationToken,
    mut observe: impl FnMut(SimProgress),
) -> Result<SimReport, Error> {
    // Dropping this future stops the generator threads.
    let stop = stop.child_token();
    let _stop_threads = stop.clone().drop_guard();
    let responders = CommandResponders::start(args, &stop).await?;
    let run = Arc::new(SimRun::new(args, stop)?);
    responders.count_from(run.measured_from);
    let fleets = Fleet::all(args, run.start)?;
    let threads =
        fleets.iter().enumerate().map(|(index, fleet)| worker::spawn(index, run.clone(), fleet.clone(), args));
    let threads = threads.collect::<Result<Vec<_>, _>>()?;

    let mut backlog = Backlog::default();
    let mut look = |observe: &mut dyn FnMut(SimProgress)| {
        let progress = run.progress(&fleets);
        backlog = Backlog { at_end: progress.backlog, max: backlog.max.max(progress.backlog) };
        observe(progress);
        backlog
    };
    let mut ticks = interval(LOOK_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut all = std::pin::pin!(finish(threads));
    let mut finished = loop {
        tokio::select! {
            finished = &mut all => break finished?,
            _ = ticks.tick() => { look(&mut observe); }
        }
    };
    let backlog = look(&mut observe);
    finished.extend(responders.end().await?);
    let tally = fleets.iter().fold(MessageCounts::default(), |sum, fleet| sum.plus(&fleet.lock().tally));
    Ok(SimReport::new(args, &run, tally, &finished, backlog))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
