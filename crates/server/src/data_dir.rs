//! The data directory while a backup is being put into it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

/// A directory in the data directory, where a restore builds.
pub(crate) const RESTORING: &str = ".restoring";

/// Refuses a data directory in which a restore was cut off. Once the log is in its place, a restore is complete.
pub(crate) fn check_finished(data_dir: &Path) -> anyhow::Result<()> {
    let building = data_dir.join(RESTORING);
    if !building.exists() {
        return Ok(());
    }
    if !data_dir.join("log").exists() {
        bail!("a restore into {} was cut off; run 'millstream restore' again", data_dir.display());
    }
    fs::remove_dir(&building).with_context(|| format!("cannot remove {}", building.display()))
}
