//! The rules about a document as a whole: one function each, in one table.
//!
//! Rules about single keys and values (`unknown_key`, `type`, …) are checked before, against the model; they stand in
//! [`FORM_RULES`] for the reference page.

mod actions;
mod alarms;
mod fields;
mod files;
mod functions;
mod graph;
mod hooks;
mod job;
mod joins;
mod lookups;
mod nodes;
mod parameters;
mod resume;
mod routes;
mod state;
mod tests;
mod topics;
mod triggers;
mod windows;

pub(super) use self::joins::{is_join, join_bounds_ms, member_of};
pub(super) use self::resume::{earlier_job, node_map};
pub(super) use self::state::keeps_state;
use super::draft::DocumentDraft;
use super::finding::Findings;

/// A rule that a document must keep.
pub(super) struct DocumentRule {
    /// The code by which findings name the rule.
    pub(super) name: &'static str,
    /// The rule as a sentence.
    pub(super) doc: &'static str,
    check: fn(&DocumentDraft<'_>, &mut Findings, &'static str),
}

pub(super) fn check(draft: &DocumentDraft<'_>, findings: &mut Findings) {
    for rule in &RULES {
        (rule.check)(draft, findings, rule.name);
    }
}

const fn rule(
    name: &'static str,
    doc: &'static str,
    check: fn(&DocumentDraft<'_>, &mut Findings, &'static str),
) -> DocumentRule {
    DocumentRule { name, doc, check }
}

/// The rules of single keys and values, and of bundles.
pub(super) const FORM_RULES: [(&str, &str); 29] = [
    ("syntax", "The text is YAML 1.2 or JSON."),
    ("empty", "The text is not empty."),
    ("several_documents", "The text is one document."),
    ("text_size", "The text has at most 1 MiB and 200,000 values."),
    ("depth", "Lists and objects are nested at most 64 deep."),
    ("anchor", "There are no anchors and aliases."),
    ("tag", "There are no tags."),
    ("number_range", "Numbers are numbers of JSON with up to 64 bits."),
    ("duplicate_key", "An object has each key once."),
    ("type", "A value has the form that its key needs."),
    ("unknown_key", "Each key is one of the model."),
    ("misplaced_key", "A key stands where the model has it."),
    ("missing_key", "Required keys are there."),
    ("not_available", "Keys and words of later versions are refused."),
    ("range", "Numbers are within their bounds."),
    ("choice", "A word is one of those to choose from."),
    ("duration", "A duration is a whole number with ms, s, m, h or d."),
    ("size", "A size is a whole number with B, KiB, MiB or GiB."),
    ("name", "A name has 1 to 64 of the characters a-z A-Z 0-9 _ - . and begins with a letter or _."),
    ("parameter_name", "A parameter's name can be written as `:name`."),
    ("topic", "A topic's name is legal, and a sink's topic is one that applications may write."),
    ("url", "A URL begins with http:// or https:// and has a host."),
    ("template", "Braces in a template are closed and name a field."),
    ("config", "A connector takes the value."),
    ("record", "Records of tests are objects."),
    (
        "too_many",
        "A list or map of nodes, routes, hooks, tests or uses has at most 1,000 entries, `params` at most 256.",
    ),
    ("unknown_bundle", "A bundle is registered."),
    (
        "bundle_parameter",
        "A use gives the required parameters of a bundle, none that it does not have, and each in its form.",
    ),
    ("bundle_input", "A use gives inputs if its bundle has a node that takes `input`, and only then."),
];

/// The rules of the document as a whole, in the order in which they are checked.
pub(super) static RULES: [DocumentRule; 65] = [
    rule("id", "An id has 1 to 128 of the characters a-z A-Z 0-9 _ - . :", job::id),
    rule("no_source", "A job has a source.", job::no_source),
    rule("state_delivery", "A job that keeps state is not at_most_once.", state::state_delivery),
    rule("checkpoint_interval", "Epochs take some time.", state::checkpoint_interval),
    rule("resume_checkpoint", "A job goes on from the last epoch of an earlier one.", resume::resume_checkpoint),
    rule("resume_job", "The earlier job has ended and has state, or is replaced.", resume::resume_job),
    rule(
        "resume_map",
        "`map` of `resume_from` names nodes, and for each one of the same type of the earlier job.",
        resume::resume_map,
    ),
    rule(
        "resume_node",
        "Sources and nodes with state go on from those of the earlier job, unless `on_missing: initialize` lets them begin.",
        resume::resume_node,
    ),
    rule("duplicate_name", "A name stands for one node.", nodes::duplicate_name),
    rule("reserved_name", "`all` and `none` are no names.", nodes::reserved_name),
    rule("unknown_type", "A type is one of the catalogue, for nodes of that role.", nodes::unknown_type),
    rule("type_not_available", "Types of later versions are refused.", nodes::type_not_available),
    rule(
        "missing_expression",
        "A filter has `where`, a map `select`, a function `fn`, an operator with state other than `aggregate` has `key_by`.",
        nodes::missing_expression,
    ),
    rule(
        "alarm",
        "An alarm has `raise` or `absent_after`; what belongs to one of them stands beside it.",
        alarms::alarm,
    ),
    rule(
        "window",
        "An aggregate has `window` and `aggregates`; a window has the times that its type needs, and no others.",
        windows::window,
    ),
    rule(
        "aggregate_op",
        "An operation of `aggregates` has `field` if it needs one, and `q` if it is `quantile`.",
        windows::aggregate_op,
    ),
    rule(
        "trigger",
        "A trigger has the keys that its event needs, and no others; a window has at most 32, and one by `count` none.",
        triggers::trigger,
    ),
    rule("late_to", "`late_to` names a transform or sink, for windows that time closes.", windows::late_to),
    rule(
        "aggregate_of_many",
        "Values of a window are aggregates, or made of them and of the key.",
        windows::aggregate_of_many,
    ),
    rule(
        "join",
        "A join has two inputs, which `left` and `right` name, `on` a key of each, and `within` room for a record.",
        joins::join,
    ),
    rule("map_ttl", "The `ttl` of a map stands beside functions that look back.", state::map_ttl),
    rule(
        "lookup_table",
        "A lookup has one table: a topic or bucket with `key`, a file with `key` and `column`, or entities, which have their own `id`.",
        lookups::lookup_table,
    ),
    rule("batch_timeout", "The `timeout` of `batch` stands at sources only.", nodes::batch_timeout),
    rule("parallelism", "`min` is not above `max`.", nodes::parallelism),
    rule("instances", "The nodes of a job have at most 8,192 instances together.", nodes::instances),
    rule("cannot_end", "In a job of mode batch all sources can end.", nodes::cannot_end),
    rule(
        "topic_access",
        "A topic is one of the job's tenant, and the caller who submits the job may read or write it; and may read the buckets and entities of lookups.",
        topics::topic_access,
    ),
    rule("target", "The host of a URL is one of `flow.http_allowed_targets`, if there are any.", topics::target),
    rule("shared_group", "Two sources that read one topic have different groups.", topics::shared_group),
    rule(
        "file_form",
        "The name of a file, or `format`, tells its form; a sink of CSV names its columns, and no other sink does.",
        files::form,
    ),
    rule("one_writer", "A file has one sink, and that has one instance.", files::one_writer),
    rule("unknown_function", "A function is registered.", functions::unknown_function),
    rule(
        "function_value",
        "`math.add` and `math.multiply` have a parameter `value`, a whole number.",
        functions::function_value,
    ),
    rule("batch_fn", "`batch_fn` stands beside `fn`.", functions::batch_fn),
    rule("source_with_inputs", "A source has no inputs.", graph::source_with_inputs),
    rule(
        "sink_with_outputs",
        "A sink has no successors but those that its error routes name.",
        graph::sink_with_outputs,
    ),
    rule("unknown_input", "`inputs` and `edges` name nodes.", graph::unknown_input),
    rule("no_inputs", "Transforms and sinks have inputs.", graph::no_inputs),
    rule("dead_end", "Sources and transforms have successors.", graph::dead_end),
    rule("cycle", "The graph has no cycle.", graph::cycle),
    rule("route_node", "Routes name nodes.", routes::route_node),
    rule("route_target", "`to` is a list of nodes, or `all` or `none` alone.", routes::route_target),
    rule("route_edge", "A route follows an edge.", routes::route_edge),
    rule("route_from_sink", "A route of a sink is one for errors.", routes::route_from_sink),
    rule("route_stop", "Routes to `all` or `none` stop.", routes::route_stop),
    rule(
        "route_order",
        "In each class of a node's routes, `to: all` comes first, `to: none` next, then others that stop.",
        routes::route_order,
    ),
    rule("error_route_stop", "Error routes stop.", routes::error_route_stop),
    rule("error_target", "A target of error routes of a node takes nothing else from it.", routes::error_target),
    rule("route_select", "`select` stands on error routes only.", actions::route_select),
    rule(
        "predicate_errors_to",
        "`predicate_errors_to` stands beside `when`, and names a node that can take records.",
        actions::predicate_errors_to,
    ),
    rule("retry", "`action: retry` goes to none, and needs at_least_once and no state.", actions::retry),
    rule("action_target", "`drop` goes to none, `dead_letter` to a node.", actions::action_target),
    rule("max_attempts", "`max_attempts` stands beside `action: retry`.", actions::max_attempts),
    rule("expression", "An expression can be parsed, with the values of its parameters.", parameters::expression),
    rule("unknown_field", "Behind a select list without `*`, expressions name its fields only.", fields::unknown_field),
    rule("unknown_parameter", "A parameter in an expression is given.", parameters::unknown_parameter),
    rule("hook_task", "A hook names a node, or all.", hooks::hook_task),
    rule("unknown_hook", "A hook is registered.", hooks::unknown_hook),
    rule("hook_call", "A hook has `call`, or on `error` in its place `answer`.", hooks::hook_call),
    rule("test_name", "A test has a name of its own.", tests::test_name),
    rule("test_node", "Tests name nodes.", tests::test_node),
    rule("test_join", "Tests give records to the inputs of a join, and not to the join.", tests::test_join),
    rule("test_table", "Rows of tables in tests are those of lookups, and have the key.", tests::test_table),
    rule("test_empty", "A test expects something.", tests::test_empty),
    rule("test_trace", "`trace` names hooks of the document.", tests::test_trace),
];
