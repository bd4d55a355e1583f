//! Suite `context`: entities, their queries, subscriptions and history.
//!
//! - updates and reads of single entities, and what an entity takes ([`updates`]);
//! - a start over many, queries among them, updates beside lists ([`queries`]);
//! - what subscriptions cost ([`subscriptions`]), and other tenants ([`tenants`]);
//! - how long notifications are on their way ([`notifications`]);
//! - history: the last points and hourly averages out of a million points of one attribute ([`history`]).

mod aims;
pub(crate) mod fixture;
mod history;
mod notifications;
pub(crate) mod population;
mod queries;
mod subscriptions;
mod tenants;
mod updates;

use anyhow::Context as _;

use super::cores::Cores;
use super::machine::Machine;
use super::{Length, Report, RunArgs};
use aims::Findings;
use fixture::{ContextBench, ContextWorkload};

#[derive(Debug, clap::Args)]
pub(super) struct ContextArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Runs only these cases, not all
    #[arg(long, value_enum)]
    only: Option<ContextCase>,
}

/// Cases that are measured on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ContextCase {
    /// The last points and averages of a million
    History,
    /// Updates and reads of single entities, then a start over many, queries, updates beside lists
    Entities,
    /// Cost of subscriptions for an update
    Subscriptions,
    /// Delays of notifications, alone and beside a receiver that hangs
    Delays,
    /// Cost of idle tenants for an update
    Tenants,
}

pub(super) fn measure(arguments: &ContextArgs) -> anyhow::Result<Report> {
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    let length = arguments.run.length();
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let mut findings = Findings::default();
    let suite = ContextBench { plan: ContextWorkload::of(length), machine: machine.clone(), cores: Cores::shared() };
    if wants(ContextCase::Delays) {
        suite.delays(&mut findings)?;
    }
    if wants(ContextCase::Tenants) {
        suite.tenants(&mut findings)?;
    }
    if wants(ContextCase::History) {
        let (cases, aims) = history::measure(&machine, dir.path(), length)?;
        findings.cases.extend(cases);
        findings.notes.extend(aims);
    }
    measure_apart(&machine, length, wants, &mut findings)?;
    let heading = heading(&machine, ContextWorkload::of(length));
    Ok(Report { heading, cases: findings.cases, notes: machine.warning().into_iter().chain(findings.notes).collect() })
}

/// Runs the cases that measure rates per core.
fn measure_apart(
    machine: &Machine,
    length: Length,
    wants: impl Fn(ContextCase) -> bool,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    if !wants(ContextCase::Entities) && !wants(ContextCase::Subscriptions) {
        return Ok(());
    }
    let cores = Cores::apart()?;
    let suite = ContextBench { plan: ContextWorkload::of(length), machine: machine.clone(), cores };
    if wants(ContextCase::Subscriptions) {
        suite.subscriptions(findings)?;
    }
    if wants(ContextCase::Entities) {
        let dir = tempfile::tempdir()?;
        let filled = suite.updates(dir.path(), findings)?;
        let together = ContextBench { cores: suite.cores.together()?, ..suite };
        together.queries(dir.path(), &filled, findings)?;
    }
    Ok(())
}

fn heading(machine: &Machine, plan: ContextWorkload) -> String {
    format!(
        "Over sockets, keep-alive, to a server process of its own with its default configuration, entities of 6 attributes; \
         updates are answered when synced. Few entities are {}, many are {}, subscriptions up to {}. Where a rate counts, the \
         server has one core and the generator another; queries, starts, lists, delays and tenants share both. {:.1} s a case, half of \
         that a round of what subscriptions cost. CPU time counts until the server is at rest again. History is called as a library, its client shares the cores.\n{machine}.",
        plan.few,
        plan.many,
        plan.subscriptions,
        plan.time.as_secs_f64(),
    )
}
