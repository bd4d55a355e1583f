//! `millstream demo`: a server on a fresh directory, and a year of real weather sent to it over HTTP.
//!
//! Nothing is short-cut: the stations are registered through the registry's API, log in with passwords and send at
//! QoS 1 over sockets, as any device would.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use millstream_load::replay::{Progress, Replay, Speed, StationProgress};
use millstream_load::weather::Weather;
use tokio::sync::watch;

use crate::config::{self, Door, Flags, Loaded};
use crate::logging;
use crate::serve::{Server, StopSignals, runtime};

const WEATHER: &[u8] = include_bytes!("../../../examples/data/nyc-2013/weather.csv.gz");
const AIRPORTS: &[u8] = include_bytes!("../../../examples/data/nyc-2013/airports.csv");
/// A year in about ten minutes.
const DEFAULT_SPEED: f64 = 52_560.0;
const TENANT: &str = "default";
/// The stations' password, on a server that listens on loopback only and forgets everything when it ends.
const PASSWORD: &str = "nyc-2013";
/// How often the table is drawn on a terminal, and a line printed elsewhere.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// What the table shows of an observation: member, heading.
const COLUMNS: [(&str, &str); 5] = [
    ("temp", "temp °F"),
    ("humid", "humid %"),
    ("wind_speed", "wind mph"),
    ("precip", "rain in"),
    ("pressure", "mbar"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Observed seconds per second; 0 is as fast as possible [a year takes ten minutes at 52560]
    #[arg(long, default_value_t = DEFAULT_SPEED, value_name = "FACTOR")]
    speed: f64,
    /// End when everything has been sent, instead of going on to serve
    #[arg(long)]
    exit: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(crate) fn run(arguments: &DemoArgs) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mut flags = arguments.flags.clone();
    let data_dir = flags.data_dir.get_or_insert_with(|| scratch.path().join("data")).clone();
    flags.settings.insert(0, "logging.level=warn".to_owned());
    let Loaded { config, .. } = config::load(&flags)?;
    logging::start(&config.logging)?;
    let weather = embedded_weather(&scratch.path().join("weather"))?;
    let runtime = runtime(&config)?;
    runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let server = Server::start(&config).await?;
        let ended = tokio::select! {
            ended = demonstrate(&server, arguments, weather, &config.listen.applications, data_dir) => ended,
            () = stop.received() => Ok(()),
        };
        let stopped = server.stop().await;
        ended.and(stopped)
    })
}

/// The observations that the binary carries.
fn embedded_weather(folder: &std::path::Path) -> anyhow::Result<Weather> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("weather.csv.gz"), WEATHER)?;
    std::fs::write(folder.join("airports.csv"), AIRPORTS)?;
    Ok(Weather::read(folder)?)
}

async fn demonstrate(
    server: &Server,
    arguments: &DemoArgs,
    weather: Weather,
    applications: &Door,
    data_dir: PathBuf,
) -> anyhow::Result<()> {
    let url = |name: &str| {
        let found = server.addresses().find(|(listener, _)| *listener == name);
        found
            .map(|(_, address)| format!("http://{address}"))
            .with_context(|| format!("the demo needs the listener of {name}; do not turn it off"))
    };
    anyhow::ensure!(*applications != Door::Off, "the demo needs the listener of applications; do not turn it off");
    let (applications, devices) = (url("applications")?, url("devices-http")?);
    println!("Millstream demo: a year of weather at three airports of New York, replayed over HTTP\n");
    println!("  console  {applications}/");
    println!("  devices  {devices}/telemetry");
    if let Some(address) = server.kafka_address() {
        println!("  kafka    {address}");
    }
    if let Some(address) = server.mqtt_address() {
        println!("  devices  mqtt://{address}");
    }
    println!("  data     {}\n", data_dir.display());
    let speed =
        if arguments.speed > 0.0 { Speed::ObservedSecondsPerSecond(arguments.speed) } else { Speed::AsFastAsPossible };
    let replay = Replay {
        weather,
        devices_url: devices,
        registry_url: applications,
        registry_token: None,
        tenant: TENANT.to_owned(),
        password: PASSWORD.to_owned(),
        speed,
    };
    replay.register().await.context("cannot register the weather stations")?;
    let (sender, progress) = watch::channel(Progress::default());
    let sending = async move { replay.run(&sender).await };
    let both = async { tokio::join!(sending, draw_until_done(progress)).0 };
    println!("\nAll {} observations were accepted.", grouped(both.await?.accepted));
    if !arguments.exit {
        println!("The server goes on; Ctrl-C ends it.");
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// Shows how far the replay has come until it sends no more.
async fn draw_until_done(mut progress: watch::Receiver<Progress>) {
    let terminal = std::io::stdout().is_terminal();
    let interval = if terminal { DRAW_INTERVAL } else { LINE_INTERVAL };
    let mut lines_drawn = 0;
    loop {
        let is_last = progress.has_changed().is_err();
        let now = progress.borrow_and_update().clone();
        let text = if terminal {
            let table = table(&now);
            let erase = if lines_drawn > 0 { format!("\x1b[{lines_drawn}A\x1b[J") } else { String::new() };
            lines_drawn = table.lines().count();
            erase + &table
        } else {
            format!("{} of {} observations\n", grouped(now.accepted), grouped(now.total))
        };
        // A terminal that has gone away is no reason to end the demo.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        drop(out);
        if is_last {
            return;
        }
        let _ = tokio::time::timeout(interval, ended(&mut progress)).await;
    }
}

/// Resolves when the replay sends no more.
async fn ended(progress: &mut watch::Receiver<Progress>) {
    while progress.changed().await.is_ok() {}
}

fn table(progress: &Progress) -> String {
    const BAR: u64 = 40;
    let filled = (progress.accepted * BAR).checked_div(progress.total).unwrap_or_default();
    let bar: String = (0..BAR).map(|at| if at < filled { '█' } else { '░' }).collect();
    let failures: u64 = progress.failures.values().sum();
    let trouble = if failures > 0 { format!(", {failures} attempts repeated") } else { String::new() };
    let mut text =
        format!("{bar} {} of {} observations{trouble}\n\n", grouped(progress.accepted), grouped(progress.total));
    text.push_str(&format!("{:<5}{:<24}{:<22}", "", "station", "observed"));
    for (_, heading) in COLUMNS {
        text.push_str(&format!("{heading:>10}"));
    }
    text.push('\n');
    for station in &progress.stations {
        text.push_str(&row(station));
    }
    text
}

fn row(progress: &StationProgress) -> String {
    let station = &progress.station;
    let observed = progress.latest.as_ref().map_or("", |latest| latest.time.as_str());
    let mut text = format!("{:<5}{:<24}{observed:<22}", station.code, station.name);
    for (measure, _) in COLUMNS {
        let value = progress.latest.as_ref().and_then(|latest| latest.measure(measure));
        let shown = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        text.push_str(&format!("{shown:>10}"));
    }
    text.push('\n');
    text
}

/// 26115 as 26,115.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (count, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (26_115, "26,115"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(count), expected);
        }
    }
}
