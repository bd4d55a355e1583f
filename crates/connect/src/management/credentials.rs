//! `/v1/credentials`.

use axum::extract::State;
use millstream_http::{Access, Content, Problem, Route};
use millstream_types::{Role, TenantId};
use serde_json::{Value, json};

use super::auth_id::NamedCredential;
use super::devices::of_device;
use super::material::rule_of_new;
use super::request::{JsonBody, OfDevice};
use super::{Answered, LIMITS, Management, NO_BODY, Shared, shown};
use crate::registry::{
    CredentialDraft, CredentialType, GivenCredential, GivenSecret, RegistryCommand, RegistryFailure, RegistryRefusal,
    SecretDraft, SecretOrigin, VersionCondition,
};

const PATH: &str = "/v1/credentials/{tenant}/{device}";
/// Longest comment of a secret.
const COMMENT_MAX_BYTES: usize = 256;

pub(super) fn routes(management: &Management) -> Vec<Route> {
    let schema = || Content::json(json!({"type": "array", "items": {"type": "object"}}));
    vec![
        of_device(Route::get(
            PATH,
            Access::Role(Role::Reader),
            NO_BODY,
            "Read a device's credentials, without their secrets",
        ))
        .answers_with(200, "The credentials; ETag tells which version.", schema())
        .answers(404, "The tenant or the device is unknown.")
        .to(read, management.clone()),
        of_device(Route::put(PATH, Access::Role(Role::Admin), LIMITS, "Replace a device's credentials, all of them"))
            .header("If-Match", "Replace them only if this is their version.")
            .takes(schema())
            .answers(204, "Replaced; ETag tells the new version.")
            .answers(403, "The tenant does not allow so many.")
            .answers(404, "The tenant or the device is unknown.")
            .answers(409, "Another device of the tenant has that type and auth-id.")
            .answers(412, "They have another version; nothing was changed.")
            .to(replace, management.clone()),
    ]
}

async fn read(State(management): Shared, OfDevice(tenant, device): OfDevice) -> Answered {
    let snapshot = management.0.registry.snapshot(&tenant);
    let Some(known) = snapshot.state.tenant(&tenant) else {
        return Err(RegistryFailure::Refused(RegistryRefusal::UnknownTenant { tenant }).into());
    };
    let Some(owner) = known.devices.get(&device) else {
        return Err(RegistryFailure::Refused(RegistryRefusal::UnknownDevice { tenant, device }).into());
    };
    Ok(match known.credentials.get(&device) {
        Some(stored) => shown(stored.version, stored.value.iter().map(|credential| credential.shown()).collect()),
        None => shown(owner.born, Value::Array(Vec::new())),
    })
}

async fn replace(
    State(management): Shared,
    OfDevice(tenant, device): OfDevice,
    condition: VersionCondition,
    JsonBody(given): JsonBody<Vec<GivenCredential>>,
) -> Answered {
    let given = given.ok_or_else(|| {
        Problem::invalid("there is no body")
            .rule("the body is the array of all credentials of the device")
            .remedy("send [] to remove all")
    })?;
    let given = management.named(&tenant, given)?;
    management.check_credentials(&given)?;
    let mut value = Vec::with_capacity(given.len());
    for credential in given {
        value.push(management.credential(&tenant, credential).await?);
    }
    let command = RegistryCommand::ReplaceCredentials { tenant: tenant.clone(), device, value, condition };
    management.change(&tenant, command).await
}

impl Management {
    /// Finds the auth-ids, of which some are made of certificates.
    fn named(&self, tenant: &TenantId, given: Vec<GivenCredential>) -> Result<Vec<NamedCredential>, Problem> {
        let snapshot = self.0.registry.snapshot(tenant);
        let anchors = snapshot.state.tenant(tenant).map(|known| &*known.anchors).unwrap_or_default();
        given.into_iter().map(|credential| NamedCredential::of(credential, anchors)).collect()
    }

    fn check_credentials(&self, given: &[NamedCredential]) -> Result<(), Problem> {
        let limit = self.0.config.secrets_max_per_device;
        let secrets: usize = given.iter().map(|credential| credential.secrets.len()).sum();
        if secrets > limit {
            return Err(Problem::invalid("the device has too many secrets")
                .value(secrets)
                .rule(format!("connect.secrets_max_per_device = {limit}"))
                .remedy("send fewer, or raise the limit"));
        }
        for (number, credential) in given.iter().enumerate() {
            let is_twin =
                |other: &NamedCredential| other.kind == credential.kind && other.auth_id == credential.auth_id;
            if given[..number].iter().any(is_twin) {
                return Err(Problem::invalid("two credentials have the same type and auth-id")
                    .value(&credential.auth_id)
                    .rule("type and auth-id name one credential")
                    .remedy("put the secrets of both into one"));
            }
            check_ids(&credential.secrets)?;
        }
        Ok(())
    }

    async fn credential(&self, tenant: &TenantId, given: NamedCredential) -> Result<CredentialDraft, Problem> {
        let NamedCredential { kind, auth_id, enabled, ext, secrets: given } = given;
        let mut secrets = Vec::with_capacity(given.len());
        for secret in given {
            secrets.push(self.secret(tenant, kind, secret).await?);
        }
        Ok(CredentialDraft { kind, auth_id, enabled, ext, secrets })
    }

    async fn secret(
        &self,
        tenant: &TenantId,
        kind: CredentialType,
        mut given: GivenSecret,
    ) -> Result<SecretDraft, Problem> {
        check_secret(&given)?;
        let material = self.material(tenant, kind, &mut given).await?;
        let origin = match (given.id, material) {
            (Some(id), material) => SecretOrigin::Stored(id, material),
            (None, Some(material)) => SecretOrigin::New(material),
            (None, None) => {
                let what = if kind == CredentialType::HashedPassword { "password" } else { "key" };
                return Err(Problem::invalid(format!("a new secret has no {what}"))
                    .rule(rule_of_new(kind))
                    .remedy("add one of them, or the id of the secret to be kept"));
            }
        };
        let GivenSecret { enabled, not_before, not_after, comment, .. } = given;
        Ok(SecretDraft { origin, enabled, not_before, not_after, comment })
    }
}

fn check_ids(secrets: &[GivenSecret]) -> Result<(), Problem> {
    let ids = || secrets.iter().filter_map(|secret| secret.id.as_deref());
    match ids().enumerate().find(|(at, id)| ids().take(*at).any(|known| known == *id)) {
        Some((_, twin)) => Err(Problem::invalid("two secrets have the same id")
            .value(twin)
            .rule("an id names one secret that is stored")
            .remedy("leave the id out of the one that is new")),
        None => Ok(()),
    }
}

fn check_secret(given: &GivenSecret) -> Result<(), Problem> {
    if let (Some(from), Some(to)) = (given.not_before, given.not_after)
        && to < from
    {
        return Err(Problem::invalid("a secret ends before it begins")
            .value(to.to_string())
            .rule(format!("not-after lies after not-before, {from}"))
            .remedy("correct one of them"));
    }
    if let Some(comment) = given.comment.as_ref().filter(|comment| comment.len() > COMMENT_MAX_BYTES) {
        return Err(Problem::invalid("the comment of a secret is too long")
            .value(format!("{} bytes", comment.len()))
            .rule(format!("a comment has at most {COMMENT_MAX_BYTES} bytes"))
            .remedy("shorten it, or use ext of the credential"));
    }
    Ok(())
}
