//! `millstream backup`: copies a running server's data into a directory, and looks after such directories.

mod directory;
mod fetch;
mod manifest;
mod pace;
mod ranges;
mod verify;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use indicatif::HumanBytes;
use millstream_cli::{Server, aligned, run_until_interrupted, show};

pub(crate) use self::directory::{BackupDirectory, Moment, names, sync_all, sync_dir};
pub(crate) use self::manifest::ManifestEntry;
pub(crate) use self::verify::{hash_file, verify_moment};
use crate::serve;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    action: Option<BackupAction>,
    #[command(flatten)]
    backup: TakeArgs,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
struct TakeArgs {
    /// The directory of the backups; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Most MiB a second to receive [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Keep this many backups in the directory and remove older ones [default: all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
}

#[derive(Debug, clap::Subcommand)]
enum BackupAction {
    /// List the backups in a directory
    List {
        /// The directory of the backups
        directory: PathBuf,
    },
    /// Read every byte of the backups in a directory and compare all checksums
    Verify {
        /// The directory of the backups
        directory: PathBuf,
        /// Only this backup, as 'backup list' names it
        #[arg(long, value_name = "MOMENT")]
        at: Option<String>,
    },
}

pub(crate) fn run(arguments: &BackupArgs) -> anyhow::Result<()> {
    serve::keep_files_private();
    match &arguments.action {
        Some(BackupAction::List { directory }) => list(&BackupDirectory::list(directory)?),
        Some(BackupAction::Verify { directory, at }) => verify(&BackupDirectory::read(directory)?, at.as_deref()),
        None => {
            let TakeArgs { to, rate, keep } = &arguments.backup;
            let Some(to) = to else { bail!("name the directory of the backups with --to DIR") };
            let directory = BackupDirectory::create(to)?;
            run_until_interrupted(fetch::backup(&arguments.server, &directory, *rate, keep.map(|keep| keep as usize)))
        }
    }
}

fn list(directory: &BackupDirectory) -> anyhow::Result<()> {
    let mut rows = vec![["MOMENT", "TAKEN", "TOPICS", "FILES", "SIZE", "VERSION"].map(str::to_owned)];
    for moment in directory.moments()? {
        let head = moment.head()?;
        let size = HumanBytes(head.bytes).to_string();
        rows.push([
            moment.name.clone(),
            head.taken,
            head.topics.to_string(),
            head.files.to_string(),
            size,
            head.version,
        ]);
    }
    show(&aligned(&rows))
}

fn verify(directory: &BackupDirectory, at: Option<&str>) -> anyhow::Result<()> {
    let moments = match at {
        Some(name) => vec![directory.moment(Some(name))?],
        None => directory.moments()?,
    };
    if moments.is_empty() {
        bail!("there is no complete backup in {}", directory.path().display());
    }
    let mut seen = Default::default();
    let mut damages = 0;
    for moment in &moments {
        let found =
            verify_moment(directory, moment, &mut seen).with_context(|| format!("looking through {}", moment.name))?;
        for damage in &found {
            eprintln!("millstream: {damage}");
        }
        damages += found.len();
        show(&match found.len() {
            0 => format!("{}: all of it reads\n", moment.name),
            count => format!("{}: {count} places are damaged\n", moment.name),
        })?;
    }
    match damages {
        0 => Ok(()),
        _ => bail!(
            "the backup is damaged; remove the damaged files: the next backup receives them again if the server still has them"
        ),
    }
}
