//! Names within a tenant: a device's, and the one under which it logs in.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use millstream_net::{NameError, normalized_name};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest device id and auth-id, characters.
pub const ID_MAX_CHARS: usize = 256;
/// Longest subject of a certificate that is an auth-id.
const SUBJECT_MAX_CHARS: usize = 1_024;

/// The error for a name that breaks its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{value}' is no {what}: use 1 to {ID_MAX_CHARS} of the characters a-z A-Z 0-9 {further}")]
pub struct IdError {
    value: String,
    what: &'static str,
    further: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $further:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the name as a string slice.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(value: &str) -> Result<Self, IdError> {
                let legal = |c: char| c.is_ascii_alphanumeric() || (c != ' ' && $further.contains(c));
                if value.is_empty() || value.len() > ID_MAX_CHARS || !value.chars().all(legal) {
                    return Err(IdError { value: value.to_owned(), what: $what, further: $further });
                }
                Ok(Self(value.into()))
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

id!(
    /// A device of a tenant.
    DeviceId,
    "device id",
    "- _ . :"
);
id!(
    /// The name under which a device logs in. That of a certificate may be its subject, as RFC 2253 writes it.
    AuthId,
    "auth-id",
    "- _ = ."
);

impl<'de> Deserialize<'de> for DeviceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for AuthId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of_certificate(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl AuthId {
    /// Reads the auth-id of a certificate: the subject, which is brought into one form, or an id that a template yields.
    pub(crate) fn of_certificate(text: &str) -> Result<Self, NameError> {
        if text.len() > SUBJECT_MAX_CHARS {
            return text.parse().map_err(|_: IdError| NameError::too_long(text));
        }
        text.parse().or_else(|_: IdError| normalized_name(text).map(|name| Self(name.into())))
    }
}

impl DeviceId {
    /// Makes a random name that no device has.
    pub(crate) fn random() -> Self {
        let (high, low) = (fastrand::u64(..), fastrand::u64(..));
        Self(format!("{high:016x}{low:016x}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names_are_taken_and_others_refused_with_value_and_rule() {
        for legal in ["d", "a-b_c.d:1", &"x".repeat(256)] {
            assert_eq!(legal.parse::<DeviceId>().unwrap().as_str(), legal);
        }
        for illegal in ["", "a b", "a$", "ä", "a/b", "a=b", &"x".repeat(257)] {
            let refusal = illegal.parse::<DeviceId>().unwrap_err().to_string();
            assert!(refusal.contains(illegal) && refusal.contains("use 1 to 256"), "{refusal}");
        }
        assert!("CN=x.y_z-1".parse::<AuthId>().is_ok());
        for illegal in ["", "a:b", "a@b", "a b", "CN=a,O=b"] {
            assert!(illegal.parse::<AuthId>().is_err(), "{illegal}");
        }
        assert_eq!(AuthId::of_certificate("cn=a, O=b").unwrap().as_str(), "CN=a,O=b");
        assert_eq!(AuthId::of_certificate("sensor-7").unwrap().as_str(), "sensor-7");
        let long = format!("CN={}", "x".repeat(1_100));
        for illegal in ["", "a b", "X=a,O=b", &long] {
            assert!(AuthId::of_certificate(illegal).is_err(), "{illegal}");
        }
    }
}
