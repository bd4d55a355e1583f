//! Cross-origin requests: which pages of other origins may call a group of routes. Off unless a group asks for it.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use axum::http::{HeaderMap, HeaderValue};

/// Origins from which pages may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origins {
    /// Any.
    Any,
    /// These, each as `scheme://host[:port]`.
    Of(Vec<HeaderValue>),
}

/// What pages of other origins may do with a group of routes.
#[derive(Debug, Clone)]
pub struct Cors {
    /// Who may call.
    pub origins: Origins,
    /// Request headers that a page may set, comma separated.
    pub allowed_headers: HeaderValue,
    /// Answer headers that a page may read, comma separated.
    pub exposed_headers: HeaderValue,
    /// How long a browser may remember a preflight, seconds.
    pub max_age_s: u32,
}

impl Cors {
    /// Adds to an answer what the browser wants to see; `methods` are those of the path, if they are what is asked for.
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
            Origins::Of(known) => {
                // Also without a match: the answer depends on the origin, and caches must know.
                answer.append(VARY, HeaderValue::from_static("origin"));
                let known = known.contains(origin);
                if known {
                    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
                }
                known
            }
        }
    }
}
