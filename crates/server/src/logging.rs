//! Log lines on standard error.

use std::io::IsTerminal as _;
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use millstream_context::LogLevel;
use millstream_types::SystemClock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::{LogFormat, Logging};
use crate::live_table::StderrAboveTable;
use crate::sparing::Sparing;

/// Filter of log lines, set when logging starts.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

pub(crate) fn start(logging: &Logging) -> anyhow::Result<()> {
    let levels = EnvFilter::try_new(&logging.level)
        .with_context(|| format!("logging.level = '{}': use error, warn, info, debug or trace", logging.level))?;
    let (filter, handle) = reload::Layer::new(levels);
    let lines = tracing_subscriber::registry().with(filter);
    let writer = Sparing::new(|| StderrAboveTable, logging.format, Arc::new(SystemClock::default()));
    let started = match logging.format {
        LogFormat::Text => {
            let text = fmt::layer().with_writer(writer);
            // Colours are useful on a terminal only.
            let text = if std::io::stderr().is_terminal() { text } else { text.with_ansi(false) };
            lines.with(text).try_init()
        }
        LogFormat::Json => lines.with(fmt::layer().json().with_writer(writer)).try_init(),
    };
    started.map_err(|e| anyhow::anyhow!("cannot start logging: {e}"))?;
    // Logging starts only once.
    let _ = FILTER.set(handle);
    Ok(())
}

/// Returns the log level, which an operator may change.
pub(crate) fn level() -> Arc<dyn LogLevel> {
    Arc::new(ProcessLevel)
}

struct ProcessLevel;

impl LogLevel for ProcessLevel {
    fn level(&self) -> LevelFilter {
        let known = FILTER.get().and_then(|filter| filter.with_current(EnvFilter::max_level_hint).ok());
        known.flatten().unwrap_or(LevelFilter::OFF)
    }

    fn set_level(&self, level: LevelFilter) {
        let Some(filter) = FILTER.get() else { return };
        if let Err(error) = filter.reload(EnvFilter::default().add_directive(level.into())) {
            tracing::error!(%error, %level, "the level of the log cannot be changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_changed_while_the_process_runs() {
        start(&Logging { level: "millstream=warn".to_owned(), ..Logging::default() }).unwrap();
        let level = level();
        assert_eq!(level.level(), LevelFilter::WARN);
        assert!(!tracing::enabled!(tracing::Level::DEBUG));
        level.set_level(LevelFilter::DEBUG);
        assert_eq!(level.level(), LevelFilter::DEBUG);
        assert!(tracing::enabled!(tracing::Level::DEBUG));
        level.set_level(LevelFilter::OFF);
        assert_eq!(level.level(), LevelFilter::OFF);
        assert!(!tracing::enabled!(tracing::Level::ERROR));
    }
}
