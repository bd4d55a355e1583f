//! A device's key, and the tokens that it signs.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use millstream_types::{SystemClock, WallClock as _};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// `SubjectPublicKeyInfo` of a key of P-256, up to the point.
const P256: &[u8] =
    b"\x30\x59\x30\x13\x06\x07\x2A\x86\x48\xCE\x3D\x02\x01\x06\x08\x2A\x86\x48\xCE\x3D\x03\x01\x07\x03\x42\x00";

/// A private key of P-256.
pub(crate) struct Signer(EcdsaKeyPair, SystemRandom);

impl Signer {
    pub(crate) fn new() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap(), random)
    }

    /// Base64 of the DER of the public key.
    pub(crate) fn public_key(&self) -> String {
        STANDARD.encode([P256, self.0.public_key().as_ref()].concat())
    }

    /// A credential that verifies the tokens.
    pub(crate) fn credential(&self, auth_id: &str) -> String {
        json!([{"type": "rpk", "auth-id": auth_id, "secrets": [{"key": self.public_key()}]}]).to_string()
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "typ": "JWT"});
        let signed = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = self.0.sign(&self.1, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> i64 {
    SystemClock::default().now_ms() / 1_000
}
