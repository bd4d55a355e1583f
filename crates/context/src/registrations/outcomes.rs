//! The outcome of the forwards to a provider, by registration, since the server started.

use millstream_outgoing::Failed;
use parking_lot::Mutex;
use serde_json::{Map, Value};

/// The outcomes of one registration.
#[derive(Debug, Default)]
pub(crate) struct ForwardOutcomes(Mutex<Outcomes>);

#[derive(Debug, Default)]
struct Outcomes {
    sent: u64,
    last_ms: i64,
    last_success: Option<(i64, u16)>,
    last_failure: Option<(i64, String)>,
}

impl ForwardOutcomes {
    /// Adds a forward that has ended with this status, or without an answer. A provider that answers 404 or 422 tells that it
    /// has nothing, which is no failure.
    pub(super) fn add(&self, now_ms: i64, ended: Result<u16, &Failed>) {
        let mut known = self.0.lock();
        known.sent += 1;
        known.last_ms = now_ms;
        match ended {
            Ok(status @ (200..=299 | 404 | 422)) => known.last_success = Some((now_ms, status)),
            Ok(status) => known.last_failure = Some((now_ms, format!("the provider answered {status}"))),
            Err(failed) => known.last_failure = Some((now_ms, failed.reason.clone())),
        }
    }

    /// `forwardingInformation` (NGSI-v2, "Registration payload datamodel"), with the names that subscriptions have for the
    /// status and the reason.
    pub(super) fn shown(&self) -> Value {
        let known = self.0.lock();
        let time = |at_ms: i64| Value::from(millstream_types::iso_time(at_ms));
        let mut shown = Map::new();
        shown.insert("timesSent".to_owned(), known.sent.into());
        shown.extend((known.sent > 0).then(|| ("lastForwarding".to_owned(), time(known.last_ms))));
        if let Some((at_ms, status)) = known.last_success {
            shown.insert("lastSuccess".to_owned(), time(at_ms));
            shown.insert("lastSuccessCode".to_owned(), status.into());
        }
        if let Some((at_ms, reason)) = &known.last_failure {
            shown.insert("lastFailure".to_owned(), time(*at_ms));
            shown.insert("lastFailureReason".to_owned(), reason.as_str().into());
        }
        Value::Object(shown)
    }
}
