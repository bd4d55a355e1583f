//! `millstream demo`: starts a server on a fresh directory and sends a year of real weather to it.
//!
//! The demo uses the same interfaces as real devices: it registers the stations through the registry's API, and they
//! log in with passwords and send at QoS 1 over sockets. A job over their telemetry runs beside them (`demo_job.rs`).

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use millstream_load::replay::{ReplayProgress, Speed, StationProgress, WeatherReplay};
use millstream_load::weather::Weather;
use tokio::sync::watch;

use crate::config::{self, Flags, Loaded};
use crate::demo_job;
use crate::kept_log::ClaimedLog;
use crate::listen::Door;
use crate::live_table;
use crate::logging;
use crate::serve::{Server, StopSignals, keep_files_private, runtime};

const WEATHER: &[u8] = include_bytes!("../../../examples/data/nyc-2013/weather.csv.gz");
const AIRPORTS: &[u8] = include_bytes!("../../../examples/data/nyc-2013/airports.csv");
/// A year in about ten minutes.
const DEFAULT_SPEED: f64 = 52_560.0;
const TENANT: &str = "default";
/// Password of the stations; the server listens on loopback only, and its data is temporary.
const PASSWORD: &str = "nyc-2013";
/// A query to paste: the warmest temperature of each station, every two seconds.
const QUERY: &str = "SELECT $key, MAX(temp) AS warmest, AVG(humid) AS humidity FROM STREAM(20000, TIME) GROUP BY $key WINDOWING TUMBLING(2000, TIME)";
/// Interval of table updates on a terminal, or of lines elsewhere.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Columns of the table: member of the observation, heading, and width.
/// With them a line has less than the 80 characters of a usual terminal.
const COLUMNS: [(&str, &str, usize); 5] = [
    ("temp", "°F", 7),
    ("humid", "humid %", 8),
    ("wind_speed", "wind mph", 9),
    ("precip", "rain in", 8),
    ("pressure", "mbar", 7),
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
    flags.data_dir.get_or_insert_with(|| scratch.path().join("data"));
    flags.settings.insert(0, "logging.level=warn".to_owned());
    let Loaded { config, .. } = config::load(&flags)?;
    let data_dir = config.data_dir.clone();
    ensure_fresh(&data_dir)?;
    logging::start(&config.logging)?;
    keep_files_private();
    let weather = embedded_weather(&scratch.path().join("weather"))?;
    let runtime = runtime(&config)?;
    runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let server = Server::start(&config, &ClaimedLog::default()).await?;
        let ended = tokio::select! {
            ended = demonstrate(&server, arguments, weather, &config.listen.applications, data_dir) => ended,
            () = stop.received() => Ok(()),
        };
        let stopped = server.stop().await;
        ended.and(stopped)
    })
}

/// Refuses a directory with content, because the stations' year would be stored twice.
fn ensure_fresh(data_dir: &Path) -> anyhow::Result<()> {
    let is_fresh = std::fs::read_dir(data_dir).map_or(true, |mut entries| entries.next().is_none());
    anyhow::ensure!(
        is_fresh,
        "the demo wants a fresh directory and {} is not empty; name another with --data-dir, or leave it out for a temporary \
         one, which goes with the demo",
        data_dir.display()
    );
    Ok(())
}

/// Unpacks the observations in the binary.
fn embedded_weather(folder: &Path) -> anyhow::Result<Weather> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("weather.csv.gz"), WEATHER)?;
    std::fs::write(folder.join("airports.csv"), AIRPORTS)?;
    Ok(Weather::read(folder)?)
}

/// The address of a listener without TLS; `None` if that is off.
fn plain_address(server: &Server, name: &str) -> Option<SocketAddr> {
    server.addresses().into_iter().find(|listener| listener.name == name)?.addresses.plain
}

async fn demonstrate(
    server: &Server,
    arguments: &DemoArgs,
    weather: Weather,
    applications: &Door,
    data_dir: PathBuf,
) -> anyhow::Result<()> {
    let url = |name: &str| {
        plain_address(server, name)
            .map(|address| format!("http://{address}"))
            .with_context(|| format!("the demo needs the listener of {name}; do not turn it off"))
    };
    anyhow::ensure!(*applications != Door::Off, "the demo needs the listener of applications; do not turn it off");
    let (applications, devices) = (url("applications")?, url("devices-http")?);
    println!("Millstream demo: a year of weather at three airports of New York, replayed over HTTP\n");
    println!("  console  {applications}/");
    println!("  devices  {devices}/telemetry");
    if let Some(address) = plain_address(server, "kafka") {
        println!("  kafka    {address}");
    }
    if let Some(address) = plain_address(server, "devices-mqtt") {
        println!("  devices  mqtt://{address}");
    }
    println!("  data     {}\n", data_dir.display());
    println!("Ask it something, in another terminal:\n");
    println!("  millstream query --server {applications} '{QUERY}'\n");
    println!("See the job that picks out the hot hours at {applications}/jobs, or by:\n");
    println!("  millstream job list --server {applications}\n");
    let console = millstream_cli::Server::at(&applications, TENANT);
    let speed =
        if arguments.speed > 0.0 { Speed::ObservedSecondsPerSecond(arguments.speed) } else { Speed::AsFastAsPossible };
    let replay = WeatherReplay {
        weather,
        devices_url: devices,
        registry_url: applications,
        registry_token: None,
        tenant: TENANT.to_owned(),
        password: PASSWORD.to_owned(),
        speed,
    };
    replay.register().await.context("cannot register the weather stations")?;
    demo_job::submit(&console).await.context("cannot submit the job of the hot hours")?;
    let (sender, progress) = watch::channel(ReplayProgress::default());
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
async fn draw_until_done(mut progress: watch::Receiver<ReplayProgress>) {
    let terminal = std::io::stdout().is_terminal();
    let interval = if terminal { DRAW_INTERVAL } else { LINE_INTERVAL };
    loop {
        let is_last = progress.has_changed().is_err();
        let now = progress.borrow_and_update().clone();
        // The demo continues without its terminal.
        let _ = if terminal {
            live_table::draw(&table(&now))
        } else {
            let line = format!("{} of {} observations\n", grouped(now.accepted), grouped(now.total));
            let mut out = std::io::stdout().lock();
            out.write_all(line.as_bytes()).and_then(|()| out.flush())
        };
        if is_last {
            live_table::finish();
            return;
        }
        let _ = tokio::time::timeout(interval, ended(&mut progress)).await;
    }
}

/// Resolves when the replay sends no more.
async fn ended(progress: &mut watch::Receiver<ReplayProgress>) {
    while progress.changed().await.is_ok() {}
}

fn table(progress: &ReplayProgress) -> String {
    const BAR: u64 = 30;
    let filled = (progress.accepted * BAR).checked_div(progress.total).unwrap_or_default();
    let bar: String = (0..BAR).map(|at| if at < filled { '█' } else { '░' }).collect();
    let failures: u64 = progress.failures.values().sum();
    let trouble = if failures > 0 { format!(", {failures} retries") } else { String::new() };
    let mut text =
        format!("{bar} {} of {} observations{trouble}\n\n", grouped(progress.accepted), grouped(progress.total));
    text.push_str(&format!("{:<4}{:<20}{:<16}", "", "station", "observed (UTC)"));
    for (_, heading, width) in COLUMNS {
        text.push_str(&format!("{heading:>width$}"));
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
    // To the minute: observations are of full hours.
    let observed: String = observed.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect();
    let mut text = format!("{:<4}{:<20}{observed:<16}", station.code, station.name);
    for (measure, _, width) in COLUMNS {
        let value = progress.latest.as_ref().and_then(|latest| latest.measure(measure));
        let shown = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        text.push_str(&format!("{shown:>width$}"));
    }
    text.push('\n');
    text
}

/// Groups the digits, such as 26,115 for 26115.
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

    #[test]
    fn every_line_of_the_table_fits_on_a_terminal_of_80_columns() {
        let dir = tempfile::tempdir().unwrap();
        let weather = embedded_weather(dir.path()).unwrap();
        let mut progress = ReplayProgress { total: 26_115, accepted: 26_115, ..ReplayProgress::default() };
        progress.stations = weather
            .stations()
            .iter()
            .map(|station| StationProgress { station: station.clone(), accepted: 0, latest: None })
            .collect();
        for observation in weather.observations() {
            let of_station = progress.stations.iter_mut().find(|of| of.station.code == observation.station).unwrap();
            of_station.latest = Some(observation.clone());
            for line in table(&progress).lines() {
                assert!(line.chars().count() < 80, "{line}");
            }
        }
        let last = row(&progress.stations[1]);
        assert!(last.starts_with("JFK John F Kennedy Intl 2013-12-30 23:00"), "{last}");
    }

    #[test]
    fn a_directory_with_something_in_it_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ensure_fresh(dir.path()).is_ok() && ensure_fresh(&dir.path().join("absent")).is_ok());
        std::fs::create_dir(dir.path().join("log")).unwrap();
        let refusal = ensure_fresh(dir.path()).unwrap_err().to_string();
        assert!(refusal.contains(dir.path().to_str().unwrap()) && refusal.contains("--data-dir"), "{refusal}");
    }
}
