//! Key groups: the unit in which the state of keyed operators is stored and moved between instances.

use crate::murmur2;

/// Number of key groups, and with it the most instances of a keyed operator. State is stored by group, so this never changes.
pub const KEY_GROUPS: u32 = 1_024;

/// One of [`KEY_GROUPS`] parts of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyGroup(pub u32);

impl KeyGroup {
    /// The group of a key: murmur2, as topics use it for their partitions.
    pub fn of(key: &[u8]) -> Self {
        Self((murmur2(key) & 0x7fff_ffff) % KEY_GROUPS)
    }

    /// The instance of `instances` that has the group. Each has a range of groups, and the ranges differ by one group at most.
    ///
    /// # Panics
    /// If there are no instances, or more than groups.
    pub fn instance(self, instances: u32) -> u32 {
        assert!((1..=KEY_GROUPS).contains(&instances), "{instances} instances share {KEY_GROUPS} key groups");
        self.0 * instances / KEY_GROUPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_key_is_fixed() {
        for (key, group) in GROUPS {
            assert_eq!(KeyGroup::of(key.as_bytes()).0, group, "{key}");
        }
    }

    const GROUPS: [(&str, u32); 4] = [("", 217), ("abc", 539), ("foobar", 958), ("\"s1\"\n", 782)];

    #[test]
    fn each_instance_has_a_range_of_groups_and_all_as_many() {
        for instances in [1, 2, 3, 7, 16, 100, 1_023, 1_024] {
            let of: Vec<u32> = (0..KEY_GROUPS).map(|group| KeyGroup(group).instance(instances)).collect();
            assert!(of.is_sorted() && of[0] == 0 && of[of.len() - 1] == instances - 1, "{instances}");
            let counts: Vec<usize> =
                (0..instances).map(|instance| of.iter().filter(|owner| **owner == instance).count()).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{instances}: {counts:?}");
        }
    }
}
