//! Another parallelism for nodes of a running job, in place of that of its document.

use std::collections::BTreeMap;

use millstream_columns::nearest;
use serde_json::Value;

use super::record::{JobRecord, NodeParallelism};
use crate::Error;
use crate::document::NODE_MAPS;

/// The change of a job's parallelism. A value is one that `parallelism` has in documents, or null for that of the document again.
#[derive(Debug, Clone, PartialEq)]
pub enum ParallelismChange {
    /// The same value for every node with a parallelism of its own.
    All(Value),
    /// The values of nodes, by name.
    Nodes(BTreeMap<String, Value>),
}

impl ParallelismChange {
    /// The parallelism of a job's nodes after the change.
    ///
    /// # Errors
    /// [`Error::NoNode`]; [`Error::NoParallelism`].
    pub(super) fn apply(&self, record: &JobRecord) -> Result<NodeParallelism, Error> {
        let of_map = |(map, _)| record.document[map].as_object().into_iter().flatten();
        let nodes: Vec<(&String, &Value)> = NODE_MAPS.into_iter().flat_map(of_map).collect();
        let changes: Vec<(&str, &Value)> = match self {
            Self::All(value) => {
                let has_own = |(name, node): &&(&String, &Value)| {
                    node.get("parallelism").is_some() || record.parallelism.contains_key(*name)
                };
                nodes.iter().filter(has_own).map(|(name, _)| (name.as_str(), value)).collect()
            }
            Self::Nodes(values) => values.iter().map(|(name, value)| (name.as_str(), value)).collect(),
        };
        if changes.is_empty() && matches!(self, Self::All(_)) {
            let example = nodes.first().map(|(name, _)| (*name).clone()).unwrap_or_default();
            return Err(Error::NoParallelism { id: record.id.clone(), example });
        }
        let mut parallelism = record.parallelism.clone();
        for (name, value) in changes {
            if !nodes.iter().any(|(known, _)| *known == name) {
                let names: Vec<String> = nodes.iter().map(|(known, _)| (*known).clone()).collect();
                let nearest = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
                return Err(Error::NoNode { id: record.id.clone(), node: name.to_owned(), nearest, nodes: names });
            }
            match value {
                Value::Null => drop(parallelism.remove(name)),
                value => drop(parallelism.insert(name.to_owned(), value.clone())),
            }
        }
        Ok(parallelism)
    }
}

impl JobRecord {
    /// The document with the parallelism that nodes have in place of that of the document.
    pub(super) fn document_to_run(&self) -> Value {
        let mut document = self.document.clone();
        for (map, _) in NODE_MAPS {
            for (name, node) in document.get_mut(map).and_then(Value::as_object_mut).into_iter().flatten() {
                if let (Some(node), Some(parallelism)) = (node.as_object_mut(), self.parallelism.get(name)) {
                    node.insert("parallelism".to_owned(), parallelism.clone());
                }
            }
        }
        document
    }
}
