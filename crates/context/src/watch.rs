//! What is noticed of everything that happens, whoever does it: handed to all who have something to note.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::alarms::{Alarm, Alarms};
use crate::timing::Timing;
use crate::traffic::Traffic;

/// See the module.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) timing: Arc<Timing>,
    pub(crate) alarms: Arc<Alarms>,
    /// Requests that were answered, if somebody wants to know.
    pub(crate) requests: Option<Arc<AtomicU64>>,
}

impl Watch {
    /// A request was answered.
    pub(crate) fn answered(&self) {
        if let Some(requests) = &self.requests {
            requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The log has taken something.
    pub(crate) fn stored(&self) {
        self.alarms.release(Alarm::Database, "");
    }

    /// A view has refused, and it may be because the log takes nothing.
    pub(crate) fn refused(&self, error: &millstream_view::Error) {
        match error {
            millstream_view::Error::OwnerEnded { source, .. } => self.log_failed(source),
            millstream_view::Error::Log(source) => self.log_refused(source),
            _ => {}
        }
    }

    /// The log has refused; too much at once is no alarm.
    pub(crate) fn log_refused(&self, error: &millstream_log::Error) {
        use millstream_types::ErrorCode::{Corrupt, Internal};
        let is_full = matches!(error, millstream_log::Error::DiskFull { .. });
        if is_full || matches!(error.code(), Corrupt | Internal) {
            self.log_failed(error);
        }
    }

    fn log_failed(&self, error: &millstream_log::Error) {
        let cause = match error {
            // It tells its cause itself.
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

    use millstream_types::{TopicName, TopicPartition};

    use super::*;

    #[test]
    fn what_the_log_cannot_store_is_an_alarm_until_it_stores_and_too_much_at_once_is_none() {
        let watch = Watch {
            traffic: Arc::new(Traffic::new(0)),
            timing: Arc::new(Timing::new(None)),
            alarms: Arc::default(),
            requests: None,
        };
        let partition = TopicPartition::new(TopicName::internal("_context"), 0);
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
            watch.refused(&error);
            assert_eq!(!watch.alarms.active().is_empty(), is_alarm, "{error}");
            watch.stored();
            assert!(watch.alarms.active().is_empty(), "{error}");
        }
    }
}
