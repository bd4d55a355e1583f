//! The login at a broker: SASL with PLAIN (RFC 4616) or SCRAM (RFC 5802, RFC 7677), by Kafka's requests for it.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use millstream_types::LoginMechanism;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac, pbkdf2};

use crate::connection::{CallError, Connection};

const HANDSHAKE_VERSION: i16 = 1;
/// Every broker since Kafka 1.0 takes it; later versions tell of the end of the login.
const AUTHENTICATE_VERSION: i16 = 0;
const NONCE_BYTES: usize = 24;
/// Least and most rounds that a broker may ask for: fewer are a weak secret, and more take seconds.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4_096..=1_000_000;
/// The header of a client that binds to no channel, and its base64.
const NO_BINDING: (&str, &str) = ("n,,", "biws");

/// A login by SASL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Login {
    /// The way in which the password is proven.
    pub mechanism: LoginMechanism,
    /// Who logs in.
    pub user: String,
    /// The secret of the user; it is in no text for people.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({} by {})", self.user, self.mechanism.as_str())
    }
}

/// Logs in on a new connection.
///
/// # Errors
/// The broker does not answer, does not take the mechanism, refuses the login, or does not know the secret itself.
pub async fn log_in(connection: &Connection, login: &Login) -> Result<(), CallError> {
    let mechanism = login.mechanism.as_str();
    let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism));
    let answer = connection.call(&request, HANDSHAKE_VERSION).await?;
    if answer.error_code != 0 {
        let offered: Vec<String> = answer.mechanisms.iter().map(ToString::to_string).collect();
        let why = format!("it does not take {mechanism}; it takes {}", offered.join(", "));
        return Err(CallError::Unsent(why));
    }
    let algorithms = match login.mechanism {
        LoginMechanism::Plain => {
            let Login { user, password, .. } = login;
            return send(connection, format!("\0{user}\0{password}")).await.map(drop);
        }
        LoginMechanism::ScramSha256 => Algorithms { hmac: hmac::HMAC_SHA256, derivation: pbkdf2::PBKDF2_HMAC_SHA256 },
        LoginMechanism::ScramSha512 => Algorithms { hmac: hmac::HMAC_SHA512, derivation: pbkdf2::PBKDF2_HMAC_SHA512 },
    };
    let unusable = |why: &str| CallError::Unsent(format!("its answer to the login is unusable: {why}"));
    let mut random = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut random).map_err(|_| CallError::Unsent("there is no random number".to_owned()))?;
    let scram = Scram { algorithms, user: login.user.clone(), nonce: STANDARD.encode(random) };
    let first = send(connection, scram.first()).await?;
    let proven = scram.prove(&first, &login.password).map_err(unusable)?;
    let last = send(connection, proven.message.clone()).await?;
    proven.check(&last).map_err(unusable)
}

async fn send(connection: &Connection, message: String) -> Result<String, CallError> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into_bytes().into());
    let answer = connection.call(&request, AUTHENTICATE_VERSION).await?;
    if answer.error_code != 0 {
        let said = answer.error_message.as_ref().map_or("wrong user or password", |said| &**said);
        return Err(CallError::Unsent(format!("it refuses the login: {said}")));
    }
    String::from_utf8(answer.auth_bytes.to_vec()).map_err(|e| CallError::Unsent(e.to_string()))
}

#[derive(Clone, Copy)]
struct Algorithms {
    hmac: hmac::Algorithm,
    derivation: pbkdf2::Algorithm,
}

impl Algorithms {
    fn sign(self, key: &[u8], message: &str) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(self.hmac, key), message.as_bytes())
    }
}

/// The client's side of an exchange.
struct Scram {
    algorithms: Algorithms,
    user: String,
    nonce: String,
}

/// The last message of the client, and what shows that the broker knows the secret, too: its signature of the exchange.
struct Proven {
    message: String,
    server_key: hmac::Key,
    signed: String,
}

impl Scram {
    fn bare(&self) -> String {
        format!("n={},r={}", self.user.replace('=', "=3D").replace(',', "=2C"), self.nonce)
    }

    fn first(&self) -> String {
        format!("{}{}", NO_BINDING.0, self.bare())
    }

    /// Proves the password to a broker that has answered `first`.
    fn prove(&self, first: &str, password: &str) -> Result<Proven, &'static str> {
        let field = |name: &str| first.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let nonce = field("r").filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce));
        let nonce = nonce.ok_or("another nonce")?;
        let salt = field("s").and_then(|salt| STANDARD.decode(salt).ok()).ok_or("no salt")?;
        let iterations = field("i").and_then(|number| number.parse::<u32>().ok());
        let iterations = iterations.filter(|number| ITERATIONS.contains(number)).and_then(NonZeroU32::new);
        let iterations = iterations.ok_or("fewer than 4,096 rounds, or more than a million")?;
        let algorithms = self.algorithms;
        let mut salted = vec![0; algorithms.hmac.digest_algorithm().output_len()];
        pbkdf2::derive(algorithms.derivation, iterations, &salt, password.as_bytes(), &mut salted);
        let without_proof = format!("c={},r={nonce}", NO_BINDING.1);
        let signed = format!("{},{first},{without_proof}", self.bare());
        let client_key = algorithms.sign(&salted, "Client Key");
        let stored_key = digest::digest(algorithms.hmac.digest_algorithm(), client_key.as_ref());
        let client_signature = algorithms.sign(stored_key.as_ref(), &signed);
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(client_signature.as_ref()).map(|(key, signature)| key ^ signature).collect();
        let server_key = hmac::Key::new(algorithms.hmac, algorithms.sign(&salted, "Server Key").as_ref());
        Ok(Proven { message: format!("{without_proof},p={}", STANDARD.encode(proof)), server_key, signed })
    }
}

impl Proven {
    /// Checks the signature of the broker.
    fn check(&self, last: &str) -> Result<(), &'static str> {
        let signature = last.split(',').next().and_then(|field| field.strip_prefix("v="));
        let signature = signature.and_then(|text| STANDARD.decode(text).ok()).ok_or("no signature")?;
        hmac::verify(&self.server_key, self.signed.as_bytes(), &signature)
            .map_err(|_| "its signature is of another secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_example_of_rfc_7677_is_proven_as_printed() {
        let algorithms = Algorithms { hmac: hmac::HMAC_SHA256, derivation: pbkdf2::PBKDF2_HMAC_SHA256 };
        let scram = Scram { algorithms, user: "user".to_owned(), nonce: "rOprNGfwEbeRWgbNEkqO".to_owned() };
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proven = scram.prove(first, "pencil").unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(proven.message, expected);
        assert_eq!(proven.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        assert!(proven.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=").is_err());
        assert!(proven.check("e=other-error").is_err());
    }

    #[test]
    fn an_answer_that_weakens_the_login_is_refused() {
        let algorithms = Algorithms { hmac: hmac::HMAC_SHA256, derivation: pbkdf2::PBKDF2_HMAC_SHA256 };
        let scram = Scram { algorithms, user: "a=b,c".to_owned(), nonce: "nonce".to_owned() };
        assert_eq!(scram.first(), "n,,n=a=3Db=2Cc,r=nonce");
        for first in [
            "r=nonce,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=other1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=nonce1,s=?,i=4096",
            "r=nonce1,i=4096",
            "r=nonce1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
            "r=nonce1,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1000001",
            "",
        ] {
            assert!(scram.prove(first, "secret").is_err(), "{first}");
        }
    }
}
