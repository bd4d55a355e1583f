//! Intervals, and which of them hold a value.
//!
//! A treap by lower bound in which every node knows the farthest upper bound below it: adding, removing and finding the
//! first hit take logarithmic time, each further hit about constant time, and nothing is ever rebuilt. Bounds count as
//! inside, which may give a false candidate and never loses one.

use std::borrow::Borrow;
use std::cmp::Ordering;

use crate::filter_id::FilterId;

const NONE: u32 = u32::MAX;

/// Intervals of `K`, each with the filter that asks for it.
#[derive(Debug)]
pub(crate) struct Intervals<K> {
    nodes: Vec<IntervalNode<K>>,
    root: u32,
    free: Vec<u32>,
}

/// From `low` to `high`; `None` is without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interval<K> {
    pub(crate) low: K,
    pub(crate) high: Option<K>,
}

#[derive(Debug)]
struct IntervalNode<K> {
    interval: Interval<K>,
    filter: FilterId,
    left: u32,
    right: u32,
    /// The node of this subtree with the farthest upper bound.
    farthest: u32,
    priority: u32,
}

impl<K> Default for Intervals<K> {
    fn default() -> Self {
        Self { nodes: Vec::new(), root: NONE, free: Vec::new() }
    }
}

impl<K: Ord> Intervals<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.root == NONE
    }

    pub(crate) fn insert(&mut self, interval: Interval<K>, filter: FilterId) {
        let (less, rest) = self.split(self.root, &interval, filter);
        let number = self.free.pop().unwrap_or(self.nodes.len() as u32);
        // Any spread of priorities serves, as long as it has nothing to do with the bounds.
        let priority = number.wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b);
        let node = IntervalNode { interval, filter, left: NONE, right: NONE, farthest: number, priority };
        match self.nodes.get_mut(number as usize) {
            Some(free) => *free = node,
            None => self.nodes.push(node),
        }
        let less = self.merge(less, number);
        self.root = self.merge(less, rest);
    }

    pub(crate) fn remove(&mut self, interval: &Interval<K>, filter: FilterId) {
        self.root = self.without(self.root, interval, filter);
    }

    /// Calls `hit` for each interval that holds `value`.
    pub(crate) fn stab<Q: Ord + ?Sized>(&self, value: &Q, hit: &mut impl FnMut(FilterId))
    where
        K: Borrow<Q>,
    {
        self.stab_below(self.root, value, hit);
    }

    fn stab_below<Q: Ord + ?Sized>(&self, mut number: u32, value: &Q, hit: &mut impl FnMut(FilterId))
    where
        K: Borrow<Q>,
    {
        while number != NONE {
            let node = &self.nodes[number as usize];
            if !self.reaches(node.farthest, value) {
                return;
            }
            self.stab_below(node.left, value, hit);
            if node.interval.low.borrow() > value {
                return;
            }
            if self.reaches(number, value) {
                hit(node.filter);
            }
            number = node.right;
        }
    }

    fn reaches<Q: Ord + ?Sized>(&self, number: u32, value: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.nodes[number as usize].interval.high.as_ref().is_none_or(|high| high.borrow() >= value)
    }

    fn order(&self, number: u32, interval: &Interval<K>, filter: FilterId) -> Ordering {
        let node = &self.nodes[number as usize];
        let by_low = node.interval.low.cmp(&interval.low);
        by_low.then_with(|| by_high(&node.interval.high, &interval.high)).then(node.filter.cmp(&filter))
    }

    /// Splits the subtree: intervals before this one, and the rest.
    fn split(&mut self, number: u32, interval: &Interval<K>, filter: FilterId) -> (u32, u32) {
        if number == NONE {
            return (NONE, NONE);
        }
        if self.order(number, interval, filter).is_lt() {
            let (less, rest) = self.split(self.nodes[number as usize].right, interval, filter);
            self.nodes[number as usize].right = less;
            self.measure(number);
            (number, rest)
        } else {
            let (less, rest) = self.split(self.nodes[number as usize].left, interval, filter);
            self.nodes[number as usize].left = rest;
            self.measure(number);
            (less, number)
        }
    }

    /// One tree of two, all of `a` being before `b`.
    fn merge(&mut self, a: u32, b: u32) -> u32 {
        if a == NONE || b == NONE {
            return a.min(b);
        }
        if self.nodes[a as usize].priority > self.nodes[b as usize].priority {
            self.nodes[a as usize].right = self.merge(self.nodes[a as usize].right, b);
            self.measure(a);
            a
        } else {
            self.nodes[b as usize].left = self.merge(a, self.nodes[b as usize].left);
            self.measure(b);
            b
        }
    }

    fn without(&mut self, number: u32, interval: &Interval<K>, filter: FilterId) -> u32 {
        if number == NONE {
            return NONE;
        }
        let IntervalNode { left, right, .. } = self.nodes[number as usize];
        match self.order(number, interval, filter) {
            Ordering::Equal => {
                self.free.push(number);
                return self.merge(left, right);
            }
            Ordering::Less => self.nodes[number as usize].right = self.without(right, interval, filter),
            Ordering::Greater => self.nodes[number as usize].left = self.without(left, interval, filter),
        }
        self.measure(number);
        number
    }

    /// Brings the farthest bound up to date with the children.
    fn measure(&mut self, number: u32) {
        let node = &self.nodes[number as usize];
        let mut farthest = number;
        for child in [node.left, node.right] {
            if child == NONE {
                continue;
            }
            let candidate = self.nodes[child as usize].farthest;
            if by_high(self.high(candidate), self.high(farthest)).is_gt() {
                farthest = candidate;
            }
        }
        self.nodes[number as usize].farthest = farthest;
    }

    fn high(&self, number: u32) -> &Option<K> {
        &self.nodes[number as usize].interval.high
    }
}

/// The order of upper bounds: none is the farthest.
fn by_high<K: Ord>(a: &Option<K>, b: &Option<K>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_found_by_each_value_in_it_while_others_come_and_go() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut intervals: Intervals<i64> = Intervals::default();
        let mut model: Vec<(Interval<i64>, FilterId)> = Vec::new();
        for step in 0..4_000 {
            if random.u8(..3) > 0 || model.is_empty() {
                let low = if random.u8(..8) == 0 { i64::MIN } else { random.i64(0..100) };
                let high = (random.u8(..8) > 0).then(|| low.max(0) + random.i64(0..30));
                let filter = FilterId(random.u32(..50));
                intervals.insert(Interval { low, high }, filter);
                model.push((Interval { low, high }, filter));
            } else {
                let (interval, filter) = model.swap_remove(random.usize(..model.len()));
                intervals.remove(&interval, filter);
            }
            let value = random.i64(-10..140);
            let mut found = Vec::new();
            intervals.stab(&value, &mut |filter| found.push(filter));
            let holds =
                |interval: &Interval<i64>| interval.low <= value && interval.high.is_none_or(|high| value <= high);
            let mut expected: Vec<FilterId> =
                model.iter().filter(|(interval, _)| holds(interval)).map(|(_, filter)| *filter).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "step {step}");
        }
        for (interval, filter) in model {
            intervals.remove(&interval, filter);
        }
        assert!(intervals.is_empty());
    }
}
