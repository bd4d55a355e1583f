//! Simulated devices that send as the real ones would, and how their server took it.
//!
//! ```text
//!  thread sim-0, HTTP                                    thread sim-1 …
//!   agenda: devices by due time ──► a worker per connection takes the earliest, waits until it is due,
//!        ▲                          sends, waits for the answer, counts it
//!        └──────── next due time ◄──────────┘
//! ```
//!
//! Over MQTT each device has a connection and a task of its own, which keeps its timetable. Commands are sent by the
//! workers as an application does, over HTTP; devices listen and answer on threads of their own.
//!
//! Always true
//! - A device has at most one HTTP request under way, and its MQTT messages leave over one connection: they keep their order.
//! - Workers that wait hold the earliest devices; no device is late while a connection is idle.
//! - What was due and could not be sent is never forgotten: it is late in the open loop, and counted as backlog.

mod answering;
mod args;
mod fleet;
mod http;
mod mqtt;
mod pacing;
mod register;
mod result;
mod worker;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

pub use args::{Auth, MessageKind, Method, Protocol, SimArgs};
pub use pacing::Pacing;
pub use result::{Backlog, Conditions, Generator, SimReport};

use crate::{Error, report};
use answering::Answering;
use fleet::{Fleet, Tally};
use worker::{Run, finish};

/// How often the figures of a running simulation are looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// The figures of a running simulation, without those of its warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start, warm-up included.
    pub elapsed: Duration,
    /// Messages whose sending ended, in whatever way.
    pub sent: u64,
    /// Those answered with a 2xx status, or confirmed.
    pub accepted: u64,
    /// Messages that are due and not sent yet; always 0 in the closed loop.
    pub backlog: u64,
}

/// The whole command: registers the devices if asked to, lets them send, shows a bar on a terminal, prints the result
/// and writes it to a file if asked to. Ctrl-C ends the sending early; the result is that of the time until then.
///
/// # Errors
/// An option that contradicts another, a registry that refuses, a file that cannot be written. Devices' refused
/// messages are figures of the result.
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
    let bar = bar(&args);
    let report = measure(&args, &stop, |progress| show(&bar, &args, progress)).await?;
    bar.finish_and_clear();
    if let Some(path) = &args.json {
        report::write_json(path, &report)?;
    }
    let printed = write!(std::io::stdout().lock(), "{report}");
    printed.map_err(|source| Error::Write { path: "standard output".into(), source })?;
    Ok(report)
}

/// Registers the tenant and all devices with their passwords; what exists already is left as it is, except passwords.
/// `done` hears how many devices are registered. Ends early, without an error, once `stop` is cancelled.
///
/// # Errors
/// [`Error::Registry`] or [`Error::NoAnswer`] at the first thing that cannot be registered.
pub async fn register(args: &SimArgs, stop: &CancellationToken, done: impl FnMut(u64)) -> Result<(), Error> {
    register::all(args, stop, done).await
}

/// Lets the devices send until the duration or the count is reached, or `stop` is cancelled, then waits for the answers
/// under way. `observe` hears the figures ten times a second.
///
/// # Errors
/// Options that contradict each other, or a thread that could not be started.
pub async fn measure(
    args: &SimArgs,
    stop: &CancellationToken,
    mut observe: impl FnMut(Progress),
) -> Result<SimReport, Error> {
    // When this future is dropped, so are the generator threads' reasons to go on.
    let stop = stop.child_token();
    let _stop_threads = stop.clone().drop_guard();
    let answering = Answering::start(args, &stop).await?;
    let run = Arc::new(Run::new(args, stop)?);
    answering.count_from(run.measured_from);
    let fleets = Fleet::all(args, run.start)?;
    let threads =
        fleets.iter().enumerate().map(|(index, fleet)| worker::spawn(index, run.clone(), fleet.clone(), args));
    let threads = threads.collect::<Result<Vec<_>, _>>()?;

    let mut backlog = Backlog::default();
    let mut look = |observe: &mut dyn FnMut(Progress)| {
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
    finished.extend(answering.end().await?);
    let tally = fleets.iter().fold(Tally::default(), |sum, fleet| sum.plus(&fleet.lock().tally));
    Ok(SimReport::new(args, &run, tally, &finished, backlog))
}

fn bar(args: &SimArgs) -> ProgressBar {
    let length = args.count.unwrap_or_else(|| args.warm_up.saturating_add(args.duration()).as_millis() as u64);
    ProgressBar::new(length).with_style(style("{wide_bar} {msg}"))
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn show(bar: &ProgressBar, args: &SimArgs, progress: Progress) {
    let Progress { elapsed, sent, accepted, backlog } = progress;
    bar.set_position(if args.count.is_some() { sent } else { elapsed.as_millis() as u64 });
    let seconds = elapsed.saturating_sub(args.warm_up).as_secs_f64();
    let rate = if seconds > 0.0 { accepted as f64 / seconds } else { 0.0 };
    let failed = sent - accepted;
    bar.set_message(format!("{accepted} accepted ({rate:.0}/s), {failed} failed, {backlog} waiting"));
}

/// Time from one moment to a later one; zero when they are the other way round.
fn between(earlier: Instant, later: Instant) -> Duration {
    later.saturating_duration_since(earlier)
}
