//! Suite `context`: entities, as the older system's published figures count them.
//!
//! - history: the last points and hourly averages out of a million points of one attribute ([`history`]).

mod history;

use anyhow::Context as _;

use super::machine::Machine;
use super::{Length, Report};

/// Runs the suite.
pub(super) fn measure(length: Length) -> anyhow::Result<Report> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let (cases, aims) = history::measure(&machine, dir.path(), length)?;
    let heading = format!(
        "History is called as a library and fed with records as the owners of entities write them; reads come over HTTP on \
         one kept connection, so that its client shares the cores.\n{machine}."
    );
    Ok(Report { heading, cases, notes: machine.warning().into_iter().chain(aims).collect() })
}
