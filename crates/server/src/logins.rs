//! Failed logins, as operators see them: in the log and among the counters.

use std::sync::Arc;

use millstream_http::Metrics;
use millstream_net::{FailedLogins, LoginProtocol, LoginThrottle};

use crate::audit::Audit;
use crate::listen::ListenerEndpoints;

/// Shows among the counters how many logins have failed, by the protocols of the open listeners.
pub(crate) fn show(throttle: &Arc<LoginThrottle>, endpoints: &ListenerEndpoints, metrics: &Metrics) {
    let protocols = endpoints.login_protocols();
    let counts = |read: fn(&LoginThrottle, LoginProtocol) -> u64| {
        let (throttle, protocols) = (Arc::clone(throttle), protocols.clone());
        move || protocols.iter().map(|protocol| (protocol.as_str(), read(&throttle, *protocol))).collect()
    };
    let help = "Logins with wrong credentials.";
    metrics.counters_fn("millstream_login_failures_total", help, "protocol", counts(LoginThrottle::failed));
    if throttle.is_limited() {
        let help = "Logins that were refused unchecked, as too many from their address had failed.";
        metrics.counters_fn("millstream_logins_throttled_total", help, "protocol", counts(LoginThrottle::throttled));
    }
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
