//! The provider's public keys: a JSON Web Key Set (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millstream_http::{JsonWebToken, KeyKind, SignatureAlgorithm};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::Value;

/// Most keys of a provider.
const KEYS_MAX: usize = 100;
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;

#[derive(Deserialize)]
struct JsonWebKeySet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct JsonWebKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// A key that verifies signatures.
#[derive(Debug, Clone)]
struct ProviderKey {
    id: Option<String>,
    /// The only algorithm that it is for, if it says so.
    algorithm: Option<String>,
    kind: KeyKind,
    /// `RSAPublicKey` in DER, or the uncompressed point of a curve.
    key: Vec<u8>,
    fingerprint: [u8; 32],
}

/// The outcome of the search for the key that has signed a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureCheck {
    /// The key with this SHA-256 has signed it.
    By([u8; 32]),
    /// The key that it names has not signed it.
    Wrong,
    /// The provider has no such key, as far as is known.
    UnknownKey,
}

/// The keys of a provider.
#[derive(Debug, Clone, Default)]
pub(super) struct KeySet(Vec<ProviderKey>);

impl KeySet {
    /// Reads a key set. Keys for other purposes or of other kinds are left out.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let set: JsonWebKeySet = serde_json::from_slice(json).map_err(|error| format!("no set of keys: {error}"))?;
        if set.keys.len() > KEYS_MAX {
            return Err(format!("{} keys; at most {KEYS_MAX} are taken", set.keys.len()));
        }
        let keys: Vec<_> = set.keys.into_iter().filter_map(ProviderKey::of).collect();
        if keys.is_empty() { Err("none of its keys verifies signatures".to_owned()) } else { Ok(Self(keys)) }
    }

    /// Looks for the key that has signed the token. A token that names no key may be signed by any.
    pub(super) fn signature(&self, token: &JsonWebToken<'_>) -> SignatureCheck {
        let is_named = |key: &&ProviderKey| token.key_id.is_none() || key.id == token.key_id;
        let mut named = self.0.iter().filter(is_named).filter(|key| key.is_for(token.algorithm)).peekable();
        let is_known = token.key_id.is_some() && named.peek().is_some();
        match named.find(|key| token.is_signed_by(key.kind, &key.key)) {
            Some(key) => SignatureCheck::By(key.fingerprint),
            None if is_known => SignatureCheck::Wrong,
            None => SignatureCheck::UnknownKey,
        }
    }

    pub(super) fn has(&self, fingerprint: &[u8; 32]) -> bool {
        self.0.iter().any(|key| key.fingerprint == *fingerprint)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl ProviderKey {
    fn of(key: Value) -> Option<Self> {
        let key: JsonWebKey = serde_json::from_value(key).ok()?;
        if key.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let (kind, bytes) = match (key.kty.as_str(), key.crv.as_deref()) {
            ("RSA", _) => (KeyKind::Rsa, rsa_public_key(&number(&key.n)?, &number(&key.e)?)),
            ("EC", Some("P-256")) => (KeyKind::P256, point(32, &number(&key.x)?, &number(&key.y)?)?),
            ("EC", Some("P-384")) => (KeyKind::P384, point(48, &number(&key.x)?, &number(&key.y)?)?),
            _ => return None,
        };
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, &bytes).as_ref());
        Some(Self { id: key.kid, algorithm: key.alg, kind, key: bytes, fingerprint })
    }

    fn is_for(&self, algorithm: SignatureAlgorithm) -> bool {
        self.algorithm.as_ref().is_none_or(|only| *only == format!("{algorithm:?}"))
    }
}

/// `RSAPublicKey` of RFC 8017, appendix A.1.1, in DER.
fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[unsigned(modulus), unsigned(exponent)].concat())
}

/// A number of 0 or more, from its bytes with the highest first.
fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len().saturating_sub(1));
    let bytes = &bytes[first..];
    let sign: &[u8] = if bytes.first().is_none_or(|byte| byte & 0x80 != 0) { &[0] } else { &[] };
    element(INTEGER, &[sign, bytes].concat())
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let first = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
    let length = &length[first..];
    let long = [0x80 | length.len() as u8];
    let prefix: &[u8] = if content.len() < 0x80 { &[] } else { &long };
    [&[tag], prefix, length, content].concat()
}

/// The uncompressed point with coordinates of so many bytes.
fn point(bytes: usize, x: &[u8], y: &[u8]) -> Option<Vec<u8>> {
    (x.len() == bytes && y.len() == bytes).then(|| [&[4], x, y].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_der() {
        for (bytes, expected) in [
            (&[0x01_u8][..], vec![2, 1, 1]),
            (&[0x00, 0x01], vec![2, 1, 1]),
            (&[0x80], vec![2, 2, 0, 0x80]),
            (&[0x01, 0x00, 0x01], vec![2, 3, 1, 0, 1]),
            (&[0], vec![2, 1, 0]),
            (&[], vec![2, 1, 0]),
        ] {
            assert_eq!(unsigned(bytes), expected, "{bytes:?}");
        }
        for (length, head) in [(0x7f, vec![0x30, 0x7f]), (0x80, vec![0x30, 0x81, 0x80]), (300, vec![0x30, 0x82, 1, 44])]
        {
            assert!(element(SEQUENCE, &vec![7; length]).starts_with(&head), "{length}");
        }
    }

    #[test]
    fn only_keys_that_verify_signatures_are_taken() {
        let coordinate = |bytes: usize| URL_SAFE_NO_PAD.encode(vec![1; bytes]);
        let ec = |curve: &str, bytes: usize, more: &str| {
            let coordinate = coordinate(bytes);
            format!(r#"{{"kty":"EC","crv":"{curve}","x":"{coordinate}","y":"{coordinate}"{more}}}"#)
        };
        for (keys, count) in [
            (ec("P-256", 32, ""), 1),
            (ec("P-384", 48, r#","use":"sig","kid":"a","alg":"ES384""#), 1),
            (ec("P-256", 31, ""), 0),
            (ec("P-256", 32, r#","use":"enc""#), 0),
            (ec("P-521", 66, ""), 0),
            (r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#.to_owned(), 1),
            (r#"{"kty":"RSA","n":"AQAB"}"#.to_owned(), 0),
            (r#"{"kty":"RSA","n":"?","e":"AQAB"}"#.to_owned(), 0),
            (r#"{"kty":"oct","k":"AQAB"}"#.to_owned(), 0),
            ("7".to_owned(), 0),
            (String::new(), 0),
        ] {
            let read = KeySet::read(format!("{{\"keys\":[{keys}]}}").as_bytes());
            assert_eq!(read.as_ref().map_or(0, KeySet::len), count, "{keys}: {read:?}");
        }
        let many = vec![ec("P-256", 32, ""); KEYS_MAX + 1].join(",");
        for (text, told) in [("[]", "no set of keys"), (&*format!("{{\"keys\":[{many}]}}"), "at most 100")] {
            assert!(KeySet::read(text.as_bytes()).unwrap_err().contains(told), "{told}");
        }
    }
}
