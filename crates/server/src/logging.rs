//! Log lines on standard error.

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Logging};

/// Starts logging for the whole process.
pub(crate) fn start(logging: &Logging) -> anyhow::Result<()> {
    let levels = EnvFilter::try_new(&logging.level)
        .with_context(|| format!("logging.level = '{}': use error, warn, info, debug or trace", logging.level))?;
    let lines = tracing_subscriber::fmt().with_env_filter(levels).with_writer(std::io::stderr);
    let started = match logging.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|e| anyhow::anyhow!("cannot start logging: {e}"))
}
