//! The assignors of the server: they spread the partitions of the subscribed topics over the members of a group.
//!
//! Both give each partition to exactly one member that has subscribed to its topic, if there is one, and depend on nothing
//! but their arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use millstream_types::TopicId;

/// A set of partitions.
pub(crate) type PartitionSet = BTreeSet<(TopicId, u32)>;
/// Topics with their number of partitions.
pub(crate) type TopicSizes = BTreeMap<TopicId, u32>;

/// Times that [`Assignor::Uniform`] looks through all topics for partitions to move. Members with the same subscription are
/// balanced after the first.
const BALANCE_ROUNDS_MAX: usize = 16;

/// The way in which partitions are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Assignor {
    /// Each member gets equally many partitions, and keeps as many of those that it has as that allows.
    Uniform,
    /// Each member gets consecutive partitions of each topic, the same ones of topics with the same number of partitions.
    Range,
}

/// A member that gets partitions.
pub(crate) struct Candidate<'a> {
    /// The topics that it has subscribed to.
    pub(crate) topics: &'a TopicSizes,
    /// The partitions that it was to have so far. No other member was to have them.
    pub(crate) target: &'a PartitionSet,
}

impl Assignor {
    pub(crate) const ALL: [Self; 2] = [Self::Uniform, Self::Range];

    /// The name that clients know.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    /// The partitions of each candidate.
    pub(crate) fn assign(self, candidates: &[Candidate<'_>]) -> Vec<PartitionSet> {
        let topics = subscribed(candidates);
        match self {
            Self::Uniform => uniform(&topics, candidates),
            Self::Range => range(&topics, candidates.len()),
        }
    }
}

/// The number of a topic's partitions, and its subscribers in the order of the candidates.
struct Subscribed {
    partitions: u32,
    by: Rc<[usize]>,
}

/// The topics that have subscribers. Most members of a group share one list of topics: they are looked at together, and topics
/// with the same subscribers share the list of these.
fn subscribed(candidates: &[Candidate<'_>]) -> BTreeMap<TopicId, Subscribed> {
    let mut alike: Vec<(&TopicSizes, Vec<usize>)> = Vec::new();
    for (number, candidate) in candidates.iter().enumerate() {
        match alike.iter_mut().find(|(topics, _)| std::ptr::eq(*topics, candidate.topics)) {
            Some((_, members)) => members.push(number),
            None => alike.push((candidate.topics, vec![number])),
        }
    }
    let mut topics: BTreeMap<TopicId, (u32, Vec<usize>)> = BTreeMap::new();
    for (place, (of, _)) in alike.iter().enumerate() {
        for (topic, partitions) in *of {
            let (most, places) = topics.entry(*topic).or_default();
            // Members learn of new partitions one after the other.
            *most = (*most).max(*partitions);
            places.push(place);
        }
    }
    let mut lists: BTreeMap<Vec<usize>, Rc<[usize]>> = BTreeMap::new();
    let in_order = |places: &Vec<usize>| {
        let mut members: Vec<_> = places.iter().flat_map(|place| &alike[*place].1).copied().collect();
        members.sort_unstable();
        members.into()
    };
    let subscribed = topics.into_iter().map(|(topic, (partitions, places))| {
        let by = lists.entry(places).or_insert_with_key(in_order).clone();
        (topic, Subscribed { partitions, by })
    });
    subscribed.collect()
}

fn range(topics: &BTreeMap<TopicId, Subscribed>, members: usize) -> Vec<PartitionSet> {
    let mut targets = vec![PartitionSet::new(); members];
    for (topic, Subscribed { partitions, by }) in topics {
        let count = u32::try_from(by.len()).unwrap_or(u32::MAX);
        let (each, one_more) = (partitions / count, partitions % count);
        let mut next = 0;
        for (place, member) in (0..).zip(by.iter()) {
            let end = next + each + u32::from(place < one_more);
            targets[*member].extend((next..end).map(|partition| (*topic, partition)));
            next = end;
        }
    }
    targets
}

fn uniform(topics: &BTreeMap<TopicId, Subscribed>, candidates: &[Candidate<'_>]) -> Vec<PartitionSet> {
    let kept = candidates.iter().map(|candidate| {
        let still = |(topic, partition): &&(TopicId, u32)| {
            candidate.topics.contains_key(topic) && topics.get(topic).is_some_and(|of| *partition < of.partitions)
        };
        candidate.target.iter().filter(still).copied().collect()
    });
    let mut targets: Vec<PartitionSet> = kept.collect();
    let taken: PartitionSet = targets.iter().flatten().copied().collect();
    // Topics with few subscribers first: the others have a choice left afterwards.
    let mut order: Vec<_> = topics.iter().collect();
    order.sort_by_key(|(_, subscribed)| subscribed.by.len());
    for (topic, Subscribed { partitions, by }) in &order {
        for partition in (0..*partitions).map(|partition| (**topic, partition)) {
            if !taken.contains(&partition)
                && let Some(member) = by.iter().min_by_key(|member| targets[**member].len())
            {
                targets[*member].insert(partition);
            }
        }
    }
    for _ in 0..BALANCE_ROUNDS_MAX {
        let counts = || targets.iter().map(PartitionSet::len);
        if counts().max().unwrap_or(0) <= counts().min().unwrap_or(0) + 1 {
            break;
        }
        let moved = order.iter().map(|(topic, subscribed)| balance(**topic, &subscribed.by, &mut targets));
        if moved.sum::<usize>() == 0 {
            break;
        }
    }
    targets
}

/// Moves partitions of a topic to those of its subscribers that have fewer partitions; the number of moves.
fn balance(topic: TopicId, subscribers: &[usize], targets: &mut [PartitionSet]) -> usize {
    let mut moved = 0;
    loop {
        let Some(to) = subscribers.iter().min_by_key(|member| targets[**member].len()) else { return moved };
        let enough = targets[*to].len() + 1;
        // Most have no more than enough, and are not looked into.
        let have_more = subscribers.iter().filter(|member| targets[**member].len() > enough);
        let last = |member: &usize| targets[*member].range((topic, 0)..=(topic, u32::MAX)).next_back().copied();
        let movable = have_more.filter_map(|member| Some((member, last(member)?)));
        let Some((from, partition)) = movable.max_by_key(|(member, _)| targets[**member].len()) else { return moved };
        targets[*from].remove(&partition);
        targets[*to].insert(partition);
        moved += 1;
    }
}
