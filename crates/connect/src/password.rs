//! Password hashes: creation, storage and checking.
//!
//! New passwords are hashed with argon2id. Hashes with bcrypt and with salted SHA-256 and SHA-512 can be imported.

use std::cell::RefCell;
use std::fmt;

use argon2::password_hash::phc::{self, Output, ParamsString, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

/// Longest salt that an imported hash may have, in bytes.
const SALT_MAX_BYTES: usize = 256;

thread_local! {
    /// Work memory of argon2. Each thread keeps it, because a new allocation of 19 MiB for each hash fragments the heap.
    static BLOCKS: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

/// The hash function of a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HashFunction {
    #[serde(rename = "sha-256")]
    Sha256,
    #[serde(rename = "sha-512")]
    Sha512,
    #[serde(rename = "bcrypt")]
    Bcrypt,
    #[serde(rename = "argon2id")]
    Argon2id,
}

/// A hashed password in a form that [`PasswordHash::matches`] can check.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PasswordHash {
    function: HashFunction,
    /// Base64 of the digest; for bcrypt and argon2id the string that holds cost, salt and digest.
    hash: String,
    /// Base64 of the salt, which is hashed before the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasswordHash({:?})", self.function)
    }
}

/// The reason for which a hash is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HashError {
    #[error("hash-function '{function}' is not known; use sha-256, sha-512 or bcrypt, or send pwd-plain")]
    Function { function: String },
    #[error("salt is not base64 (RFC 4648, with padding) of at most {SALT_MAX_BYTES} bytes")]
    Salt,
    #[error("pwd-hash is not base64 of the {bytes} bytes that {function} yields")]
    Digest { function: &'static str, bytes: usize },
    #[error("pwd-hash is no bcrypt hash; it looks like $2a$10$ and 53 characters more")]
    Bcrypt,
    #[error("bcrypt cost {cost} is over connect.bcrypt_max_cost = {limit}; use a lower cost or raise the limit")]
    Cost { cost: u32, limit: u32 },
}

impl PasswordHash {
    pub(crate) fn given(
        function: &str,
        hash: String,
        salt: Option<String>,
        bcrypt_max_cost: u32,
    ) -> Result<Self, HashError> {
        let function = match function {
            "sha-256" => HashFunction::Sha256,
            "sha-512" => HashFunction::Sha512,
            "bcrypt" => HashFunction::Bcrypt,
            other => return Err(HashError::Function { function: other.to_owned() }),
        };
        let is_salt = |salt: &String| BASE64.decode(salt).is_ok_and(|salt| salt.len() <= SALT_MAX_BYTES);
        if !salt.as_ref().is_none_or(is_salt) {
            return Err(HashError::Salt);
        }
        match function {
            HashFunction::Sha256 => check_digest("sha-256", &hash, 32)?,
            HashFunction::Sha512 => check_digest("sha-512", &hash, 64)?,
            HashFunction::Bcrypt | HashFunction::Argon2id => check_bcrypt(&hash, bcrypt_max_cost)?,
        }
        Ok(Self { function, hash, salt })
    }

    /// True if a check takes too long for a thread that serves sockets.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self.function, HashFunction::Bcrypt | HashFunction::Argon2id)
    }

    /// True if it is the hash of `password`. Slow for slow functions.
    pub(crate) fn matches(&self, password: &[u8]) -> bool {
        match self.function {
            HashFunction::Sha256 => self.digest_matches::<Sha256>(password),
            HashFunction::Sha512 => self.digest_matches::<Sha512>(password),
            HashFunction::Bcrypt => bcrypt::verify(password, &self.hash).unwrap_or(false),
            HashFunction::Argon2id => argon2_matches(&self.hash, password).unwrap_or(false),
        }
    }

    fn digest_matches<D: Digest>(&self, password: &[u8]) -> bool {
        let salt = self.salt.as_ref().map_or(Ok(Vec::new()), |salt| BASE64.decode(salt));
        let (Ok(salt), Ok(expected)) = (salt, BASE64.decode(&self.hash)) else { return false };
        let mut digest = D::new();
        digest.update(&salt);
        digest.update(password);
        same(&digest.finalize(), &expected)
    }
}

fn check_digest(function: &'static str, hash: &str, bytes: usize) -> Result<(), HashError> {
    match BASE64.decode(hash) {
        Ok(digest) if digest.len() == bytes => Ok(()),
        _ => Err(HashError::Digest { function, bytes }),
    }
}

fn check_bcrypt(hash: &str, limit: u32) -> Result<(), HashError> {
    let parts: bcrypt::HashParts = hash.parse().map_err(|_| HashError::Bcrypt)?;
    let cost = parts.get_cost();
    if cost > limit { Err(HashError::Cost { cost, limit }) } else { Ok(()) }
}

/// Compares two byte strings in constant time.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b))) == 0
}

/// Hashes new passwords with argon2id.
#[derive(Debug, Clone)]
pub(crate) struct PasswordHashing(Params);

impl PasswordHashing {
    /// `None` if argon2 allows no such cost.
    pub(crate) fn new(memory_kib: u32, passes: u32) -> Option<Self> {
        Params::new(memory_kib, passes, 1, None).ok().map(Self)
    }

    /// Hashes with a new salt. Slow.
    pub(crate) fn hash(&self, password: &[u8]) -> Result<PasswordHash, String> {
        let hash = self.phc(password).map_err(|error| error.to_string())?;
        Ok(PasswordHash { function: HashFunction::Argon2id, hash: hash.to_string(), salt: None })
    }

    fn phc(&self, password: &[u8]) -> Result<phc::PasswordHash, argon2::password_hash::Error> {
        let (algorithm, version) = (Algorithm::Argon2id, Version::V0x13);
        let salt = Salt::generate();
        let mut digest = [0; Params::DEFAULT_OUTPUT_LEN];
        fill(&Argon2::new(algorithm, version, self.0.clone()), password, &salt, &mut digest)?;
        Ok(phc::PasswordHash {
            algorithm: algorithm.ident(),
            version: Some(version.into()),
            params: ParamsString::try_from(&self.0)?,
            salt: Some(salt),
            hash: Some(Output::new(&digest)?),
        })
    }
}

/// True if `hash`, in the PHC string format, is the hash of `password`.
fn argon2_matches(hash: &str, password: &[u8]) -> Result<bool, argon2::password_hash::Error> {
    let hash = phc::PasswordHash::new(hash)?;
    let version = hash.version.map(Version::try_from).transpose()?.unwrap_or_default();
    let argon2 = Argon2::new(Algorithm::try_from(hash.algorithm.as_str())?, version, Params::try_from(&hash)?);
    let (Some(salt), Some(expected)) = (&hash.salt, &hash.hash) else { return Ok(false) };
    let mut digest = vec![0; expected.len()];
    fill(&argon2, password, salt, &mut digest)?;
    Ok(same(&digest, expected.as_ref()))
}

/// Computes `digest` in this thread's work memory.
fn fill(argon2: &Argon2<'_>, password: &[u8], salt: &[u8], digest: &mut [u8]) -> Result<(), argon2::Error> {
    BLOCKS.with_borrow_mut(|blocks| {
        let count = argon2.params().block_count();
        if blocks.len() < count {
            blocks.resize(count, Block::default());
        }
        argon2.hash_password_into_with_memory(password, salt, digest, blocks)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(function: &str, hash: &str, salt: Option<&str>) -> Result<PasswordHash, HashError> {
        PasswordHash::given(function, hash.to_owned(), salt.map(str::to_owned), 10)
    }

    #[test]
    fn hashes_that_other_tools_made_match_their_password_only() {
        // printf '\x01\x02\x03\x04secret' | openssl dgst -sha512 -binary | base64 -w0; the like for sha256;
        // htpasswd -nbB -C 4 x secret
        let sha512 = "+FMfYvkcZgHUtY6uf5im+5CZU5coaqCy6IlEhlMgtGgS9uVImj9YCzKbchlN+5ohorkpHajkrAV9O/oqzF8wgQ==";
        for (function, hash, salt) in
            [("sha-512", sha512, Some("AQIDBA==")), ("sha-256", "K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=", None)]
        {
            let hash = given(function, hash, salt).unwrap();
            assert!(hash.matches(b"secret") && !hash.is_slow(), "{function}");
            assert!(!hash.matches(b"Secret") && !hash.matches(b""), "{function}");
        }
        let bcrypt = given("bcrypt", &bcrypt::hash("secret", 4).unwrap(), None).unwrap();
        assert!(bcrypt.matches(b"secret") && !bcrypt.matches(b"secreT") && bcrypt.is_slow());
    }

    #[test]
    fn a_new_hash_matches_its_password_and_shows_nothing() {
        let hash = PasswordHashing::new(64, 1).unwrap().hash(b"secret").unwrap();
        assert!(hash.matches(b"secret") && !hash.matches(b"secret ") && hash.is_slow());
        assert_eq!(format!("{hash:?}"), "PasswordHash(Argon2id)");
    }

    #[test]
    fn hashes_of_argon2_work_in_the_memory_of_those_before() {
        let hashing = PasswordHashing::new(256, 1).unwrap();
        let memory = || BLOCKS.with_borrow(|blocks| (blocks.as_ptr(), blocks.len()));
        let hash = hashing.hash(b"secret").unwrap();
        let before = memory();
        for _ in 0..10 {
            assert!(hash.matches(b"secret") && !hash.matches(b"wrong"));
            assert_ne!(hashing.hash(b"secret").unwrap(), hash, "a salt of its own");
        }
        assert_eq!(memory(), before);
        assert!(
            argon2_matches("$argon2id$v=19$m=8,t=1$c2FsdHNhbHQ", b"secret").is_ok_and(|matches| !matches),
            "no digest"
        );
        assert!(argon2_matches("$argon2id$", b"secret").is_err());
    }

    #[test]
    fn a_hash_that_cannot_be_checked_is_refused_with_its_rule() {
        let costly = "$2a$11$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";
        for (function, hash, salt, told) in [
            ("md5", "x", None, "'md5' is not known"),
            ("sha-256", "AQIDBA==", None, "32 bytes"),
            ("sha-512", "!", None, "64 bytes"),
            ("sha-256", "K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=", Some("?"), "salt is not base64"),
            ("sha-256", "K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=", Some(&"A".repeat(400)), "at most 256 bytes"),
            ("bcrypt", "$2a$", None, "no bcrypt hash"),
            ("bcrypt", costly, None, "bcrypt cost 11 is over connect.bcrypt_max_cost = 10"),
        ] {
            let refusal = given(function, hash, salt).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
