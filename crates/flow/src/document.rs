//! The document of a job: one model of every key, from which reading, checks, JSON Schema and the reference page come.
//!
//! [`Document::read`] takes a text and returns either a checked document or all findings at once. It reads the text into a
//! tree with places, merges the bundles, checks keys and values against the model, checks the rules about the whole, and then
//! makes the typed document. Its work is bounded by the length of the text.

mod aggregates;
mod assemble;
mod bundle;
mod canonical;
mod catalogue;
mod check;
mod draft;
mod earlier;
mod expressions;
mod file_form;
mod finding;
mod json_schema;
mod keys;
mod model;
mod names;
mod quantity;
mod reader;
mod reference;
mod rules;
mod scalar;
mod settings;
mod surrogates;
mod topic;
mod tree;
mod value;
mod windows;

pub use catalogue::{Catalogue, DocumentContext, Key, KeyType, NodeType, Section};
pub(crate) use earlier::NodeForm;
pub use earlier::{EarlierJob, EarlierJobs, NoEarlierJob};
pub(crate) use file_form::{Compression, FILE_FORMATS, FileFormat, file_form};
pub use finding::Finding;
pub use json_schema::json_schema;
pub use model::{
    Action, BatchSettings, Checkpoint, Delivery, Document, ErrorAnswer, EventTime, Exchange, Hook, HookPoint,
    JoinInput, JoinSetting, Mode, Node, NodeId, Parallelism, RestartPolicy, ResumeFrom, Role, Route, RouteTarget,
    Scheduler, TestCase, TriggerMode, TriggerOn, TriggerSetting, WindowKind, WindowSetting,
};
pub(crate) use model::{INSTANCES_MAX, JoinSide, NODE_MAPS, gives_by_time_alone};
pub use quantity::{duration_ms, size_bytes};
pub use reference::{node_type_page, reference_page};
pub use topic::TopicAccess;
pub(crate) use topic::topic_named;

impl Document {
    /// Reads and checks a document in YAML 1.2 or JSON.
    ///
    /// # Errors
    /// All findings, in the order of the text; at most 200.
    pub fn read(text: &str, context: &DocumentContext) -> Result<Self, Vec<Finding>> {
        let mut findings = finding::Findings::default();
        let Some(mut tree) = reader::read(text, 0, &mut findings) else { return Err(findings.into_sorted()) };
        check::Checker { context, findings: &mut findings }.section(&tree, "", &keys::JOB);
        if bundle::merge(&mut tree, context, &mut findings) {
            let draft = draft::DocumentDraft::new(&tree, context);
            rules::check(&draft, &mut findings);
            if findings.is_empty() {
                return Ok(assemble::assemble(&draft));
            }
        }
        Err(findings.into_sorted())
    }
}

/// The types of nodes with this role.
fn node_types(context: &DocumentContext, role: Role) -> impl Iterator<Item = &NodeType> {
    context.catalogue.iter().filter(move |kind| kind.role == role)
}
