//! `millstream log`: checks and repairs the stored log, repairs the files of history and clears the journal, while no server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use millstream_history::LostFile;
use millstream_log::{Damage, Embedded, Files, Log, LogConfig, SystemFiles};
use millstream_types::SystemClock;

use crate::config::{self, Flags};

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Say what is damaged and what a repair would lose; changes nothing
    Check(Flags),
    /// Take out what is damaged, so that a server starts on the rest
    Repair {
        #[command(flatten)]
        flags: Flags,
        /// Do it; otherwise it is only said what would be done
        #[arg(long)]
        yes: bool,
    },
    /// Remove the journal of a server that was stopped in order: the last copies of records that were deleted
    ClearJournal(Flags),
}

pub(crate) fn run(command: &LogCommand) -> anyhow::Result<()> {
    let (flags, yes) = match command {
        LogCommand::Check(flags) => (flags, false),
        LogCommand::Repair { flags, yes } => (flags, *yes),
        LogCommand::ClearJournal(flags) => return clear_journal(flags),
    };
    let (data_dir, dir) = dirs(flags)?;
    let look = if yes { millstream_log::repair } else { millstream_log::check };
    let damages = look(&SystemFiles, &dir).with_context(|| format!("looking through {}", dir.display()))?;
    print(&damages, &dir, yes);
    if yes {
        let history = data_dir.join("history");
        let lost = repair_history(&dir, &history).with_context(|| format!("repairing {}", history.display()))?;
        print_history(&lost, &history);
    }
    match damages.len() {
        0 => Ok(()),
        _ if yes => Ok(()),
        1 => bail!("1 place is damaged; 'millstream log repair --yes' takes it out"),
        count => bail!("{count} places are damaged; 'millstream log repair --yes' takes them out"),
    }
}

/// The data directory and that of the log in it.
fn dirs(flags: &Flags) -> anyhow::Result<(PathBuf, PathBuf)> {
    let data_dir = config::load(flags)?.config.data_dir;
    let dir = data_dir.join("log");
    if !dir.is_dir() {
        bail!("there is no log in {}; name the directory of the server with --data-dir", dir.display());
    }
    Ok((data_dir, dir))
}

fn clear_journal(flags: &Flags) -> anyhow::Result<()> {
    let (_, dir) = dirs(flags)?;
    let bytes = millstream_log::clear_journal(&SystemFiles, &dir)?;
    println!("{}: {bytes} bytes removed; the next start makes the journal anew", dir.join("journal").display());
    Ok(())
}

/// Reads all files of history. This opens the log, which has their checksums, as a start does.
fn repair_history(log_dir: &Path, dir: &Path) -> anyhow::Result<Vec<LostFile>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let clock = Arc::new(SystemClock::default());
    let config = LogConfig { dir: log_dir.to_owned(), memory_topics_max_bytes: usize::MAX, ..LogConfig::default() };
    let log = Embedded::open(config, Arc::new(SystemFiles), clock.clone(), clock)?;
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let of_history: Arc<dyn Log> = log.clone();
    let lost = millstream_history::repair(&of_history, dir, &files)?;
    log.close()?;
    Ok(lost)
}

fn print_history(lost: &[LostFile], dir: &Path) {
    for file in lost {
        println!("{file}");
    }
    if !lost.is_empty() {
        println!("taken out of the history; files that were damaged are kept in {}", dir.join("set-aside").display());
    }
}

/// A revocation is a record of `_tokens`; the journal has those of all topics.
fn may_lose_revocations(damage: &Damage) -> bool {
    ["topic '_tokens'", "frames", "latest records"].iter().any(|lost| damage.loses.contains(lost))
}

fn print(damages: &[Damage], dir: &Path, repaired: bool) {
    if damages.is_empty() {
        println!("{}: all of it reads", dir.display());
    }
    for damage in damages {
        println!("{damage}");
    }
    if damages.iter().any(may_lose_revocations) {
        println!(
            "API tokens that were revoked in lost records are good again: before anybody logs in, compare \
             'millstream token list' with the tokens that should be there, and revoke the others"
        );
    }
    if repaired && !damages.is_empty() {
        println!("taken out; files that were damaged are kept in {}", dir.join("set-aside").display());
    }
}
