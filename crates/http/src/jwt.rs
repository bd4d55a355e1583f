//! Signed JSON Web Tokens (RFC 7515 and 7519): reading them, and their signatures.
//!
//! A token is a claim until [`JsonWebToken::is_signed_by`] has found a key that verifies it. The rules for claims belong to
//! the callers: devices' tokens are checked in `connect`, those of identity providers by a
//! [`TokenIssuer`](crate::TokenIssuer).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest token; RFC 7519 sets no limit.
const TOKEN_MAX_BYTES: usize = 8 << 10;

/// The signature algorithms, with their names in tokens (RFC 7518). None of them has a secret that both sides know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SignatureAlgorithm {
    /// Signatures of RSASSA-PKCS1-v1_5 with SHA-256.
    RS256,
    /// Signatures of RSASSA-PKCS1-v1_5 with SHA-384.
    RS384,
    /// Signatures of RSASSA-PKCS1-v1_5 with SHA-512.
    RS512,
    /// Signatures of RSASSA-PSS with SHA-256.
    PS256,
    /// Signatures of RSASSA-PSS with SHA-384.
    PS384,
    /// Signatures of RSASSA-PSS with SHA-512.
    PS512,
    /// Signatures of ECDSA on P-256 with SHA-256.
    ES256,
    /// Signatures of ECDSA on P-384 with SHA-384.
    ES384,
}

/// The kind of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// A key of RSA, of 2,048 to 8,192 bits.
    Rsa,
    /// A point of the curve P-256.
    P256,
    /// A point of the curve P-384.
    P384,
    /// A point of the curve P-521, for which there is no signature algorithm here.
    P521,
}

impl SignatureAlgorithm {
    /// The check of a signature with a key of this kind; `None` if the kind does not fit.
    fn with(self, key: KeyKind) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self, key) {
            (Self::RS256, KeyKind::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA256,
            (Self::RS384, KeyKind::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (Self::RS512, KeyKind::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA512,
            (Self::PS256, KeyKind::Rsa) => &signature::RSA_PSS_2048_8192_SHA256,
            (Self::PS384, KeyKind::Rsa) => &signature::RSA_PSS_2048_8192_SHA384,
            (Self::PS512, KeyKind::Rsa) => &signature::RSA_PSS_2048_8192_SHA512,
            (Self::ES256, KeyKind::P256) => &signature::ECDSA_P256_SHA256_FIXED,
            (Self::ES384, KeyKind::P384) => &signature::ECDSA_P384_SHA384_FIXED,
            _ => return None,
        })
    }
}

/// The reason for which a text is not read as a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// It is not in the form of a signed token.
    #[error("it is not three parts in base64url with a header and claims in JSON")]
    Malformed,
    /// It is longer than any token that is taken.
    #[error("it has {bytes} bytes; at most {TOKEN_MAX_BYTES} are taken")]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// Its algorithm is unknown, or is no signature by a private key.
    #[error("its alg is {alg}; use RS256, RS384, RS512, PS256, PS384, PS512, ES256 or ES384")]
    Algorithm {
        /// The algorithm in its header.
        alg: String,
    },
    /// It has extensions that its taker must understand.
    #[error("its header has crit, which no extension here fulfils")]
    Critical,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token whose signature is not checked yet.
#[derive(Debug)]
pub struct JsonWebToken<'a> {
    /// The algorithm of its signature.
    pub algorithm: SignatureAlgorithm,
    /// The member `typ` of its header.
    pub typ: Option<String>,
    /// The name of the key that has signed it, as its header says.
    pub key_id: Option<String>,
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

impl<'a> JsonWebToken<'a> {
    /// Reads header and signature of a token.
    ///
    /// # Errors
    /// [`JwtError`] if it is not in the form of a signed token.
    pub fn read(text: &'a str) -> Result<Self, JwtError> {
        if text.len() > TOKEN_MAX_BYTES {
            return Err(JwtError::TooLong { bytes: text.len() });
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let Header { alg, typ, kid, crit } = part(header).ok_or(JwtError::Malformed)?;
        let algorithm = serde_json::from_value(Value::String(alg.clone())).map_err(|_| JwtError::Algorithm { alg })?;
        if crit.is_some() {
            return Err(JwtError::Critical);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
        Ok(Self { algorithm, typ, key_id: kid, signed, claims, signature })
    }

    /// True if a text looks like a token and cannot be meant otherwise.
    pub fn is_one(text: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(text) else { return false };
        let header = text.split_once('.').and_then(|(header, _)| part::<Header>(header));
        text.split('.').count() == 3 && header.is_some()
    }

    /// The claims, which nobody vouches for before the signature is verified.
    ///
    /// # Errors
    /// [`JwtError::Malformed`] if they do not have this form.
    pub fn claims<T: DeserializeOwned>(&self) -> Result<T, JwtError> {
        part(self.claims).ok_or(JwtError::Malformed)
    }

    /// True if this key has signed the token: `RSAPublicKey` in DER, or the uncompressed point of a curve.
    pub fn is_signed_by(&self, kind: KeyKind, key: &[u8]) -> bool {
        let Some(algorithm) = self.algorithm.with(kind) else { return false };
        UnparsedPublicKey::new(algorithm, key).verify(self.signed.as_bytes(), &self.signature).is_ok()
    }
}

/// A part of a token: base64url of JSON.
fn part<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
