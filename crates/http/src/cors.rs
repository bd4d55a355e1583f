//! Cross-origin requests: the pages of other origins that may call a group of routes. None may by default.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use axum::http::{HeaderMap, HeaderValue};

/// Origins whose pages may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// Pages of every origin may call.
    Any,
    /// The listed origins, each as `scheme://host[:port]`.
    Of(Vec<HeaderValue>),
    /// As `Of`, and the browser may add cookies, certificates and passwords that it knows.
    WithCredentials(Vec<HeaderValue>),
}

/// The CORS rule of a group of routes.
#[derive(Debug, Clone)]
pub struct Cors {
    /// Origins whose pages may call.
    pub origins: Origins,
    /// Request headers that a page may set, comma separated.
    pub allowed_headers: HeaderValue,
    /// Answer headers that a page may read, comma separated.
    pub exposed_headers: HeaderValue,
    /// Time for which a browser may remember a preflight, seconds.
    pub max_age_s: u32,
}

impl Cors {
    /// Returns `true` if pages of this origin may call.
    pub(crate) fn allows(&self, origin: &[u8]) -> bool {
        match &self.origins {
            Origins::Any => true,
            Origins::Of(known) | Origins::WithCredentials(known) => known.iter().any(|known| known == origin),
        }
    }

    /// Adds the CORS headers to an answer; `methods` is set for a preflight.
    pub(crate) fn write_answer(
        &self,
        origin: Option<&HeaderValue>,
        methods: Option<&HeaderValue>,
        answer: &mut HeaderMap,
    ) {
        if !self.write_origin(origin, answer) {
            return;
        }
        if !self.exposed_headers.is_empty() {
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.exposed_headers.clone());
        }
        if let Some(methods) = methods {
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, methods.clone());
            answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, self.allowed_headers.clone());
            answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.max_age_s));
        }
    }

    fn write_origin(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) -> bool {
        let Some(origin) = origin else { return false };
        match &self.origins {
            Origins::Any => {
                answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
                true
            }
            Origins::Of(known) | Origins::WithCredentials(known) => {
                // `Vary` is needed even without a match, because the answer depends on the origin.
                answer.append(VARY, HeaderValue::from_static("origin"));
                let known = known.contains(origin);
                if known {
                    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
                    if matches!(self.origins, Origins::WithCredentials(_)) {
                        answer.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
                    }
                }
                known
            }
        }
    }
}
