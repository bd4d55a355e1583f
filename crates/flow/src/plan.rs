//! The plan of a job: compiled nodes, and the chains of nodes that run in one task.
//!
//! An edge is fused, so that records cross it by a call, unless keys, different numbers of instances or the document
//! force a queue. The level of a node is the largest number of queues on a path to it. Only nodes of one level are
//! fused, so queues lead from lower levels to higher ones and never in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Error;
use crate::document::{
    Delivery, Document, ErrorAnswer, Exchange, HookPoint, INSTANCES_MAX, JoinSide, Node, NodeId, Role,
};
use crate::expression::{self, KeyExpressions, Params};
use crate::function::Functions;
use crate::hook::{Hooks, NativeHook};
use crate::lookup::LookupTable;
use crate::operator::{self, Operator};
use crate::route::Router;

/// A job that is ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: Vec<PlanNode>,
    pub(crate) chains: Vec<Chain>,
    /// Event time goes with the records.
    pub(crate) keeps_time: bool,
}

/// The name and the number of instances of each node.
#[derive(Debug)]
pub(crate) struct StateLayout(pub(crate) Vec<(String, u32)>);

#[derive(Debug)]
pub(crate) struct PlanNode {
    pub(crate) node: Node,
    pub(crate) operator: Operator,
    pub(crate) router: Router,
    pub(crate) key: Option<NodeKey>,
    /// The hooks of the node and those of all nodes, in the order of the document.
    pub(crate) hooks: Vec<PlanHook>,
    /// The index of its chain in [`Plan::chains`].
    pub(crate) chain: usize,
    /// The chains that have several ways to the node: the records of one batch come by each of them, one way behind the other.
    pub(crate) several_ways_from: BTreeSet<usize>,
}

/// The key by which records come to the instances of a node.
#[derive(Debug)]
pub(crate) struct NodeKey {
    key: KeyExpressions,
    /// That of the right input of a join; the other one is that of the left input then.
    of_right: Option<KeyExpressions>,
}

impl NodeKey {
    /// # Errors
    /// An expression that the document's checks should have refused, in words.
    fn of(node: &Node) -> Result<Option<Self>, String> {
        if !is_keyed(node) {
            return Ok(None);
        }
        let parse = |key: &[String]| KeyExpressions::parse(key, &node.params);
        let of_right = node.join.as_ref().map(|join| parse(&join.right.key));
        Ok(Some(Self { key: parse(&node.key_by)?, of_right: of_right.transpose()? }))
    }

    /// The key of records that come to the node from a side.
    pub(crate) fn of_side(&self, side: JoinSide) -> &KeyExpressions {
        match (side, &self.of_right) {
            (JoinSide::Right, Some(of_right)) => of_right,
            _ => &self.key,
        }
    }
}

impl PlanNode {
    /// The side from which records of `from` come to the node.
    pub(crate) fn side_of(&self, from: NodeId) -> JoinSide {
        match &self.node.join {
            Some(join) if join.right.node == from => JoinSide::Right,
            _ => JoinSide::Left,
        }
    }
}

/// A hook with its code.
#[derive(Debug, Clone)]
pub(crate) struct PlanHook {
    pub(crate) on: HookPoint,
    /// `None` for an error hook with a fixed answer.
    pub(crate) hook: Option<NativeHook>,
    pub(crate) params: Params,
    pub(crate) answer: Option<ErrorAnswer>,
}

/// Nodes that run in one task; there are several copies of the task.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) instances: u32,
}

impl Plan {
    /// Plans a job for `workers` threads.
    ///
    /// # Errors
    /// [`Error::Plan`] for what the document's checks should have found.
    pub(crate) fn new(document: &Document, functions: &Functions, hooks: &Hooks, workers: u32) -> Result<Self, Error> {
        let ids = || (0..document.nodes.len()).map(NodeId);
        let routers: Vec<Router> = ids().map(|id| Router::compile(document, id)).collect::<Result<_, _>>()?;
        let instances: Vec<u32> = document.nodes.iter().map(|node| instances(node, workers)).collect();
        let total: u64 = instances.iter().copied().map(u64::from).sum();
        if total > INSTANCES_MAX {
            let message = format!("{total} instances are more than {INSTANCES_MAX} of a job; lower parallelism.max");
            return Err(Error::plan(&document.name, "parallelism", message));
        }
        let edges: Vec<(usize, usize)> =
            ids().flat_map(|from| routers[from.0].targets().into_iter().map(move |to| (from.0, to.0))).collect();
        let must_queue = |(from, to): (usize, usize)| {
            document.exchange == Exchange::Queue || is_keyed(&document.nodes[to]) || instances[from] != instances[to]
        };
        let levels = levels(document.nodes.len(), &edges, must_queue);
        let fused = edges.iter().filter(|edge| !must_queue(**edge) && levels[edge.0] == levels[edge.1]);
        let chain_of = connected(document.nodes.len(), fused.copied());
        let count = chain_of.iter().max().map_or(0, |last| last + 1);
        let chain = |number: usize| Chain {
            nodes: ids().filter(|id| chain_of[id.0] == number).collect(),
            instances: ids().find(|id| chain_of[id.0] == number).map_or(1, |id| instances[id.0]),
        };
        let chains = (0..count).map(chain).collect();
        let mut senders = vec![Vec::new(); document.nodes.len()];
        edges.iter().for_each(|(from, to)| senders[*to].push(*from));
        let several_ways_to = |to: usize| {
            let chains: BTreeSet<usize> = senders[to].iter().map(|from| chain_of[*from]).collect();
            let others = chains.into_iter().filter(|chain| *chain != chain_of[to]);
            others.filter(|chain| has_several_ways(&senders, &chain_of, *chain, to)).collect()
        };
        let nodes = document.nodes.iter().zip(routers).zip(&chain_of).enumerate();
        let nodes = nodes.map(|(number, ((node, router), chain))| {
            Ok(PlanNode {
                operator: Operator::compile(node, functions)?,
                router,
                hooks: hooks_of(document, NodeId(number), hooks),
                key: NodeKey::of(node).map_err(|message| Error::plan(&node.name, "key_by", message))?,
                chain: *chain,
                several_ways_from: several_ways_to(number),
                node: node.clone(),
            })
        });
        let mut nodes: Vec<PlanNode> = nodes.collect::<Result<_, Error>>()?;
        // Nodes of one chain see the same payloads: what one of them needs is found for all.
        for number in 0..count {
            let of_chain = nodes.iter_mut().filter(|node| node.chain == number);
            expression::share(of_chain.flat_map(|node| node.operator.fields_mut().chain(node.router.fields_mut())));
        }
        let keeps_time = nodes.iter().any(|planned| operator::needs_time(&planned.node));
        Ok(Self { nodes, chains, keeps_time })
    }

    /// The number of instances of the chains before one.
    pub(crate) fn instances_before(&self, chain: usize) -> usize {
        self.chains[..chain].iter().map(|chain| chain.instances as usize).sum()
    }

    /// The nodes with their numbers of instances, for state that is restored.
    pub(crate) fn state_layout(&self) -> StateLayout {
        let of_node = |planned: &PlanNode| (planned.node.name.clone(), self.chains[planned.chain].instances);
        StateLayout(self.nodes.iter().map(of_node).collect())
    }

    /// The job keeps state, or commits results with positions: its run has epochs.
    pub(crate) fn has_epochs(&self, delivery: Delivery) -> bool {
        delivery == Delivery::ExactlyOnce || self.nodes.iter().any(|planned| planned.node.keeps_state)
    }

    /// The lookups with their tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&Node, &Arc<LookupTable>)> {
        self.nodes.iter().filter_map(|planned| Some((&planned.node, planned.operator.table()?)))
    }

    /// The nodes of a role in a chain.
    pub(crate) fn nodes_in(&self, chain: usize, role: Role) -> impl Iterator<Item = NodeId> {
        self.chains[chain].nodes.iter().copied().filter(move |id| self.nodes[id.0].node.role == role)
    }
}

/// `true` for a node that gets all records of a key in one instance; with state and no key, all records in one.
fn is_keyed(node: &Node) -> bool {
    node.keeps_state || !node.key_by.is_empty()
}

fn hooks_of(document: &Document, node: NodeId, known: &Hooks) -> Vec<PlanHook> {
    let of_node = document.hooks.iter().filter(|hook| hook.task.is_none_or(|task| task == node));
    of_node
        .map(|hook| PlanHook {
            on: hook.on,
            hook: known.get(&hook.call),
            params: hook.params.clone(),
            answer: hook.answer,
        })
        .collect()
}

fn instances(node: &Node, workers: u32) -> u32 {
    let min = node.parallelism.min.max(1);
    workers.clamp(min, node.parallelism.max.max(min))
}

/// The largest number of queues on a path to each node.
fn levels(count: usize, edges: &[(usize, usize)], must_queue: impl Fn((usize, usize)) -> bool) -> Vec<usize> {
    let mut levels = vec![0; count];
    // The graph has no circle, so that many rounds settle every path.
    for _ in 0..count {
        let mut has_changed = false;
        for (from, to) in edges {
            let level = levels[*from] + usize::from(must_queue((*from, *to)));
            if levels[*to] < level {
                levels[*to] = level;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    levels
}

/// `true` if the records of one batch may come from a chain to a node in several batches: by two ways through the chain, or because
/// the chain has two of its nodes from one other chain.
fn has_several_ways(senders: &[Vec<usize>], chain_of: &[usize], chain: usize, to: usize) -> bool {
    // The ways out of each node of the chain, and of each chain before it, that lead to the node.
    let (mut of_nodes, mut of_chains) = (BTreeMap::new(), BTreeMap::new());
    let mut open = vec![to];
    while let Some(node) = open.pop() {
        for from in &senders[node] {
            let is_inside = chain_of[*from] == chain;
            let ways: &mut u32 = match is_inside {
                true => of_nodes.entry(*from).or_default(),
                false if node == to => continue,
                false => of_chains.entry(chain_of[*from]).or_default(),
            };
            *ways += 1;
            if *ways > 1 {
                return true;
            }
            if is_inside {
                open.push(*from);
            }
        }
    }
    false
}

/// The number of the connected part that each node belongs to, in the order of the first nodes.
fn connected(count: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<usize> {
    let mut part: Vec<usize> = (0..count).collect();
    for (from, to) in edges {
        let (kept, merged) = (part[from].min(part[to]), part[from].max(part[to]));
        part.iter_mut().filter(|number| **number == merged).for_each(|number| *number = kept);
    }
    let mut firsts = part.clone();
    firsts.sort_unstable();
    firsts.dedup();
    part.iter().map(|number| firsts.binary_search(number).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_never_lead_back_into_a_chain() {
        // 0 → 1 fused, 0 → 2 queued, 2 → 1 fused: node 1 must not share a chain with node 0.
        let edges = [(0, 1), (0, 2), (2, 1)];
        let must_queue = |edge| edge == (0, 2);
        let levels = levels(3, &edges, must_queue);
        assert_eq!(levels, [0, 1, 1]);
        let fused = edges.iter().copied().filter(|edge| !must_queue(*edge) && levels[edge.0] == levels[edge.1]);
        assert_eq!(connected(3, fused), [0, 1, 1]);
    }

    #[test]
    fn several_ways_are_found_through_a_chain_and_into_it() {
        // 0 → 1, 2 → 3 → 4: nodes 0 to 3 in one chain; then the same with 0 by itself, and with 1 by itself, too.
        let senders = [vec![], vec![0], vec![0], vec![1, 2], vec![3]];
        let has_several_ways = |chain_of: &[usize], chain, to| has_several_ways(&senders, chain_of, chain, to);
        assert!(has_several_ways(&[0, 0, 0, 0, 1], 0, 4));
        assert!(has_several_ways(&[0, 1, 1, 1, 2], 1, 4));
        assert!(!has_several_ways(&[0, 1, 2, 2, 3], 2, 4));
        // Two ways that meet in the node itself are ways of one sender only if they are of one chain.
        assert!(has_several_ways(&[0, 1, 1, 2, 3], 1, 3) && !has_several_ways(&[0, 1, 2, 3, 4], 1, 3));
    }
}
