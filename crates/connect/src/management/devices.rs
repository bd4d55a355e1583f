//! `/v1/devices`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Path, Payload, Problem, Route};
use millstream_types::{Role, TenantId};
use serde_json::json;

use super::etag::condition;
use super::refusal::bad_id;
use super::tenants::{as_json, stored};
use super::{LIMITS, Management, NO_BODY, body, created, id_schema, object_schema, shown};
use crate::registry::{Command, Device, DeviceId, Failure, Refusal};
use crate::timestamp::Timestamp;

const OF_TENANT: &str = "/v1/devices/{tenant}";
const PATH: &str = "/v1/devices/{tenant}/{device}";
pub(super) const TENANT: &str = "Id of the tenant that the device belongs to.";
pub(super) const DEVICE: &str = "Id of the device: 1 to 256 of a-z A-Z 0-9 - _ . :";

pub(super) fn routes(management: &Management) -> Vec<Route> {
    let (admin, reader) = (Access::Role(Role::Admin), Access::Role(Role::Reader));
    vec![
        Route::post(OF_TENANT, admin, LIMITS, "Register a device with a generated id")
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .takes(object_schema())
            .answers_with(201, "Registered; Location and ETag tell where and which version.", id_schema())
            .answers(403, "The tenant has as many devices as it may.")
            .answers(404, "The tenant is unknown.")
            .to(create_any, management.clone()),
        Route::delete(OF_TENANT, admin, NO_BODY, "Delete all devices of a tenant with their credentials")
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .answers(204, "Deleted.")
            .answers(404, "The tenant is unknown.")
            .to(delete_all, management.clone()),
        Route::post(PATH, admin, LIMITS, "Register a device")
            .param("tenant", TENANT)
            .param("device", DEVICE)
            .tenant_in("tenant")
            .takes(object_schema())
            .answers_with(201, "Registered; Location and ETag tell where and which version.", id_schema())
            .answers(403, "The tenant has as many devices as it may.")
            .answers(404, "The tenant is unknown.")
            .answers(409, "The device exists.")
            .to(create, management.clone()),
        Route::get(PATH, reader, NO_BODY, "Read a device")
            .param("tenant", TENANT)
            .param("device", DEVICE)
            .tenant_in("tenant")
            .answers_with(200, "The device; ETag tells which version.", object_schema())
            .answers(404, "There is none.")
            .to(read, management.clone()),
        Route::put(PATH, admin, LIMITS, "Replace a device")
            .param("tenant", TENANT)
            .param("device", DEVICE)
            .tenant_in("tenant")
            .header("If-Match", "Replace it only if this is its version.")
            .takes(object_schema())
            .answers(204, "Replaced; ETag tells the new version.")
            .answers(404, "There is none.")
            .answers(412, "It has another version; nothing was changed.")
            .to(replace, management.clone()),
        Route::delete(PATH, admin, NO_BODY, "Delete a device with its credentials")
            .param("tenant", TENANT)
            .param("device", DEVICE)
            .tenant_in("tenant")
            .header("If-Match", "Delete it only if this is its version.")
            .answers(204, "Deleted.")
            .answers(404, "There is none.")
            .answers(412, "It has another version; nothing was changed.")
            .to(delete, management.clone()),
    ]
}

/// The ids of a path.
pub(super) fn ids(tenant: &str, device: &str) -> Result<(TenantId, DeviceId), Problem> {
    Ok((TenantId::new(tenant)?, device.parse().map_err(|error| bad_id(&error))?))
}

async fn create_any(
    State(management): State<Management>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    Payload(payload): Payload,
) -> Result<Response, Problem> {
    let value = body(&headers, &payload)?.unwrap_or_default();
    management.create_device(TenantId::new(&tenant)?, DeviceId::random(), value).await
}

async fn create(
    State(management): State<Management>,
    Path((tenant, device)): Path<(String, String)>,
    headers: HeaderMap,
    Payload(payload): Payload,
) -> Result<Response, Problem> {
    let (tenant, device) = ids(&tenant, &device)?;
    management.create_device(tenant, device, body(&headers, &payload)?.unwrap_or_default()).await
}

async fn read(
    State(management): State<Management>,
    Path((tenant, device)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let (tenant, device) = ids(&tenant, &device)?;
    let snapshot = management.0.registry.snapshot(&tenant);
    let Some(known) = snapshot.state.tenant(&tenant) else {
        return Err(Failure::Refused(Refusal::UnknownTenant { tenant }).into());
    };
    let stored = known.devices.get(&device);
    let stored = stored.ok_or(Failure::Refused(Refusal::UnknownDevice { tenant, device }))?;
    let mut value = as_json(&*stored.value)?;
    value["status"] = json!({"created": Timestamp(stored.created_ms), "updated": Timestamp(stored.updated_ms)});
    Ok(shown(stored.version, value))
}

async fn replace(
    State(management): State<Management>,
    Path((tenant, device)): Path<(String, String)>,
    headers: HeaderMap,
    Payload(payload): Payload,
) -> Result<Response, Problem> {
    let (tenant, device) = ids(&tenant, &device)?;
    let value: Arc<Device> = Arc::new(body(&headers, &payload)?.unwrap_or_default());
    let command = Command::ReplaceDevice { tenant: tenant.clone(), device, value, condition: condition(&headers) };
    management.change(&tenant, command).await
}

async fn delete(
    State(management): State<Management>,
    Path((tenant, device)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (tenant, device) = ids(&tenant, &device)?;
    let command = Command::DeleteDevice { tenant: tenant.clone(), device, condition: condition(&headers) };
    management.change(&tenant, command).await
}

async fn delete_all(State(management): State<Management>, Path(tenant): Path<String>) -> Result<Response, Problem> {
    let tenant = TenantId::new(&tenant)?;
    management.0.registry.delete_all(&tenant, Command::DeleteDevices { tenant: tenant.clone() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl Management {
    async fn create_device(&self, tenant: TenantId, device: DeviceId, value: Device) -> Result<Response, Problem> {
        let location = format!("/v1/devices/{tenant}/{device}");
        let command = Command::CreateDevice { tenant: tenant.clone(), device: device.clone(), value: Arc::new(value) };
        let outcome = self.0.registry.ask(&tenant, command).await?;
        stored(outcome, |version| created(&location, device.as_str(), version))
    }
}
