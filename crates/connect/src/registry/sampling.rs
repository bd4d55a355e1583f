//! Whose messages are traced.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use millstream_http::TraceContext;
use serde::{Deserialize, Serialize};

/// Bit of a trace's flags: it is recorded (W3C Trace Context, section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// What a tenant says of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Tracing {
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling_mode: Option<SamplingMode>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sampling_mode_per_auth_id: BTreeMap<String, SamplingMode>,
}

/// Whether a trace is one that is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SamplingMode {
    /// As its caller has decided.
    #[default]
    Default,
    All,
    None,
}

impl Tracing {
    /// That of whoever logs in under one of `auth_ids`: the first of them that has one of its own, else the tenant's.
    pub(crate) fn mode<'a>(&self, mut auth_ids: impl Iterator<Item = &'a str>) -> SamplingMode {
        let own = auth_ids.find_map(|auth_id| self.sampling_mode_per_auth_id.get(auth_id));
        own.copied().or(self.sampling_mode).unwrap_or_default()
    }
}

impl SamplingMode {
    /// The trace of a request, as its record has it.
    pub(crate) fn of_request(self, trace: TraceContext) -> TraceContext {
        let flags = match self {
            Self::Default => trace.flags,
            Self::All => trace.flags | SAMPLED,
            Self::None => trace.flags & !SAMPLED,
        };
        TraceContext { flags, ..trace }
    }

    /// The trace of messages that come without one: it begins here, if it is to be recorded.
    pub(crate) fn begun(self) -> Option<TraceContext> {
        (self == Self::All).then(|| self.of_request(TraceContext::of(&HeaderMap::new())))
    }
}
