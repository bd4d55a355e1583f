//! JSON Web Tokens of devices: the claims that name a device, and the rules for their time.
//!
//! A token is a claim until [`DeviceToken::is_signed_by`] has found a key of the device that verifies it.

use millstream_http::{JsonWebToken, JwtError};
use millstream_types::iso_time;
use serde::Deserialize;
use serde_json::Value;

use crate::registry::PublicKey;

/// The clocks of devices may differ by this time.
const SKEW_S: i64 = 600;
/// Longest time from `iat` to `exp`, without the skew.
const LIFE_MAX_S: i64 = 24 * 3_600;
/// The audience of tokens whose claims name tenant and auth-id.
const AUDIENCE: &str = "hono-adapter";

/// The reason for which a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(transparent)]
    Form(#[from] JwtError),
    #[error("its header has no typ JWT")]
    Type,
    #[error("it lacks the claim {0}, a number of seconds since 1970")]
    Missing(&'static str),
    #[error("exp {exp} is not after iat {iat}")]
    Backwards { iat: String, exp: String },
    #[error("it lasts from {iat} to {exp}; the life of a token is 24 hours at most")]
    TooLongALife { iat: String, exp: String },
    #[error("it begins at {from}, and the clocks may differ by 10 minutes; set the clock of the device")]
    TooEarly { from: String },
    #[error("it has expired at {exp}")]
    Expired { exp: String },
}

#[derive(Deserialize)]
struct Claims {
    tid: Option<String>,
    sub: Option<String>,
    #[serde(default)]
    aud: Value,
    iat: Option<f64>,
    exp: Option<f64>,
    nbf: Option<f64>,
}

/// A token whose signature is not checked yet.
#[derive(Debug)]
pub(crate) struct DeviceToken<'a> {
    token: JsonWebToken<'a>,
    /// Tenant and auth-id that its claims name, if it is meant for adapters.
    pub(crate) named: Option<(String, String)>,
    /// The last moment at which it counts, with the skew, in milliseconds since 1970.
    pub(crate) ends_ms: i64,
}

impl<'a> DeviceToken<'a> {
    /// Reads a token and checks its times at `now_ms`.
    pub(crate) fn read(text: &'a str, now_ms: i64) -> Result<Self, TokenError> {
        let token = JsonWebToken::read(text)?;
        if !token.typ.as_ref().is_some_and(|typ| typ.eq_ignore_ascii_case("JWT")) {
            return Err(TokenError::Type);
        }
        let claims: Claims = token.claims()?;
        let ends_ms = claims.end_ms(now_ms)?;
        let is_for_adapters = match &claims.aud {
            Value::String(audience) => audience == AUDIENCE,
            Value::Array(audiences) => audiences.iter().any(|audience| audience == AUDIENCE),
            _ => false,
        };
        let named = claims.tid.zip(claims.sub).filter(|_| is_for_adapters);
        Ok(Self { token, named, ends_ms })
    }

    /// True if the key has signed the token.
    pub(crate) fn is_signed_by(&self, key: &PublicKey) -> bool {
        self.token.is_signed_by(key.kind(), key.key())
    }
}

impl Claims {
    /// Checks the times. Returns the moment at which the token ends.
    fn end_ms(&self, now_ms: i64) -> Result<i64, TokenError> {
        let now_s = now_ms.div_euclid(1_000);
        let [iat, exp] = [("iat", self.iat), ("exp", self.exp)]
            .map(|(name, value)| value.map(seconds).ok_or(TokenError::Missing(name)));
        let (iat, exp) = (iat?, exp?);
        let text = |seconds: i64| iso_time(seconds.saturating_mul(1_000));
        if exp <= iat {
            return Err(TokenError::Backwards { iat: text(iat), exp: text(exp) });
        }
        if exp - iat > LIFE_MAX_S + SKEW_S {
            return Err(TokenError::TooLongALife { iat: text(iat), exp: text(exp) });
        }
        let from = self.nbf.map_or(iat, |nbf| seconds(nbf).max(iat));
        if from > now_s + SKEW_S {
            return Err(TokenError::TooEarly { from: text(from) });
        }
        if now_s > exp + SKEW_S {
            return Err(TokenError::Expired { exp: text(exp) });
        }
        Ok((exp + SKEW_S) * 1_000)
    }
}

/// A time of a token, which may have a fraction. Times far from now are cut.
fn seconds(value: f64) -> i64 {
    const FAR_S: f64 = 1e11;
    value.clamp(-FAR_S, FAR_S) as i64
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
        KeyPair as _,
    };
    use serde_json::json;

    use super::*;

    const NOW_S: i64 = 1_800_000_000;

    struct Signer(EcdsaKeyPair, SystemRandom);

    impl Signer {
        fn new(algorithm: &'static EcdsaSigningAlgorithm) -> Self {
            let random = SystemRandom::new();
            let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap(), random)
        }

        fn public_key(&self) -> PublicKey {
            // SubjectPublicKeyInfo up to the point, for P-256 and P-384.
            let head: &[u8] = match self.0.public_key().as_ref().len() {
                65 => b"\x30\x59\x30\x13\x06\x07\x2A\x86\x48\xCE\x3D\x02\x01\x06\x08\x2A\x86\x48\xCE\x3D\x03\x01\x07\x03\x42\x00",
                _ => b"\x30\x76\x30\x10\x06\x07\x2A\x86\x48\xCE\x3D\x02\x01\x06\x05\x2B\x81\x04\x00\x22\x03\x62\x00",
            };
            PublicKey::read(&STANDARD.encode([head, self.0.public_key().as_ref()].concat())).unwrap()
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let signed = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
            let signature = self.0.sign(&self.1, signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    #[test]
    fn a_token_is_signed_by_its_key_alone_and_in_the_algorithm_that_it_names() {
        let (small, other) =
            (Signer::new(&ECDSA_P256_SHA256_FIXED_SIGNING), Signer::new(&ECDSA_P256_SHA256_FIXED_SIGNING));
        let large = Signer::new(&ECDSA_P384_SHA384_FIXED_SIGNING);
        let claims = json!({"tid": "acme", "sub": "d", "aud": ["x", AUDIENCE], "iat": NOW_S, "exp": NOW_S + 60});
        for (alg, signer, key, expected) in [
            ("ES256", &small, &small, true),
            ("ES384", &large, &large, true),
            ("ES256", &small, &other, false),
            ("ES384", &small, &small, false),
            ("ES256", &small, &large, false),
            ("RS256", &small, &small, false),
        ] {
            let text = signer.token(&json!({"alg": alg, "typ": "JWT"}), &claims);
            assert!(JsonWebToken::is_one(text.as_bytes()));
            let token = DeviceToken::read(&text, NOW_S * 1_000).unwrap();
            assert_eq!(token.is_signed_by(&key.public_key()), expected, "{alg}");
            assert_eq!(token.named, Some(("acme".to_owned(), "d".to_owned())));
            assert_eq!(token.ends_ms, (NOW_S + 660) * 1_000);
            let changed = text.replacen('.', ".e", 1);
            assert!(DeviceToken::read(&changed, NOW_S * 1_000).is_err(), "no JSON");
        }
    }

    #[test]
    fn a_token_that_breaks_a_rule_is_refused_with_the_rule() {
        let signer = Signer::new(&ECDSA_P256_SHA256_FIXED_SIGNING);
        let header = json!({"alg": "ES256", "typ": "JWT"});
        let day = 24 * 3_600;
        for (header, claims, told) in [
            (&json!({"alg": "none", "typ": "JWT"}), json!({}), "alg is none"),
            (&json!({"alg": "HS256", "typ": "JWT"}), json!({}), "alg is HS256"),
            (&json!({"alg": "ES256"}), json!({}), "typ JWT"),
            (&json!({"alg": "ES256", "typ": "JWT", "crit": ["x"]}), json!({}), "crit"),
            (&header, json!({"exp": NOW_S}), "lacks the claim iat"),
            (&header, json!({"iat": NOW_S}), "lacks the claim exp"),
            (&header, json!({"iat": NOW_S, "exp": NOW_S}), "not after iat"),
            (&header, json!({"iat": NOW_S, "exp": NOW_S + day + 601}), "24 hours"),
            (&header, json!({"iat": NOW_S + 601, "exp": NOW_S + 700}), "set the clock"),
            (&header, json!({"iat": NOW_S, "nbf": NOW_S + 601, "exp": NOW_S + 700}), "set the clock"),
            (&header, json!({"iat": NOW_S - 700, "exp": NOW_S - 601}), "expired"),
            (&header, json!({"iat": "x", "exp": 1}), "three parts"),
            (&header, json!({"iat": -1e300, "exp": 1e300}), "24 hours"),
        ] {
            let refusal = DeviceToken::read(&signer.token(header, &claims), NOW_S * 1_000).unwrap_err().to_string();
            assert!(refusal.contains(told), "{claims}: {refusal}");
        }
        for claims in [
            json!({"iat": NOW_S, "exp": NOW_S + day}),
            json!({"iat": NOW_S - 700, "exp": NOW_S - 600}),
            json!({"iat": NOW_S + 600, "exp": NOW_S + 700}),
            json!({"iat": f64::from(1_800_000_000) + 0.5, "exp": NOW_S + 1}),
        ] {
            let text = signer.token(&header, &claims);
            let token = DeviceToken::read(&text, NOW_S * 1_000).unwrap_or_else(|error| panic!("{claims}: {error}"));
            assert_eq!(token.named, None, "no audience");
        }
        for text in ["", "a", "a.b.c", "e30.e30.", &"x".repeat(9_000)] {
            assert!(!JsonWebToken::is_one(text.as_bytes()) && DeviceToken::read(text, 0).is_err(), "{text}");
        }
    }
}
