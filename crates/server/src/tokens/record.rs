//! The stored form of tokens: a view of the topic `_tokens`.

use std::sync::Arc;

use millstream_http::{ApiTokens, RegisteredToken, RoleName};
use millstream_net::{ScramCredential, ScramMechanism};
use millstream_types::{AccessScope, StateTopic, TenantId};
use millstream_view::{DecodeError, Draft, Encoded, InState, View};
use serde::{Deserialize, Serialize};

/// Version of the record format; the first byte of each record's value.
const VERSION: u8 = StateTopic::Tokens.version();
/// Most tokens that are good for one tenant.
const TENANT_TOKENS_MAX: usize = 1_000;
/// Most tokens that are good for one tenant each. The rest is left to those of all tenants.
const TENANTS_TOKENS_MAX: usize = 9_000;
/// Most tokens.
const TOKENS_MAX: usize = 10_000;

/// A token without its secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    /// `None` for all tenants.
    pub(super) tenant: Option<String>,
    pub(super) roles: Vec<RoleName>,
    pub(super) topics: Vec<String>,
    pub(super) types: Vec<String>,
    /// Prefixes of keys behind their bucket; older records have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) keys: Vec<String>,
    /// Prefixes of consumer groups, and of transactional ids; older records have neither.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) transactional_ids: Vec<String>,
    pub(super) created_ms: i64,
    pub(super) created_by: String,
    pub(super) expires_ms: Option<i64>,
    /// SHA-256 of the secret, by which a login finds the token.
    pub(super) hash: [u8; 32],
    pub(super) scram_sha_256: ScramCredential,
    pub(super) scram_sha_512: ScramCredential,
}

impl TokenRecord {
    pub(super) fn scram(&self, mechanism: ScramMechanism) -> &ScramCredential {
        match mechanism {
            ScramMechanism::Sha256 => &self.scram_sha_256,
            ScramMechanism::Sha512 => &self.scram_sha_512,
        }
    }

    /// `true` if callers of `tenant` may see the token and revoke it; `None` are callers of all tenants.
    pub(super) fn is_of(&self, tenant: Option<&TenantId>) -> bool {
        tenant.is_none_or(|tenant| self.tenant.as_deref() == Some(tenant.as_str()))
    }

    pub(super) fn registered(&self, name: &str) -> RegisteredToken {
        RegisteredToken {
            name: name.to_owned(),
            hash: self.hash,
            // Checked when the record was made and when it was decoded.
            tenant: self.tenant.as_deref().and_then(|tenant| TenantId::new(tenant).ok()),
            roles: self.roles.clone(),
            scope: AccessScope::new(&self.topics, &self.types, &self.keys)
                .with_groups(&self.groups, &self.transactional_ids),
            expires_ms: self.expires_ms,
        }
    }
}

/// The view of all tokens, which keeps the logins in step.
pub(super) struct TokensView {
    pub(super) logins: Arc<ApiTokens>,
}

#[derive(Debug)]
pub(super) struct TokenChange {
    name: String,
    /// `None` if the token is revoked.
    record: Option<Arc<TokenRecord>>,
}

pub(super) enum TokenCommand {
    Create(String, Arc<TokenRecord>),
    /// Revokes a token of this tenant; `None` are all.
    Revoke(String, Option<TenantId>),
}

/// A limit to the number of tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenLimit {
    OneTenant(String),
    AllTenants,
    Total,
}

impl TokenLimit {
    pub(super) fn most(&self) -> usize {
        match self {
            Self::OneTenant(_) => TENANT_TOKENS_MAX,
            Self::AllTenants => TENANTS_TOKENS_MAX,
            Self::Total => TOKENS_MAX,
        }
    }

    /// The limit that leaves no room for another token of `tenant`; `None` is one of all tenants.
    fn reached(tokens: &<TokensView as View>::State, tenant: Option<&str>) -> Option<Self> {
        if let Some(tenant) = tenant {
            let of_tenants = || tokens.values().filter_map(|token| token.tenant.as_deref());
            if of_tenants().filter(|of| *of == tenant).count() >= TENANT_TOKENS_MAX {
                return Some(Self::OneTenant(tenant.to_owned()));
            }
            if of_tenants().count() >= TENANTS_TOKENS_MAX {
                return Some(Self::AllTenants);
            }
        }
        (tokens.len() >= TOKENS_MAX).then_some(Self::Total)
    }
}

#[derive(Debug)]
pub(super) enum TokenAnswer {
    Created(String, Arc<TokenRecord>),
    NameTaken,
    Full(TokenLimit),
    Revoked(Arc<TokenRecord>),
    Unknown,
}

impl View for TokensView {
    type State = imbl::OrdMap<String, Arc<TokenRecord>>;
    type Storage = InState;
    type Change = TokenChange;
    type Command = TokenCommand;
    type Answer = TokenAnswer;

    const NAME: &'static str = "tokens";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: TokenCommand) -> TokenAnswer {
        match command {
            TokenCommand::Create(name, _) if draft.state().contains_key(&name) => TokenAnswer::NameTaken,
            TokenCommand::Create(name, record) => {
                if let Some(limit) = TokenLimit::reached(draft.state(), record.tenant.as_deref()) {
                    return TokenAnswer::Full(limit);
                }
                draft.change(TokenChange { name: name.clone(), record: Some(Arc::clone(&record)) });
                TokenAnswer::Created(name, record)
            }
            TokenCommand::Revoke(name, tenant) => {
                let known = draft.state().get(&name).filter(|known| known.is_of(tenant.as_ref())).cloned();
                let Some(record) = known else { return TokenAnswer::Unknown };
                draft.change(TokenChange { name, record: None });
                TokenAnswer::Revoked(record)
            }
        }
    }

    fn landed(&self, answer: &mut TokenAnswer, _: Option<millstream_types::Offset>) {
        match answer {
            TokenAnswer::Created(name, record) => self.logins.add(record.registered(name)),
            TokenAnswer::Revoked(record) => self.logins.remove(&record.hash),
            TokenAnswer::NameTaken | TokenAnswer::Full(_) | TokenAnswer::Unknown => {}
        }
    }

    fn apply(state: &mut Self::State, change: &TokenChange) {
        match &change.record {
            Some(record) => drop(state.insert(change.name.clone(), Arc::clone(record))),
            None => drop(state.remove(&change.name)),
        }
    }

    fn encode(change: &TokenChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(change.name.as_bytes());
        let Some(record) = &change.record else { return Encoded::Tombstone };
        value.push(VERSION);
        // Texts and numbers, which JSON always takes.
        value.extend_from_slice(serde_json::to_string(&**record).unwrap_or_default().as_bytes());
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<TokenChange, DecodeError> {
        let name = std::str::from_utf8(key).map_err(|_| DecodeError::new("a token's name is no text"))?.to_owned();
        let record = match value {
            None => None,
            Some([VERSION, json @ ..]) => {
                let fault = |fault: &dyn std::fmt::Display| DecodeError::new(format!("token '{name}': {fault}"));
                let record: TokenRecord = serde_json::from_slice(json).map_err(|error| fault(&error))?;
                // A token whose tenant cannot be read must not become one of all tenants.
                if let Some(tenant) = &record.tenant {
                    TenantId::new(tenant).map_err(|error| fault(&error))?;
                }
                Some(Arc::new(record))
            }
            Some(other) => return Err(DecodeError::new(format!("token '{name}' of version {:?}", other.first()))),
        };
        Ok(TokenChange { name, record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token as it is stored, of a tenant that is given as JSON.
    fn stored(tenant: &str) -> String {
        let key = |bytes: &str| {
            format!("{{\"salt\":\"c2FsdA==\",\"iterations\":4096,\"stored_key\":\"{bytes}\",\"server_key\":\"c2U=\"}}")
        };
        let hash: Vec<String> = (0..32).map(|byte: u8| byte.to_string()).collect();
        format!(
            "\u{1}{{\"tenant\":{tenant},\"roles\":[\"reader\"],\"topics\":[\"telemetry.\"],\"types\":[],\"created_ms\":7,\
             \"created_by\":\"root\",\"expires_ms\":null,\"hash\":[{}],\"scram_sha_256\":{},\"scram_sha_512\":{}}}",
            hash.join(","),
            key("c3Q="),
            key("c3U="),
        )
    }

    #[test]
    fn tokens_of_one_tenant_leave_room_to_other_tenants_and_those_of_all_tenants_to_operators() {
        let mut tokens = imbl::OrdMap::new();
        let mut add = |count: usize, tenant: Option<&str>| {
            let json = serde_json::to_string(&tenant).unwrap();
            let record = TokensView::decode(b"t", Some(stored(&json).as_bytes())).unwrap().record.unwrap();
            for _ in 0..count {
                tokens.insert(tokens.len().to_string(), Arc::clone(&record));
            }
            [Some("t0"), Some("t9"), None].map(|tenant| TokenLimit::reached(&tokens, tenant))
        };
        let of_t0 = || Some(TokenLimit::OneTenant("t0".to_owned()));
        assert_eq!(add(TENANT_TOKENS_MAX - 1, Some("t0")), [None, None, None]);
        assert_eq!(add(1, Some("t0")), [of_t0(), None, None]);
        for tenant in 1..8 {
            add(TENANT_TOKENS_MAX, Some(&format!("t{tenant}")));
        }
        assert_eq!(add(TENANT_TOKENS_MAX - 1, Some("t8")), [of_t0(), None, None]);
        assert_eq!(add(1, Some("t8")), [of_t0(), Some(TokenLimit::AllTenants), None]);
        assert_eq!(add(TOKENS_MAX - TENANTS_TOKENS_MAX - 1, None), [of_t0(), Some(TokenLimit::AllTenants), None]);
        assert_eq!(add(1, None), [of_t0(), Some(TokenLimit::AllTenants), Some(TokenLimit::Total)]);
    }

    #[test]
    fn a_token_of_version_1_reads_back_and_its_tenant_is_checked() {
        let acme = stored("\"acme\"");
        let change = TokensView::decode(b"grafana", Some(acme.as_bytes())).unwrap();
        let (mut name, mut value) = (Vec::new(), Vec::new());
        TokensView::encode(&change, &mut name, &mut value);
        assert_eq!((name, String::from_utf8(value).unwrap()), (b"grafana".to_vec(), acme.clone()));
        let registered = change.record.unwrap().registered("grafana");
        assert_eq!(registered.tenant, Some(TenantId::new("acme").unwrap()));
        assert!(registered.scope.has_topic("telemetry.acme") && !registered.scope.has_topic("event.acme"));
        assert!(registered.scope.has_group("any") && registered.scope.has_transactional_id("any"));
        let limits = r#""types":[],"groups":["g-"],"transactional_ids":["t-"],"#;
        let limited = acme.replace(r#""types":[],"#, limits);
        let change = TokensView::decode(b"grafana", Some(limited.as_bytes())).unwrap();
        let mut value = Vec::new();
        TokensView::encode(&change, &mut Vec::new(), &mut value);
        assert_eq!(String::from_utf8(value).unwrap(), limited);
        let scope = change.record.unwrap().registered("grafana").scope;
        assert_eq!(["g-a", "t-a"].map(|id| scope.has_group(id)), [true, false]);
        assert_eq!(["g-a", "t-a"].map(|id| scope.has_transactional_id(id)), [false, true]);
        assert!(TokensView::decode(b"grafana", None).unwrap().record.is_none());
        for bad in ["\u{2}{}".to_owned(), "\u{1}{}".to_owned(), stored("\"a b\"")] {
            assert!(TokensView::decode(b"grafana", Some(bad.as_bytes())).unwrap_err().what.contains("'grafana'"));
        }
    }
}
