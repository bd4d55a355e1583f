//! Hashes of values for the index: values that compare as equal have equal hashes, however they are written.
//!
//! Two values may share a hash, so a filter that was found by one is evaluated. Each process has a random seed, so that
//! nobody can send values that are made to collide.

use std::fmt;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::sync::LazyLock;

use crate::{CanonicalNumber, Value};

/// Odd, with as many ones as zeros.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

static SEED: LazyLock<[u64; 4]> = LazyLock::new(|| {
    let random = RandomState::new();
    std::array::from_fn(|i| random.hash_one(i))
});

/// The hash of a value that something can be equal to.
#[inline]
pub fn hash_value(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Boolean(value) => Some(hash_boolean(*value)),
        Value::Integer(value) => Some(hash_number(CanonicalNumber::Integer(*value))),
        Value::Double(value) => Some(hash_number(CanonicalNumber::of_double(*value))),
        Value::Text(text) => Some(hash_text(text.as_bytes())),
        _ => None,
    }
}

/// The hash of a text by its UTF-8 bytes.
#[inline]
pub fn hash_text(bytes: &[u8]) -> u64 {
    let seed = &*SEED;
    let mut hash = seed[0] ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = folded(hash ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    folded(hash ^ u64::from_le_bytes(last), seed[1] | 1)
}

fn hash_number(number: CanonicalNumber) -> u64 {
    let seed = &*SEED;
    match number {
        CanonicalNumber::Integer(value) => folded(seed[2] ^ value as u64, MULTIPLIER),
        CanonicalNumber::Double(bits) => folded(seed[3] ^ bits, MULTIPLIER),
    }
}

fn hash_boolean(value: bool) -> u64 {
    folded(SEED[3].wrapping_add(u64::from(value)), seed_multiplier())
}

/// The hash of four neighbouring bytes of a text.
#[inline]
pub fn hash_gram(gram: [u8; 4]) -> u64 {
    folded(SEED[1] ^ u64::from(u32::from_le_bytes(gram)), MULTIPLIER)
}

/// Of half a hash as much as tables need: low bits that differ, and high ones.
#[inline]
pub fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(MULTIPLIER)
}

fn seed_multiplier() -> u64 {
    SEED[0] | 1
}

/// Both halves of the product, so that every bit of `a` has its say in all of them.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A hasher for tables whose keys are hashes already.
#[derive(Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_text(bytes);
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A hasher for the text that is written to it.
#[derive(Debug, Default)]
pub struct HashWriter(DefaultHasher);

impl HashWriter {
    /// The hash of the text.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl fmt::Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_hash_and_others_hardly_ever() {
        let same = [
            (Value::Integer(1), Value::Double(1.0)),
            (Value::Integer(0), Value::Double(-0.0)),
            (Value::Text("x".into()), Value::Text("x".to_owned().into())),
        ];
        for (a, b) in same {
            assert_eq!(hash_value(&a), hash_value(&b), "{a:?}");
        }
        let mut hashes: Vec<u64> = (0..10_000).filter_map(|i| hash_value(&Value::Integer(i))).collect();
        hashes.extend((0..10_000).map(|i| hash_text(format!("device-{i}").as_bytes())));
        hashes.extend((0..10_000).filter_map(|i| hash_value(&Value::Double(f64::from(i) + 0.5))));
        hashes.extend([true, false].map(hash_boolean));
        hashes.extend(["", "\0", "\0\0"].map(|text| hash_text(text.as_bytes())));
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
        assert_eq!(hash_value(&Value::Null), None);
    }
}
