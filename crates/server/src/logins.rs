//! Failed logins, as operators see them: in the log and among the counters.

use std::sync::Arc;

use millstream_http::Metrics;
use millstream_types::{FailedLogins, LoginProtocol, LoginThrottle};

use crate::audit::Audit;

/// Shows among the counters how many logins have failed.
pub(crate) fn show(throttle: &Arc<LoginThrottle>, metrics: &Metrics) {
    let counts = |read: fn(&LoginThrottle, LoginProtocol) -> u64| {
        let throttle = Arc::clone(throttle);
        move || LoginProtocol::ALL.map(|protocol| (protocol.as_str(), read(&throttle, protocol))).to_vec()
    };
    let help = "Logins with wrong credentials.";
    metrics.counters_fn("millstream_login_failures_total", help, "protocol", counts(LoginThrottle::failed));
    let help = "Logins that were refused unchecked, as too many from their address had failed.";
    metrics.counters_fn("millstream_logins_throttled_total", help, "protocol", counts(LoginThrottle::throttled));
}

/// Logs the failed logins of each client address, at most once a minute, and keeps them in the audit trail.
pub(crate) fn log_failures(throttle: &LoginThrottle, audit: &Audit) {
    for report in throttle.take_reports() {
        audit.record_failed_logins(&report);
        let FailedLogins { client, protocol, failed, throttled } = report;
        let protocol = protocol.as_str();
        tracing::warn!(%client, protocol, failed, throttled, "logins have failed");
    }
}
