//! The auth-id of a credential as a request names it: by itself, or by a certificate.

use std::str::FromStr;

use millstream_http::{Problem, Reason};
use millstream_net::{CertificateFields, normalized_name};
use millstream_types::ErrorCode;

use super::refusal::bad_id;
use crate::registry::{Anchor, AuthId, CredentialType, GivenCredential, GivenSecret, read_certificate};
use crate::timestamp::Timestamp;

/// A credential of a request whose auth-id is known.
pub(super) struct NamedCredential {
    pub(super) kind: CredentialType,
    pub(super) auth_id: AuthId,
    pub(super) enabled: bool,
    pub(super) ext: serde_json::Map<String, serde_json::Value>,
    pub(super) secrets: Vec<GivenSecret>,
}

impl NamedCredential {
    /// Finds the auth-id. If an anchor of the tenant signs the device's certificate and has a template, that makes it.
    pub(super) fn of(given: GivenCredential, anchors: &[Anchor]) -> Result<Self, Problem> {
        let GivenCredential { kind, auth_id, enabled, ext, cert, issuer_dn, secrets } = given;
        if kind != CredentialType::Certificate {
            let unfit = cert.as_ref().map(|_| "cert").or(issuer_dn.as_ref().map(|_| "issuer-dn"));
            if let Some(member) = unfit {
                return Err(misplaced(kind, member, "credentials of type x509-cert only have it"));
            }
            let auth_id = auth_id.ok_or_else(|| lacks_auth_id("auth-id names the device at its login"))?;
            let auth_id = AuthId::from_str(&auth_id).map_err(|error| bad_id(&error))?;
            let secrets = given_secrets(kind, secrets)?;
            return Ok(Self { kind, auth_id, enabled, ext, secrets });
        }
        let mut secrets = given_secrets(kind, secrets)?;
        let auth_id = match cert {
            Some(cert) => {
                let fields = read_certificate(&cert).ok_or_else(|| no_certificate(&cert))?;
                take_validity(&mut secrets, &fields)?;
                made(anchors, &fields)?
            }
            None => {
                let rule = "auth-id is the subject of the device's certificate; or cert is the certificate itself";
                let auth_id = AuthId::of_certificate(&auth_id.ok_or_else(|| lacks_auth_id(rule))?);
                let auth_id = auth_id.map_err(|error| {
                    Problem::from_error(ErrorCode::Invalid, &error).remedy("copy it from the certificate, or send cert")
                })?;
                match issuer_dn {
                    Some(issuer) => made(anchors, &fields_of(&auth_id, &issuer)?)?,
                    None => auth_id,
                }
            }
        };
        if secrets.len() != 1 {
            return Err(Problem::invalid("a credential of type x509-cert has one secret")
                .value(format!("{} secrets", secrets.len()))
                .rule("its secret has a validity and nothing else; with cert it may be left out")
                .remedy("send \"secrets\": [{}], or one with not-before and not-after"));
        }
        Ok(Self { kind, auth_id, enabled, ext, secrets })
    }
}

/// The secrets that a credential names. It may leave them out, but not name none, as in Hono.
fn given_secrets(kind: CredentialType, secrets: Option<Vec<GivenSecret>>) -> Result<Vec<GivenSecret>, Problem> {
    match secrets {
        Some(secrets) if secrets.is_empty() => {
            Err(Problem::invalid(format!("a credential of type {} has no secret", kind.name()))
                .value("\"secrets\": []")
                .rule("a list of secrets has at least one")
                .remedy("add one; to remove a credential, leave it out of the list of credentials"))
        }
        secrets => Ok(secrets.unwrap_or_default()),
    }
}

/// Gives the one secret the validity of the certificate, as far as the request names none.
fn take_validity(secrets: &mut Vec<GivenSecret>, fields: &CertificateFields) -> Result<(), Problem> {
    if secrets.is_empty() {
        secrets.push(GivenSecret::default());
    }
    let at = |seconds: i64| Some(Timestamp(seconds.saturating_mul(1_000)));
    for secret in secrets {
        secret.not_before = secret.not_before.or(at(fields.valid_from_s));
        secret.not_after = secret.not_after.or(at(fields.valid_until_s));
    }
    Ok(())
}

/// Subject and issuer without a certificate.
fn fields_of(subject: &AuthId, issuer: &str) -> Result<CertificateFields, Problem> {
    let issuer = normalized_name(issuer).map_err(|error| {
        Problem::from_error(ErrorCode::Invalid, &error).remedy("copy issuer-dn from the certificate")
    })?;
    let subject = subject.as_str().to_owned();
    Ok(CertificateFields { subject, issuer, valid_from_s: 0, valid_until_s: 0, public_key: Vec::new() })
}

/// The auth-id of a certificate: made by the template of its authority, else the subject.
fn made(anchors: &[Anchor], fields: &CertificateFields) -> Result<AuthId, Problem> {
    let anchor = anchors.iter().find(|anchor| anchor.trust.subject() == fields.issuer);
    let text = match anchor {
        Some(anchor) => anchor.auth_id(fields).ok_or_else(|| {
            Problem::invalid("the subject of the certificate lacks what its auth-id is made of")
                .value(&fields.subject)
                .rule("auth-id-template of the tenant's trusted-ca names attributes that the subject has")
                .remedy("use another certificate, or another template")
        })?,
        None => fields.subject.clone(),
    };
    AuthId::of_certificate(&text)
        .map_err(|error| Problem::from_error(ErrorCode::Invalid, &error).remedy("use another certificate or template"))
}

/// Refuses a member that credentials of this type do not have.
pub(super) fn misplaced(kind: CredentialType, member: &str, rule: &str) -> Problem {
    Problem::invalid(format!("a credential of type {} has no {member}", kind.name()))
        .value(member)
        .rule(rule.to_owned())
        .remedy("leave it out, or use another type")
}

fn lacks_auth_id(rule: &'static str) -> Problem {
    Problem::new(Reason::Code(ErrorCode::Invalid), "a credential has no auth-id")
        .value("missing field `auth-id`")
        .rule(rule)
        .remedy("add it")
}

pub(super) fn no_certificate(text: &str) -> Problem {
    let shown: String = text.chars().take(64).collect();
    Problem::invalid("cert is no X.509 certificate")
        .value(shown)
        .rule("cert is base64 of a certificate's DER, or PEM")
        .remedy("send the whole certificate")
}
