//! Extractors for the resource, the condition and the body of a registry request.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use millstream_http::{Path, Payload, Problem, check_json_type, parse_json};
use millstream_types::TenantId;
use serde::de::DeserializeOwned;

use super::etag::condition;
use super::refusal::bad_id;
use crate::registry::{DeviceId, VersionCondition};

/// The tenant of a path.
pub(super) struct TenantPath(pub(super) TenantId);

impl<S: Sync> FromRequestParts<S> for TenantPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(tenant) = Path::<String>::from_request_parts(parts, state).await?;
        Ok(Self(TenantId::new(&tenant)?))
    }
}

/// The tenant and the device of a path.
pub(super) struct OfDevice(pub(super) TenantId, pub(super) DeviceId);

impl<S: Sync> FromRequestParts<S> for OfDevice {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path((tenant, device)) = Path::<(String, String)>::from_request_parts(parts, state).await?;
        Ok(Self(TenantId::new(&tenant)?, device.parse().map_err(|error| bad_id(&error))?))
    }
}

/// Reads the condition from the header `If-Match`.
impl<S: Sync> FromRequestParts<S> for VersionCondition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(condition(&parts.headers))
    }
}

/// The JSON body of a request whose headers say that it is JSON; `None` if there is no body.
pub(super) struct JsonBody<T>(pub(super) Option<T>);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let headers = request.headers().clone();
        let Payload(body) = Payload::from_request(request, state).await?;
        if body.is_empty() {
            return Ok(Self(None));
        }
        check_json_type(&headers).map_err(|problem| problem.with_status(StatusCode::BAD_REQUEST))?;
        parse_json(&body).map(|value| Self(Some(value)))
    }
}

impl<T: Default> JsonBody<T> {
    /// The body, or the default if there is none.
    pub(super) fn or_default(self) -> T {
        self.0.unwrap_or_default()
    }
}
