//! Public keys: `SubjectPublicKeyInfo` (RFC 5280, section 4.1.2.7) of RSA and of the curves P-256, P-384 and P-521.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millstream_http::KeyKind;
use serde::{Deserialize, Serialize};

use super::certificate::der;

/// Shortest key of RSA whose signatures count.
const RSA_MIN_BITS: usize = 2_048;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const BIT_STRING: u8 = 0x03;
const RSA: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1];
const EC: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 2, 1];
const CURVES: [(&[u8], KeyKind); 3] = [
    (&[0x2A, 0x86, 0x48, 0xCE, 0x3D, 3, 1, 7], KeyKind::P256),
    (&[0x2B, 0x81, 4, 0, 0x22], KeyKind::P384),
    (&[0x2B, 0x81, 4, 0, 0x23], KeyKind::P521),
];

/// A public key of RSA or of an elliptic curve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PublicKey {
    der: Vec<u8>,
    kind: KeyKind,
    /// Position of the key itself in `der`, behind its algorithm.
    key_at: usize,
}

impl PublicKey {
    /// Reads base64 of DER, with or without PEM lines; `None` if it is no key of these kinds.
    pub(crate) fn read(text: &str) -> Option<Self> {
        Self::of_der(der(text)?)
    }

    pub(crate) fn of_der(der: Vec<u8>) -> Option<Self> {
        let (SEQUENCE, content, []) = element(&der)? else { return None };
        let (SEQUENCE, algorithm, key) = element(content)? else { return None };
        let (OBJECT_ID, name, parameters) = element(algorithm)? else { return None };
        let (BIT_STRING, [0, key @ ..], []) = element(key)? else { return None };
        let kind = match name {
            RSA => KeyKind::Rsa,
            EC => {
                let (OBJECT_ID, curve, []) = element(parameters)? else { return None };
                CURVES.iter().find(|(known, _)| *known == curve)?.1
            }
            _ => return None,
        };
        let key_at = der.len() - key.len();
        Some(Self { der, kind, key_at })
    }

    pub(crate) fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The key without its algorithm: `RSAPublicKey` in DER, or the point of the curve.
    pub(crate) fn key(&self) -> &[u8] {
        &self.der[self.key_at..]
    }

    /// True for a key of RSA that is too short to verify signatures.
    pub(crate) fn is_too_short(&self) -> bool {
        let modulus = || {
            let (SEQUENCE, numbers, []) = element(self.key())? else { return None };
            let (INTEGER, modulus, _) = element(numbers)? else { return None };
            modulus.iter().position(|byte| *byte != 0).map(|zeros| &modulus[zeros..])
        };
        let bits = |modulus: &[u8]| modulus.len() * 8 - modulus[0].leading_zeros() as usize;
        self.kind == KeyKind::Rsa && modulus().map_or(0, bits) < RSA_MIN_BITS
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// The algorithm as documents name it.
    pub(crate) fn algorithm(&self) -> &'static str {
        if self.kind == KeyKind::Rsa { "RSA" } else { "EC" }
    }

    /// The DER as documents have it, in base64.
    pub(crate) fn text(&self) -> String {
        STANDARD.encode(&self.der)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::read(&text).ok_or("no public key of RSA, P-256, P-384 or P-521 in base64 of DER")
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.text()
    }
}

/// Tag and content of the first element, and what follows it (X.690, section 8.1; lengths up to 65,535).
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (length, rest) = match der.get(1..)? {
        [length @ 0..=0x7F, rest @ ..] => (usize::from(*length), rest),
        [0x81, length, rest @ ..] => (usize::from(*length), rest),
        [0x82, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*der.first()?, content, rest))
}
