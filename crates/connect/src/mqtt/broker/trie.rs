//! A trie of topic filters by level, so that a topic is compared with few of them.

use std::collections::HashMap;

/// Patterns and what belongs to each.
#[derive(Debug)]
pub(crate) struct Trie<T> {
    root: FilterNode<T>,
}

#[derive(Debug)]
struct FilterNode<T> {
    /// Patterns that go on with a level of its own name.
    named: HashMap<Box<str>, FilterNode<T>>,
    /// The filters that go on with `+`.
    any: Option<Box<FilterNode<T>>>,
    /// Entries of filters that end here with `#`.
    rest: Vec<T>,
    /// Entries of filters that end here.
    here: Vec<T>,
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self { root: FilterNode::default() }
    }
}

impl<T> Default for FilterNode<T> {
    fn default() -> Self {
        Self { named: HashMap::new(), any: None, rest: Vec::new(), here: Vec::new() }
    }
}

impl<T> Trie<T> {
    /// Adds `item` to what belongs to `pattern`.
    pub(crate) fn insert(&mut self, pattern: &str, item: T) {
        let mut node = &mut self.root;
        for level in pattern.split('/') {
            node = match level {
                "#" => return node.rest.push(item),
                "+" => node.any.get_or_insert_default(),
                _ => node.named.entry(level.into()).or_default(),
            };
        }
        node.here.push(item);
    }

    /// Takes away what belongs to `pattern` and is `unwanted`.
    pub(crate) fn remove(&mut self, pattern: &str, unwanted: impl Fn(&T) -> bool) {
        self.root.remove(&mut pattern.split('/'), &unwanted);
    }

    /// Hands out what belongs to the patterns that match `topic`.
    pub(crate) fn each(&self, topic: &str, mut take: impl FnMut(&T)) {
        if topic.starts_with('$') {
            // A wildcard in the first level stands for none of these.
            let (first, rest) = topic.split_once('/').map_or((topic, None), |(first, rest)| (first, Some(rest)));
            if let Some(node) = self.root.named.get(first) {
                node.each(rest, &mut take);
            }
        } else {
            self.root.each(Some(topic), &mut take);
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.root.is_empty()
    }
}

impl<T> FilterNode<T> {
    fn is_empty(&self) -> bool {
        self.named.is_empty() && self.any.is_none() && self.rest.is_empty() && self.here.is_empty()
    }

    fn remove<'a>(&mut self, levels: &mut impl Iterator<Item = &'a str>, unwanted: &impl Fn(&T) -> bool) {
        match levels.next() {
            None => self.here.retain(|item| !unwanted(item)),
            Some("#") => self.rest.retain(|item| !unwanted(item)),
            Some("+") => {
                let Some(next) = &mut self.any else { return };
                next.remove(levels, unwanted);
                if next.is_empty() {
                    self.any = None;
                }
            }
            Some(level) => {
                let Some(next) = self.named.get_mut(level) else { return };
                next.remove(levels, unwanted);
                if next.is_empty() {
                    self.named.remove(level);
                }
            }
        }
    }

    /// `topic` is what is left of it; `None` if that is nothing.
    fn each(&self, topic: Option<&str>, take: &mut impl FnMut(&T)) {
        self.rest.iter().for_each(&mut *take);
        let Some(topic) = topic else { return self.here.iter().for_each(take) };
        let (level, rest) = topic.split_once('/').map_or((topic, None), |(level, rest)| (level, Some(rest)));
        if let Some(next) = self.named.get(level) {
            next.each(rest, take);
        }
        if let Some(next) = &self.any {
            next.each(rest, take);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topic_filter::{covers, is_pattern};

    fn found(trie: &Trie<usize>, topic: &str) -> Vec<usize> {
        let mut found = Vec::new();
        trie.each(topic, |item| found.push(*item));
        found.sort_unstable();
        found
    }

    #[test]
    fn rows_of_the_standard() {
        let patterns =
            ["sport/tennis/player1/#", "sport/#", "#", "sport/tennis/+", "sport/+", "+/+", "/+", "+", "$SYS/#"];
        let mut trie = Trie::default();
        patterns.iter().enumerate().for_each(|(at, pattern)| trie.insert(pattern, at));
        for (topic, expected) in [
            ("sport/tennis/player1", vec![0, 1, 2, 3]),
            ("sport/tennis/player1/score/wimbledon", vec![0, 1, 2]),
            ("sport", vec![1, 2, 7]),
            ("sport/", vec![1, 2, 4, 5]),
            ("/finance", vec![2, 5, 6]),
            ("$SYS/monitor/Clients", vec![8]),
            ("$SYS", vec![8]),
        ] {
            assert_eq!(found(&trie, topic), expected, "{topic}");
        }
        for (at, pattern) in patterns.iter().enumerate() {
            trie.remove(pattern, |item| *item == at);
        }
        assert!(trie.is_empty(), "{trie:?}");
    }

    proptest! {
        #[test]
        fn the_trie_finds_the_same_patterns_as_a_comparison_with_each(
            patterns in prop::collection::vec("[ab$+]{0,1}(/[ab+]{0,1}){0,3}(/#)?", 0..12),
            gone in prop::collection::vec(any::<bool>(), 12),
            topics in prop::collection::vec("[ab$]{0,2}(/[ab]{0,1}){0,4}", 1..8),
        ) {
            let patterns: Vec<_> = patterns.into_iter().filter(|pattern| is_pattern(pattern)).collect();
            let mut trie = Trie::default();
            patterns.iter().enumerate().for_each(|(at, pattern)| trie.insert(pattern, at));
            for (at, pattern) in patterns.iter().enumerate().filter(|(at, _)| gone[*at]) {
                trie.remove(pattern, |item| *item == at);
            }
            for topic in topics {
                let expected: Vec<usize> = patterns
                    .iter()
                    .enumerate()
                    .filter(|(at, pattern)| !gone[*at] && covers(pattern, &topic))
                    .map(|(at, _)| at)
                    .collect();
                prop_assert_eq!(found(&trie, &topic), expected, "{}", topic);
            }
        }
    }
}
