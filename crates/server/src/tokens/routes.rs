//! `/api/tokens`: makes, lists and revokes API tokens.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_flow::Jobs;
use millstream_http::{
    Access, AuditedObject, AuditedTenant, Caller, Content, EVERY_TENANT, Json, Limits, Path, Problem, Query, Reach,
    Reason, RoleName, Route, Routes,
};
use millstream_query::Engine;
use millstream_types::{ErrorCode, Role, TenantId, iso_time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::record::{TokenAnswer, TokenLimit, TokenRecord};
use super::submissions::Submissions;
use super::{NewToken, Tokens};
use crate::streams::duration;

const LIMITS: Limits = Limits {
    body_max_bytes: 16 << 10,
    body_max_setting: "none: a token's description has at most 16 KiB",
    timeout: Duration::from_secs(30),
};
const NAME_MAX_CHARS: usize = 100;
/// Most prefixes of each kind.
const PREFIXES_MAX: usize = 100;
const PREFIX_MAX_CHARS: usize = 256;

/// The body of `POST /api/tokens`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRequest {
    name: String,
    tenant: Option<String>,
    roles: Vec<RoleName>,
    topics: Option<Vec<String>>,
    types: Option<Vec<String>>,
    keys: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    transactional_ids: Option<Vec<String>>,
    expires: Option<String>,
    lifetime: Option<Value>,
}

/// The parameters of `DELETE /api/tokens/{name}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Revocation {
    #[serde(default)]
    stop: bool,
}

#[derive(Clone)]
struct RevocationState {
    tokens: Arc<Tokens>,
    jobs: Arc<Jobs>,
    queries: Arc<Engine>,
}

pub(crate) fn routes(tokens: &Arc<Tokens>, jobs: &Arc<Jobs>, queries: &Arc<Engine>) -> Routes {
    let admin = Access::Role(Role::Admin);
    let object = || Content::json(json!({"type": "object"}));
    let state = RevocationState { tokens: Arc::clone(tokens), jobs: Arc::clone(jobs), queries: Arc::clone(queries) };
    Routes::new("tokens")
        .route(
            Route::post("/api/tokens", admin, LIMITS, "Make an API token; its secret is in this answer only")
                .takes(Content::json(json!({
                    "type": "object",
                    "required": ["name", "roles"],
                    "properties": {
                        "name": {"type": "string"},
                        "tenant": {"type": "string"},
                        "roles": {"type": "array", "items": {"enum": ["reader", "writer", "admin"]}},
                        "topics": {"type": "array", "items": {"type": "string"}},
                        "types": {"type": "array", "items": {"type": "string"}},
                        "keys": {"type": "array", "items": {"type": "string"}},
                        "groups": {"type": "array", "items": {"type": "string"}},
                        "transactional_ids": {"type": "array", "items": {"type": "string"}},
                        "expires": {"type": "string"},
                        "lifetime": {"type": ["string", "integer"]},
                    },
                })))
                .answers_with(201, "The token; `token` is its secret, which the server does not keep.", object())
                .answers(400, "A member is missing or invalid.")
                .answers(403, "The token is for another tenant, or for all, than the caller's.")
                .answers(409, "A token has that name, or there are as many as there may be, of the tenant or in all.")
                .to(create, Arc::clone(tokens)),
        )
        .route(
            Route::get("/api/tokens", admin, LIMITS, "List the API tokens that were made, without secrets")
                .answers_with(
                    200,
                    "Those of the caller's tenant; all for a caller of all tenants.",
                    Content::json(json!({"type": "array"})),
                )
                .to(list, Arc::clone(tokens)),
        )
        .route(
            Route::delete("/api/tokens/{name}", admin, LIMITS, "Revoke an API token at once")
                .param("name", "The token's name.")
                .query("stop", "`true` stops the jobs and kept queries that it has submitted; they go on if left out.")
                .answers_with(
                    200,
                    "It is refused from now on. The answer lists the running jobs and kept queries that it has submitted.",
                    Content::json(json!({
                        "type": "object",
                        "properties": {
                            "jobs": {"type": "array"},
                            "queries": {"type": "array"},
                            "stopped": {"type": "boolean"},
                        },
                    })),
                )
                .answers(
                    204,
                    "It is refused from now on, connections that use it end, and it has left no running jobs or kept queries.",
                )
                .answers(404, "No token of that name was made in the caller's tenant.")
                .to(revoke, state),
        )
}

async fn create(
    State(tokens): State<Arc<Tokens>>,
    caller: Caller,
    Json(request): Json<TokenRequest>,
) -> Result<Response, Problem> {
    let name = request.name.clone();
    let new = request.checked(&caller, tokens.wall.now_ms())?;
    let taken = || {
        Problem::new(Reason::Code(ErrorCode::Conflict), format!("there is a token named '{name}' already"))
            .value(&name)
            .rule("names of tokens differ, over all tenants")
            .remedy("choose another name, or revoke that token first")
    };
    if tokens.logins.is_configured(&name) {
        return Err(taken());
    }
    let (secret, answer) = tokens.create(new).await.map_err(|error| Problem::from_error(error.code(), &error))?;
    match answer {
        TokenAnswer::Created(name, record) => {
            let mut shown = show(&name, &record);
            shown["token"] = secret.into();
            let no_store = (CACHE_CONTROL, HeaderValue::from_static("no-store"));
            let made = Extension(AuditedObject(format!("/api/tokens/{name}")));
            let created = (StatusCode::CREATED, [no_store], made, axum::Json(shown)).into_response();
            Ok(concerning(&record, created))
        }
        TokenAnswer::Full(limit) => Err(full(&limit)),
        _ => Err(taken()),
    }
}

/// The refusal of a token for which there is no room.
fn full(limit: &TokenLimit) -> Problem {
    let most = limit.most();
    let (what, rule) = match limit {
        TokenLimit::OneTenant(tenant) => {
            (format!("tenant '{tenant}' has as many tokens as a tenant may have"), "of one tenant")
        }
        TokenLimit::AllTenants => {
            ("tenants have as many tokens as they may have together".to_owned(), "beside those of tenant '*'")
        }
        TokenLimit::Total => ("there are as many tokens as there may be".to_owned(), "over all tenants"),
    };
    Problem::new(Reason::Code(ErrorCode::Conflict), what)
        .value(most)
        .rule(format!("at most {most} tokens {rule}"))
        .remedy("revoke tokens that have expired or are no longer used")
}

async fn list(State(tokens): State<Arc<Tokens>>, caller: Caller) -> Response {
    let shown: Vec<Value> = tokens
        .all()
        .iter()
        .filter(|(_, record)| record.is_of(own_tenant(&caller)))
        .map(|(name, record)| show(name, record))
        .collect();
    axum::Json(shown).into_response()
}

async fn revoke(
    State(RevocationState { tokens, jobs, queries }): State<RevocationState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(Revocation { stop }): Query<Revocation>,
) -> Result<Response, Problem> {
    let tenant = own_tenant(&caller).cloned();
    let answer =
        tokens.revoke(name.clone(), tenant.clone()).await.map_err(|error| Problem::from_error(error.code(), &error))?;
    match answer {
        TokenAnswer::Revoked(record) => {
            let left = Submissions::of(&jobs, &queries, tenant.as_ref(), &name);
            if left.is_empty() {
                return Ok(concerning(&record, StatusCode::NO_CONTENT.into_response()));
            }
            if stop {
                left.stop(&jobs, &queries).await;
            }
            Ok(concerning(&record, axum::Json(left.shown(stop)).into_response()))
        }
        _ => {
            let unknown = Problem::new(Reason::Code(ErrorCode::NotFound), format!("no token '{name}' was made here"));
            Err(match tokens.logins.is_configured(&name) && caller.reach() == Reach::EveryTenant {
                true => unknown.rule("it is one of the configuration").remedy("remove it from the file and restart"),
                false => unknown.remedy("'GET /api/tokens' or 'millstream token list' shows the tokens there are"),
            }
            .value(name))
        }
    }
}

/// The answer, marked with the tenant of the token; one of all tenants counts for that of the caller.
fn concerning(record: &TokenRecord, mut answer: Response) -> Response {
    if let Some(tenant) = record.tenant.as_deref().and_then(|tenant| TenantId::new(tenant).ok()) {
        answer.extensions_mut().insert(AuditedTenant(tenant));
    }
    answer
}

/// The tenant whose tokens the caller manages; `None` for a caller of all tenants.
fn own_tenant(caller: &Caller) -> Option<&TenantId> {
    (caller.reach() == Reach::OneTenant).then_some(&caller.tenant)
}

/// A token as it is listed.
fn show(name: &str, record: &TokenRecord) -> Value {
    let some = |prefixes: &Vec<String>| (!prefixes.is_empty()).then(|| json!(prefixes));
    let mut shown = json!({
        "name": name,
        "tenant": record.tenant.as_deref().unwrap_or(EVERY_TENANT),
        "roles": record.roles,
        "created": iso_time(record.created_ms),
        "created_by": record.created_by,
    });
    let optional = [
        ("topics", some(&record.topics)),
        ("types", some(&record.types)),
        ("keys", some(&record.keys)),
        ("groups", some(&record.groups)),
        ("transactional_ids", some(&record.transactional_ids)),
        ("expires", record.expires_ms.map(|ms| iso_time(ms).into())),
    ];
    for (member, value) in optional {
        if let Some(value) = value {
            shown[member] = value;
        }
    }
    shown
}

impl TokenRequest {
    fn checked(self, caller: &Caller, now_ms: i64) -> Result<NewToken, Problem> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
        if !(1..=NAME_MAX_CHARS).contains(&self.name.len()) || !self.name.chars().all(legal) {
            let rule = format!("1 to {NAME_MAX_CHARS} of the characters a-z A-Z 0-9 . _ - @");
            return Err(bad("name", &self.name, rule));
        }
        if self.roles.is_empty() {
            return Err(bad("roles", "[]", "one or more of reader, writer, admin"));
        }
        let tenant = self.tenant(caller)?;
        let expires_ms = self.expires_ms(now_ms)?;
        let topics = prefixes("topics", self.topics)?;
        let types = prefixes("types", self.types)?;
        let keys = prefixes("keys", self.keys)?;
        if let Some(prefix) =
            keys.iter().find(|prefix| prefix.split_once('/').is_none_or(|(bucket, _)| bucket.is_empty()))
        {
            return Err(bad(
                "keys",
                prefix,
                "each is a bucket, a slash and the beginning of its keys, as in shop/img/",
            ));
        }
        let groups = prefixes("groups", self.groups)?;
        let transactional_ids = prefixes("transactional_ids", self.transactional_ids)?;
        let narrowed = [("groups", &groups), ("transactional_ids", &transactional_ids)];
        if let Some((member, given)) = narrowed.into_iter().find(|(_, given)| !given.is_empty() && topics.is_empty()) {
            return Err(bad(member, &given[0], "it narrows a token that is limited to topics")
                .remedy("give 'topics' as well, or leave it out"));
        }
        let (name, roles, created_by) = (self.name, self.roles, caller.name.clone());
        Ok(NewToken { name, tenant, roles, topics, types, keys, groups, transactional_ids, expires_ms, created_by })
    }

    /// The tenant of the token; `None` for all.
    fn tenant(&self, caller: &Caller) -> Result<Option<TenantId>, Problem> {
        let wanted = match self.tenant.as_deref() {
            None => Some(caller.tenant.clone()),
            Some(EVERY_TENANT) => None,
            Some(named) => Some(TenantId::new(named)?),
        };
        if caller.reach() == Reach::OneTenant && wanted.as_ref() != Some(&caller.tenant) {
            let named = self.tenant.clone().unwrap_or_default();
            return Err(Problem::forbidden(format!(
                "'{}' makes tokens of tenant '{}' only",
                caller.name, caller.tenant
            ))
            .value(named)
            .rule("an admin of one tenant makes tokens of that tenant")
            .remedy("leave 'tenant' out, or use a token that is good for tenant '*'"));
        }
        Ok(wanted)
    }

    fn expires_ms(&self, now_ms: i64) -> Result<Option<i64>, Problem> {
        match (&self.expires, &self.lifetime) {
            (Some(expires), Some(_)) => Err(bad("expires", expires, "give either 'expires' or 'lifetime'")),
            (None, None) => Ok(None),
            (None, Some(lifetime)) => {
                let wrong = |rule: &'static str| bad("lifetime", &lifetime.to_string(), rule);
                let lifetime = duration(lifetime).map_err(wrong)?;
                let ms = i64::try_from(lifetime.as_millis()).ok().filter(|ms| *ms > 0);
                let end = ms
                    .and_then(|ms| now_ms.checked_add(ms))
                    .filter(|end| jiff::Timestamp::from_millisecond(*end).is_ok());
                end.map(Some).ok_or_else(|| wrong("a time that ends, such as 30d"))
            }
            (Some(expires), None) => {
                let time: Option<jiff::Timestamp> = expires.parse().ok();
                let time = time.map(jiff::Timestamp::as_millisecond).filter(|time| *time > now_ms);
                time.map(Some).ok_or_else(|| bad("expires", expires, "a time to come, such as 2030-01-31T12:00:00Z"))
            }
        }
    }
}

/// Checks prefixes; none are no limit.
fn prefixes(member: &str, given: Option<Vec<String>>) -> Result<Vec<String>, Problem> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if !(1..=PREFIXES_MAX).contains(&given.len()) {
        return Err(bad(
            member,
            &given.len().to_string(),
            format!("1 to {PREFIXES_MAX} prefixes; leave it out for no limit"),
        ));
    }
    match given.iter().find(|prefix| !(1..=PREFIX_MAX_CHARS).contains(&prefix.chars().count())) {
        Some(prefix) => Err(bad(member, prefix, format!("each prefix has 1 to {PREFIX_MAX_CHARS} characters"))),
        None => Ok(given),
    }
}

fn bad(member: &str, value: &str, rule: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(Reason::Code(ErrorCode::Invalid), format!("member '{member}' cannot be taken")).value(value).rule(rule)
}
