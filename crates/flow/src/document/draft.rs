//! The graph of a document as far as its text allows: rules look at it while there are findings.

use std::collections::{HashMap, HashSet};

use super::check::ENTRIES_MAX;
use super::finding::{bounded_name, join};
use super::model::{NODE_MAPS, NodeId, Role};
use super::tree::{TextPosition, Tree, TreeContent, TreeMember};
use super::value::PARAMETERS_MAX;
use super::{DocumentContext, NodeType, node_types};

/// The document under check. Names that cannot be resolved are left out here, and found by a rule.
pub(super) struct DocumentDraft<'a> {
    pub(super) context: &'a DocumentContext,
    pub(super) tree: &'a Tree,
    pub(super) nodes: Vec<DraftNode<'a>>,
    /// The first members of the job's `params`.
    pub(super) params: &'a [TreeMember],
    /// The hooks, as far as there may be.
    pub(super) hooks: &'a [Tree],
    /// The first node of each name.
    pub(super) by_name: HashMap<&'a str, NodeId>,
    /// All references between nodes, by `inputs` and by `edges`.
    pub(super) links: Vec<Link<'a>>,
    /// All edges, without duplicates; `predicate_errors_to` and `late_to` make one by themselves.
    pub(super) edges: Vec<(NodeId, NodeId)>,
    /// For each node its successors, without duplicates.
    pub(super) successors: Vec<Vec<NodeId>>,
    pub(super) routes: Vec<DraftRoute<'a>>,
}

pub(super) struct DraftNode<'a> {
    pub(super) name: &'a str,
    pub(super) name_place: TextPosition,
    pub(super) path: String,
    pub(super) role: Role,
    pub(super) tree: &'a Tree,
    /// The first members of `params`.
    pub(super) params: &'a [TreeMember],
    /// The type, if the catalogue has it.
    pub(super) node_type: Option<&'a NodeType>,
}

/// A reference to two nodes.
pub(super) struct Link<'a> {
    pub(super) from: EdgeEnd<'a>,
    pub(super) to: EdgeEnd<'a>,
}

/// A reference to a node, with its place.
#[derive(Clone)]
pub(super) struct EdgeEnd<'a> {
    pub(super) name: &'a str,
    pub(super) place: TextPosition,
    pub(super) path: String,
    pub(super) node: Option<NodeId>,
}

pub(super) struct DraftRoute<'a> {
    pub(super) tree: &'a Tree,
    pub(super) path: String,
    /// `None` if `from` is missing.
    pub(super) from: Option<EdgeEnd<'a>>,
    pub(super) is_from_all: bool,
    pub(super) to: RouteTargetDraft<'a>,
    pub(super) predicate_errors_to: Option<EdgeEnd<'a>>,
    pub(super) is_stop: bool,
    pub(super) is_on_error: bool,
}

pub(super) enum RouteTargetDraft<'a> {
    All,
    None,
    Nodes(Vec<EdgeEnd<'a>>),
}

impl<'a> DocumentDraft<'a> {
    pub(super) fn new(tree: &'a Tree, context: &'a DocumentContext) -> Self {
        let mut nodes = Vec::new();
        for (map, role) in NODE_MAPS {
            for member in tree.get(map).map_or(&[][..], Tree::members).iter().take(ENTRIES_MAX) {
                let kind = member.value.text_of("type");
                let node_type = node_types(context, role).find(|node_type| Some(node_type.name) == kind);
                let (name, path) = (bounded_name(&member.key), join(map, &member.key));
                nodes.push(DraftNode {
                    name,
                    name_place: member.key_place,
                    path,
                    role,
                    tree: &member.value,
                    node_type,
                    params: params(&member.value),
                });
            }
        }
        let mut by_name = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            by_name.entry(node.name).or_insert(NodeId(index));
        }
        let successors = vec![Vec::new(); nodes.len()];
        let mut draft = Self {
            context,
            tree,
            nodes,
            params: params(tree),
            hooks: first(tree.get("hooks").map_or(&[][..], Tree::elements), ENTRIES_MAX),
            by_name,
            links: Vec::new(),
            edges: Vec::new(),
            successors,
            routes: Vec::new(),
        };
        draft.links = draft.read_links();
        draft.routes = draft.read_routes();
        draft.edges = draft.read_edges();
        for (from, to) in &draft.edges {
            draft.successors[from.0].push(*to);
        }
        draft
    }

    pub(super) fn node(&self, id: NodeId) -> &DraftNode<'a> {
        &self.nodes[id.0]
    }

    /// The names of all nodes.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.nodes.iter().map(|node| node.name)
    }

    /// The reference that `tree` makes, if it is a text.
    pub(super) fn end(&self, tree: &'a Tree, path: &str) -> Option<EdgeEnd<'a>> {
        let name = bounded_name(tree.text()?);
        Some(EdgeEnd { name, place: tree.place, path: path.to_owned(), node: self.by_name.get(name).copied() })
    }

    /// The references of a name or a list of names.
    pub(super) fn ends(&self, tree: &'a Tree, path: &str) -> Vec<EdgeEnd<'a>> {
        match &tree.content {
            TreeContent::List(elements) => {
                let end = |(index, element)| self.end(element, &format!("{path}[{index}]"));
                elements.iter().enumerate().filter_map(end).collect()
            }
            _ => self.end(tree, path).into_iter().collect(),
        }
    }

    fn read_links(&self) -> Vec<Link<'a>> {
        let mut links = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(inputs) = node.tree.get("inputs") else { continue };
            let to =
                EdgeEnd { name: node.name, place: node.name_place, path: node.path.clone(), node: Some(NodeId(index)) };
            let path = join(&node.path, "inputs");
            links.extend(self.ends(inputs, &path).into_iter().map(|from| Link { from, to: to.clone() }));
        }
        let Some(edges) = self.tree.get("edges") else { return links };
        for (index, pair) in edges.elements().iter().enumerate() {
            if let [from, to] = self.ends(pair, &format!("edges[{index}]")).as_slice() {
                links.push(Link { from: from.clone(), to: to.clone() });
            }
        }
        for member in edges.members() {
            let path = join("edges", &member.key);
            let name = bounded_name(&member.key);
            let node = self.by_name.get(name).copied();
            let from = EdgeEnd { name, place: member.key_place, path: path.clone(), node };
            links.extend(self.ends(&member.value, &path).into_iter().map(|to| Link { from: from.clone(), to }));
        }
        links
    }

    fn read_routes(&self) -> Vec<DraftRoute<'a>> {
        let routes = self.tree.get("routes").map_or(&[][..], Tree::elements);
        let read = |(index, tree): (usize, &'a Tree)| {
            let path = format!("routes[{index}]");
            let to_path = join(&path, "to");
            let from = tree.get("from").and_then(|from| self.end(from, &join(&path, "from")));
            let errors_to = tree.get("predicate_errors_to");
            DraftRoute {
                is_from_all: from.as_ref().is_some_and(|from| from.name == "all"),
                from,
                to: match tree.get("to") {
                    Some(to) if is_word(to, "all") => RouteTargetDraft::All,
                    Some(to) if is_word(to, "none") => RouteTargetDraft::None,
                    to => RouteTargetDraft::Nodes(to.map_or_else(Vec::new, |to| self.ends(to, &to_path))),
                },
                predicate_errors_to: errors_to.and_then(|to| self.end(to, &join(&path, "predicate_errors_to"))),
                is_stop: tree.get("stop").is_some_and(Tree::is_true),
                is_on_error: tree.get("on_error").is_some_and(Tree::is_true),
                tree,
                path,
            }
        };
        routes.iter().take(ENTRIES_MAX).enumerate().map(read).collect()
    }

    fn read_edges(&self) -> Vec<(NodeId, NodeId)> {
        let linked = self.links.iter().filter_map(|link| link.from.node.zip(link.to.node));
        let failed = self.routes.iter().filter_map(|route| {
            let from = route.from.as_ref()?.node?;
            Some((from, route.predicate_errors_to.as_ref()?.node?))
        });
        let late = self.nodes.iter().enumerate().filter_map(|(index, node)| {
            let to = node.tree.get("window")?.text_of("late_to")?;
            Some((NodeId(index), *self.by_name.get(to)?))
        });
        let mut known = HashSet::new();
        linked.chain(failed).chain(late).filter(|edge| known.insert(*edge)).collect()
    }
}

/// The parameters of a node or the job. They are looked up by name, so more than may be are left out.
fn params(tree: &Tree) -> &[TreeMember] {
    first(tree.get("params").map_or(&[][..], Tree::members), PARAMETERS_MAX)
}

fn first<T>(list: &[T], max: usize) -> &[T] {
    &list[..list.len().min(max)]
}

/// The word itself, or a list of only that word.
fn is_word(tree: &Tree, word: &str) -> bool {
    tree.text() == Some(word) || matches!(tree.elements(), [only] if only.text() == Some(word))
}
