//! The registry's refusals as HTTP problems.

use millstream_http::{Full, Problem, Reason};
use millstream_types::ErrorCode;

use super::etag::entity_tag;
use crate::password::HashError;
use crate::registry::{IdError, RegistryFailure, RegistryRefusal, UnknownSecret};

impl From<RegistryFailure> for Problem {
    fn from(failure: RegistryFailure) -> Self {
        match failure {
            RegistryFailure::Refused(refusal) => refused(refusal),
            RegistryFailure::View(error) => Self::from_error(error.code(), &error),
        }
    }
}

fn refused(refusal: RegistryRefusal) -> Problem {
    let problem = |code, detail: &'static str| Problem::new(Reason::Code(code), detail);
    match refusal {
        RegistryRefusal::TenantExists { tenant } => problem(ErrorCode::Conflict, "the tenant exists")
            .value(tenant)
            .rule("POST creates what is not there")
            .remedy("use PUT to replace it, or another id"),
        RegistryRefusal::DeviceExists { device } => problem(ErrorCode::Conflict, "the device exists")
            .value(device)
            .rule("POST creates what is not there")
            .remedy("use PUT to replace it, or another id"),
        RegistryRefusal::UnknownTenant { tenant } => problem(ErrorCode::NotFound, "there is no such tenant")
            .value(&tenant)
            .rule("a tenant is created before it is used")
            .remedy(format!("POST /v1/tenants/{tenant} first")),
        RegistryRefusal::UnknownDevice { tenant, device } => problem(ErrorCode::NotFound, "there is no such device")
            .value(&device)
            .rule("a device is registered before it is used")
            .remedy(format!("POST /v1/devices/{tenant}/{device} first")),
        RegistryRefusal::OtherVersion { actual } => {
            problem(ErrorCode::PreconditionFailed, "the resource has another version")
                .value(entity_tag(actual))
                .rule("If-Match names the current version; nothing was changed")
                .remedy("read the resource again and repeat the change on what is there now")
        }
        RegistryRefusal::TooManyDevices { limit } => {
            problem(ErrorCode::Forbidden, "the tenant has as many devices as it may")
                .value(limit)
                .rule("registration-limits.max-devices of the tenant")
                .remedy("delete devices, or raise the limit")
        }
        RegistryRefusal::TooManyCredentials { given, limit } => {
            problem(ErrorCode::Forbidden, "the tenant does not allow so many credentials for a device")
                .value(given)
                .rule(format!("registration-limits.max-credentials-per-device of the tenant = {limit}"))
                .remedy("send fewer credentials, or raise the limit")
        }
        RegistryRefusal::AuthIdTaken { auth_id } => {
            problem(ErrorCode::Conflict, "another device logs in with this auth-id")
                .value(auth_id)
                .rule("type and auth-id belong to one device of the tenant")
                .remedy("choose another auth-id, or remove it from the other device first")
        }
        RegistryRefusal::UnknownSecret(UnknownSecret { id, auth_id }) => {
            Problem::invalid(format!("the credential '{auth_id}' has no stored secret with this id"))
                .value(id)
                .rule("an id keeps a secret that is stored; a new one has none")
                .remedy("leave the id out to add a secret, or read the credentials for the ids there are")
        }
    }
}

/// The reason for which another plane refuses a member of `ext`.
pub(super) fn bad_ext(what: String) -> Problem {
    Problem::invalid(what).rule("nothing was changed").remedy("correct it there and send the document again")
}

pub(super) fn bad_id(error: &IdError) -> Problem {
    Problem::from_error(ErrorCode::Invalid, error).remedy("choose an id that keeps this rule")
}

/// Refuses a password hash that is malformed or too costly.
pub(super) fn bad_hash(error: &HashError) -> Problem {
    Problem::from_error(ErrorCode::Invalid, error).remedy("send such a hash, or the password as pwd-plain")
}

/// Too many requests wait for a password to be hashed.
pub(super) fn hashing_is_full(full: Full) -> Problem {
    Problem::new(Reason::Code(ErrorCode::Overloaded), "too many passwords wait to be hashed; nothing was changed")
        .value(full.waiting)
        .rule(format!(
            "connect.hashing_max_waiting = {}, of which a tenant takes no more than it leaves free",
            full.limit
        ))
        .remedy("send fewer at once, or send pwd-hash")
}
