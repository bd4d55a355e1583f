//! The audit trail: the topic `_audit`, kept by time, which administrators read.
//!
//! ```text
//!   listeners ──► bounded queue ──► one task ──► _audit (one record an event)
//! ```
//!
//! Invariants
//! - Nobody waits for it: an event that finds the queue full is counted and logged, and so is one that the log refuses.
//! - It never has a secret: events are made of names, paths without their query, addresses and outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use millstream_http::Metrics;
use millstream_log::{AtomicAppend, Error, Log, RenewedWriter, TopicConfig, Writers, reply};
use millstream_net::FailedLogins;
use millstream_types::{
    AuditEvent, AuditTrail, Header, Record, StateTopic, SystemClock, TopicName, TopicPartition, WallClock as _,
    iso_time,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The header with the tenant of an event.
pub(crate) const TENANT_HEADER: &str = "tenant";
/// The name of the topic, for messages.
const TOPIC: &str = StateTopic::Audit.name();
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Events that wait to be appended.
const QUEUE_MAX: usize = 4_096;
/// Most events of one append.
const BATCH_MAX: usize = 256;
/// Pause while the writer begins anew.
const WRITER_PAUSE: Duration = Duration::from_millis(100);

/// The queue of events. The task behind it ends with the last reference, or when it is closed.
pub(crate) struct Audit {
    queue: Mutex<Option<mpsc::Sender<(i64, AuditEvent)>>>,
    wall: Arc<SystemClock>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Opens the topic, which is made if it does not exist, with records kept for so many days.
    pub(crate) fn open(log: &dyn Log, retention_days: u16) -> anyhow::Result<()> {
        anyhow::ensure!(
            retention_days > 0,
            "applications.audit_retention_days = 0: events are kept for at least a day"
        );
        let retention = DAY * u32::from(retention_days);
        let name = TopicName::internal(StateTopic::Audit);
        let config = TopicConfig {
            partitions: 1,
            writers: Writers::OwnersOnly,
            retention: Some(retention),
            ..TopicConfig::default()
        };
        let opened = match log.topic(&name) {
            None => log.create_topic(&name, &config).map(drop),
            Some(known) if known.config.retention == config.retention => Ok(()),
            Some(known) => {
                log.alter_topic(&name, &TopicConfig { retention: config.retention, ..known.config.clone() }).map(drop)
            }
        };
        opened.with_context(|| format!("cannot open the topic {TOPIC} of the audit trail"))
    }

    /// Starts to append events to the topic.
    pub(crate) fn start(log: Arc<dyn Log>, wall: &Arc<SystemClock>) -> anyhow::Result<(Arc<Self>, JoinHandle<()>)> {
        let writer = RenewedWriter::begin(log, "audit").context("cannot begin the writer of the audit trail")?;
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(append_all(writer, events, Arc::clone(&lost)));
        Ok((Arc::new(Self { queue: Mutex::new(Some(queue)), wall: Arc::clone(wall), lost }), task))
    }

    /// Takes no more events; the task ends once those that wait are appended.
    pub(crate) fn close(&self) {
        drop(self.queue.lock().take());
    }

    /// Number of events that were not kept.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records the failed logins of a client address.
    pub(crate) fn record_failed_logins(&self, FailedLogins { client, protocol, failed, throttled }: &FailedLogins) {
        self.record(AuditEvent {
            tenant: None,
            caller: client.to_string(),
            listener: protocol.as_str(),
            action: "login".to_owned(),
            object: String::new(),
            outcome: format!("refused ({failed} wrong, {throttled} unchecked)"),
        });
    }
}

impl AuditTrail for Audit {
    fn record(&self, event: AuditEvent) {
        let queue = self.queue.lock().clone();
        let sent = queue.is_some_and(|queue| queue.try_send((self.wall.now_ms(), event)).is_ok());
        if !sent && self.lost.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(QUEUE_MAX, "an event is missing in {TOPIC}: more arrive than the log takes");
        }
    }
}

async fn append_all(writer: RenewedWriter, mut events: mpsc::Receiver<(i64, AuditEvent)>, lost: Arc<AtomicU64>) {
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let count = batch.len() as u64;
        if let Err(why) = append(&writer, &batch).await {
            lost.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(%why, count, "events are missing in {TOPIC}");
        }
        batch.clear();
    }
}

/// Appends events; waits while the writer begins anew.
async fn append(writer: &RenewedWriter, events: &[(i64, AuditEvent)]) -> Result<(), Error> {
    let values: Vec<String> = events.iter().map(|(time_ms, event)| value(*time_ms, event)).collect();
    let headers: Vec<Vec<Header<'_>>> = events
        .iter()
        .map(|(_, event)| {
            let tenant = event.tenant.as_ref().map(|tenant| tenant.as_str().as_bytes());
            tenant.map(|tenant| Header { key: TENANT_HEADER, value: Some(tenant) }).into_iter().collect()
        })
        .collect();
    let records = events.iter().enumerate().map(|(at, (time_ms, _))| Record {
        timestamp_ms: *time_ms,
        key: None,
        value: Some(values[at].as_bytes()),
        headers: &headers[at],
    });
    let partition = TopicPartition::new(TopicName::internal(StateTopic::Audit), 0);
    let append = AtomicAppend { records: vec![(partition, records.collect())], positions: Vec::new() };
    loop {
        let (done, reply) = reply();
        match writer.commit(&append, TopicConfig::default().level, done) {
            Err(Error::WriterBegins { .. }) => tokio::time::sleep(WRITER_PAUSE).await,
            taken => {
                taken?;
                // Nothing of it is stored if no broker took it.
                match reply.await {
                    Err(Error::Unreachable { .. }) => {}
                    outcome => return outcome.map(drop),
                }
            }
        }
    }
}

fn value(time_ms: i64, event: &AuditEvent) -> String {
    let AuditEvent { tenant, caller, listener, action, object, outcome } = event;
    let tenant = tenant.as_ref().map(|tenant| tenant.as_str());
    json!({
        "time": iso_time(time_ms), "tenant": tenant, "caller": caller, "listener": listener,
        "action": action, "object": object, "outcome": outcome,
    })
    .to_string()
}

/// Shows among the counters how many events are missing.
pub(crate) fn show(audit: &Arc<Audit>, metrics: &Metrics) {
    let audit = Arc::clone(audit);
    let help = "Events that are missing in the audit trail, as the log did not take them in time.";
    metrics.counter_fn("millstream_audit_events_lost_total", help, move || audit.lost() as f64);
}
