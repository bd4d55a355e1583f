//! The claims of a token whose signature is right: its times and audience, and who the caller is.
//!
//! Refusals name claims, never their values, except times and the audience.

use millstream_http::{EVERY_TENANT, Problem, Reason, RoleName};
use millstream_types::{ErrorCode, TenantId, iso_time};
use serde_json::Value;

use super::config::OidcConfig;

const NAME_MAX_CHARS: usize = 256;

/// A caller, as the claims of its token tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClaimedCaller {
    pub(super) name: String,
    /// `None` for all tenants.
    pub(super) tenant: Option<TenantId>,
    pub(super) roles: Vec<RoleName>,
    /// The moment from which on the token is refused, with the skew.
    pub(super) expires_ms: i64,
}

/// The refusal of a token that is no login: 401.
pub(super) fn refuse(detail: String) -> Problem {
    Problem::new(Reason::Code(ErrorCode::Unauthenticated), format!("the token is refused: {detail}"))
}

/// The refusal of a login that has no rights here: 403.
fn forbid(detail: String) -> Problem {
    Problem::forbidden(format!("the token gives no access: {detail}"))
        .remedy("have the administrator of the identity provider correct the claim, or correct [oidc]")
}

/// Checks the issuer, which tells whose keys verify the token.
pub(super) fn check_issuer(claims: &Value, config: &OidcConfig) -> Result<(), Problem> {
    if claims["iss"] == *config.issuer {
        return Ok(());
    }
    Err(refuse("its iss is not the identity provider of this server".to_owned())
        .rule(format!("iss is {}", config.issuer))
        .remedy("get a token from that provider"))
}

impl ClaimedCaller {
    /// Checks the claims at `now_ms`.
    pub(super) fn of(claims: &Value, config: &OidcConfig, now_ms: i64) -> Result<Self, Problem> {
        let expires_ms = check_times(claims, config, now_ms)?;
        check_audience(&claims["aud"], config)?;
        Ok(Self {
            name: name(claims, config)?,
            tenant: tenant(claims, config)?,
            roles: roles(claims, config)?,
            expires_ms,
        })
    }
}

/// Checks the times. Returns the end of the token.
fn check_times(claims: &Value, config: &OidcConfig, now_ms: i64) -> Result<i64, Problem> {
    let skew_ms = i64::from(config.clock_skew_s) * 1_000;
    let Some(expires_ms) = time_ms(&claims["exp"]) else {
        return Err(refuse("it lacks the claim exp, a number of seconds since 1970".to_owned()));
    };
    let ends_ms = expires_ms.saturating_add(skew_ms);
    if now_ms >= ends_ms {
        return Err(refuse(format!("it has expired at {}", iso_time(expires_ms))).remedy("get a new token"));
    }
    for claim in ["nbf", "iat"] {
        let Some(value) = claims.get(claim) else { continue };
        let Some(begins_ms) = time_ms(value) else {
            return Err(refuse(format!("its claim {claim} is no number of seconds since 1970")));
        };
        if begins_ms.saturating_sub(skew_ms) > now_ms {
            return Err(refuse(format!("it begins at {} ({claim})", iso_time(begins_ms)))
                .rule(format!("clocks differ by oidc.clock_skew_s = {} at most", config.clock_skew_s))
                .remedy("set the clocks of provider and server"));
        }
    }
    Ok(ends_ms)
}

/// A time of a token in milliseconds. Times far from now are cut.
fn time_ms(value: &Value) -> Option<i64> {
    const FAR_S: f64 = 1e11;
    value.as_f64().map(|seconds| (seconds.clamp(-FAR_S, FAR_S) * 1_000.0) as i64)
}

fn check_audience(audience: &Value, config: &OidcConfig) -> Result<(), Problem> {
    let is_meant = match audience {
        Value::String(one) => *one == config.audience,
        Value::Array(several) => several.iter().any(|one| *one == *config.audience),
        _ => false,
    };
    if is_meant {
        return Ok(());
    }
    Err(refuse("it is meant for others: its aud does not name this server".to_owned())
        .value(audience)
        .rule(format!("aud is, or contains, oidc.audience = {}", config.audience))
        .remedy("ask the provider for a token for that audience"))
}

fn name(claims: &Value, config: &OidcConfig) -> Result<String, Problem> {
    let path = &config.name_claim;
    let name = claim(claims, path).and_then(Value::as_str);
    let is_legal =
        |name: &&str| (1..=NAME_MAX_CHARS).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    name.filter(is_legal).map(str::to_owned).ok_or_else(|| {
        forbid(format!("it lacks the claim '{path}'"))
            .rule(format!("oidc.name_claim is a text of 1 to {NAME_MAX_CHARS} characters"))
    })
}

fn tenant(claims: &Value, config: &OidcConfig) -> Result<Option<TenantId>, Problem> {
    let path = &config.tenant_claim;
    if path.is_empty() {
        // Checked at the start.
        return Ok(TenantId::new(&config.tenant).ok());
    }
    let wrong =
        |why: &str| forbid(format!("{why} the claim '{path}'")).rule("oidc.tenant_claim names one tenant, or '*'");
    let named = match claim(claims, path) {
        None | Some(Value::Null) => return Err(wrong("it lacks")),
        Some(Value::String(named)) => named,
        Some(Value::Array(one)) => match &one[..] {
            [Value::String(named)] => named,
            _ => return Err(wrong("not one tenant is in")),
        },
        Some(_) => return Err(wrong("no text is in")),
    };
    if named == EVERY_TENANT {
        return Ok(None);
    }
    TenantId::new(named).map(Some).map_err(|_| wrong("no legal tenant is in"))
}

fn roles(claims: &Value, config: &OidcConfig) -> Result<Vec<RoleName>, Problem> {
    let path = &config.roles_claim;
    let given: Vec<&str> = match claim(claims, path) {
        Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => return Err(forbid(format!("it lacks the claim '{path}'")).rule("oidc.roles_claim is a list of roles")),
    };
    let gives = |role: &RoleName| config.roles.that_give(*role).iter().any(|known| given.contains(&known.as_str()));
    let roles: Vec<RoleName> = RoleName::ALL.into_iter().filter(gives).collect();
    if roles.is_empty() {
        return Err(forbid(format!("no role here is in the claim '{path}'"))
            .rule("oidc.roles.reader, oidc.roles.writer and oidc.roles.admin name the provider's roles that count"));
    }
    Ok(roles)
}

/// The claim at a path: its whole name, or names of nested objects with dots between them. Names may have dots.
fn claim<'a>(claims: &'a Value, path: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(path) {
        return Some(found);
    }
    let dots = path.match_indices('.').map(|(at, _)| at);
    dots.filter_map(|at| claims.get(&path[..at]).and_then(|inner| claim(inner, &path[at + 1..]))).next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::config::OidcRoles;
    use super::*;

    const NOW_S: i64 = 1_800_000_000;

    fn config() -> OidcConfig {
        OidcConfig {
            issuer: "https://id.example".to_owned(),
            audience: "millstream".to_owned(),
            tenant_claim: "tenant".to_owned(),
            roles_claim: "realm_access.roles".to_owned(),
            roles: OidcRoles { admin: vec!["ops".to_owned(), "root".to_owned()], ..OidcRoles::default() },
            ..OidcConfig::default()
        }
    }

    fn good() -> Value {
        json!({
            "iss": "https://id.example", "sub": "f3", "aud": ["other", "millstream"], "exp": NOW_S + 60, "iat": NOW_S,
            "tenant": "acme", "realm_access": {"roles": ["offline_access", "reader", "root"]},
        })
    }

    fn with(changes: Value) -> Value {
        let mut claims = good();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                _ => claims[name] = value.clone(),
            }
        }
        claims
    }

    #[test]
    fn claims_that_break_a_rule_are_refused_by_their_name() {
        for (changes, status, told) in [
            (json!({"exp": null}), 401, "lacks the claim exp"),
            (json!({"exp": "soon"}), 401, "lacks the claim exp"),
            (json!({"exp": NOW_S - 60}), 401, "it has expired at 2027-01-15T07:59:00"),
            (json!({"nbf": NOW_S + 61}), 401, "(nbf)"),
            (json!({"iat": NOW_S + 61}), 401, "(iat)"),
            (json!({"iat": "now"}), 401, "claim iat is no number"),
            (json!({"aud": null}), 401, "its aud"),
            (json!({"aud": "other"}), 401, "'\"other\"'"),
            (json!({"aud": ["other", "millstream2"]}), 401, "oidc.audience = millstream"),
            (json!({"aud": {"millstream": 1}}), 401, "its aud"),
            (json!({"sub": null}), 403, "lacks the claim 'sub'"),
            (json!({"sub": "a\nb"}), 403, "claim 'sub'"),
            (json!({"tenant": null}), 403, "lacks the claim 'tenant'"),
            (json!({"tenant": "a b"}), 403, "no legal tenant is in the claim 'tenant'"),
            (json!({"tenant": ["a", "b"]}), 403, "not one tenant"),
            (json!({"tenant": 7}), 403, "no text"),
            (json!({"realm_access": null}), 403, "lacks the claim 'realm_access.roles'"),
            (json!({"realm_access": {"roles": []}}), 403, "no role here"),
            (json!({"realm_access": {"roles": ["user", 7]}}), 403, "no role here"),
        ] {
            let refusal = ClaimedCaller::of(&with(changes.clone()), &config(), NOW_S * 1_000).unwrap_err();
            let text = refusal.text();
            assert!(refusal.status() == status && text.contains(told), "{changes}: {text}");
            assert!(!text.contains("a b") && !text.contains("user"), "no values: {text}");
        }
        let issuer = |issuer: &str| check_issuer(&json!({"iss": issuer}), &config());
        assert!(issuer("https://id.example").is_ok());
        for wrong in ["https://id.example/", "http://id.example", ""] {
            assert!(issuer(wrong).unwrap_err().text().contains("iss is https://id.example"), "{wrong}");
        }
    }

    #[test]
    fn claims_tell_name_tenant_roles_and_end() {
        let of =
            |changes: Value, config: &OidcConfig| ClaimedCaller::of(&with(changes), config, NOW_S * 1_000).unwrap();
        let caller = of(json!({}), &config());
        assert_eq!((caller.name.as_str(), caller.tenant.unwrap().as_str()), ("f3", "acme"));
        assert_eq!(caller.roles, [RoleName::Reader, RoleName::Admin]);
        assert_eq!(caller.expires_ms, (NOW_S + 120) * 1_000);
        assert_eq!(of(json!({"tenant": "*"}), &config()).tenant, None);
        assert_eq!(of(json!({"tenant": ["acme"]}), &config()).tenant.unwrap().as_str(), "acme");
        for (aud, exp) in [(json!("millstream"), json!(NOW_S - 59)), (json!(["millstream"]), json!(1.8e9 + 0.5))] {
            of(json!({"aud": aud, "exp": exp, "iat": NOW_S + 60}), &config());
        }
        for (path, claims) in [
            ("https://shop.example/roles", json!({"https://shop.example/roles": "user reader"})),
            ("resource_access.my.app.roles", json!({"resource_access": {"my.app": {"roles": ["reader"]}}})),
            ("scope", json!({"scope": "openid reader"})),
        ] {
            let config = OidcConfig { roles_claim: path.to_owned(), tenant_claim: String::new(), ..config() };
            let caller = of(claims, &config);
            assert_eq!(caller.roles, [RoleName::Reader], "{path}");
            assert_eq!(caller.tenant, Some(TenantId::default()));
        }
        let everywhere = OidcConfig { tenant: "*".to_owned(), tenant_claim: String::new(), ..config() };
        assert_eq!(of(json!({}), &everywhere).tenant, None);
    }
}
