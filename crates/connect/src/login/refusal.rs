//! The reasons for which certificates and tokens of devices are refused: one for the client, the log and the metrics.

use std::net::IpAddr;

use axum::http::HeaderValue;
use millstream_http::{Metrics, Problem};
use millstream_net::LogRateLimit;
use millstream_types::TenantId;
use tokio::time::Instant;

use super::CHALLENGE;
use crate::tenant_counter::TenantCounter;

/// Most characters of a name in a token or certificate that an answer and the log repeat.
const SHOWN_MAX_CHARS: usize = 256;

/// A refused certificate or token.
#[derive(Debug)]
pub(crate) struct LoginRefusal {
    /// The tenant, once it is known.
    pub(super) tenant: Option<TenantId>,
    /// The reason as the metric names it.
    pub(super) reason: &'static str,
    pub(super) detail: String,
    pub(super) value: String,
    pub(super) rule: &'static str,
    pub(super) remedy: &'static str,
}

impl LoginRefusal {
    fn problem(self) -> Problem {
        const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"millstream\"");
        let challenge = if self.reason.starts_with("token") { BEARER } else { CHALLENGE };
        Problem::unauthenticated(challenge, self.detail).value(self.value).rule(self.rule).remedy(self.remedy)
    }
}

/// The beginning of a text that a client has chosen.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX_CHARS).collect()
}

/// Counts refusals by reason, and tells the log of them at a bounded rate.
pub(super) struct RefusalLog {
    counts: TenantCounter,
    limit: LogRateLimit,
}

impl RefusalLog {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let help = "Certificates and tokens of devices that were refused, by reason.";
        let name = "millstream_connect_login_refusals_total";
        Self { counts: TenantCounter::new(metrics, name, help, "reason", &[]), limit: LogRateLimit::default() }
    }

    /// Counts and logs that the device of a certificate could not be registered.
    pub(super) fn not_registered(&self, tenant: &TenantId, subject: &str, problem: &Problem, address: IpAddr) {
        let reason = "certificate-not-registered";
        self.counts.count(Some(tenant), reason);
        if let Some(left_out) = self.limit.admit(Instant::now()) {
            let (value, detail) = (shown(subject), problem.text());
            tracing::warn!(%address, %tenant, reason, value, detail, left_out, "a device's login is refused");
        }
    }

    /// Counts and logs a refusal. Returns it as the client is told.
    pub(super) fn refuse(&self, mut refusal: LoginRefusal, address: IpAddr) -> Problem {
        refusal.value = shown(&refusal.value);
        self.counts.count(refusal.tenant.as_ref(), refusal.reason);
        if let Some(left_out) = self.limit.admit(Instant::now()) {
            let LoginRefusal { tenant, reason, detail, value, .. } = &refusal;
            let tenant = tenant.as_ref().map_or("unknown", TenantId::as_str);
            tracing::warn!(%address, tenant, reason, value, detail, left_out, "a device's login is refused");
        }
        refusal.problem()
    }
}
