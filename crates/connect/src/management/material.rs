//! The part of a secret that logins are checked against, as a request gives it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_http::{KeyKind, Problem};
use millstream_types::TenantId;

use super::Management;
use super::auth_id::{misplaced, no_certificate};
use super::refusal::{bad_hash, hashing_is_full};
use crate::password::PasswordHash;
use crate::registry::{
    CertificateSecret, CredentialType, GivenSecret, PublicKey, SecretMaterial, SharedKey, read_certificate,
};
use crate::timestamp::Timestamp;

/// The rule that short keys break.
const TOO_SHORT: &str = "a key of RSA has 2048 bits or more, as no shorter one verifies a token";
/// Longest shared key; DTLS clients have 16 to 64 bytes.
const SHARED_KEY_MAX_BYTES: usize = 256;

impl Management {
    /// The material that a secret comes with; `None` if it has none.
    pub(super) async fn material(
        &self,
        tenant: &TenantId,
        kind: CredentialType,
        given: &mut GivenSecret,
    ) -> Result<Option<SecretMaterial>, Problem> {
        check_members(kind, given)?;
        match kind {
            CredentialType::HashedPassword => Ok(self.password(tenant, given).await?.map(SecretMaterial::Password)),
            CredentialType::Certificate => Ok(Some(SecretMaterial::Certificate(CertificateSecret {}))),
            CredentialType::RawPublicKey => Ok(public_key(given)?.map(SecretMaterial::PublicKey)),
            CredentialType::PreSharedKey => Ok(shared_key(given)?.map(SecretMaterial::SharedKey)),
        }
    }

    /// The hash that a secret comes with, or that of its plain password.
    async fn password(&self, tenant: &TenantId, given: &mut GivenSecret) -> Result<Option<PasswordHash>, Problem> {
        let function = given.hash_function.take();
        match (given.pwd_plain.take(), given.pwd_hash.take()) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Problem::invalid("a secret has both pwd-plain and pwd-hash")
                .rule("a password is given either plain or hashed")
                .remedy("leave one of them out")),
            (Some(plain), None) => self.hash(tenant, plain).await.map(Some),
            (None, Some(hash)) => {
                let function = function.as_deref().unwrap_or("sha-256");
                let limit = self.0.config.bcrypt_max_cost;
                PasswordHash::given(function, hash, given.salt.take(), limit)
                    .map(Some)
                    .map_err(|error| bad_hash(&error))
            }
        }
    }

    async fn hash(&self, tenant: &TenantId, plain: String) -> Result<PasswordHash, Problem> {
        let hashing = self.0.hashing.clone();
        let hash =
            self.0.hashers.submit(Some(tenant), move || hashing.hash(plain.as_bytes())).map_err(hashing_is_full)?;
        match hash.await {
            Ok(Ok(hash)) => Ok(hash),
            Ok(Err(error)) => Err(Problem::internal(error)),
            Err(_) => Err(Problem::internal("the threads that hash passwords have ended")),
        }
    }
}

/// The rule for a new secret of this type.
pub(super) fn rule_of_new(kind: CredentialType) -> &'static str {
    match kind {
        CredentialType::HashedPassword => {
            "a secret without id has pwd-plain, or pwd-hash with its hash-function and salt"
        }
        CredentialType::Certificate => "its secret has a validity and nothing else",
        CredentialType::RawPublicKey => "a secret without id has key, a public key, or cert, a certificate with one",
        CredentialType::PreSharedKey => "a secret without id has key, in base64",
    }
}

/// Refuses members that secrets of this type do not have.
fn check_members(kind: CredentialType, given: &GivenSecret) -> Result<(), Problem> {
    let is_password = kind == CredentialType::HashedPassword;
    let is_public_key = kind == CredentialType::RawPublicKey;
    let has_key = is_public_key || kind == CredentialType::PreSharedKey;
    let members = [
        ("hash-function", given.hash_function.is_some(), is_password),
        ("pwd-hash", given.pwd_hash.is_some(), is_password),
        ("salt", given.salt.is_some(), is_password),
        ("pwd-plain", given.pwd_plain.is_some(), is_password),
        ("key", given.key.is_some(), has_key),
        ("cert", given.cert.is_some(), is_public_key),
        ("algorithm", given.algorithm.is_some(), is_public_key),
    ];
    match members.into_iter().find(|(_, is_given, is_known)| *is_given && !is_known) {
        Some((member, ..)) => Err(misplaced(kind, member, rule_of_new(kind))),
        None => Ok(()),
    }
}

/// The public key of a secret. One that comes by a certificate is valid as long as that, if the request says nothing else.
fn public_key(given: &mut GivenSecret) -> Result<Option<PublicKey>, Problem> {
    let refuse = |value: &str, rule: &'static str| {
        let shown: String = value.chars().take(64).collect();
        Problem::invalid("a secret has no public key that can verify a token")
            .value(shown)
            .rule(rule)
            .remedy("send key as base64 of the DER of a public key (openssl pkey -pubout -outform DER), or cert")
    };
    let key = match (&given.key, &given.cert) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(refuse("key and cert", "a public key is given by key or by cert")),
        (Some(text), None) => {
            let rule = "key is a public key (SubjectPublicKeyInfo) of RSA, P-256 or P-384";
            PublicKey::read(text).ok_or_else(|| refuse(text, rule))?
        }
        (None, Some(text)) => {
            let fields = read_certificate(text).ok_or_else(|| no_certificate(text))?;
            let at = |seconds: i64| Some(Timestamp(seconds.saturating_mul(1_000)));
            given.not_before = given.not_before.or(at(fields.valid_from_s));
            given.not_after = given.not_after.or(at(fields.valid_until_s));
            let rule = "cert has a public key of RSA, P-256 or P-384";
            PublicKey::of_der(fields.public_key).ok_or_else(|| refuse(text, rule))?
        }
    };
    if key.is_too_short() {
        return Err(refuse("a short key of RSA", TOO_SHORT));
    }
    if key.kind() == KeyKind::P521 {
        return Err(refuse(
            "P-521",
            "tokens are signed by RS256 to PS512, ES256 (P-256) or ES384 (P-384); ES512 is not verified",
        ));
    }
    match given.algorithm.as_deref().filter(|name| *name != key.algorithm()) {
        Some(other) => Err(refuse(other, "algorithm is RSA or EC, as the key is")),
        None => Ok(Some(key)),
    }
}

fn shared_key(given: &mut GivenSecret) -> Result<Option<SharedKey>, Problem> {
    let Some(key) = given.key.take() else { return Ok(None) };
    let bytes = STANDARD.decode(&key).unwrap_or_default().len();
    if !(1..=SHARED_KEY_MAX_BYTES).contains(&bytes) {
        return Err(Problem::invalid("a secret has no shared key")
            .value(format!("{bytes} bytes"))
            .rule(format!("key is base64 (RFC 4648, with padding) of 1 to {SHARED_KEY_MAX_BYTES} bytes"))
            .remedy("send such a key"));
    }
    Ok(Some(SharedKey(key)))
}
