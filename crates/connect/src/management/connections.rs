//! `/v1/connections`: the connected clients of a tenant, and the end of a connection.

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, AnswerMemory, Content, Json, Path, Problem, Query, Reason, Route};
use millstream_types::{ErrorCode, Role, TenantId};
use serde_json::{Value, json};

use super::condition::bad;
use super::request::TenantPath;
use super::search::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, number};
use super::{Answered, Management, NO_BODY, Shared};
use crate::connection_table::{ClientProtocol, ConnectionFilter, Figures, ListedConnection};
use crate::registry::{RegistryFailure, RegistryRefusal};
use crate::timestamp::Timestamp;

const OF_TENANT: &str = "/v1/connections/{tenant}";
const PATH: &str = "/v1/connections/{tenant}/{id}";
const TENANT: &str = "Id of the tenant that the client has logged in to.";
/// Approximate memory of a listed connection as JSON, without its topic filters.
const ITEM_BYTES: usize = 2 << 10;
/// The same of a topic filter, without its text.
const FILTER_BYTES: usize = 64;

pub(super) fn routes(management: &Management) -> Vec<Route> {
    let (admin, reader) = (Access::Role(Role::Admin), Access::Role(Role::Reader));
    vec![
        Route::get(
            OF_TENANT,
            reader,
            NO_BODY,
            "List the clients that are connected over MQTT and AMQP, the oldest connection first",
        )
        .param("tenant", TENANT)
        .tenant_in("tenant")
        .query("pageSize", "Results on a page, 0 to 200; 30 if left out.")
        .query("pageOffset", "Results to pass over; 0 if left out.")
        .query("protocol", "Only clients of this protocol: mqtt or amqp.")
        .query("login", "Only clients that have logged in with this name.")
        .answers_with(200, "The connections of the page, and how many match in all.", connections_schema())
        .answers(404, "The tenant is unknown.")
        .to(list, management.clone()),
        Route::delete(PATH, admin, NO_BODY, "End the connection of a client; its credentials stay as they are")
            .param("tenant", TENANT)
            .param("id", "Id of the connection, as the list shows it.")
            .tenant_in("tenant")
            .answers(204, "The connection is told to end.")
            .answers(404, "The tenant is unknown, or has no such connection.")
            .to(end, management.clone()),
    ]
}

/// The tenant and the connection of a path.
struct ConnectionPath(TenantId, String);

impl<S: Sync> FromRequestParts<S> for ConnectionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path((tenant, id)) = Path::<(String, String)>::from_request_parts(parts, state).await?;
        Ok(Self(TenantId::new(&tenant)?, id))
    }
}

/// The part of the list that is asked for.
struct Asked {
    filter: ConnectionFilter,
    size: usize,
    offset: usize,
}

impl Asked {
    fn read(query: Vec<(String, String)>) -> Result<Self, Problem> {
        let mut asked = Self { filter: ConnectionFilter::default(), size: PAGE_SIZE_DEFAULT, offset: 0 };
        for (name, value) in query {
            match name.as_str() {
                "pageSize" => asked.size = number(&name, &value, PAGE_SIZE_MAX)?,
                "pageOffset" => asked.offset = number(&name, &value, usize::MAX)?,
                "protocol" => asked.filter.protocol = Some(protocol(&value)?),
                "login" => asked.filter.set_login(&value),
                _ => {
                    return Err(bad("the list of connections has no such parameter", &name)
                        .rule("pageSize, pageOffset, protocol and login")
                        .remedy("leave it out"));
                }
            }
        }
        Ok(asked)
    }
}

fn protocol(given: &str) -> Result<ClientProtocol, Problem> {
    ClientProtocol::ALL.into_iter().find(|known| known.as_str() == given).ok_or_else(|| {
        bad("clients of this protocol are not listed", given)
            .rule("protocol is mqtt or amqp")
            .remedy("send one of them, or leave it out")
    })
}

async fn list(
    State(management): Shared,
    TenantPath(tenant): TenantPath,
    Query(query): Query<Vec<(String, String)>>,
    memory: AnswerMemory,
) -> Answered {
    let asked = Asked::read(query)?;
    management.check_is_known(&tenant)?;
    let count = management.0.connection_table.count(&tenant);
    let (shows, listed) = (management.clone(), tenant.clone());
    management.in_background(Some(&tenant), count, move || shows.page(&listed, &asked, memory)).await
}

async fn end(State(management): Shared, ConnectionPath(tenant, id): ConnectionPath) -> Answered {
    management.check_is_known(&tenant)?;
    if management.0.connection_table.end(&tenant, &id) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Err(Problem::new(Reason::Code(ErrorCode::NotFound), "there is no such connection")
        .value(id)
        .rule("an id names a connection until it ends, and no other one after it")
        .remedy(format!("GET /v1/connections/{tenant} lists those there are")))
}

impl Management {
    fn check_is_known(&self, tenant: &TenantId) -> Result<(), Problem> {
        let snapshot = self.0.registry.snapshot(tenant);
        if snapshot.state.tenant(tenant).is_some_and(|known| known.tenant.is_some()) {
            return Ok(());
        }
        Err(RegistryFailure::Refused(RegistryRefusal::UnknownTenant { tenant: tenant.clone() }).into())
    }

    fn page(&self, tenant: &TenantId, asked: &Asked, mut memory: AnswerMemory) -> Answered {
        let (total, page) = self.0.connection_table.page(tenant, &asked.filter, asked.offset, asked.size);
        let mut result = Vec::with_capacity(page.len());
        let mut taken_bytes = 0;
        for connection in &page {
            let figures = connection.entry.figures();
            taken_bytes += ITEM_BYTES + filters_bytes(&figures);
            memory.cover(taken_bytes)?;
            result.push(shown(connection, figures));
        }
        let mut response: Response = Json(json!({"total": total, "result": result})).into_response();
        memory.hold_for(&mut response);
        Ok(response)
    }
}

fn filters_bytes(figures: &Figures) -> usize {
    match figures {
        Figures::Mqtt { subscriptions, .. } => {
            subscriptions.listed.iter().map(|filter| FILTER_BYTES + filter.len()).sum()
        }
        Figures::Amqp { .. } => 0,
    }
}

fn shown(connection: &ListedConnection, figures: Figures) -> Value {
    let entry = &connection.entry;
    let facts = &entry.facts;
    let mut shown = json!({
        "id": connection.id,
        "protocol": facts.protocol.as_str(),
        "address": facts.address.to_string(),
        "login": facts.login,
        "role": facts.role.as_str(),
        "since": Timestamp(entry.since_ms),
    });
    if let Some(device) = &facts.device {
        shown["device"] = json!(device);
    }
    if let Some(client_id) = entry.client_id() {
        shown["client-id"] = json!(client_id);
    }
    match figures {
        Figures::Mqtt { subscriptions, queued, in_flight } => {
            shown["subscriptions"] = json!(subscriptions.listed);
            shown["subscriptions-total"] = json!(subscriptions.total);
            shown["queued"] = json!(queued);
            shown["in-flight"] = json!(in_flight);
        }
        Figures::Amqp { sessions, links, in_flight } => {
            shown["sessions"] = json!(sessions);
            shown["links"] = json!(links);
            shown["in-flight"] = json!(in_flight);
        }
    }
    shown
}

fn connections_schema() -> Content {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer", "minimum": 0}));
    let item = json!({
        "type": "object",
        "properties": {
            "id": text,
            "protocol": {"type": "string", "enum": ClientProtocol::ALL.map(ClientProtocol::as_str)},
            "address": text,
            "login": {"type": ["string", "null"]},
            "role": {"type": "string", "enum": ["device", "application"]},
            "device": text,
            "client-id": text,
            "since": {"type": "string", "format": "date-time"},
            "subscriptions": {"type": "array", "items": text},
            "subscriptions-total": number,
            "queued": number,
            "in-flight": number,
            "sessions": number,
            "links": number,
        },
        "required": ["id", "protocol", "address", "login", "role", "since", "in-flight"],
    });
    let properties = json!({"total": number, "result": {"type": "array", "items": item}});
    Content::json(json!({"type": "object", "properties": properties, "required": ["total", "result"]}))
}
