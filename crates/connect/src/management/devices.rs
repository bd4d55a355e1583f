//! `/v1/devices`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use millstream_http::{Access, AnswerMemory, Problem, Query, Route, RouteDraft};
use millstream_types::{Role, TenantId};
use serde_json::json;

use super::refusal::bad_ext;
use super::request::{JsonBody, OfDevice, TenantPath};
use super::search::{Of, Search, SearchItem, documented};
use super::tenants::{as_json, stored, with_id};
use super::{Answered, LIMITS, Management, NO_BODY, Shared, created, id_schema, list_schema, object_schema, shown};
use crate::registry::{
    Device, DeviceId, RegistryCommand, RegistryFailure, RegistryRefusal, Stored, VersionCondition, check_device,
    check_rates,
};
use crate::timestamp::Timestamp;

const OF_TENANT: &str = "/v1/devices/{tenant}";
const PATH: &str = "/v1/devices/{tenant}/{device}";
const TENANT: &str = "Id of the tenant that the device belongs to.";
const DEVICE: &str = "Id of the device: 1 to 256 of a-z A-Z 0-9 - _ . :";

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
        documented(Route::get(OF_TENANT, reader, NO_BODY, "Search for devices of a tenant"))
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .query("isGateway", "true: only gateways, those that a device names in via or that are memberOf a group; false: only others.")
            .answers_with(200, "The devices of the page, and how many match in all.", list_schema())
            .to(search, management.clone()),
        Route::delete(OF_TENANT, admin, NO_BODY, "Delete all devices of a tenant with their credentials")
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .answers(204, "Deleted.")
            .answers(404, "The tenant is unknown.")
            .to(delete_all, management.clone()),
        of_device(Route::post(PATH, admin, LIMITS, "Register a device"))
            .takes(object_schema())
            .answers_with(201, "Registered; Location and ETag tell where and which version.", id_schema())
            .answers(403, "The tenant has as many devices as it may.")
            .answers(404, "The tenant is unknown.")
            .answers(409, "The device exists.")
            .to(create, management.clone()),
        of_device(Route::get(PATH, reader, NO_BODY, "Read a device"))
            .answers_with(200, "The device; ETag tells which version.", object_schema())
            .answers(404, "There is none.")
            .to(read, management.clone()),
        of_device(Route::put(PATH, admin, LIMITS, "Replace a device"))
            .header("If-Match", "Replace it only if this is its version.")
            .takes(object_schema())
            .answers(204, "Replaced; ETag tells the new version.")
            .answers(404, "There is none.")
            .answers(412, "It has another version; nothing was changed.")
            .to(replace, management.clone()),
        of_device(Route::delete(PATH, admin, NO_BODY, "Delete a device with its credentials"))
            .header("If-Match", "Delete it only if this is its version.")
            .answers(204, "Deleted.")
            .answers(404, "There is none.")
            .answers(412, "It has another version; nothing was changed.")
            .to(delete, management.clone()),
    ]
}

/// A route whose path names a tenant and its device.
pub(super) fn of_device(route: RouteDraft) -> RouteDraft {
    route.param("tenant", TENANT).param("device", DEVICE).tenant_in("tenant")
}

async fn create_any(State(management): Shared, TenantPath(tenant): TenantPath, given: JsonBody<Device>) -> Answered {
    management.create_device(tenant, DeviceId::random(), given.or_default()).await
}

async fn create(State(management): Shared, OfDevice(tenant, device): OfDevice, given: JsonBody<Device>) -> Answered {
    management.create_device(tenant, device, given.or_default()).await
}

async fn read(State(management): Shared, OfDevice(tenant, device): OfDevice) -> Answered {
    let snapshot = management.0.registry.snapshot(&tenant);
    let Some(known) = snapshot.state.tenant(&tenant) else {
        return Err(RegistryFailure::Refused(RegistryRefusal::UnknownTenant { tenant }).into());
    };
    let Some(stored) = known.devices.get(&device) else {
        return Err(RegistryFailure::Refused(RegistryRefusal::UnknownDevice { tenant, device }).into());
    };
    Ok(shown(stored.version, management.with_status(stored, &tenant, device.as_str())?))
}

impl Management {
    fn with_status(
        &self,
        stored: &Stored<Device>,
        tenant: &TenantId,
        device: &str,
    ) -> Result<serde_json::Value, Problem> {
        let mut value = as_json(&*stored.value)?;
        let mut status = json!({
            "created": Timestamp(stored.created_ms),
            "updated": Timestamp(stored.updated_ms),
            "connected": self.0.connections.live.has(tenant, device),
        });
        if let Some(provisioned) = stored.provisioned {
            status["auto-provisioned"] = json!(true);
            status["auto-provisioning-notification-sent"] = json!(provisioned.is_told);
        }
        if let Some(at_ms) = self.0.streams.last_seen.at_ms(tenant, device, stored.created_ms) {
            status["last-seen"] = json!(Timestamp(at_ms));
        }
        value["status"] = status;
        Ok(value)
    }
}

async fn search(
    State(management): Shared,
    TenantPath(tenant): TenantPath,
    Query(query): Query<Vec<(String, String)>>,
    memory: AnswerMemory,
) -> Answered {
    let search = Search::read(query, Of::Devices)?;
    let snapshot = management.0.registry.snapshot(&tenant);
    let Some(known) = snapshot.state.tenant(&tenant).cloned() else {
        return Err(RegistryFailure::Refused(RegistryRefusal::UnknownTenant { tenant }).into());
    };
    let count = known.devices.len();
    let (shows, searched) = (management.clone(), tenant.clone());
    let find = move || {
        let is_asked_for =
            |id: &&DeviceId| search.is_gateway.is_none_or(|is_wanted| known.is_gateway(id.as_str()) == is_wanted);
        let devices = known.devices.iter().filter(|(id, _)| is_asked_for(id));
        let items = devices.map(|(id, stored)| {
            let id = id.as_str();
            let with_status = || shows.with_status(stored, &tenant, id);
            SearchItem { id, shown: move || with_id(id, with_status()?) }
        });
        search.find(items, memory)
    };
    management.search(Some(&searched), count, find).await
}

async fn replace(
    State(management): Shared,
    OfDevice(tenant, device): OfDevice,
    condition: VersionCondition,
    given: JsonBody<Device>,
) -> Answered {
    let value: Arc<Device> = Arc::new(given.or_default());
    management.check_device(&tenant, &value)?;
    let command = RegistryCommand::ReplaceDevice { tenant: tenant.clone(), device, value, condition };
    management.change(&tenant, command).await
}

async fn delete(
    State(management): Shared,
    OfDevice(tenant, device): OfDevice,
    condition: VersionCondition,
) -> Answered {
    let command = RegistryCommand::DeleteDevice { tenant: tenant.clone(), device, condition };
    management.change(&tenant, command).await
}

async fn delete_all(State(management): Shared, TenantPath(tenant): TenantPath) -> Answered {
    management.0.registry.delete_all(&tenant, RegistryCommand::DeleteDevices { tenant: tenant.clone() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl Management {
    fn check_device(&self, tenant: &TenantId, value: &Device) -> Result<(), Problem> {
        value.check()?;
        check_device(&value.ext)?;
        check_rates(&value.ext)?;
        // A device of an unknown tenant is refused by its owner.
        let of_tenant = self.0.registry.tenant(tenant).unwrap_or_default();
        self.0.ext_rules.check_device(of_tenant.ext(), &value.ext).map_err(bad_ext)
    }

    async fn create_device(&self, tenant: TenantId, device: DeviceId, value: Device) -> Answered {
        self.check_device(&tenant, &value)?;
        let location = format!("/v1/devices/{tenant}/{device}");
        let command =
            RegistryCommand::CreateDevice { tenant: tenant.clone(), device: device.clone(), value: Arc::new(value) };
        let outcome = self.0.registry.ask(&tenant, command).await?;
        stored(outcome, |version| created(&location, device.as_str(), version))
    }
}
