//! Hooks: code that is called at points of an instance's life.
//!
//! A hook sees the node, its own parameters and, between batches, the batch. It must not block. Every hook that this
//! program registers writes to the [`Trace`] of its job or answers; none keeps state.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;

use crate::batch::Batch;
use crate::document::{ErrorAnswer, HookPoint};
use crate::expression::Params;
use crate::template::Template;

/// Lines of one hook that a job keeps.
const LINES_MAX: usize = 10_000;

/// The surroundings of one call.
#[derive(Debug)]
pub struct HookCall<'a> {
    /// The point at which the hook is called.
    pub point: HookPoint,
    /// The name of the node.
    pub node: &'a str,
    /// The parameters of the hook in the document.
    pub params: &'a Params,
    /// The batch, between `before_batch` and `after_batch`.
    pub batch: Option<HookBatch<'a>>,
    /// The message of the error, at the point `error` only.
    pub error: Option<&'a str>,
}

/// A batch as a hook sees it.
#[derive(Debug, Clone, Copy)]
pub struct HookBatch<'a> {
    /// The records that entered the node.
    pub input: &'a Batch,
    /// The records that the node made, from `after_fn` on.
    pub output: Option<&'a Batch>,
    /// The rows of `input` that passed `where`; `None` if all did.
    pub accepted: Option<&'a [u32]>,
}

/// The answer of a hook.
#[derive(Debug, Clone, PartialEq)]
pub enum HookAnswer {
    /// The instance goes on with its batch.
    Done,
    /// For `ready?`: ask again later.
    NotReady,
    /// For `start`: parameters of the node's function.
    Params(Params),
    /// For `error`: the treatment of the failed instance.
    Error(ErrorAnswer),
}

/// A hook that documents may name.
#[derive(Debug, Clone, Copy)]
pub struct NativeHook {
    /// The name in `call`, such as `params.set`.
    pub name: &'static str,
    /// One sentence for the reference page.
    pub doc: &'static str,
    /// The code; it may add lines to the trace.
    pub call: fn(&HookCall<'_>, &mut Vec<String>) -> HookAnswer,
}

/// The hooks of this program.
#[derive(Debug, Clone)]
pub struct Hooks(Vec<NativeHook>);

impl Default for Hooks {
    fn default() -> Self {
        let hook = |name, doc, call| NativeHook { name, doc, call };
        Self(vec![
            hook("params.set", "On `start`: gives its own parameters to the node's function.", set_params),
            hook("trace.point", "Writes the point at which it is called to the job's trace.", trace_point),
            hook("trace.accepted", "On `after_fn`: writes `field` of each record that passed `where`.", trace_accepted),
            hook(
                "trace.rejected",
                "On `after_fn`: writes `field` of each record that `where` dropped.",
                trace_rejected,
            ),
            hook("trace.emitted", "On `after_fn`: writes `field` of each record that the node made.", trace_emitted),
        ])
    }
}

impl Hooks {
    /// Adds a hook; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, hook: NativeHook) -> Self {
        self.0.retain(|known| known.name != hook.name);
        self.0.push(hook);
        self
    }

    /// The hooks in the order of their names.
    pub fn all(&self) -> &[NativeHook] {
        &self.0
    }

    /// The hook of that name.
    pub fn get(&self, name: &str) -> Option<NativeHook> {
        self.0.iter().find(|hook| hook.name == name).copied()
    }
}

/// The lines that the hooks of a job have written, by hook.
#[derive(Debug, Default)]
pub(crate) struct Trace(Mutex<BTreeMap<String, Vec<String>>>);

impl Trace {
    pub(crate) fn add(&self, hook: &str, lines: Vec<String>) {
        if lines.is_empty() {
            return;
        }
        let mut trace = self.0.lock();
        let kept = trace.entry(hook.to_owned()).or_default();
        let room = LINES_MAX.saturating_sub(kept.len());
        kept.extend(lines.into_iter().take(room));
    }

    /// The lines of a hook, in order.
    pub(crate) fn lines(&self, hook: &str) -> Vec<String> {
        self.0.lock().get(hook).cloned().unwrap_or_default()
    }
}

fn set_params(call: &HookCall<'_>, _: &mut Vec<String>) -> HookAnswer {
    HookAnswer::Params(call.params.clone())
}

fn trace_point(call: &HookCall<'_>, lines: &mut Vec<String>) -> HookAnswer {
    lines.push(point_name(call.point).to_owned());
    HookAnswer::Done
}

fn trace_accepted(call: &HookCall<'_>, lines: &mut Vec<String>) -> HookAnswer {
    if let Some(HookBatch { input, accepted, .. }) = call.batch {
        lines.extend((0..input.len()).filter(|row| is_accepted(accepted, *row)).map(|row| field(call, input, row)));
    }
    HookAnswer::Done
}

fn trace_rejected(call: &HookCall<'_>, lines: &mut Vec<String>) -> HookAnswer {
    if let Some(HookBatch { input, accepted, .. }) = call.batch {
        lines.extend((0..input.len()).filter(|row| !is_accepted(accepted, *row)).map(|row| field(call, input, row)));
    }
    HookAnswer::Done
}

fn trace_emitted(call: &HookCall<'_>, lines: &mut Vec<String>) -> HookAnswer {
    if let Some(output) = call.batch.and_then(|batch| batch.output) {
        lines.extend((0..output.len()).map(|row| field(call, output, row)));
    }
    HookAnswer::Done
}

fn is_accepted(accepted: Option<&[u32]>, row: usize) -> bool {
    accepted.is_none_or(|rows| rows.binary_search(&(row as u32)).is_ok())
}

/// The member of the record that the parameter `field` names.
fn field(call: &HookCall<'_>, batch: &Batch, row: usize) -> String {
    let name = call.params.get("field").and_then(Value::as_str).unwrap_or("n");
    Template::read(name).render(batch.payload(row).unwrap_or_default()).unwrap_or_else(|| "null".to_owned())
}

fn point_name(point: HookPoint) -> &'static str {
    match point {
        HookPoint::Ready => "ready?",
        HookPoint::Start => "start",
        HookPoint::BeforeBatch => "before_batch",
        HookPoint::AfterRead => "after_read",
        HookPoint::AfterFunction => "after_fn",
        HookPoint::AfterBatch => "after_batch",
        HookPoint::Stop => "stop",
        HookPoint::Error => "error",
    }
}
