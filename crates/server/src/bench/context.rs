//! Suite `context`: entities, as the older system's published figures count them.
//!
//! - updates and reads of single entities, and what an entity takes ([`updates`]);
//! - a start over many, queries among them, updates beside lists ([`queries`]);
//! - what subscriptions cost ([`subscriptions`]), and other tenants ([`tenants`]);
//! - how long notifications are on their way ([`notifications`]);
//! - history: the last points and hourly averages out of a million points of one attribute ([`history`]).

mod aims;
mod ground;
mod history;
mod notifications;
mod population;
mod queries;
mod subscriptions;
mod tenants;
mod updates;

use anyhow::Context as _;

use super::cores::Cores;
use super::machine::Machine;
use super::{Length, Report, RunArgs};
use aims::Judged;
use ground::{Ground, Plan};

#[derive(Debug, clap::Args)]
pub(super) struct ContextArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Only these cases
    #[arg(long, value_enum)]
    only: Option<Part>,
}

/// Cases that are measured on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The last points and averages of a million
    History,
    /// Updates and reads of single entities, then a start over many, queries, updates beside lists
    Entities,
    /// What subscriptions cost an update
    Subscriptions,
    /// How long notifications are on their way
    Delays,
    /// What other tenants cost an update
    Tenants,
}

/// Runs the suite.
pub(super) fn measure(arguments: &ContextArgs) -> anyhow::Result<Report> {
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    let length = arguments.run.length();
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let machine = Machine::with_files_in(dir.path());
    let mut told = Judged::default();
    let ground = Ground { plan: Plan::of(length), machine: machine.clone(), cores: Cores::shared() };
    if wants(Part::Delays) {
        ground.delays(&mut told)?;
    }
    if wants(Part::Tenants) {
        ground.tenants(&mut told)?;
    }
    if wants(Part::History) {
        let (cases, aims) = history::measure(&machine, dir.path(), length)?;
        told.cases.extend(cases);
        told.notes.extend(aims);
    }
    measure_apart(&machine, length, wants, &mut told)?;
    let heading = heading(&machine, Plan::of(length));
    Ok(Report { heading, cases: told.cases, notes: machine.warning().into_iter().chain(told.notes).collect() })
}

/// The cases that count what a core does.
fn measure_apart(
    machine: &Machine,
    length: Length,
    wants: impl Fn(Part) -> bool,
    told: &mut Judged,
) -> anyhow::Result<()> {
    if !wants(Part::Entities) && !wants(Part::Subscriptions) {
        return Ok(());
    }
    let cores = Cores::apart()?;
    let ground = Ground { plan: Plan::of(length), machine: machine.clone(), cores };
    if wants(Part::Subscriptions) {
        ground.subscriptions(told)?;
    }
    if wants(Part::Entities) {
        let dir = tempfile::tempdir()?;
        let filled = ground.updates(dir.path(), told)?;
        let together = Ground { cores: ground.cores.together()?, ..ground };
        together.queries(dir.path(), &filled, told)?;
    }
    Ok(())
}

fn heading(machine: &Machine, plan: Plan) -> String {
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
