//! Settings of the identity provider, and the rules for them.

use anyhow::bail;
use hyper::Uri;
use millstream_http::{EVERY_TENANT, RoleName, SignatureAlgorithm};
use millstream_types::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clocks of provider and server may differ by this time at most.
const SKEW_MAX_S: u32 = 600;

/// An OpenID Connect provider whose access tokens log applications and people in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OidcConfig {
    /// URL of the provider, exactly as its tokens name it in the claim `iss`: `https://`, or `http://` on loopback. With a
    /// provider every caller needs a token; empty for none. Default empty.
    pub(crate) issuer: String,
    /// The value that stands for this server in the claim `aud` of tokens; needed with an issuer. Default empty.
    pub(crate) audience: String,
    /// The provider's public client under which the console logs people in.
    /// Without one the console takes API tokens only. Default empty.
    pub(crate) client_id: String,
    /// Scopes that the console asks the provider for, separated by spaces. Default `openid`.
    pub(crate) scope: String,
    /// Path of the claim with the caller's name, as logs and the audit trail show it.
    /// Users must not be able to choose its value. Default `sub`.
    pub(crate) name_claim: String,
    /// Path of the claim with the caller's tenant, `*` being all tenants. Without one all callers are of the tenant
    /// `oidc.tenant`. Default empty.
    pub(crate) tenant_claim: String,
    /// The tenant of all callers if no claim names it; `*` for all tenants. Default `default`.
    pub(crate) tenant: String,
    /// Path of the claim with the caller's roles, such as `realm_access.roles`.
    /// It is a list, or a text with spaces between the roles. Default `roles`.
    pub(crate) roles_claim: String,
    /// The provider's roles that give each role here.
    pub(crate) roles: OidcRoles,
    /// Signature algorithms that are taken. Default `RS256` and `ES256`.
    pub(crate) algorithms: Vec<SignatureAlgorithm>,
    /// Time by which the clocks of provider and server may differ, in seconds; at most 600. Default 60.
    pub(crate) clock_skew_s: u32,
    /// Age at which the provider's keys are fetched again, in seconds; 60 to 86,400. Default 3,600.
    pub(crate) keys_max_age_s: u32,
    /// Least time between two fetches of the keys, which an unknown key or a failed fetch causes, in seconds. The value is
    /// from 1 to 600. Default 10.
    pub(crate) keys_retry_s: u32,
    /// File with authorities in PEM form that are trusted for the provider beside those of the system. Default none.
    pub(crate) ca_file: String,
}

impl Default for OidcConfig {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            audience: String::new(),
            client_id: String::new(),
            scope: "openid".to_owned(),
            name_claim: "sub".to_owned(),
            tenant_claim: String::new(),
            tenant: TenantId::DEFAULT.to_owned(),
            roles_claim: "roles".to_owned(),
            roles: OidcRoles::default(),
            algorithms: vec![SignatureAlgorithm::RS256, SignatureAlgorithm::ES256],
            clock_skew_s: 60,
            keys_max_age_s: 3_600,
            keys_retry_s: 10,
            ca_file: String::new(),
        }
    }
}

/// The provider's roles that give each role here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OidcRoles {
    /// Values of the roles' claim that give the role `reader`. Default `reader`.
    pub(crate) reader: Vec<String>,
    /// Values of the roles' claim that give the role `writer`. Default `writer`.
    pub(crate) writer: Vec<String>,
    /// Values of the roles' claim that give the role `admin`. Default `admin`.
    pub(crate) admin: Vec<String>,
}

impl Default for OidcRoles {
    fn default() -> Self {
        let same = |role: &str| vec![role.to_owned()];
        Self { reader: same("reader"), writer: same("writer"), admin: same("admin") }
    }
}

impl OidcRoles {
    /// The provider's roles that give `role`.
    pub(crate) fn that_give(&self, role: RoleName) -> &[String] {
        match role {
            RoleName::Reader => &self.reader,
            RoleName::Writer => &self.writer,
            RoleName::Admin => &self.admin,
        }
    }
}

impl OidcConfig {
    /// `true` if there is a provider.
    pub(crate) fn is_on(&self) -> bool {
        !self.issuer.is_empty()
    }

    /// Checks all settings. The error names setting, value, rule and remedy.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        if !self.is_on() {
            return match *self == Self::default() {
                true => Ok(()),
                false => bail!("oidc.issuer = \"\": the other settings of [oidc] need it; set it, or remove them"),
            };
        }
        let within = |setting, value: u32, least: u32, most: u32| match (least..=most).contains(&value) {
            true => Ok(()),
            false => bail!("oidc.{setting} = {value}: use {least} to {most}"),
        };
        if let Err(rule) = url_of_provider(&self.issuer) {
            bail!("oidc.issuer = {:?}: {rule}; copy 'issuer' from the provider's {DISCOVERY}", self.issuer);
        }
        for (setting, value) in
            [("audience", &self.audience), ("name_claim", &self.name_claim), ("roles_claim", &self.roles_claim)]
        {
            if value.is_empty() {
                bail!(
                    "oidc.{setting} = \"\": with an issuer it must be set; see a token of the provider for its claims"
                );
            }
        }
        if self.tenant != EVERY_TENANT
            && let Err(rule) = TenantId::new(&self.tenant)
        {
            bail!("oidc.tenant = {:?}: {rule}; name a tenant, or '*' for all", self.tenant);
        }
        if RoleName::ALL.into_iter().all(|role| self.roles.that_give(role).is_empty()) {
            bail!(
                "oidc.roles.reader, oidc.roles.writer and oidc.roles.admin are []: nobody could get in; name roles of the provider"
            );
        }
        if self.algorithms.is_empty() {
            bail!("oidc.algorithms = []: name one or more, such as RS256");
        }
        within("clock_skew_s", self.clock_skew_s, 0, SKEW_MAX_S)?;
        within("keys_max_age_s", self.keys_max_age_s, 60, 86_400)?;
        within("keys_retry_s", self.keys_retry_s, 1, 600)
    }
}

/// Path of a provider's description, behind its issuer.
pub(super) const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Reads a URL that a provider may have: encrypted, or on this machine.
pub(super) fn url_of_provider(text: &str) -> Result<Uri, &'static str> {
    const FORM: &str = "a provider is at https://HOST[:PORT][/PATH]";
    let uri: Uri = text.parse().map_err(|_| FORM)?;
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(FORM) };
    let is_loopback = || {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    match scheme {
        _ if uri.query().is_some() || text.contains('#') => Err("it has neither query nor fragment"),
        "https" => Ok(uri),
        "http" if is_loopback() => Ok(uri),
        "http" => Err("http:// is for a provider on loopback only; use https://"),
        _ => Err(FORM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> OidcConfig {
        let (issuer, audience) = ("https://id.example/realms/shop".to_owned(), "millstream".to_owned());
        OidcConfig { issuer, audience, ..OidcConfig::default() }
    }

    #[test]
    fn settings_that_cannot_work_are_named_with_value_rule_and_remedy() {
        let text = |text: &str| text.to_owned();
        let roles = OidcRoles { reader: vec![], writer: vec![], admin: vec![] };
        for (config, told) in [
            (
                OidcConfig { issuer: text("id.example"), ..good() },
                ["oidc.issuer = \"id.example\"", "https://HOST", "copy"],
            ),
            (
                OidcConfig { issuer: text("http://id.example"), ..good() },
                ["http://id.example", "loopback only", "https://"],
            ),
            (OidcConfig { issuer: text("https://id.example/?a=b"), ..good() }, ["?a=b", "neither query", "copy"]),
            (OidcConfig { issuer: text("https://id.example/#a"), ..good() }, ["#a", "neither query", "copy"]),
            (OidcConfig { issuer: text("ftp://id.example"), ..good() }, ["ftp://", "https://HOST", "copy"]),
            (OidcConfig { issuer: text(""), ..good() }, ["oidc.issuer = \"\"", "need it", "remove them"]),
            (OidcConfig { audience: text(""), ..good() }, ["oidc.audience = \"\"", "must be set", "see a token"]),
            (OidcConfig { roles_claim: text(""), ..good() }, ["oidc.roles_claim = \"\"", "must be set", "see a token"]),
            (OidcConfig { tenant: text("a b"), ..good() }, ["oidc.tenant = \"a b\"", "not a tenant id", "'*' for all"]),
            (OidcConfig { roles, ..good() }, ["oidc.roles", "nobody", "name roles"]),
            (OidcConfig { algorithms: vec![], ..good() }, ["oidc.algorithms = []", "one or more", "RS256"]),
            (OidcConfig { clock_skew_s: 601, ..good() }, ["oidc.clock_skew_s = 601", "use 0", "600"]),
            (OidcConfig { keys_max_age_s: 59, ..good() }, ["oidc.keys_max_age_s = 59", "use 60", "86400"]),
            (OidcConfig { keys_retry_s: 0, ..good() }, ["oidc.keys_retry_s = 0", "use 1", "600"]),
        ] {
            let error = config.validate().unwrap_err().to_string();
            assert!(told.iter().all(|part| error.contains(part)), "{error} does not say {told:?}");
        }
        for issuer in ["https://id.example", "http://127.0.0.1:8080/realm", "http://[::1]:1", "http://localhost:9"] {
            let config = OidcConfig { issuer: text(issuer), tenant: text("*"), ..good() };
            assert!(config.validate().is_ok(), "{issuer}");
        }
        assert!(OidcConfig::default().validate().is_ok());
    }
}
