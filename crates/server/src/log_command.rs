//! `millstream log`: checks and repairs the stored log while no server runs.

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use millstream_log::{Damage, SystemFiles};

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
}

pub(crate) fn run(command: &LogCommand) -> anyhow::Result<()> {
    let (flags, yes) = match command {
        LogCommand::Check(flags) => (flags, false),
        LogCommand::Repair { flags, yes } => (flags, *yes),
    };
    let dir = config::load(flags)?.config.data_dir.join("log");
    if !dir.is_dir() {
        bail!("there is no log in {}; name the directory of the server with --data-dir", dir.display());
    }
    let look = if yes { millstream_log::repair } else { millstream_log::check };
    let damages = look(&SystemFiles, &dir).with_context(|| format!("looking through {}", dir.display()))?;
    print(&damages, &dir, yes);
    match damages.len() {
        0 => Ok(()),
        _ if yes => Ok(()),
        1 => bail!("1 place is damaged; 'millstream log repair --yes' takes it out"),
        count => bail!("{count} places are damaged; 'millstream log repair --yes' takes them out"),
    }
}

fn print(damages: &[Damage], dir: &Path, repaired: bool) {
    if damages.is_empty() {
        println!("{}: all of it reads", dir.display());
    }
    for damage in damages {
        println!("{damage}");
    }
    if repaired && !damages.is_empty() {
        println!("taken out; files that were damaged are kept in {}", dir.join("set-aside").display());
    }
}
