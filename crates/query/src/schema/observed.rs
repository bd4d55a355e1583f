//! The sample of a stream's records, from which its schema is made.

use millstream_types::RecordView;

use super::field::{Schema, SchemaField};
use super::look::look;
use super::node::{FieldNode, SchemaBudget};
use crate::{Field, SchemaConfig, Type};

/// The sampled records of a stream.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) limits: SchemaBudget,
    records: u64,
    objects: u64,
    root: FieldNode,
    key: FieldNode,
    headers: FieldNode,
}

impl Observed {
    pub(super) fn new(config: &SchemaConfig) -> Self {
        let limits = SchemaBudget {
            fields_left: config.fields_max,
            depth_max: config.depth_max,
            example_max_bytes: config.example_max_bytes,
            reached: false,
        };
        let (root, key, headers) = (FieldNode::default(), FieldNode::default(), FieldNode::default());
        Self { limits, records: 0, objects: 0, root, key, headers }
    }

    /// Adds a record to the sample.
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

    /// The schema of the sampled records.
    pub(super) fn schema(self, stream: String) -> Schema {
        let Self { limits, records, objects, root, key, headers } = self;
        let mut fields = Vec::new();
        let share = |node: &FieldNode| node.present as f64 / records.max(1) as f64;
        let mut tell = |field: Field, node: FieldNode| {
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
