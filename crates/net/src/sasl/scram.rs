//! SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a client proves that it knows a secret without sending it.
//!
//! ```text
//!   client-first (name, nonce) ──► server-first (nonce, salt, iterations) ──► client-final (proof) ──► server-final
//! ```
//!
//! The server keeps two keys derived from the secret, neither of which is enough to log in.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Rounds of the derivation: the number that RFC 7677 asks for, and Kafka's default.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4_096).expect("4,096 is not zero");
/// Bytes of a salt and of the server's part of a nonce.
const RANDOM_BYTES: usize = 24;
/// Longest client-first message; names and nonces are far shorter.
const FIRST_MAX_BYTES: usize = 1_024;

/// A hash function of SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScramMechanism {
    /// SCRAM with SHA-256 (RFC 7677).
    Sha256,
    /// SCRAM with SHA-512, as Kafka has it.
    Sha512,
}

impl ScramMechanism {
    /// Both mechanisms, the weaker first.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The name in the SASL handshake.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn derivation(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn sign(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac(), key), message).as_ref().to_vec()
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        digest::digest(self.hmac().digest_algorithm(), bytes).as_ref().to_vec()
    }
}

/// The keys of one secret for one mechanism, with which the server checks a login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScramCredential {
    #[serde(serialize_with = "as_base64", deserialize_with = "from_base64")]
    salt: Vec<u8>,
    iterations: NonZeroU32,
    #[serde(serialize_with = "as_base64", deserialize_with = "from_base64")]
    stored_key: Vec<u8>,
    #[serde(serialize_with = "as_base64", deserialize_with = "from_base64")]
    server_key: Vec<u8>,
}

impl std::fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScramCredential({} iterations)", self.iterations)
    }
}

impl ScramCredential {
    /// Derives the keys of `secret` with a random salt. Takes a few milliseconds.
    pub fn derive(mechanism: ScramMechanism, secret: &str) -> Self {
        Self::with_salt(mechanism, secret, random().to_vec(), ITERATIONS)
    }

    /// How often the secret is hashed.
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    fn with_salt(mechanism: ScramMechanism, secret: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        let mut salted = vec![0; mechanism.hmac().digest_algorithm().output_len()];
        pbkdf2::derive(mechanism.derivation(), iterations, &salt, secret.as_bytes(), &mut salted);
        let stored_key = mechanism.hash(&mechanism.sign(&salted, b"Client Key"));
        Self { salt, iterations, stored_key, server_key: mechanism.sign(&salted, b"Server Key") }
    }
}

/// A login that waits for the client's proof.
#[derive(Debug)]
pub struct ScramExchange {
    mechanism: ScramMechanism,
    credential: ScramCredential,
    /// The client's header, which its last message repeats.
    gs2_header: String,
    nonce: String,
    /// The first two messages, as both sides sign them.
    signed: String,
}

/// The first message of a client.
#[derive(Debug)]
pub struct ClientFirst<'a> {
    /// The name of the user.
    pub name: String,
    gs2_header: &'a str,
    /// The message without its header.
    bare: &'a str,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Parses `n,[a=NAME],n=NAME,r=NONCE`; a name to act under must be the user's own.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(message).ok().filter(|text| text.len() <= FIRST_MAX_BYTES)?;
        let mut parts = text.splitn(3, ',');
        let (binding, acting, bare) = (parts.next()?, parts.next()?, parts.next()?);
        let mut attributes = bare.split(',');
        let name = saslname(attributes.next()?.strip_prefix("n=")?)?;
        let nonce = attributes.next()?.strip_prefix("r=").filter(|nonce| !nonce.is_empty())?;
        let acts_as_itself = acting.is_empty() || saslname(acting.strip_prefix("a=")?)? == name;
        let gs2_header = &text[..text.len() - bare.len()];
        (matches!(binding, "n" | "y") && acts_as_itself).then_some(Self { name, gs2_header, bare, nonce })
    }
}

impl ScramExchange {
    /// Begins a login. Returns it with the answer to the client.
    pub fn begin(mechanism: ScramMechanism, first: &ClientFirst<'_>, credential: ScramCredential) -> (Self, String) {
        let nonce = format!("{}{}", first.nonce, STANDARD.encode(random()));
        let (salt, iterations) = (STANDARD.encode(&credential.salt), credential.iterations);
        let answer = format!("r={nonce},s={salt},i={iterations}");
        let signed = format!("{},{answer}", first.bare);
        let gs2_header = first.gs2_header.to_owned();
        (Self { mechanism, credential, gs2_header, nonce, signed }, answer)
    }

    /// Checks the client's proof. Returns the answer to the client, which proves the server's knowledge, or `None` if the
    /// client does not know the secret.
    pub fn finish(self, message: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(message).ok()?;
        let (without_proof, proof) = text.rsplit_once(",p=")?;
        let mut attributes = without_proof.split(',');
        let repeats_header = attributes.next()?.strip_prefix("c=")? == STANDARD.encode(&self.gs2_header);
        // librdkafka before 2.6.1 puts its own part in front once more, which Kafka accepts, too.
        let repeats_nonce = attributes.next()?.strip_prefix("r=")?.ends_with(&*self.nonce);
        let proof = STANDARD.decode(proof).ok()?;
        let signed = format!("{},{without_proof}", self.signed);
        let signature = self.mechanism.sign(&self.credential.stored_key, signed.as_bytes());
        if !repeats_header || !repeats_nonce || proof.len() != signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(proof, signature)| proof ^ signature).collect();
        if !are_equal(&self.mechanism.hash(&client_key), &self.credential.stored_key) {
            return None;
        }
        let answer = self.mechanism.sign(&self.credential.server_key, signed.as_bytes());
        Some(format!("v={}", STANDARD.encode(answer)))
    }
}

/// Compares in a time that does not depend on the position of the difference.
fn are_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
}

/// A name in which `=2C` stands for a comma and `=3D` for an equals sign.
fn saslname(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) =
            if let Some(rest) = part.strip_prefix("2C") { (',', rest) } else { ('=', part.strip_prefix("3D")?) };
        name.push(sign);
        name.push_str(rest);
    }
    (!name.is_empty()).then_some(name)
}

fn random() -> [u8; RANDOM_BYTES] {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

fn as_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677 section 3.
    #[test]
    fn the_example_of_the_rfc_is_accepted_and_signed() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let credential = ScramCredential::with_salt(ScramMechanism::Sha256, "pencil", salt, ITERATIONS);
        let first = ClientFirst::parse(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        assert_eq!(first.name, "user");
        let (mut exchange, answer) = ScramExchange::begin(ScramMechanism::Sha256, &first, credential);
        let made = exchange.nonce.clone();
        assert!(answer.starts_with(&format!("r={made},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")), "{answer}");
        let fixed = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        exchange.signed = exchange.signed.replace(&made, fixed);
        exchange.nonce = fixed.to_owned();
        let last = format!("c=biws,r={fixed},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(exchange.finish(last.as_bytes()).unwrap(), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_first_message_has_a_name_and_a_nonce_and_no_channel_binding() {
        for (message, name) in [
            ("n,,n=user,r=abc", Some("user")),
            ("y,,n=user,r=abc", Some("user")),
            ("n,a=user,n=user,r=abc", Some("user")),
            ("n,,n=a=2Cb=3Dc,r=abc,tokenauth=false", Some("a,b=c")),
            ("n,a=other,n=user,r=abc", None),
            ("p=tls-unique,,n=user,r=abc", None),
            ("n,,n=user,r=", None),
            ("n,,n=,r=abc", None),
            ("n,,n=a=2Db,r=abc", None),
            ("n,,r=abc", None),
            ("n=user,r=abc", None),
            ("", None),
        ] {
            assert_eq!(ClientFirst::parse(message.as_bytes()).map(|first| first.name).as_deref(), name, "{message}");
        }
        assert!(ClientFirst::parse(format!("n,,n=user,r={}", "x".repeat(2_000)).as_bytes()).is_none());
    }

    #[test]
    fn a_wrong_proof_header_or_nonce_is_refused() {
        for mechanism in ScramMechanism::ALL {
            let credential = ScramCredential::derive(mechanism, "pencil");
            let last = |secret: &str, header: &str, nonce: &str| {
                let first = ClientFirst::parse(b"n,,n=user,r=abc").unwrap();
                let (exchange, _) = ScramExchange::begin(mechanism, &first, credential.clone());
                let nonce = nonce.replace('*', &exchange.nonce);
                let without_proof = format!("c={header},r={nonce}");
                let (salt, iterations) = (credential.salt.clone(), credential.iterations);
                let mut salted = vec![0; mechanism.hmac().digest_algorithm().output_len()];
                pbkdf2::derive(mechanism.derivation(), iterations, &salt, secret.as_bytes(), &mut salted);
                let client_key = mechanism.sign(&salted, b"Client Key");
                let signed = format!("{},{without_proof}", exchange.signed);
                let signature = mechanism.sign(&mechanism.hash(&client_key), signed.as_bytes());
                let proof: Vec<u8> =
                    client_key.iter().zip(&signature).map(|(key, signature)| key ^ signature).collect();
                exchange.finish(format!("{without_proof},p={}", STANDARD.encode(proof)).as_bytes())
            };
            for nonce in ["*", "abc*"] {
                assert!(last("pencil", "biws", nonce).is_some_and(|answer| answer.starts_with("v=")));
            }
            for (secret, header, nonce) in
                [("pencils", "biws", "*"), ("pencil", "eSws", "*"), ("pencil", "biws", "abc"), ("", "biws", "*")]
            {
                assert_eq!(last(secret, header, nonce), None, "{secret} {header} {nonce}");
            }
        }
    }

    #[test]
    fn keys_are_written_as_base64_and_read_back() {
        let credential = ScramCredential::derive(ScramMechanism::Sha512, "pencil");
        let text = serde_json::to_string(&credential).unwrap();
        assert!(!text.contains("pencil") && text.contains("\"iterations\":4096"), "{text}");
        assert_eq!(serde_json::from_str::<ScramCredential>(&text).unwrap(), credential);
    }
}
