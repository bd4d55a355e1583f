//! The names of a bundle's nodes in the document that uses it.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::expressions::parameters;
use crate::document::finding::{Findings, join};
use crate::document::model::NODE_MAPS;
use crate::document::tree::{Tree, TreeContent, TreeMember};

/// The name that stands for the inputs of the use.
const INPUT: &str = "input";

/// Checks the bundle's own names, and that it takes inputs if the use gives some, and only then.
pub(super) fn check_names(bundle: &Tree, user: &TreeMember, path: &str, findings: &mut Findings) {
    for (map, _) in NODE_MAPS {
        for member in bundle.get(map).map_or(&[][..], Tree::members) {
            if matches!(member.key.as_str(), INPUT | "all" | "none") {
                let message = format!("'{}' has a meaning in bundles; choose another name for the node", member.key);
                findings.add(member.key_place, &join(map, &member.key), "reserved_name", message).named(&member.key);
            }
        }
    }
    let takes = takes_input(bundle);
    let message = match user.value.member("inputs") {
        None if takes => "the bundle takes records; name the nodes before it in inputs",
        Some(_) if !takes => "the bundle takes no records; remove inputs",
        _ => return,
    };
    findings.add(user.value.place, &join(path, "inputs"), "bundle_input", message.to_owned());
}

fn takes_input(bundle: &Tree) -> bool {
    let names_input = |tree: &Tree| texts(tree).any(|name| name == INPUT);
    let in_nodes = NODE_MAPS.iter().filter_map(|(map, _)| bundle.get(map)).flat_map(Tree::members);
    let mut inputs = in_nodes.filter_map(|node| node.value.get("inputs"));
    let edges = bundle.get("edges");
    inputs.any(names_input)
        || edges.is_some_and(|edges| edges.elements().iter().any(names_input))
        || edges.is_some_and(|edges| edges.members().iter().any(|member| member.key == INPUT))
}

fn texts(tree: &Tree) -> impl Iterator<Item = &str> {
    tree.text().into_iter().chain(tree.elements().iter().filter_map(Tree::text))
}

/// Nodes, edges, routes and hooks under the names that they have in the document.
pub(super) fn renamed(bundle: Tree, user: &TreeMember, parameters: &BTreeMap<String, Tree>) -> Tree {
    let inputs = user.value.get("inputs").map_or_else(Vec::new, |inputs| match &inputs.content {
        TreeContent::List(elements) => elements.clone(),
        _ => vec![inputs.clone()],
    });
    let rename = Rename { prefix: &user.key, inputs, names: node_names(&bundle), parameters };
    let place = bundle.place;
    let TreeContent::Object(members) = bundle.content else { return Tree { place, content: TreeContent::Null } };
    let content = members.into_iter().filter_map(|member| rename.part(member)).collect();
    Tree { place, content: TreeContent::Object(content) }
}

/// Names of nodes that are no sinks first, then sinks.
struct Names {
    senders: Vec<String>,
    sinks: Vec<String>,
    /// The texts of the routes that begin at a node, or at all.
    routes: Vec<(String, String)>,
}

fn node_names(bundle: &Tree) -> Names {
    let of = |map: &str| bundle.get(map).map_or(&[][..], Tree::members).iter().map(|member| member.key.clone());
    let routes = bundle.get("routes").map_or(&[][..], Tree::elements).iter().flat_map(|route| {
        let from = route.text_of("from").unwrap_or_default().to_owned();
        ["when", "select"]
            .into_iter()
            .filter_map(|key| route.text_of(key))
            .map(move |text| (from.clone(), text.to_owned()))
    });
    Names {
        senders: of("sources").chain(of("transforms")).collect(),
        sinks: of("sinks").collect(),
        routes: routes.collect(),
    }
}

struct Rename<'a> {
    prefix: &'a str,
    inputs: Vec<Tree>,
    names: Names,
    parameters: &'a BTreeMap<String, Tree>,
}

impl Rename<'_> {
    fn part(&self, mut member: TreeMember) -> Option<TreeMember> {
        match member.key.as_str() {
            "sources" | "transforms" | "sinks" => {
                let TreeContent::Object(nodes) = &mut member.value.content else { return None };
                nodes.iter_mut().for_each(|node| self.node(node));
            }
            "edges" => member.value = self.edges(&member.value),
            "routes" => self.list(&mut member.value, "from", &self.names.senders),
            "hooks" => {
                let all: Vec<String> = self.names.senders.iter().chain(&self.names.sinks).cloned().collect();
                self.list(&mut member.value, "task", &all);
            }
            _ => return None,
        }
        Some(member)
    }

    fn name(&self, name: &str) -> String {
        if matches!(name, "all" | "none") { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    fn node(&self, node: &mut TreeMember) {
        self.add_parameters(node);
        node.key = self.name(&node.key);
        let TreeContent::Object(keys) = &mut node.value.content else { return };
        let is_join = keys.iter().any(|key| key.key == "type" && key.value.text() == Some("join"));
        for key in keys.iter_mut() {
            match key.key.as_str() {
                "inputs" => key.value.content = TreeContent::List(self.ends(&key.value)),
                "config" if is_join => self.join(&mut key.value),
                _ => {}
            }
        }
    }

    /// Renames the inputs in the `config` of a join. In its results they keep the names that they have in the bundle.
    fn join(&self, config: &mut Tree) {
        let place = config.place;
        let TreeContent::Object(keys) = &mut config.content else { return };
        let is_side = |key: &&mut TreeMember| matches!(key.key.as_str(), "left" | "right");
        let mut members: Vec<TreeMember> = Vec::new();
        for side in keys.iter_mut().filter(is_side) {
            members.push(TreeMember {
                key: side.value.text().unwrap_or_default().to_owned(),
                key_place: side.value.place,
                value: side.value.clone(),
            });
            if let Some(input) = self.ends(&side.value).into_iter().next() {
                side.value = input;
            }
        }
        match keys.iter_mut().find(|key| key.key == "as").map(|key| &mut key.value.content) {
            Some(TreeContent::Object(given)) => {
                members.retain(|member| !given.iter().any(|known| known.key == member.key));
                given.extend(members);
            }
            Some(_) => {}
            None => {
                let value = Tree { place, content: TreeContent::Object(members) };
                keys.push(TreeMember { key: "as".to_owned(), key_place: place, value });
            }
        }
        for by_input in keys.iter_mut().filter(|key| matches!(key.key.as_str(), "on" | "as")) {
            let TreeContent::Object(members) = &mut by_input.value.content else { continue };
            for member in members {
                let name = Tree { place: member.key_place, content: TreeContent::Text(member.key.clone()) };
                let input = self.ends(&name).into_iter().next();
                member.key = input.as_ref().and_then(Tree::text).unwrap_or(&member.key).to_owned();
            }
        }
        let windows = keys.iter_mut().filter(|key| key.key == "window").map(|key| &mut key.value.content);
        for content in windows {
            let TreeContent::Object(members) = content else { continue };
            for member in members.iter_mut().filter(|member| member.key == "late_to") {
                if let TreeContent::Text(name) = &mut member.value.content {
                    *name = self.name(name);
                }
            }
        }
    }

    /// The nodes that a name or a list of names stands for.
    fn ends(&self, tree: &Tree) -> Vec<Tree> {
        match &tree.content {
            TreeContent::List(elements) => elements.iter().flat_map(|element| self.ends(element)).collect(),
            TreeContent::Text(name) if name == INPUT => self.inputs.clone(),
            TreeContent::Text(name) => vec![Tree { place: tree.place, content: TreeContent::Text(self.name(name)) }],
            _ => vec![tree.clone()],
        }
    }

    /// Both forms of edges as pairs.
    fn edges(&self, edges: &Tree) -> Tree {
        let mut pairs = Vec::new();
        let mut add = |from: &Tree, to: &Tree| {
            for from in self.ends(from) {
                for to in self.ends(to) {
                    pairs.push(Tree { place: to.place, content: TreeContent::List(vec![from.clone(), to]) });
                }
            }
        };
        for pair in edges.elements() {
            if let [from, to] = pair.elements() {
                add(from, to);
            }
        }
        for member in edges.members() {
            add(&Tree { place: member.key_place, content: TreeContent::Text(member.key.clone()) }, &member.value);
        }
        Tree { place: edges.place, content: TreeContent::List(pairs) }
    }

    /// Renames routes or hooks; one of `all` becomes one of each of the bundle's nodes.
    fn list(&self, tree: &mut Tree, subject: &str, all: &[String]) {
        let TreeContent::List(elements) = &mut tree.content else { return };
        let mut renamed = Vec::new();
        for element in std::mem::take(elements) {
            let subjects: BTreeSet<&str> = match element.text_of(subject) {
                Some("all") => all.iter().map(String::as_str).collect(),
                name => name.into_iter().collect(),
            };
            renamed.extend(subjects.into_iter().map(|name| self.element(&element, subject, name)));
        }
        *elements = renamed;
    }

    fn element(&self, element: &Tree, subject: &str, name: &str) -> Tree {
        let mut element = element.clone();
        let TreeContent::Object(members) = &mut element.content else { return element };
        for member in members {
            match &mut member.value.content {
                TreeContent::Text(text) if member.key == subject => *text = self.name(name),
                TreeContent::Text(text) if matches!(member.key.as_str(), "to" | "predicate_errors_to") => {
                    *text = self.name(text)
                }
                TreeContent::List(_) if member.key == "to" => {
                    member.value.content = TreeContent::List(self.ends(&member.value));
                }
                _ => {}
            }
        }
        element
    }

    /// Gives a node the parameters that its expressions and its routes name.
    fn add_parameters(&self, node: &mut TreeMember) {
        let mut named: BTreeSet<String> = BTreeSet::new();
        for key in ["where", "select", "key_by", "aggregates"] {
            node.value.get(key).into_iter().flat_map(texts).for_each(|text| named.extend(parameters(text).into_keys()));
        }
        for (list, key) in [("aggregates", "field"), ("triggers", "when")] {
            let parts = node.value.get(list).map_or(&[][..], Tree::elements).iter();
            parts.filter_map(|part| part.text_of(key)).for_each(|text| named.extend(parameters(text).into_keys()));
        }
        let routes = self.names.routes.iter().filter(|(from, _)| *from == node.key || from == "all");
        routes.for_each(|(_, text)| named.extend(parameters(text).into_keys()));
        let place = node.value.place;
        let TreeContent::Object(keys) = &mut node.value.content else { return };
        let values = named.iter().filter_map(|name| Some((name, self.parameters.get(name)?)));
        let member = |(name, value): (&String, &Tree)| TreeMember {
            key: name.clone(),
            key_place: value.place,
            value: value.clone(),
        };
        let given: Vec<TreeMember> = values.map(member).collect();
        if given.is_empty() {
            return;
        }
        match keys.iter_mut().find(|key| key.key == "params").map(|key| &mut key.value.content) {
            Some(TreeContent::Object(own)) => {
                let missing = given.into_iter().filter(|member| !own.iter().any(|known| known.key == member.key));
                let missing: Vec<TreeMember> = missing.collect();
                own.extend(missing);
            }
            _ => {
                let value = Tree { place, content: TreeContent::Object(given) };
                keys.push(TreeMember { key: "params".to_owned(), key_place: place, value });
            }
        }
    }
}
