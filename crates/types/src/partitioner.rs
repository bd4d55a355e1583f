//! The partition of a key: murmur2, as Kafka's Java client computes it.

use crate::PartitionId;

/// MurmurHash2 with Kafka's seed, over the bytes of a key.
///
/// Source: `org.apache.kafka.common.utils.Utils#murmur2`, whose published test vectors are the tests below.
pub fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ key.len() as u32;
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of `key` among `partitions`, as Kafka assigns it.
///
/// # Panics
/// It panics if `partitions` is zero.
pub fn partition_of_key(key: &[u8], partitions: u32) -> PartitionId {
    assert!(partitions > 0, "a topic has at least one partition");
    PartitionId((murmur2(key) & 0x7fff_ffff) % partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_in_kafkas_java_client() {
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
        }
    }
}
