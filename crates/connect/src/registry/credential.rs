//! Device credentials and their secrets: the request, stored and response forms.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::object::{Object, yes};
use super::{AuthId, PublicKey};
use crate::password::PasswordHash;
use crate::timestamp::Timestamp;

/// The kind of secret that a credential has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>")]
pub(crate) enum CredentialType {
    /// A user name and the hashes of its passwords.
    #[serde(rename = "hashed-password")]
    HashedPassword,
    /// The subject of a client certificate.
    #[serde(rename = "x509-cert")]
    Certificate,
    /// Public keys that verify the device's JSON Web Tokens.
    #[serde(rename = "rpk")]
    RawPublicKey,
    /// Keys that the device and the server share, for DTLS.
    #[serde(rename = "psk")]
    PreSharedKey,
}

impl CredentialType {
    pub(crate) const ALL: [Self; 4] = [Self::HashedPassword, Self::Certificate, Self::RawPublicKey, Self::PreSharedKey];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HashedPassword => "hashed-password",
            Self::Certificate => "x509-cert",
            Self::RawPublicKey => "rpk",
            Self::PreSharedKey => "psk",
        }
    }
}

impl TryFrom<Cow<'_, str>> for CredentialType {
    type Error = String;

    fn try_from(name: Cow<'_, str>) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            format!("there is no credential type `{name}`; use `hashed-password`, `x509-cert`, `rpk` or `psk`")
        })
    }
}

/// All credentials of a device.
pub(crate) type Credentials = Vec<Arc<Credential>>;

/// Approximate size of what proves a login.
const MATERIAL_BYTES: usize = 512;

/// One credential of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Credential {
    #[serde(rename = "type")]
    pub(crate) kind: CredentialType,
    pub(crate) auth_id: AuthId,
    pub(crate) enabled: bool,
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub(crate) ext: Object,
    pub(crate) secrets: Vec<Secret>,
}

/// One of several secrets, so that a device can be moved from one to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Secret {
    pub(crate) id: String,
    pub(crate) enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_after: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
    #[serde(flatten)]
    pub(crate) material: SecretMaterial,
}

/// The part of a secret that a device's login is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum SecretMaterial {
    #[serde(rename = "password")]
    Password(PasswordHash),
    #[serde(rename = "public_key")]
    PublicKey(PublicKey),
    #[serde(rename = "shared_key")]
    SharedKey(SharedKey),
    /// The tenant's authorities vouch for the certificate, so nothing of it is kept.
    #[serde(rename = "certificate")]
    Certificate(CertificateSecret),
}

/// The secret of a certificate has a validity and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CertificateSecret {}

/// A key that is shared with a device: base64, as it was given.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SharedKey(pub(crate) String);

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey")
    }
}

impl SecretMaterial {
    pub(crate) fn password(&self) -> Option<&PasswordHash> {
        match self {
            Self::Password(hash) => Some(hash),
            _ => None,
        }
    }

    pub(crate) fn public_key(&self) -> Option<&PublicKey> {
        match self {
            Self::PublicKey(key) => Some(key),
            _ => None,
        }
    }
}

impl Secret {
    /// True if the secret is valid at `now_ms`.
    pub(crate) fn is_valid_at(&self, now_ms: i64) -> bool {
        let now = Timestamp(now_ms);
        self.enabled && self.not_before.is_none_or(|from| from <= now) && self.not_after.is_none_or(|to| now <= to)
    }

    fn shown(&self) -> Value {
        let mut shown = json!({"id": self.id, "enabled": self.enabled});
        for (name, value) in [
            ("not-before", self.not_before.map(|moment| moment.to_string())),
            ("not-after", self.not_after.map(|moment| moment.to_string())),
            ("comment", self.comment.clone()),
            ("key", self.material.public_key().map(PublicKey::text)),
            ("algorithm", self.material.public_key().map(|key| key.algorithm().to_owned())),
        ] {
            if let Some(value) = value {
                shown[name] = Value::String(value);
            }
        }
        shown
    }
}

impl Credential {
    /// The response form, without hashes, salts and shared keys.
    pub(crate) fn shown(&self) -> Value {
        let secrets: Vec<Value> = self.secrets.iter().map(Secret::shown).collect();
        let mut shown = json!({
            "type": self.kind,
            "auth-id": self.auth_id,
            "enabled": self.enabled,
            "secrets": secrets,
        });
        if !self.ext.is_empty() {
            shown["ext"] = Value::Object(self.ext.clone());
        }
        shown
    }
}

/// A credential as a client sends it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct GivenCredential {
    #[serde(rename = "type")]
    pub(crate) kind: CredentialType,
    pub(crate) auth_id: Option<String>,
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    #[serde(default)]
    pub(crate) ext: Object,
    /// The certificate of a device, from which its auth-id and validity are read.
    pub(crate) cert: Option<String>,
    /// The authority of the device's certificate, whose template makes the auth-id.
    pub(crate) issuer_dn: Option<String>,
    /// `None` if the client names no list; an empty one is refused.
    pub(crate) secrets: Option<Vec<GivenSecret>>,
}

/// A secret as a client sends it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct GivenSecret {
    pub(crate) id: Option<String>,
    pub(crate) enabled: Option<bool>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) not_after: Option<Timestamp>,
    pub(crate) comment: Option<String>,
    pub(crate) hash_function: Option<String>,
    pub(crate) pwd_hash: Option<String>,
    pub(crate) salt: Option<String>,
    pub(crate) pwd_plain: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) algorithm: Option<String>,
}

/// A credential with hashed new passwords and checked keys. The owner adds the parts of the stored credential that it keeps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CredentialDraft {
    pub(crate) kind: CredentialType,
    pub(crate) auth_id: AuthId,
    pub(crate) enabled: bool,
    pub(crate) ext: Object,
    pub(crate) secrets: Vec<SecretDraft>,
}

impl CredentialDraft {
    /// The approximate size of the draft.
    pub(crate) fn size_bytes(&self) -> usize {
        let comment = |secret: &SecretDraft| secret.comment.as_ref().map_or(0, String::len);
        let secrets = self.secrets.iter().map(|secret| size_of::<SecretDraft>() + MATERIAL_BYTES + comment(secret));
        let ext = serde_json::to_vec(&self.ext).map_or(0, |json| json.len());
        size_of::<Self>() + self.auth_id.as_str().len() + ext + secrets.sum::<usize>()
    }
}

/// A secret that is new, or that changes a stored one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SecretDraft {
    pub(crate) origin: SecretOrigin,
    pub(crate) enabled: Option<bool>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) not_after: Option<Timestamp>,
    pub(crate) comment: Option<String>,
}

/// The source of what a secret's login is checked against.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SecretOrigin {
    New(SecretMaterial),
    /// That of the stored secret with this id, or the new one.
    Stored(String, Option<SecretMaterial>),
}

/// The id of a missing stored secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnknownSecret {
    pub(crate) id: String,
    pub(crate) auth_id: AuthId,
}

impl CredentialDraft {
    /// Adds the kept secrets of the stored credential with the same type and auth-id.
    pub(crate) fn complete(self, stored: Option<&Credential>) -> Result<Credential, UnknownSecret> {
        let Self { kind, auth_id, enabled, ext, secrets } = self;
        let secrets = secrets.into_iter().map(|secret| secret.complete(&auth_id, stored)).collect::<Result<_, _>>()?;
        Ok(Credential { kind, auth_id, enabled, ext, secrets })
    }
}

impl SecretDraft {
    fn complete(self, auth_id: &AuthId, stored: Option<&Credential>) -> Result<Secret, UnknownSecret> {
        let (id, material) = match self.origin {
            SecretOrigin::New(material) => {
                return Ok(Secret {
                    id: format!("{:016x}", fastrand::u64(..)),
                    enabled: self.enabled.unwrap_or(true),
                    not_before: self.not_before,
                    not_after: self.not_after,
                    comment: self.comment,
                    material,
                });
            }
            SecretOrigin::Stored(id, material) => (id, material),
        };
        let old = stored.and_then(|stored| stored.secrets.iter().find(|secret| secret.id == id));
        let Some(old) = old.cloned() else { return Err(UnknownSecret { id, auth_id: auth_id.clone() }) };
        // Like Hono, only the password or key is kept, because its owner cannot read it; other omitted members are removed.
        Ok(Secret {
            id,
            enabled: self.enabled.unwrap_or(true),
            not_before: self.not_before,
            not_after: self.not_after,
            comment: self.comment,
            material: material.unwrap_or(old.material),
        })
    }
}
