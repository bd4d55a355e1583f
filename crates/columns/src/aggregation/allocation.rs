//! The memory behind a value's length: the overhead of allocations, and the places of hash tables.

/// The overhead of one memory allocation.
pub(super) const ALLOCATION_BYTES: usize = 16;
/// The least size of a sketch's hash table, as a power of two.
const LG_PLACES_MIN: u8 = 5;
/// A sketch's hash table grows by so many powers of two at a time.
const LG_GROWTH: u8 = 3;

/// The bytes that an allocation of this size may take: the allocator has four sizes for each power of two.
pub(super) const fn allocated(bytes: usize) -> usize {
    match bytes {
        0..=64 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(1 << (bytes - 1).ilog2() >> 2),
    }
}

/// The places of the hash table of a theta or tuple sketch that was filled with so many entries.
pub(super) fn table_places(lg_nominal: u8, entries: usize) -> usize {
    let lg_max = lg_nominal + 1;
    let mut lg = (lg_max - LG_PLACES_MIN) % LG_GROWTH + LG_PLACES_MIN;
    while lg <= lg_nominal && entries > 1 << (lg - 1) {
        lg = (lg + LG_GROWTH).min(lg_max);
    }
    1 << lg
}
