//! `/v1/tenants`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, AnswerMemory, Problem, Query, Reason, Route};
use millstream_types::{ErrorCode, Role, TenantId};

use super::refusal::bad_ext;
use super::request::{JsonBody, TenantPath};
use super::search::{Of, Search, SearchItem, documented};
use super::{
    Answered, LIMITS, Management, NO_BODY, Shared, created, id_schema, list_schema, object_schema, replaced, shown,
};
use crate::registry::{
    Adapter, DeviceId, RegistryCommand, RegistryFailure, RegistryOutcome, RegistryRefusal, Tenant, Version,
    VersionCondition, check_limits, check_tenant,
};

const PATH: &str = "/v1/tenants/{tenant}";
const TENANT: &str = "Id of the tenant: 1 to 50 of a-z A-Z 0-9 - _ .";

pub(super) fn routes(management: &Management) -> Vec<Route> {
    let operator = Access::Operator(Role::Admin);
    vec![
        Route::post("/v1/tenants", operator, LIMITS, "Create a tenant with a generated id")
            .takes(object_schema())
            .answers_with(201, "Created; Location and ETag tell where and which version.", id_schema())
            .answers(409, "Its alias or a certificate authority belongs to another tenant.")
            .to(create_any, management.clone()),
        documented(Route::get("/v1/tenants", Access::Operator(Role::Reader), NO_BODY, "Search for tenants"))
            .answers_with(200, "The tenants of the page, and how many match in all.", list_schema())
            .to(search, management.clone()),
        Route::post(PATH, operator, LIMITS, "Create a tenant")
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .takes(object_schema())
            .answers_with(201, "Created; Location and ETag tell where and which version.", id_schema())
            .answers(409, "It exists, or its alias or a certificate authority belongs to another tenant.")
            .to(create, management.clone()),
        Route::get(PATH, Access::Role(Role::Reader), NO_BODY, "Read a tenant")
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .answers_with(200, "The tenant; ETag tells which version.", object_schema())
            .answers(404, "There is none.")
            .to(read, management.clone()),
        Route::put(PATH, operator, LIMITS, "Replace a tenant")
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .header("If-Match", "Replace it only if this is its version.")
            .takes(object_schema())
            .answers(204, "Replaced; ETag tells the new version.")
            .answers(404, "There is none.")
            .answers(409, "Its alias or a certificate authority belongs to another tenant.")
            .answers(412, "It has another version; nothing was changed.")
            .to(replace, management.clone()),
        Route::delete(PATH, operator, NO_BODY, "Delete a tenant with its devices and credentials")
            .param("tenant", TENANT)
            .tenant_in("tenant")
            .header("If-Match", "Delete it only if this is its version.")
            .answers(204, "Deleted.")
            .answers(404, "There is none.")
            .answers(412, "It has another version; nothing was changed.")
            .to(delete, management.clone()),
    ]
}

async fn create_any(State(management): Shared, given: JsonBody<Tenant>) -> Answered {
    let tenant = TenantId::new(DeviceId::random().as_str())?;
    management.create_tenant(tenant, given.or_default()).await
}

async fn create(State(management): Shared, TenantPath(tenant): TenantPath, given: JsonBody<Tenant>) -> Answered {
    management.create_tenant(tenant, given.or_default()).await
}

async fn search(
    State(management): Shared,
    Query(query): Query<Vec<(String, String)>>,
    memory: AnswerMemory,
) -> Answered {
    let search = Search::read(query, Of::Tenants)?;
    let registry = management.0.registry.clone();
    let count = registry.counts().0;
    let find = move || {
        let snapshots = registry.snapshots();
        let items = snapshots.iter().flat_map(|snapshot| snapshot.state.tenants()).map(|(id, stored)| {
            let id = id.as_str();
            SearchItem { id, shown: move || with_id(id, as_json(&*stored.value)?) }
        });
        search.find(items, memory)
    };
    management.search(None, count, find).await
}

/// A resource as a search shows it.
pub(super) fn with_id(id: &str, mut resource: serde_json::Value) -> Result<serde_json::Value, Problem> {
    resource["id"] = id.into();
    Ok(resource)
}

async fn read(State(management): Shared, TenantPath(tenant): TenantPath) -> Answered {
    let snapshot = management.0.registry.snapshot(&tenant);
    let stored = snapshot.state.tenant(&tenant).and_then(|known| known.tenant.as_deref());
    let stored = stored.ok_or(RegistryFailure::Refused(RegistryRefusal::UnknownTenant { tenant }))?;
    Ok(shown(stored.version, as_json(&*stored.value)?))
}

async fn replace(
    State(management): Shared,
    TenantPath(tenant): TenantPath,
    condition: VersionCondition,
    given: JsonBody<Tenant>,
) -> Answered {
    let value: Arc<Tenant> = Arc::new(given.or_default());
    management.check_tenant(&value)?;
    management.check_clash(&tenant, &value)?;
    let command = RegistryCommand::ReplaceTenant { tenant: tenant.clone(), value, condition };
    management.change(&tenant, command).await
}

async fn delete(State(management): Shared, TenantPath(tenant): TenantPath, condition: VersionCondition) -> Answered {
    let command = RegistryCommand::DeleteTenant { tenant: tenant.clone(), condition };
    management.0.registry.delete_all(&tenant, command).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) fn as_json(value: &impl serde::Serialize) -> Result<serde_json::Value, Problem> {
    serde_json::to_value(value).map_err(|error| Problem::internal(error.to_string()))
}

impl Management {
    async fn create_tenant(&self, tenant: TenantId, value: Tenant) -> Answered {
        self.check_tenant(&value)?;
        self.check_clash(&tenant, &value)?;
        let command = RegistryCommand::CreateTenant { tenant: tenant.clone(), value: Arc::new(value) };
        let outcome = self.0.registry.ask(&tenant, command).await?;
        if let Err(error) = self.0.streams.of(&tenant).await {
            // The first message tries again, and tells its sender if it fails again.
            tracing::warn!(%tenant, %error, "the topics of a new tenant could not be created");
        }
        let location = format!("/v1/tenants/{tenant}");
        stored(outcome, |version| created(&location, tenant.as_str(), version))
    }

    fn check_tenant(&self, value: &Tenant) -> Result<(), Problem> {
        check_tenant(&value.ext)?;
        value.adapters.as_deref().map_or(Ok(()), check_adapters)?;
        check_limits(&value.registration_limits, &value.resource_limits)?;
        value.trusted_ca.iter().try_for_each(|ca| ca.check())?;
        self.0.ext_rules.check_tenant(&value.ext).map_err(bad_ext)
    }

    fn check_clash(&self, tenant: &TenantId, value: &Tenant) -> Result<(), Problem> {
        let Some(what) = self.0.registry.clash(tenant, value) else { return Ok(()) };
        Err(Problem::new(Reason::Code(ErrorCode::Conflict), "another tenant has what must be one tenant's own")
            .value(what)
            .rule("an alias, and a certificate authority outside of a trust-anchor-group, belong to one tenant")
            .remedy("choose another, or remove it from the other tenant first"))
    }

    /// Hands a change that replaces or deletes one resource to the registry.
    pub(super) async fn change(&self, tenant: &TenantId, command: RegistryCommand) -> Answered {
        match self.0.registry.ask(tenant, command).await? {
            RegistryOutcome::Stored(version) => Ok(replaced(version)),
            RegistryOutcome::Deleted => Ok(StatusCode::NO_CONTENT.into_response()),
            RegistryOutcome::MoreToDelete => Err(Problem::internal("a change of one resource left more to delete")),
        }
    }
}

/// Refuses a list of adapters that is empty or names an adapter twice.
fn check_adapters(adapters: &[Adapter]) -> Result<(), Problem> {
    if adapters.is_empty() {
        return Err(Problem::invalid("the list of adapters is empty")
            .value("[]")
            .rule("adapters has an entry for each adapter that the tenant's devices may use")
            .remedy("leave it out, and they may use all, or set enabled of the tenant to false"));
    }
    let is_known = |(at, adapter): &(usize, &Adapter)| adapters[..*at].iter().any(|known| known.kind == adapter.kind);
    match adapters.iter().enumerate().find(is_known) {
        Some((_, twin)) => Err(Problem::invalid("two entries are of the same adapter")
            .value(&twin.kind)
            .rule("adapters has one entry for each type")
            .remedy("put what both say into one")),
        None => Ok(()),
    }
}

/// Answers a change that stores a resource.
pub(super) fn stored(outcome: RegistryOutcome, answer: impl FnOnce(Version) -> Response) -> Answered {
    match outcome {
        RegistryOutcome::Stored(version) => Ok(answer(version)),
        other => Err(Problem::internal(format!("a creation ended as {other:?}"))),
    }
}
