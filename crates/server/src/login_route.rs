//! `/api/login`: how callers log in, and who a caller with credentials is.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Caller, Content, EVERY_TENANT, Limits, Reach, RoleName, Route, Routes};
use millstream_types::AccessScope;
use serde_json::{Value, json};

use crate::oidc::{LoginEndpoints, OidcConfig, OidcProvider};
use crate::tokens::Tokens;

const LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: Duration::from_secs(10) };

/// The parts that know of logins.
#[derive(Clone)]
struct Logins {
    tokens: Arc<Tokens>,
    oidc: Option<Arc<OidcProvider>>,
}

pub(crate) fn routes(tokens: &Arc<Tokens>, oidc: Option<&Arc<OidcProvider>>) -> Routes {
    let text = || json!({"type": "string"});
    let prefixes = || json!({"type": "array", "items": {"type": "string"}});
    let perhaps_text = || json!({"type": ["string", "null"]});
    let schema = json!({
        "type": "object",
        "required": ["required", "oidc", "caller"],
        "properties": {
            "required": {"type": "boolean"},
            "oidc": {
                "type": ["object", "null"],
                "required": ["issuer", "authorization_endpoint", "token_endpoint", "client_id", "scope"],
                "properties": {
                    "issuer": text(),
                    "authorization_endpoint": perhaps_text(),
                    "token_endpoint": perhaps_text(),
                    "end_session_endpoint": perhaps_text(),
                    "client_id": text(),
                    "scope": text(),
                },
            },
            "caller": {
                "type": ["object", "null"],
                "required": ["name", "tenant", "roles", "limits"],
                "properties": {
                    "name": text(),
                    "tenant": text(),
                    "roles": {"type": "array", "items": {"enum": RoleName::ALL}},
                    "limits": {
                        "type": ["object", "null"],
                        "required": ["topics", "types", "keys"],
                        "properties": {"topics": prefixes(), "types": prefixes(), "keys": prefixes()},
                    },
                },
            },
        },
    });
    let says = "`required` tells if callers need credentials, `oidc` where a browser gets them (its endpoints are null until the provider has \
                answered), and `caller` who the \
                Authorization header is; its tenant is `*` for a caller of all tenants, and its `limits` are the prefixes that it is \
                limited to, null without a limit.";
    Routes::new("login").route(
        Route::get("/api/login", Access::OptionalLogin, LIMITS, "Tell how to log in, and who the caller is")
            .answers_with(200, says, Content::json(schema))
            .to(show, Logins { tokens: Arc::clone(tokens), oidc: oidc.cloned() }),
    )
}

async fn show(State(Logins { tokens, oidc }): State<Logins>, caller: Option<Caller>) -> Response {
    let shown = json!({
        "required": tokens.logins.are_required(),
        "oidc": oidc.as_deref().and_then(show_provider),
        "caller": caller.as_ref().map(show_caller),
    });
    ([(CACHE_CONTROL, HeaderValue::from_static("no-store"))], axum::Json(shown)).into_response()
}

/// The provider as browsers use it; `None` without a client for the console.
fn show_provider(provider: &OidcProvider) -> Option<Value> {
    let OidcConfig { issuer, client_id, scope, .. } = provider.config();
    let LoginEndpoints { authorization_endpoint, token_endpoint, end_session_endpoint } = provider.endpoints();
    (!client_id.is_empty()).then(|| {
        json!({
            "issuer": issuer,
            "authorization_endpoint": authorization_endpoint,
            "token_endpoint": token_endpoint,
            "end_session_endpoint": end_session_endpoint,
            "client_id": client_id,
            "scope": scope,
        })
    })
}

fn show_caller(caller: &Caller) -> Value {
    let roles: Vec<RoleName> = RoleName::ALL.into_iter().filter(|role| caller.roles.has((*role).into())).collect();
    let tenant = match caller.reach() {
        Reach::OneTenant => caller.tenant.as_str(),
        Reach::EveryTenant => EVERY_TENANT,
    };
    json!({"name": caller.name, "tenant": tenant, "roles": roles, "limits": show_limits(&caller.scope)})
}

/// The prefixes to which a caller is limited; `None` if it has all of its tenant.
fn show_limits(scope: &AccessScope) -> Option<Value> {
    scope.is_limited().then(|| {
        json!({
            "topics": scope.topics(),
            "types": scope.types(),
            "keys": scope.keys(),
            "groups": scope.groups(),
            "transactional_ids": scope.transactional_ids(),
        })
    })
}
