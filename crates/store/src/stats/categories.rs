//! Categories of statistics, with the bits that Elliptics gave them.

use std::fmt;

/// A set of categories of statistics, as a bit mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Categories(i32);

const NAMES: [(&str, Categories); 10] = [
    ("all", Categories::ALL),
    ("cache", Categories::CACHE),
    ("io", Categories::IO),
    ("commands", Categories::COMMANDS),
    ("io_histograms", Categories::IO_HISTOGRAMS),
    ("backend", Categories::BACKEND),
    ("stats", Categories::STATS),
    ("call_tree", Categories::STATS),
    ("procfs", Categories::PROCFS),
    ("top", Categories::TOP),
];

impl Categories {
    /// All categories: every bit is set.
    pub const ALL: Self = Self(-1);
    /// Values in memory, by bucket.
    pub const CACHE: Self = Self(1);
    /// Figures of the queues and peers.
    pub const IO: Self = Self(2);
    /// Counters of operations, by command.
    pub const COMMANDS: Self = Self(4);
    /// Histograms over time and size.
    pub const IO_HISTOGRAMS: Self = Self(8);
    /// Figures of buckets and their partitions.
    pub const BACKEND: Self = Self(16);
    /// Timers, gauges and counters by name.
    pub const STATS: Self = Self(32);
    /// Figures of the process and the host.
    pub const PROCFS: Self = Self(64);
    /// The keys that are read most.
    pub const TOP: Self = Self(128);

    /// These categories and those of `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `true` if a category is in both sets.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The category of that name.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, category)| *category)
    }

    /// Reads a sum of bits, -1 for everything, or names that are separated by commas. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(bits) = text.parse::<i32>() {
            let known = NAMES[1..].iter().fold(0, |known, (_, category)| known | category.0);
            return (bits == -1 || (bits > 0 && bits & !known == 0)).then_some(Self(bits));
        }
        text.split(',').map(Self::named).try_fold(Self(0), |sum, category| Some(sum.and(category?)))
    }
}

impl fmt::Display for Categories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_bits_or_names() {
        for (text, bits) in [
            ("-1", Some(-1)),
            ("all", Some(-1)),
            ("1", Some(1)),
            ("cache", Some(1)),
            ("io", Some(2)),
            ("commands", Some(4)),
            ("io_histograms", Some(8)),
            ("backend", Some(16)),
            ("stats", Some(32)),
            ("call_tree", Some(32)),
            ("procfs", Some(64)),
            ("top", Some(128)),
            ("255", Some(255)),
            ("cache,top", Some(129)),
            ("top,all", Some(-1)),
            ("0", None),
            ("-2", None),
            ("256", None),
            ("", None),
            ("cache,", None),
            ("Cache", None),
            ("99999999999", None),
        ] {
            assert_eq!(Categories::parse(text), bits.map(Categories), "{text}");
        }
    }
}
