//! The types of nodes that a document may name, each with the keys of its `config`.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_types::AllowedTargets;
use serde_json::Value;

use super::earlier::EarlierJobs;
use super::model::Role;
use super::topic::TopicAccess;

/// A connector or operator that a node's `type` may name. Each connector declares one as a constant beside its code.
#[derive(Debug, Clone, Copy)]
pub struct NodeType {
    /// The name that a document writes in `type`.
    pub name: &'static str,
    /// The map of the document in which it may stand.
    pub role: Role,
    /// One sentence for `millstream job connectors` and the reference page.
    pub summary: &'static str,
    /// The keys that the node's `config` may have.
    pub keys: &'static [Key],
    /// A source that can end, so that it may stand in a job of mode `batch`.
    pub can_end: bool,
    /// A transform that keeps a value for each key; it needs `key_by`.
    pub keeps_state: bool,
}

/// A key of a document: of a node's `config`, or of one of the document's own [sections](super::Section).
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// The form of its value.
    pub value: KeyType,
    /// The object must have it.
    pub is_required: bool,
    /// The default as it is written in a document; `None` if there is none.
    pub default: Option<&'static str>,
    /// One sentence: effect, unit, limits.
    pub doc: &'static str,
}

/// The form of a key's value.
#[derive(Debug, Clone, Copy)]
pub enum KeyType {
    /// A text without a rule of its own.
    Text,
    /// A whole number within these bounds, both included.
    Whole(u64, u64),
    /// `true` or `false`.
    Bool,
    /// A duration such as `"10s"`, `"5ms"`, `"2h"`.
    Duration,
    /// A duration that may have `-` in front.
    SignedDuration,
    /// A duration, or an object with the keys of this section.
    DurationOr(&'static Section),
    /// A size such as `"16MiB"`.
    Size,
    /// A text that is one of these words.
    OneOf(&'static [&'static str]),
    /// A list whose elements are texts.
    Texts,
    /// The name of a topic; a writer's topic must be one that applications may write.
    Topic,
    /// An `http://` or `https://` address with a host.
    Url,
    /// A text with `{field}` in it, filled from the record.
    Template,
    /// The connector checks the value with this function, which returns the fault in words.
    Checked(fn(&Value) -> Result<(), String>),
    /// A value without a rule of its own.
    Any,
    /// A name: 1 to 64 of the characters `a-z A-Z 0-9 _ - .`, the first one a letter or `_`.
    Name,
    /// A name, or a list of names.
    Names,
    /// One of the first words; the others are known, and not available in this version.
    OneOfSoFar(&'static [&'static str], &'static [&'static str]),
    /// A duration, or a whole number of records above 0.
    Extent,
    /// As [`KeyType::Extent`], or a length in the calendar such as `1w`, `1mo`, `1y`.
    WindowSize,
    /// A duration, or two of them joined by `..`: the first and the longest wait.
    DurationRange,
    /// A condition over one record. It is parsed where the document's own keys have it.
    Condition,
    /// A list of values with names, parsed likewise.
    SelectList,
    /// A list of aggregates with names, parsed likewise: a text, or a list of objects with an operation each.
    Aggregates,
    /// An expression, parsed likewise, also in a `config`.
    Expression,
    /// An expression, or a list of them, parsed likewise.
    Expressions,
    /// An expression or a list of them, for all inputs of the node or, in an object, for each by its name.
    ExpressionsByInput,
    /// An object whose values are texts.
    Labels,
    /// An object of any values, by parameter.
    Params,
    /// An object of [`KeyType::Params`], by node.
    ParamsByNode,
    /// An object of lists of records, by node.
    RecordsByNode,
    /// An object of lists of texts, by hook.
    TextsByName,
    /// A whole number from 1, or an object with `min` and `max`.
    Parallelism,
    /// The name or id of a job, or an object with more about it.
    ResumeFrom,
    /// A list of pairs `[from, to]`, or an object of lists by `from`.
    Edges,
    /// An object with the keys of the node's type.
    Config,
    /// An object with the keys of this section.
    Object(&'static Section),
    /// A list of such objects.
    ListOf(&'static Section),
    /// An object of such objects, by their names.
    MapOf(&'static Section),
    /// The key is known, and not available in this version; the remedy in words.
    NotAvailable(&'static str),
}

/// A kind of object in a document, with its keys.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// The name in JSON Schema, such as `route`.
    pub name: &'static str,
    /// The place in a document, such as `routes[]`.
    pub path: &'static str,
    /// One or two sentences for the reference page.
    pub doc: &'static str,
    /// The keys, in groups that sections share.
    pub keys: &'static [&'static [Key]],
}

impl Section {
    /// All keys, in the order of the reference page.
    pub fn all(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.keys.iter().flat_map(|group| group.iter())
    }
}

/// All node types of this program.
pub type Catalogue = Vec<NodeType>;

/// The knowledge of the surrounding process that reading a document needs.
#[derive(Debug, Clone, Default)]
pub struct DocumentContext {
    /// The node types that a document may name.
    pub catalogue: Catalogue,
    /// The names of the registered functions.
    pub functions: Vec<&'static str>,
    /// The names of the registered hooks.
    pub hooks: Vec<&'static str>,
    /// `flow.params` of the process: parameters by node name, stronger than those of the document.
    pub params: BTreeMap<String, BTreeMap<String, Value>>,
    /// `flow.bundles`: the texts of bundles by name, for `use:`.
    pub bundles: BTreeMap<String, String>,
    /// The caller's access to topics; `None` leaves it unchecked.
    pub topics: Option<TopicAccess>,
    /// `flow.http_allowed_targets`: the hosts of URLs; `None` leaves them unchecked.
    pub targets: Option<Arc<AllowedTargets>>,
    /// The jobs that a document may go on from; `None` leaves `resume_from` unchecked.
    pub earlier: Option<Arc<dyn EarlierJobs>>,
}
