//! The observers of requests, the log and notifications: traffic counts, timing and alarms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::statistics::alarms::{Alarm, Alarms};
use crate::statistics::timing::Timing;
use crate::statistics::traffic::ServiceTraffic;

#[derive(Clone)]
pub(crate) struct Observers {
    pub(crate) traffic: Arc<ServiceTraffic>,
    pub(crate) timing: Arc<Timing>,
    pub(crate) alarms: Arc<Alarms>,
    /// Number of answered requests, if summaries are on.
    pub(crate) requests: Option<Arc<AtomicU64>>,
}

impl Observers {
    pub(crate) fn answered(&self) {
        if let Some(requests) = &self.requests {
            requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The log stored a record.
    pub(crate) fn stored(&self) {
        self.alarms.release(Alarm::Database, "");
    }

    /// A view refused a command; raises an alarm if the log is the cause.
    pub(crate) fn refused(&self, error: &millstream_view::Error) {
        match error {
            millstream_view::Error::OwnerEnded { source, .. } => self.log_failed(source),
            millstream_view::Error::Log(source) => self.log_refused(source),
            _ => {}
        }
    }

    /// The log refused a record; overload raises no alarm.
    pub(crate) fn log_refused(&self, error: &millstream_log::Error) {
        use millstream_types::ErrorCode::{Corrupt, Internal};
        let is_full = matches!(error, millstream_log::Error::DiskFull { .. });
        if is_full || matches!(error.code(), Corrupt | Internal) {
            self.log_failed(error);
        }
    }

    fn log_failed(&self, error: &millstream_log::Error) {
        let cause = match error {
            // Its text includes its cause.
            millstream_log::Error::WritingEnded { .. } => None,
            other => std::error::Error::source(other).map(|cause| format!(": {cause}")),
        };
        self.alarms.raise(Alarm::Database, "", &format!("{error}{}", cause.unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use millstream_types::{StateTopic, TopicName, TopicPartition};

    use super::*;

    #[test]
    fn a_storage_failure_raises_an_alarm_until_a_write_succeeds_and_overload_raises_none() {
        let observers = Observers {
            traffic: Arc::new(ServiceTraffic::new(0)),
            timing: Arc::new(Timing::new(None)),
            alarms: Arc::default(),
            requests: None,
        };
        let partition = TopicPartition::new(TopicName::internal(StateTopic::Context), 0);
        let source = || Arc::new(io::Error::from(io::ErrorKind::StorageFull));
        let path = || PathBuf::from("data");
        let ended = || Arc::new(millstream_log::Error::WritingEnded { path: path(), source: source() });
        let failed = millstream_log::Error::Io { action: "write", path: path(), source: source() };
        let full = millstream_log::Error::DiskFull { path: path(), free_bytes: 1, limit_bytes: 2 };
        let busy = millstream_log::Error::Overloaded { waiting_bytes: 2, limit: "l", limit_bytes: 1 };
        for (error, is_alarm) in [
            (millstream_view::Error::OwnerEnded { partition: partition.clone(), source: ended() }, true),
            (failed.into(), true),
            (full.into(), true),
            (busy.into(), false),
            (millstream_view::Error::Overloaded { partition, waiting: 2, limit: 1 }, false),
            (millstream_view::Error::Stopped, false),
        ] {
            observers.refused(&error);
            assert_eq!(!observers.alarms.active().is_empty(), is_alarm, "{error}");
            observers.stored();
            assert!(observers.alarms.active().is_empty(), "{error}");
        }
    }
}
