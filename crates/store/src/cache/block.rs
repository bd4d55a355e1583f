//! Key and value of an item in one allocation.
//!
//! A value from a client is a slice of a large buffer, which a cache must not keep alive; so it is copied. `Bytes` over
//! an owner needs a counter beside the bytes: up to a size the owner is an array that lies in the same allocation as
//! the counter. A clone, and so a read, then allocates nothing.

use bytes::Bytes;

/// Bytes of the reference counter and the length before an inline array.
const INLINE_HEAD: usize = 8 + 2;
/// Bytes of the reference counter and the slice before a block that is too large to lie inline.
const LARGE_HEAD: usize = 8 + 16;

/// An array of which the first bytes are used.
struct Inline<const N: usize> {
    length: u16,
    bytes: [u8; N],
}

impl<const N: usize> AsRef<[u8]> for Inline<N> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

fn inline<const N: usize>(key: &[u8], value: &[u8]) -> Bytes {
    let mut bytes = [0; N];
    bytes[..key.len()].copy_from_slice(key);
    bytes[key.len()..key.len() + value.len()].copy_from_slice(value);
    Bytes::from_owner(Inline { length: (key.len() + value.len()) as u16, bytes })
}

/// Defines both functions from one list of sizes of allocations, which are classes of common allocators.
macro_rules! size_classes {
    ($($class:literal)*) => {
        /// A copy of `key` and `value`, one behind the other.
        pub(super) fn new(key: &[u8], value: &[u8]) -> Bytes {
            let length = key.len() + value.len();
            $(
                if length <= $class - INLINE_HEAD {
                    return inline::<{ $class - INLINE_HEAD }>(key, value);
                }
            )*
            let mut bytes = Vec::with_capacity(length);
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            Bytes::from_owner(bytes.into_boxed_slice())
        }

        /// The bytes that [`new`] allocates for a key and value of `length` bytes together.
        pub(super) fn allocated_bytes(length: usize) -> u64 {
            $(
                if length <= $class - INLINE_HEAD {
                    return $class;
                }
            )*
            (LARGE_HEAD + rounded_up(length)) as u64
        }
    };
}

size_classes!(32 48 64 80 96 112 128 160 192 224 256 320 384 448 512 640 768 896 1024);

/// The size that allocators take for a large block: four sizes between each power of two and the next.
fn rounded_up(length: usize) -> usize {
    length.next_multiple_of(1 << (length.ilog2() - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_key_and_value_of_any_length() {
        for length in (0..1_200).chain([4_096, 65_536, 1 << 20]) {
            let value: Vec<_> = (0..length).map(|at| at as u8).collect();
            let block = new(b"key", &value);
            assert_eq!((&block[..3], &block[3..]), (&b"key"[..], &value[..]));
        }
    }

    #[test]
    fn the_size_of_an_allocation_covers_its_bytes_by_little() {
        assert_eq!([0, 22, 23, 80, 1_014, 1_015, 4_096].map(allocated_bytes), [32, 32, 48, 96, 1_024, 1_048, 4_120]);
        for length in 0..10_000 {
            let allocated = allocated_bytes(length) as usize;
            assert!(allocated >= length + INLINE_HEAD, "{length}: {allocated}");
            assert!(allocated <= (length + LARGE_HEAD + 16).max(32) * 5 / 4 + 32, "{length}: {allocated}");
        }
    }

    #[test]
    fn the_heads_are_those_of_the_types() {
        // `Bytes` puts a counter of one word before its owner.
        assert_eq!(size_of::<(usize, Inline<{ 96 - INLINE_HEAD }>)>(), 96);
        assert_eq!(size_of::<(usize, Box<[u8]>)>(), LARGE_HEAD);
    }
}
