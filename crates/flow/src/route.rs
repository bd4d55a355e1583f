//! Routes: which successors of a node get which of its records.
//!
//! A node without routes sends every record to every successor. With routes, the destinations of all that match are
//! united; a record that none matches goes nowhere and is counted. Error routes are a class of their own, and a
//! successor that they name gets no other records of this node.

use std::collections::HashMap;

use crate::Error;
use crate::batch::Batch;
use crate::document::{Action, Document, Node, NodeId, Role, Route, RouteTarget};
use crate::expression::{Condition, FieldScope, Fields, Params, RecordError, RecordProjection, RowFrame};
use crate::object;
use crate::operator::Output;

/// Bytes of an input in a dead letter, as JSON; a larger one is cut, so that the letter fits into a record.
const INPUT_MAX_BYTES: usize = 768 << 10;
/// Bytes of an input that is cut: as JSON they are six times as many at most.
const CUT_INPUT_BYTES: usize = 128 << 10;

/// The compiled routes of one node.
#[derive(Debug)]
pub(crate) struct Router {
    node: String,
    /// Successors of records that no route chooses.
    defaults: Vec<NodeId>,
    routes: Vec<CompiledRoute>,
    error_routes: Vec<CompiledRoute>,
    /// The node that gets late records.
    late_to: Option<NodeId>,
}

#[derive(Debug)]
struct CompiledRoute {
    targets: Vec<NodeId>,
    when: Option<Condition>,
    stop: bool,
    drop_fields: Vec<String>,
    select: Option<RecordProjection>,
    predicate_errors_to: Option<NodeId>,
    /// Reads the source record again, this many times at most.
    retry_max: Option<u32>,
}

/// The destinations of one batch's outputs and errors.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    pub(crate) sends: Vec<(NodeId, Batch)>,
    /// Records that no route took.
    pub(crate) unrouted: u64,
    /// Errors that no error route took.
    pub(crate) unhandled: Vec<RecordError>,
    /// Rows of the node's input whose source records are read again.
    pub(crate) retried: Vec<RecordError>,
}

impl Router {
    /// # Errors
    /// [`Error::Plan`] for what the document's checks should have found.
    pub(crate) fn compile(document: &Document, node: NodeId) -> Result<Self, Error> {
        let Node { name, params, .. } = &document.nodes[node.0];
        let ids = (0..document.nodes.len()).map(NodeId);
        let successors: Vec<NodeId> =
            ids.filter(|successor| document.nodes[successor.0].inputs.contains(&node)).collect();
        // A sink sends on errors alone, and a route of all nodes names no successor of it.
        let is_sink = document.nodes[node.0].role == Role::Sink;
        let of_sink = |route: &Route| route.on_error && (route.from.is_some() || route.to == RouteTarget::None);
        let of_node = document.routes.iter().filter(|route| route.from.is_none_or(|from| from == node));
        let of_node = of_node.filter(|route| !is_sink || of_sink(route));
        let (errors, plain): (Vec<&Route>, Vec<&Route>) = of_node.partition(|route| route.on_error);
        let late_to = document.nodes[node.0].window.as_ref().and_then(|window| window.late_to);
        // Successors that get no results of the node.
        let mut apart: Vec<NodeId> = late_to.into_iter().collect();
        for route in &errors {
            if let RouteTarget::Nodes(targets) = &route.to {
                apart.extend(targets);
            }
        }
        let defaults: Vec<NodeId> = successors.iter().copied().filter(|successor| !apart.contains(successor)).collect();
        let compile = |route: &&Route| CompiledRoute::compile(route, name, params, &successors, &defaults);
        Ok(Self {
            node: name.clone(),
            routes: plain.iter().map(compile).collect::<Result<_, _>>()?,
            error_routes: errors.iter().map(compile).collect::<Result<_, _>>()?,
            defaults,
            late_to,
        })
    }

    /// The fields of the routes' expressions.
    pub(crate) fn fields_mut(&mut self) -> impl Iterator<Item = &mut Fields> {
        self.routes.iter_mut().chain(&mut self.error_routes).flat_map(|route| {
            let when = route.when.as_mut().map(Condition::fields_mut);
            when.into_iter().chain(route.select.as_mut().map(RecordProjection::fields_mut))
        })
    }

    /// `true` if there are routes for errors.
    pub(crate) fn takes_errors(&self) -> bool {
        !self.error_routes.is_empty()
    }

    /// All nodes that may get records from this one.
    pub(crate) fn targets(&self) -> Vec<NodeId> {
        let routes = self.routes.iter().chain(&self.error_routes);
        let named = routes.flat_map(|route| route.targets.iter().copied().chain(route.predicate_errors_to));
        let mut targets: Vec<NodeId> = self.defaults.iter().copied().chain(named).chain(self.late_to).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// The nodes that get records on which the node failed.
    pub(crate) fn error_targets(&self) -> impl Iterator<Item = NodeId> {
        self.error_routes.iter().flat_map(|route| route.targets.iter().copied())
    }

    /// Chooses the destinations of a node's output.
    pub(crate) fn route(&self, input: &Batch, output: Output, now_ms: i64) -> Routed {
        let mut routed = Routed::default();
        let mut failed = output.failed;
        if let Some(late_to) = self.late_to.filter(|_| !output.late.is_empty()) {
            routed.sends.push((late_to, input.select(output.late.iter().copied())));
        }
        if self.routes.is_empty() {
            if !output.batch.is_empty() {
                routed.sends.extend(self.defaults.iter().map(|target| (*target, output.batch.clone())));
            }
        } else if !output.batch.is_empty() {
            let inputs = output.inputs.unwrap_or_else(|| (0..output.batch.len() as u32).collect());
            let frame = RowFrame { batch: &output.batch, input: Some((input, &inputs)), errors: None, now_ms };
            self.choose(frame, &inputs, &mut routed, &mut failed);
        }
        if !failed.is_empty() {
            self.route_errors(input, failed, now_ms, &mut routed);
        }
        routed
    }

    fn choose(&self, frame: RowFrame<'_>, inputs: &[u32], routed: &mut Routed, failed: &mut Vec<RecordError>) {
        let count = frame.batch.len();
        let mut rows = vec![RowChoice::default(); count];
        let mut chosen: HashMap<NodeId, Vec<bool>> = HashMap::new();
        let mut drops = DropSets::default();
        for (number, route) in self.routes.iter().enumerate() {
            let mut matches = vec![false; count];
            match &route.when {
                None => matches.fill(true),
                Some(condition) => condition.each(frame, |row, truth| match truth {
                    Ok(truth) => matches[row] = truth,
                    Err(_) if rows[row].is_decided => {}
                    Err(failure) => {
                        rows[row].is_decided = true;
                        let error = failure.of_row(row as u32, condition.text());
                        match route.predicate_errors_to {
                            Some(target) => routed.sends.push((target, self.undecided(frame, &error))),
                            None => failed.push(RecordError { row: inputs[row], ..error }),
                        }
                        rows[row].is_taken = true;
                    }
                }),
            }
            for (row, choice) in rows.iter_mut().enumerate() {
                if !matches[row] || choice.is_decided {
                    continue;
                }
                choice.is_taken = true;
                choice.is_decided = route.stop;
                if !route.drop_fields.is_empty() {
                    choice.drop_set = drops.with(choice.drop_set, number, &route.drop_fields);
                }
                for target in &route.targets {
                    chosen.entry(*target).or_insert_with(|| vec![false; count])[row] = true;
                }
            }
        }
        self.check_drops(frame, inputs, &mut rows, failed);
        routed.unrouted += rows.iter().filter(|choice| !choice.is_taken).count() as u64;
        for target in self.targets() {
            if let Some(marks) = chosen.get(&target) {
                routed.sends.push((target, drops.apply(frame.batch, marks, &rows)));
            }
        }
    }

    /// Fails the rows that lose fields and have no JSON object to lose them from.
    fn check_drops(&self, frame: RowFrame<'_>, inputs: &[u32], rows: &mut [RowChoice], failed: &mut Vec<RecordError>) {
        if frame.batch.has_objects() {
            return;
        }
        for (row, choice) in rows.iter_mut().enumerate().filter(|(_, choice)| choice.drop_set != 0) {
            if frame.batch.payload(row).is_some_and(|payload| !object::is_object(payload)) {
                choice.has_failed = true;
                let message = "the payload is not a JSON object; 'drop_fields' needs one".to_owned();
                failed.push(RecordError { row: inputs[row], code: "invalid_json", message });
            }
        }
    }

    /// The record that says that a route's condition failed.
    fn undecided(&self, frame: RowFrame<'_>, error: &RecordError) -> Batch {
        let row = error.row as usize;
        let mut writer = frame.batch.rewrite();
        let input = frame.input.and_then(|(input, rows)| input.payload(rows[row] as usize));
        let Ok(()) = writer.push(row, |out| {
            self.write_error(error, input, out);
            object::begin_member("output", out);
            write_payload(frame.batch.payload(row), out);
            out.push(b'}');
            Ok::<(), std::convert::Infallible>(())
        });
        writer.finish()
    }

    fn route_errors(&self, input: &Batch, mut failed: Vec<RecordError>, now_ms: i64, routed: &mut Routed) {
        failed.sort_by_key(|error| error.row);
        failed.dedup_by_key(|error| error.row);
        for route in &self.error_routes {
            if failed.is_empty() {
                return;
            }
            // After its last attempt a record takes the routes behind.
            if route.retry_max.is_some_and(|max| input.attempts() >= max) {
                continue;
            }
            let rows: Vec<u32> = failed.iter().map(|error| error.row).collect();
            let batch = input.select(rows.iter().copied());
            let frame =
                RowFrame { batch: &batch, input: Some((input, &rows)), errors: Some((&self.node, &failed)), now_ms };
            let mut matches = vec![true; rows.len()];
            if let Some(condition) = &route.when {
                // A condition that fails on a failed record does not match.
                condition.each(frame, |row, truth| matches[row] = truth == Ok(true));
            }
            let taken: Vec<u32> = (0..rows.len() as u32).filter(|row| matches[*row as usize]).collect();
            if taken.is_empty() {
                continue;
            }
            if !route.targets.is_empty() {
                let shaped = self.shape(route, frame).select(taken.iter().copied());
                routed.sends.extend(route.targets.iter().map(|target| (*target, shaped.clone())));
            }
            let mut number = 0;
            let taken: Vec<RecordError> = failed
                .extract_if(.., |_| {
                    number += 1;
                    matches[number - 1]
                })
                .collect();
            if route.retry_max.is_some() {
                routed.retried.extend(taken);
            }
        }
        routed.unhandled.extend(failed);
    }

    /// A row for each failed record, in the form that the route asks for.
    fn shape(&self, route: &CompiledRoute, frame: RowFrame<'_>) -> Batch {
        let mut writer = frame.batch.rewrite();
        let errors = frame.errors.map_or(&[][..], |(_, errors)| errors);
        if let Some(select) = &route.select {
            let mut has_failed = false;
            let shaped = select.apply(frame, |_| {}, |_, _| has_failed = true);
            if !has_failed {
                return shaped;
            }
        }
        for (row, error) in errors.iter().enumerate() {
            let Ok(()) = writer.push(row, |out| {
                self.write_error(error, frame.batch.payload(row), out);
                out.push(b'}');
                Ok::<(), std::convert::Infallible>(())
            });
        }
        writer.finish()
    }

    /// Writes `{"error": {…}, "input": "…"` without the closing brace.
    fn write_error(&self, error: &RecordError, input: Option<&[u8]>, out: &mut Vec<u8>) {
        out.push(b'{');
        object::begin_member("error", out);
        out.push(b'{');
        for (name, text) in [("code", error.code), ("message", &error.message), ("node", &self.node)] {
            object::begin_member(name, out);
            object::write_text(out, text);
        }
        out.push(b'}');
        object::begin_member("input", out);
        let start = out.len();
        write_payload(input, out);
        if let Some(payload) = input.filter(|_| out.len() - start > INPUT_MAX_BYTES) {
            out.truncate(start);
            write_payload(Some(&payload[..payload.len().min(CUT_INPUT_BYTES)]), out);
            object::begin_member("input_cut_from_bytes", out);
            object::write_number(payload.len() as i64, out);
        }
    }
}

fn write_payload(payload: Option<&[u8]>, out: &mut Vec<u8>) {
    match payload {
        Some(payload) => object::write_text(out, &String::from_utf8_lossy(payload)),
        None => out.extend_from_slice(b"null"),
    }
}

impl CompiledRoute {
    fn compile(
        route: &Route,
        node: &str,
        params: &Params,
        successors: &[NodeId],
        defaults: &[NodeId],
    ) -> Result<Self, Error> {
        let refuse = |key: &str, message: String| Error::plan(node, key, message);
        let when = route.when.as_deref().map(|text| Condition::parse(text, FieldScope::Route, params));
        let select = route.select.as_deref().map(|text| RecordProjection::parse(text, FieldScope::Route, params));
        let targets = match &route.to {
            RouteTarget::None => Vec::new(),
            RouteTarget::All if route.on_error => successors.to_vec(),
            RouteTarget::All => defaults.to_vec(),
            RouteTarget::Nodes(nodes) => nodes.clone(),
        };
        Ok(Self {
            targets,
            when: when.transpose().map_err(|message| refuse("routes.when", message))?,
            stop: route.stop,
            drop_fields: route.drop_fields.clone(),
            select: select.transpose().map_err(|message| refuse("routes.select", message))?,
            predicate_errors_to: route.predicate_errors_to,
            retry_max: match route.action {
                Some(Action::Retry { max_attempts }) => Some(max_attempts),
                _ => None,
            },
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct RowChoice {
    /// Further routes do not count.
    is_decided: bool,
    is_taken: bool,
    /// It goes nowhere but to the error routes.
    has_failed: bool,
    /// Number of the set in [`DropSets`].
    drop_set: usize,
}

/// The sets of fields that rows lose, each once; set 0 is empty.
struct DropSets {
    sets: Vec<Vec<String>>,
    /// The set that a set becomes by a route.
    unions: HashMap<(usize, usize), usize>,
}

impl Default for DropSets {
    fn default() -> Self {
        Self { sets: vec![Vec::new()], unions: HashMap::new() }
    }
}

impl DropSets {
    fn with(&mut self, set: usize, route: usize, fields: &[String]) -> usize {
        *self.unions.entry((set, route)).or_insert_with(|| {
            let union = self.sets[set].iter().chain(fields).cloned().collect();
            self.sets.push(union);
            self.sets.len() - 1
        })
    }

    /// The marked rows, without the fields that they lose.
    fn apply(&self, batch: &Batch, marks: &[bool], rows: &[RowChoice]) -> Batch {
        let marked = || (0..marks.len()).filter(|row| marks[*row] && !rows[*row].has_failed);
        if marked().all(|row| rows[row].drop_set == 0) {
            return match marked().count() == marks.len() {
                true => batch.clone(),
                false => batch.select(marked().map(|row| row as u32)),
            };
        }
        let mut writer = batch.rewrite();
        for row in marked() {
            let Some(payload) = batch.payload(row) else {
                writer.push_null(row);
                continue;
            };
            let lost = &self.sets[rows[row].drop_set];
            let Ok(()) = writer.push(row, |out| {
                match lost.is_empty() {
                    true => out.extend_from_slice(payload),
                    false => {
                        let lost: Vec<&str> = lost.iter().map(String::as_str).collect();
                        object::write_without(payload, &lost, out);
                    }
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        writer.finish()
    }
}
