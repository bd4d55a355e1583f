//! Keys and values that look random to the store and follow from their number alone, so that what
//! is read can be checked.

use std::io::Write as _;
use std::ops::RangeInclusive;

const POOL_BYTES: usize = 1 << 20;
/// Bytes of the values of most cases.
pub(super) const SIZES: RangeInclusive<usize> = 1_024..=5_120;
/// Bytes of the compressible values.
const TEXT_BYTES: usize = 1_024;
/// Words of compressible values, as documents of devices have them.
const WORDS: [&str; 16] = [
    "temperature",
    "humidity",
    "pressure",
    "battery",
    "latitude",
    "longitude",
    "status",
    "online",
    "offline",
    "firmware",
    "interval",
    "minutes",
    "room",
    "building",
    "sensor",
    "gateway",
];

/// Values of random sizes, cut from a pool of bytes.
pub(crate) struct Values {
    pool: Vec<u8>,
    sizes: RangeInclusive<usize>,
}

impl Values {
    /// Values of [`SIZES`] that no compression makes smaller.
    pub(crate) fn random() -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let pool = std::iter::repeat_with(|| random.u8(..)).take(POOL_BYTES).collect();
        Self { pool, sizes: SIZES }
    }

    /// Printable values of 1 KiB that compress well.
    pub(super) fn text() -> Self {
        let mut random = fastrand::Rng::with_seed(1);
        let mut pool = Vec::with_capacity(POOL_BYTES + 64);
        while pool.len() < POOL_BYTES {
            let word = WORDS[random.usize(..WORDS.len())];
            pool.extend_from_slice(format!("\"{word}\": {}, ", random.u8(..)).as_bytes());
        }
        Self { pool, sizes: TEXT_BYTES..=TEXT_BYTES }
    }

    /// The value of this number.
    pub(crate) fn get(&self, number: u64) -> &[u8] {
        let random = mixed(!number) as usize;
        let length = self.sizes.start() + random % (self.sizes.end() - self.sizes.start() + 1);
        let begin = (random >> 24) % (POOL_BYTES - self.sizes.end());
        &self.pool[begin..begin + length]
    }
}

/// The key of this number: 16 hexadecimal digits, different for different numbers.
pub(crate) fn key(number: u64) -> String {
    format!("{:016x}", mixed(number))
}

/// Appends the request that stores `value`.
pub(crate) fn push_put(bucket: &str, key: &str, ack: &str, value: &[u8], request: &mut Vec<u8>) {
    let length = value.len();
    // Writing to a vector does not fail.
    let _ = write!(
        request,
        "PUT /kv/{bucket}/{key}?ack={ack} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    );
    request.extend_from_slice(value);
}

/// A bijection that spreads consecutive numbers over all of them (the finalizer of SplitMix64).
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_differ_and_values_have_their_sizes_and_follow_from_their_number() {
        let values = Values::random();
        let keys: BTreeSet<String> = (0..10_000).map(key).collect();
        assert!(keys.len() == 10_000 && keys.iter().all(|key| key.len() == 16));
        let mean = (0..10_000).map(|number| values.get(number).len()).sum::<usize>() / 10_000;
        assert!((2_900..3_250).contains(&mean), "{mean}");
        assert!((0..10_000).all(|number| SIZES.contains(&values.get(number).len())));
        assert_eq!(values.get(7), Values::random().get(7));
        assert_ne!(values.get(7), values.get(8));
        let text = Values::text();
        assert!(text.get(3).len() == TEXT_BYTES && text.get(3).iter().all(|byte| (b' '..=b'~').contains(byte)));
    }

    #[test]
    fn a_request_names_key_level_and_length() {
        let mut request = Vec::new();
        push_put("b", "00ff", "synced", b"xyz", &mut request);
        let expected = "PUT /kv/b/00ff?ack=synced HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nxyz";
        assert_eq!(request, expected.as_bytes());
    }
}
