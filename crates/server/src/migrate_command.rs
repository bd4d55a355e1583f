//! `millstream migrate --to kafka`: moves the log of a stopped server to Apache Kafka.

use std::io::IsTerminal as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use millstream_cli::show;
use millstream_kafka::group::tenant_and_id;
use millstream_log::{ClosedLog, SystemFiles};
use millstream_log_kafka::{GroupRefusal, LogSource, Migration, MigrationStep};
use millstream_types::{PartitionId, TenantId, TopicPartition};
use parking_lot::Mutex;

use crate::backups::log_id;
use crate::config::{self, Flags};
use crate::{data_dir, kept_log, serve};

#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// The engine that keeps the log afterwards; log.kafka of the configuration names its brokers
    #[arg(long, value_name = "ENGINE")]
    to: TargetEngine,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TargetEngine {
    Kafka,
}

pub(crate) fn run(arguments: &MigrateArgs) -> anyhow::Result<()> {
    let MigrateArgs { to: TargetEngine::Kafka, flags } = arguments;
    serve::keep_files_private();
    let config = config::load(flags)?.config;
    let settings = kept_log::log_config(&config);
    if !settings.dir.is_dir() {
        bail!("there is no log in {}; name the directory of the server with --data-dir", settings.dir.display());
    }
    data_dir::check_finished(&config.data_dir)?;
    let dir = settings.dir.clone();
    let log = ClosedLog::open(Arc::new(SystemFiles), &dir)?;
    let state = log.state();
    let source = LogSource { log: log_id(state.salt), epoch: state.epoch.0 };
    let migration = Migration::begin(settings, &log, &source)?;
    if migration.is_finished() {
        return show(&format!(
            "the log in {} was moved to Kafka before; set log.engine = \"kafka\" and start the server\n",
            dir.display()
        ));
    }
    let total = size_bytes(&log)?;
    let progress = Progress::begin(total, migration.is_resumed())?;
    let moved = migration.run(&log, kafka_group, &|step| progress.step(step));
    let counts = progress.end();
    let refused = moved
        .with_context(|| format!("the log in {} is not moved yet; run the command again to go on", dir.display()))?;
    for GroupRefusal { group, why } in refused {
        show(&format!(
            "the brokers do not take the positions of the group {group}: {why}; its clients begin in Kafka where \
             auto.offset.reset says, unless you set them with kafka-consumer-groups.sh --reset-offsets\n"
        ))?;
    }
    show(&format!(
        "{} records are in Kafka and were compared with those of {}; set log.engine = \"kafka\" and start the server\n",
        HumanCount(counts.compared),
        dir.display()
    ))
}

/// The id in Kafka of a group of clients of `listen.kafka`: their own, and in another tenant than `default` with the tenant in
/// front.
fn kafka_group(group: &str) -> Option<String> {
    let (tenant, id) = tenant_and_id(group)?;
    let tenant = TenantId::new(tenant).ok()?;
    Some(if tenant == TenantId::default() { id.to_owned() } else { group.to_owned() })
}

/// Bytes of all records.
fn size_bytes(log: &ClosedLog) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for topic in log.topics() {
        for number in 0..topic.config.partitions {
            let partition = TopicPartition { topic: topic.name.clone(), partition: PartitionId(number) };
            bytes += log.partition(&partition)?.size_bytes;
        }
    }
    Ok(bytes)
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    copied: u64,
    compared: u64,
    bytes: u64,
    /// Tenths of the bytes that were told of.
    tenths: u64,
}

/// A bar on a terminal, lines elsewhere.
struct Progress {
    /// The bytes to copy and to compare.
    total: u64,
    counts: Mutex<Counts>,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn begin(bytes: u64, is_resumed: bool) -> anyhow::Result<Self> {
        let total = bytes * 2;
        let begins = if is_resumed { "goes on" } else { "begins" };
        show(&format!("the migration {begins}: {} to copy and to compare\n", HumanBytes(bytes)))?;
        let bar = std::io::stdout().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total).with_style(style)
        });
        Ok(Self { total, counts: Mutex::default(), bar })
    }

    fn step(&self, step: MigrationStep) {
        let mut counts = self.counts.lock();
        let (doing, bytes) = match step {
            MigrationStep::Copied { records, bytes } => {
                counts.copied += records;
                ("copies", bytes)
            }
            MigrationStep::Compared { records, bytes } => {
                counts.compared += records;
                ("compares", bytes)
            }
        };
        counts.bytes += bytes;
        if let Some(bar) = &self.bar {
            bar.set_message(doing);
            bar.inc(bytes);
            return;
        }
        let tenths = counts.bytes * 10 / self.total.max(1);
        if tenths > counts.tenths {
            counts.tenths = tenths;
            let Counts { copied, compared, .. } = *counts;
            // A reader that has gone does not end the migration.
            let _ = show(&format!("{} records copied, {} compared\n", HumanCount(copied), HumanCount(compared)));
        }
    }

    fn end(self) -> Counts {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
        self.counts.into_inner()
    }
}
