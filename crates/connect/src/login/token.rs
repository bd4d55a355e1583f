//! Logins by JSON Web Token, which a public key of the device (`rpk`) verifies.

use std::sync::Arc;

use millstream_types::TenantId;

use super::refusal::LoginRefusal;
use super::{LoginParts, NewLogin};
use crate::credential_cache::{CachedLogin, Fingerprint};
use crate::jwt::{DeviceToken, TokenError};
use crate::registry::CredentialType;

/// Tenant and auth-id that the address of a request or a client id names.
pub(super) type NamedLogin = (String, String);

/// Tenant and auth-id in a client id such as `tenants/acme/devices/thermometer`.
pub(super) fn of_client_id(client_id: &str) -> Option<NamedLogin> {
    let mut parts = client_id.rsplit('/');
    let (auth_id, _, tenant, before) = (parts.next()?, parts.next()?, parts.next()?, parts.next());
    before.map(|_| (tenant.to_owned(), auth_id.to_owned()))
}

impl LoginParts {
    /// Logs in the device whose key has signed this token. `otherwise` names the device if the token does not.
    pub(super) fn by_token(
        &self,
        text: &str,
        otherwise: impl FnOnce() -> Option<NamedLogin>,
        fingerprint: Fingerprint,
    ) -> Result<Arc<CachedLogin>, LoginRefusal> {
        let now_ms = self.wall.now_ms();
        let refuse = |tenant: Option<&TenantId>, reason, detail: String, value: &str, rule, remedy| LoginRefusal {
            tenant: tenant.cloned(),
            reason,
            detail,
            value: value.to_owned(),
            rule,
            remedy,
        };
        let token = DeviceToken::read(text, now_ms).map_err(|error| {
            let reason = match &error {
                TokenError::Expired { .. } => "token-expired",
                TokenError::TooLongALife { .. } | TokenError::Backwards { .. } => "token-life",
                TokenError::TooEarly { .. } => "token-early",
                _ => "token-malformed",
            };
            let rule = "a token has typ JWT, a known alg, iat and exp at most 24 hours apart, and is sent in that time";
            refuse(None, reason, format!("the token is refused: {error}"), "JWT", rule, "make a new token")
        })?;
        let Some((tenant, auth_id)) = token.named.clone().or_else(otherwise) else {
            let rule = "a token with aud hono-adapter has tid and sub; or the path is of TENANT/DEVICE, or the MQTT client id \
                        ends in TENANT/…/AUTH-ID";
            let remedy = "add the claims, or name tenant and device there";
            return Err(refuse(None, "token-no-device", "the token names no device".to_owned(), "JWT", rule, remedy));
        };
        let value = format!("{auth_id}@{tenant}");
        let unknown = |tenant: Option<&TenantId>| {
            let rule = "a device of the tenant has an enabled credential of type rpk with this auth-id and a key that is valid now";
            let remedy = "check the claims, or the device's credentials in the registry";
            refuse(tenant, "token-unknown", "no device logs in with this token".to_owned(), &value, rule, remedy)
        };
        let tenant = TenantId::new(&tenant).map_err(|_| unknown(None))?;
        let snapshot = self.registry.snapshot(&tenant);
        let known = snapshot.state.tenant(&tenant).ok_or_else(|| unknown(None))?;
        let login = known.login(CredentialType::RawPublicKey, &auth_id).filter(|login| login.credential.enabled);
        let login = login.ok_or_else(|| unknown(Some(&tenant)))?;
        let secrets = &login.credential.secrets;
        let mut valid = secrets.iter().enumerate().filter(|(_, secret)| secret.is_valid_at(now_ms)).peekable();
        if valid.peek().is_none() {
            return Err(unknown(Some(&tenant)));
        }
        let is_signer =
            |secret: &crate::registry::Secret| secret.material.public_key().is_some_and(|key| token.is_signed_by(key));
        let wrong_key = || {
            let rule = "a key of the device's credential verifies the signature, in the algorithm that alg names";
            let remedy = "sign with the device's private key, or store its public key in the registry";
            let detail = "the token is not signed by the device".to_owned();
            refuse(Some(&tenant), "token-signature", detail, &value, rule, remedy)
        };
        let (secret, _) = valid.find(|(_, secret)| is_signer(secret)).ok_or_else(wrong_key)?;
        let found = NewLogin { login: login.clone(), secret, anchor: None, proof_ends_ms: token.ends_ms };
        self.enter(&tenant, found, fingerprint).ok_or_else(|| unknown(Some(&tenant)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_names_tenant_and_auth_id_from_its_end() {
        for (client_id, expected) in [
            ("tenants/acme/devices/d", Some(("acme", "d"))),
            ("projects/p/locations/l/registries/acme/devices/d", Some(("acme", "d"))),
            ("acme/devices/d", None),
            ("d", None),
            ("", None),
        ] {
            let expected = expected.map(|(tenant, auth_id)| (tenant.to_owned(), auth_id.to_owned()));
            assert_eq!(of_client_id(client_id), expected, "{client_id}");
        }
    }
}
