//! What has been seen of the records so far, as a tree of the payload's fields.

use std::collections::{BTreeMap, HashMap};

use millstream_types::RecordView;
use serde_json::Value;

use super::look::look;
use super::{Schema, SchemaConfig, SchemaField};
use crate::{Field, Step, Type};

/// Different values that are told of a field.
const EXAMPLES_MAX: usize = 3;

/// Everything that has been seen.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) limits: Limits,
    records: u64,
    objects: u64,
    root: Node,
    key: Node,
    headers: Node,
}

/// What is left of the limits.
#[derive(Debug)]
pub(super) struct Limits {
    fields_left: usize,
    pub(super) depth_max: usize,
    example_max_bytes: usize,
    /// Whether one was reached.
    pub(super) reached: bool,
}

/// A field and its parts.
#[derive(Debug, Default)]
pub(super) struct Node {
    types: BTreeMap<&'static str, u64>,
    present: u64,
    examples: Vec<Value>,
    /// The last record that had it: of members with one name the first counts.
    record: u64,
    members: Vec<(String, Node)>,
    by_name: HashMap<String, usize>,
    first: Option<Box<Node>>,
}

impl Observed {
    pub(super) fn new(config: &SchemaConfig) -> Self {
        let limits = Limits {
            fields_left: config.fields_max,
            depth_max: config.depth_max,
            example_max_bytes: config.example_max_bytes,
            reached: false,
        };
        let (root, key, headers) = (Node::default(), Node::default(), Node::default());
        Self { limits, records: 0, objects: 0, root, key, headers }
    }

    /// Looks at a record.
    pub(super) fn add(&mut self, view: &RecordView<'_>) {
        self.records += 1;
        let Self { limits, records, root, key, headers, .. } = self;
        if let Some(text) = view.key.and_then(|key| std::str::from_utf8(key).ok()) {
            key.see(*records, Type::Text, Some(text.into()), limits);
        }
        for header in view.headers() {
            let value = header.value.and_then(|value| std::str::from_utf8(value).ok());
            let Some(value) = value else { continue };
            if let Some(node) = headers.member(header.key, limits) {
                node.see(*records, Type::Text, Some(value.into()), limits);
            }
        }
        if view.value.is_some_and(|payload| look(payload, *records, root, limits)) {
            self.objects += 1;
        }
    }

    /// What is told about it.
    pub(super) fn schema(self, stream: String) -> Schema {
        let Self { limits, records, objects, root, key, headers } = self;
        let mut fields = Vec::new();
        let share = |node: &Node| node.present as f64 / records.max(1) as f64;
        let mut tell = |field: Field, node: Node| {
            let present = share(&node);
            let types = node.types.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
            fields.push(SchemaField {
                path: field.to_string(),
                types,
                present,
                examples: node.examples,
                field: Some(field),
            });
        };
        if key.present > 0 {
            tell(Field::Key, key);
        }
        for (name, header) in headers.members {
            tell(Field::Header(name), header);
        }
        root.tell_parts(&mut Vec::new(), &mut tell);
        Schema { stream, records, objects, cut: limits.reached, fields }
    }
}

impl Node {
    /// Sees it in a record, with an example unless it is a container or NULL; false if the record had it already.
    pub(super) fn see(&mut self, record: u64, kind: Type, example: Option<Value>, limits: &Limits) -> bool {
        if std::mem::replace(&mut self.record, record) == record {
            return false;
        }
        *self.types.entry(kind.as_str()).or_default() += 1;
        self.present += u64::from(kind != Type::Null);
        if let Some(example) = example.filter(|_| self.examples.len() < EXAMPLES_MAX) {
            let example = limits.cut(example);
            if !self.examples.contains(&example) {
                self.examples.push(example);
            }
        }
        true
    }

    /// The part called `name`, made if there is room for it.
    pub(super) fn member(&mut self, name: &str, limits: &mut Limits) -> Option<&mut Self> {
        let position = match self.by_name.get(name) {
            Some(position) => *position,
            None => {
                limits.take_field()?;
                self.by_name.insert(name.to_owned(), self.members.len());
                self.members.push((name.to_owned(), Self::default()));
                self.members.len() - 1
            }
        };
        Some(&mut self.members[position].1)
    }

    /// The first element of the list that it is.
    pub(super) fn first(&mut self, limits: &mut Limits) -> Option<&mut Self> {
        if self.first.is_none() {
            limits.take_field()?;
            self.first = Some(Box::default());
        }
        self.first.as_deref_mut()
    }

    /// Tells its parts, each followed by its own.
    fn tell_parts(mut self, steps: &mut Vec<Step>, tell: &mut impl FnMut(Field, Self)) {
        let members = std::mem::take(&mut self.members).into_iter();
        let members = members.map(|(name, node)| (Step::Key(name), node));
        let first = self.first.take().map(|node| (Step::Index(0), *node));
        for (step, mut node) in members.chain(first) {
            steps.push(step);
            let parts =
                Self { members: std::mem::take(&mut node.members), first: node.first.take(), ..Self::default() };
            // A name for which there was room, but whose value was not looked at, has been seen nowhere.
            if !node.types.is_empty() {
                tell(Field::Payload(steps.clone()), node);
            }
            parts.tell_parts(steps, tell);
            steps.pop();
        }
    }
}

impl Limits {
    fn take_field(&mut self) -> Option<()> {
        self.reached |= self.fields_left == 0;
        self.fields_left = self.fields_left.checked_sub(1)?;
        Some(())
    }

    /// An example, not longer than allowed.
    fn cut(&self, example: Value) -> Value {
        match example {
            Value::String(text) if text.len() > self.example_max_bytes => {
                let mut end = self.example_max_bytes;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                Value::String(format!("{}…", &text[..end]))
            }
            other => other,
        }
    }
}
