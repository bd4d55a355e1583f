//! The trace settings of a tenant.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use millstream_http::TraceContext;
use serde::{Deserialize, Serialize};

/// The flag of a recorded trace (W3C Trace Context, section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// A tenant's sampling modes for traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Tracing {
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling_mode: Option<SamplingMode>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sampling_mode_per_auth_id: BTreeMap<String, SamplingMode>,
}

/// The mode that decides if a trace is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SamplingMode {
    /// The trace keeps the flags of its caller.
    #[default]
    Default,
    All,
    None,
}

impl Tracing {
    /// The mode of a login with `auth_ids`: the mode of the first id that has one, else the tenant's mode.
    pub(crate) fn mode<'a>(&self, mut auth_ids: impl Iterator<Item = &'a str>) -> SamplingMode {
        let own = auth_ids.find_map(|auth_id| self.sampling_mode_per_auth_id.get(auth_id));
        own.copied().or(self.sampling_mode).unwrap_or_default()
    }
}

impl SamplingMode {
    /// The trace that the record of a request carries.
    pub(crate) fn of_request(self, trace: TraceContext) -> TraceContext {
        let flags = match self {
            Self::Default => trace.flags,
            Self::All => trace.flags | SAMPLED,
            Self::None => trace.flags & !SAMPLED,
        };
        TraceContext { flags, ..trace }
    }

    /// A new trace for a message that carries none; `None` unless the mode records every trace.
    pub(crate) fn begun(self) -> Option<TraceContext> {
        (self == Self::All).then(|| self.of_request(TraceContext::of(&HeaderMap::new())))
    }
}
