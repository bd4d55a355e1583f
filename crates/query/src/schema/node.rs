//! The tree of a payload's sampled fields.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::{Field, PathStep, Type};

/// Largest number of examples of a field.
const EXAMPLES_MAX: usize = 3;

/// The rest of the configured limits.
#[derive(Debug)]
pub(super) struct SchemaBudget {
    pub(super) fields_left: usize,
    pub(super) depth_max: usize,
    pub(super) example_max_bytes: usize,
    /// True if a limit was reached.
    pub(super) reached: bool,
}

/// A field and its parts.
#[derive(Debug, Default)]
pub(super) struct FieldNode {
    pub(super) types: BTreeMap<&'static str, u64>,
    pub(super) present: u64,
    pub(super) examples: Vec<Value>,
    /// The last record that had it: of members with one name the first counts.
    record: u64,
    pub(super) members: Vec<(String, FieldNode)>,
    by_name: HashMap<String, usize>,
    first: Option<Box<FieldNode>>,
}

impl FieldNode {
    /// Sees it in a record, with an example unless it is a container or NULL; false if the record had it already.
    pub(super) fn see(&mut self, record: u64, kind: Type, example: Option<Value>, limits: &SchemaBudget) -> bool {
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
    pub(super) fn member(&mut self, name: &str, limits: &mut SchemaBudget) -> Option<&mut Self> {
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
    pub(super) fn first(&mut self, limits: &mut SchemaBudget) -> Option<&mut Self> {
        if self.first.is_none() {
            limits.take_field()?;
            self.first = Some(Box::default());
        }
        self.first.as_deref_mut()
    }

    /// Tells its parts, each followed by its own.
    pub(super) fn tell_parts(mut self, steps: &mut Vec<PathStep>, tell: &mut impl FnMut(Field, Self)) {
        let members = std::mem::take(&mut self.members).into_iter();
        let members = members.map(|(name, node)| (PathStep::Key(name), node));
        let first = self.first.take().map(|node| (PathStep::Index(0), *node));
        for (step, mut node) in members.chain(first) {
            steps.push(step);
            let parts =
                Self { members: std::mem::take(&mut node.members), first: node.first.take(), ..Self::default() };
            // A field that was added, but whose value was not sampled, is left out.
            if !node.types.is_empty() {
                tell(Field::Payload(steps.clone()), node);
            }
            parts.tell_parts(steps, tell);
            steps.pop();
        }
    }
}

impl SchemaBudget {
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
