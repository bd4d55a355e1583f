//! Checks a tree against the model: unknown and missing keys, and the form of each value.

use millstream_types::TenantId;

use super::catalogue::{Key, KeyType, NodeType, Section};
use super::finding::{Findings, join};
use super::keys::{AGGREGATE, JOB, PARALLELISM, RESUME_FROM, SINK, SOURCE, TRANSFORM};
use super::model::Role;
use super::names::{is_name, name_rule};
use super::tree::{TextPosition, Tree, TreeContent, TreeMember};
use super::value::check_value;
use super::{DocumentContext, node_types};

/// Most entries of a list or map of the document's own objects: nodes, routes, hooks, tests, uses.
pub(super) const ENTRIES_MAX: usize = 1000;

/// Checks trees against sections, and collects findings.
pub(super) struct Checker<'a> {
    pub(super) context: &'a DocumentContext,
    pub(super) findings: &'a mut Findings,
}

impl Checker<'_> {
    /// Checks an object with the keys of a section.
    pub(super) fn section(&mut self, tree: &Tree, path: &str, section: &'static Section) {
        if !self.is_object(tree, path, section.name) {
            return;
        }
        let node_type = node_type(self.context, tree, section);
        for member in tree.members() {
            let path = join(path, &member.key);
            match section.all().find(|key| key.name == member.key) {
                Some(key) if matches!(key.value, KeyType::Config) => self.config(&member.value, &path, node_type),
                Some(key) => self.key(key, member.key_place, &member.value, &path),
                None => self.unknown(member, &path, section, node_type),
            }
        }
        for key in section.all().filter(|key| key.is_required && tree.get(key.name).is_none()) {
            self.missing(tree, &join(path, key.name), key);
        }
        if node_type.is_some() && tree.get("config").is_none() {
            let empty = Tree { place: tree.place, content: TreeContent::Object(Vec::new()) };
            self.config(&empty, &join(path, "config"), node_type);
        }
    }

    /// True if the tree is an object; else a finding says that `what` must be one.
    fn is_object(&mut self, tree: &Tree, path: &str, what: &str) -> bool {
        let is_object = matches!(tree.content, TreeContent::Object(_));
        if !is_object {
            let message = format!("this is {}; {} is an object with keys", tree.form(), with_article(what));
            self.findings.add(tree.place, path, "type", message).value(tree);
        }
        is_object
    }

    fn missing(&mut self, tree: &Tree, path: &str, key: &Key) {
        let message = format!("the key '{}' is missing; add it. {}", key.name, key.doc).trim_end().to_owned();
        self.findings.add(tree.place, path, "missing_key", message);
    }

    fn key(&mut self, key: &'static Key, place: TextPosition, value: &Tree, path: &str) {
        match key.value {
            KeyType::NotAvailable(remedy) => {
                let message = format!("'{}' is not available in this version; {remedy}", key.name);
                self.findings.add(place, path, "not_available", message).named(key.name);
            }
            KeyType::Object(section) => self.section(value, path, section),
            KeyType::ListOf(section) => self.list(value, path, section),
            KeyType::MapOf(section) => self.map(value, path, section),
            KeyType::Aggregates if matches!(value.content, TreeContent::List(_)) => self.list(value, path, &AGGREGATE),
            KeyType::DurationOr(section) if matches!(value.content, TreeContent::Object(_)) => {
                self.section(value, path, section);
            }
            KeyType::Parallelism if matches!(value.content, TreeContent::Object(_)) => {
                self.section(value, path, &PARALLELISM);
            }
            KeyType::ResumeFrom if matches!(value.content, TreeContent::Object(_)) => {
                self.section(value, path, &RESUME_FROM);
            }
            _ => check_value(value, path, key, self.findings),
        }
    }

    fn list(&mut self, tree: &Tree, path: &str, section: &'static Section) {
        let TreeContent::List(elements) = &tree.content else {
            let message = format!("this is {}; {path} is a list, one {} for each '-'", tree.form(), section.name);
            self.findings.add(tree.place, path, "type", message).value(tree);
            return;
        };
        if self.is_within_max(tree, path, elements.len()) {
            for (index, element) in elements.iter().enumerate() {
                self.section(element, &format!("{path}[{index}]"), section);
            }
        }
    }

    fn map(&mut self, tree: &Tree, path: &str, section: &'static Section) {
        if !matches!(tree.content, TreeContent::Object(_)) {
            let message = format!("this is {}; {path} has one {} by name", tree.form(), section.name);
            self.findings.add(tree.place, path, "type", message).value(tree);
            return;
        }
        if !self.is_within_max(tree, path, tree.members().len()) {
            return;
        }
        for member in tree.members() {
            let path = join(path, &member.key);
            if !is_name(&member.key) {
                let message = format!("'{}' is not a name: {}", super::finding::shortened(&member.key), name_rule());
                self.findings.add(member.key_place, &path, "name", message).named(&member.key);
            }
            self.section(&member.value, &path, section);
        }
    }

    fn is_within_max(&mut self, tree: &Tree, path: &str, count: usize) -> bool {
        if count > ENTRIES_MAX {
            let message = format!("{count} entries are more than {ENTRIES_MAX}; split the job");
            self.findings.add(tree.place, path, "too_many", message);
        }
        count <= ENTRIES_MAX
    }

    fn unknown(&mut self, member: &TreeMember, path: &str, section: &'static Section, node_type: Option<&NodeType>) {
        let name = member.key.as_str();
        if name == "inputs" && section.name == SOURCE.name {
            return; // The rule `source_with_inputs` says more.
        }
        let elsewhere =
            [&SOURCE, &TRANSFORM, &SINK, &JOB].into_iter().find(|other| other.all().any(|key| key.name == name));
        let is_config = node_type.is_some_and(|kind| kind.keys.iter().any(|key| key.name == name));
        let (rule, message) = if is_config {
            ("misplaced_key", format!("'{name}' is a key of `config`; write config: {{ {name}: … }}"))
        } else if let Some(other) = elsewhere.filter(|_| is_node(section) || section.name == JOB.name) {
            (
                "misplaced_key",
                format!("'{name}' is a key of a {}, not of a {}; move or remove it", other.name, section.name),
            )
        } else {
            ("unknown_key", format!("'{name}' is no key of {}; correct or remove it", with_article(section.name)))
        };
        let finding = self.findings.add(member.key_place, path, rule, message).named(name);
        if rule == "unknown_key" {
            finding.near(name, section.all().map(|key| key.name));
        }
    }

    /// Checks `config` against the keys of the node's type.
    fn config(&mut self, config: &Tree, path: &str, node_type: Option<&NodeType>) {
        let Some(node_type) = node_type else { return };
        if !self.is_object(config, path, "config") {
            return;
        }
        for member in config.members() {
            let path = join(path, &member.key);
            match node_type.keys.iter().find(|key| key.name == member.key) {
                Some(key) => {
                    self.key(key, member.key_place, &member.value, &path);
                    self.written_topic(key, &member.value, &path, node_type.role);
                }
                None => {
                    let message = format!("'{}' is no key of {}; correct or remove it", member.key, node_type.name);
                    self.findings
                        .add(member.key_place, &path, "unknown_key", message)
                        .named(&member.key)
                        .near(&member.key, node_type.keys.iter().map(|key| key.name));
                }
            }
        }
        for key in node_type.keys.iter().filter(|key| key.is_required && config.get(key.name).is_none()) {
            self.missing(config, &join(path, key.name), key);
        }
    }

    /// Sinks write into topics of applications only.
    fn written_topic(&mut self, key: &Key, value: &Tree, path: &str, role: Role) {
        let (KeyType::Topic, Role::Sink, Some(name)) = (key.value, role, value.text()) else { return };
        if let Some(fault) = super::topic::unwritable(name, &TenantId::default()) {
            self.findings.add(value.place, path, "topic", fault).value(value);
        }
    }
}

/// The type of the node, if the section is a node's and the catalogue has it.
fn node_type<'a>(context: &'a DocumentContext, node: &Tree, section: &Section) -> Option<&'a NodeType> {
    let role = role_of(section)?;
    node_types(context, role).find(|kind| Some(kind.name) == node.text_of("type"))
}

fn role_of(section: &Section) -> Option<Role> {
    [(&SOURCE, Role::Source), (&TRANSFORM, Role::Transform), (&SINK, Role::Sink)]
        .into_iter()
        .find(|(node, _)| node.name == section.name)
        .map(|(_, role)| role)
}

fn is_node(section: &Section) -> bool {
    role_of(section).is_some()
}

fn with_article(what: &str) -> String {
    if what.starts_with(['a', 'e', 'i', 'o', 'u']) { format!("an {what}") } else { format!("a {what}") }
}
