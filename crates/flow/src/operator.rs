//! The work of one node on a batch: `where`, then `fn`, `explode`, `lookup` or an operator with state, then `select`.

mod aggregate;
mod alarm;
mod deduplicate;
mod explode;
mod history;
mod join;
mod keyed;
mod lookup;

use std::sync::Arc;

use self::aggregate::{AGGREGATE, Aggregate};
pub(crate) use self::alarm::OpenAlarms;
use self::alarm::{ALARM, Alarm};
use self::deduplicate::{DEDUPLICATE, Deduplicate};
pub(crate) use self::explode::EXPLODE;
use self::explode::{Explode, ExplodedPart, InputRest};
use self::history::{History, MAP};
use self::join::{JOIN, Join};
use self::keyed::{KeyedInput, KeyedMade, KeyedOperator, KeyedOutput, KeyedRows};
pub(crate) use self::keyed::{KeyedNode, StoredValue, key_as_json};
pub(crate) use self::lookup::LOOKUP;
use self::lookup::Lookup;
use crate::Error;
use crate::batch::Batch;
use crate::document::{JoinSide, Node, NodeType, Role};
use crate::expression::{
    Condition, FieldScope, Fields, JoinedRows, KeyExpressions, Params, RecordError, RecordProjection, RowFrame,
};
use crate::function::{Functions, NativeFunction};
use crate::lookup::LookupTable;
use crate::state::StateMemory;

pub(crate) fn catalogue() -> [NodeType; 9] {
    let transform = |name, summary| NodeType {
        name,
        role: Role::Transform,
        summary,
        keys: &[],
        can_end: false,
        keeps_state: false,
    };
    [
        transform("filter", "Passes the records on which `where` is true."),
        MAP,
        transform("function", "Calls the registered function `fn` with each batch."),
        EXPLODE,
        LOOKUP,
        DEDUPLICATE,
        ALARM,
        AGGREGATE,
        JOIN,
    ]
}

/// The keyed operator of a node, without any state; `None` for a node that keeps none.
///
/// # Errors
/// [`Error::Plan`] for what the document's checks should have found.
pub(crate) fn keyed(node: &Node, memory: StateMemory, alarms: &Arc<OpenAlarms>) -> Result<Option<KeyedNode>, Error> {
    let operator: Box<dyn KeyedOperator> = match node.kind.as_str() {
        kind if kind == DEDUPLICATE.name => Box::new(Deduplicate::new(&node.config, memory)),
        kind if kind == ALARM.name => Box::new(Alarm::new(node, memory, Arc::clone(alarms))?),
        kind if kind == AGGREGATE.name => Box::new(Aggregate::new(node, memory)?),
        kind if kind == JOIN.name => Box::new(Join::new(node, memory)?),
        _ if looks_back(node) => Box::new(History::new(node, memory)?),
        _ => return Ok(None),
    };
    Ok(Some(KeyedNode { name: node.name.as_str().into(), operator }))
}

/// `true` for a node whose work depends on event time.
pub(crate) fn needs_time(node: &Node) -> bool {
    [DEDUPLICATE.name, ALARM.name, AGGREGATE.name, JOIN.name].contains(&node.kind.as_str()) || looks_back(node)
}

/// `true` for a map with functions that look back at the earlier records of a key.
fn looks_back(node: &Node) -> bool {
    node.kind == MAP.name && node.keeps_state
}

/// The compiled work of a node. It has no state, so that instances share it; that of a keyed operator is handed to it.
#[derive(Debug, Default)]
pub(crate) struct Operator {
    filter: Option<Condition>,
    function: Option<(NativeFunction, Params)>,
    explode: Option<Explode>,
    lookup: Option<Lookup>,
    select: Option<RecordProjection>,
}

/// The result of a node's work on one batch.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) batch: Batch,
    /// The input row of each row of `batch`; `None` if they are the same rows.
    pub(crate) inputs: Option<Vec<u32>>,
    pub(crate) failed: Vec<RecordError>,
    /// The input rows that passed `where`; `None` if there is no condition.
    pub(crate) accepted: Option<Vec<u32>>,
    /// The work that is left, if its result would be too large to be held at once.
    pub(crate) rest: Option<InputRest>,
    /// Input rows that came too late for all their windows.
    pub(crate) late: Vec<u32>,
}

impl Operator {
    /// # Errors
    /// [`Error::Plan`] for what the document's checks should have found.
    pub(crate) fn compile(node: &Node, functions: &Functions) -> Result<Self, Error> {
        let refuse = |key: &str, message: String| Error::plan(&node.name, key, message);
        let filter = node.filter.as_deref().map(|text| Condition::parse(text, FieldScope::Record, &node.params));
        let select = node.select.as_deref().map(|text| match looks_back(node) {
            true => RecordProjection::parse_keyed(text, &node.params),
            false => RecordProjection::parse(text, FieldScope::Record, &node.params),
        });
        let function = node.function.as_deref().map(|name| {
            let found = functions.get(name).map(|function| (function, node.params.clone()));
            found.ok_or_else(|| refuse("fn", format!("function '{name}' is not registered")))
        });
        let lookup = (node.kind == LOOKUP.name).then(|| Lookup::new(node));
        Ok(Self {
            filter: filter.transpose().map_err(|message| refuse("where", message))?,
            function: function.transpose()?,
            lookup: lookup.transpose().map_err(|message| refuse("config.key", message))?,
            explode: (node.kind == EXPLODE.name).then(|| Explode::new(&node.config)),
            select: select.transpose().map_err(|message| refuse("select", message))?,
        })
    }

    /// The fields of its expressions.
    pub(crate) fn fields_mut(&mut self) -> impl Iterator<Item = &mut Fields> {
        let filter = self.filter.as_mut().map(Condition::fields_mut);
        let lookup = self.lookup.as_mut().map(Lookup::fields_mut);
        filter.into_iter().chain(lookup).chain(self.select.as_mut().map(RecordProjection::fields_mut))
    }

    /// The table of a lookup, for the task that fills it.
    pub(crate) fn table(&self) -> Option<&Arc<LookupTable>> {
        self.lookup.as_ref().map(|lookup| &lookup.table)
    }

    /// Applies `select` to records that a keyed operator has made of time alone.
    pub(crate) fn select(&self, made: Batch, now_ms: i64) -> Output {
        let mut work = Output::of_time(made);
        if let Some(projection) = &self.select {
            work.project(projection, now_ms);
        }
        work
    }

    /// Works on a batch, whose first row has lost its first `skipped` elements to an earlier call. `started` are
    /// parameters for the function that a hook gave on start; `keyed` is the keyed operator of the instance, if the node has
    /// one, and its key.
    ///
    /// # Errors
    /// The keyed operator cannot go on, or the table of a lookup is not loaded.
    pub(crate) fn apply(
        &self,
        input: &Batch,
        skipped: usize,
        started: Option<&Params>,
        keyed: Option<(&KeyExpressions, &mut KeyedNode)>,
        now_ms: i64,
    ) -> Result<Output, Error> {
        let mut work = Output {
            batch: input.clone(),
            inputs: None,
            failed: Vec::new(),
            accepted: None,
            rest: None,
            late: Vec::new(),
        };
        if let Some(condition) = &self.filter {
            work.filter(condition, now_ms);
        }
        if let Some((function, params)) = &self.function
            && !work.batch.is_empty()
        {
            let output = function.apply(&work.batch, started.unwrap_or(params));
            work.replace(output.batch, output.inputs, output.failed);
        }
        if let Some(explode) = &self.explode {
            let begins_with_it = work.inputs.as_ref().is_none_or(|rows| rows.first() == Some(&0));
            let ExplodedPart { batch, inputs, failed, rest } =
                explode.apply(&work.batch, if begins_with_it { skipped } else { 0 });
            let row_of = |row: u32| work.inputs.as_ref().map_or(row, |rows| rows[row as usize]);
            work.rest = rest.map(|rest| InputRest { row: row_of(rest.row), ..rest });
            work.replace(batch, inputs, failed);
        }
        if let Some(lookup) = &self.lookup {
            work.look_up(lookup, now_ms)?;
        }
        if let Some((key, keyed)) = keyed {
            work.keep(key, input.side(), keyed, now_ms)?;
        }
        // Rows behind the rest fail in its turn.
        if let Some(rest) = &work.rest {
            work.failed.retain(|error| error.row < rest.row);
        }
        if let Some(projection) = &self.select {
            work.project(projection, now_ms);
        }
        if let Some(rest) = &work.rest {
            // Earlier steps meet the rows behind again, with what is left.
            work.failed.retain(|error| error.row <= rest.row);
        }
        Ok(work)
    }
}

impl Output {
    /// Records that a keyed operator has made of time alone.
    pub(crate) fn of_time(batch: Batch) -> Self {
        Self { batch, inputs: None, failed: Vec::new(), accepted: None, rest: None, late: Vec::new() }
    }

    /// Nothing was made of these rows of a batch.
    pub(crate) fn of_failures(input: &Batch, failed: Vec<RecordError>) -> Self {
        Self { batch: input.select([]), inputs: None, failed, accepted: None, rest: None, late: Vec::new() }
    }

    fn frame(&self, now_ms: i64) -> RowFrame<'_> {
        RowFrame { batch: &self.batch, input: None, errors: None, now_ms }
    }

    fn filter(&mut self, condition: &Condition, now_ms: i64) {
        let (mut kept, mut failed) = (Vec::with_capacity(self.batch.len()), Vec::new());
        condition.each(self.frame(now_ms), |row, truth| match truth {
            Ok(true) => kept.push(row as u32),
            Ok(false) => {}
            Err(failure) => failed.push(failure.of_row(row as u32, condition.text())),
        });
        self.accepted = Some(kept.clone());
        let batch =
            if kept.len() == self.batch.len() { self.batch.clone() } else { self.batch.select(kept.iter().copied()) };
        self.replace(if condition.checks_objects() { batch.with_objects() } else { batch }, kept, failed);
    }

    /// Adds to each row the value that the table has for it.
    fn look_up(&mut self, lookup: &Lookup, now_ms: i64) -> Result<(), Error> {
        // Rows of one input row stay together, as the rest is told by its input row.
        let may_begin = |row: usize| self.inputs.as_ref().is_none_or(|rows| row == 0 || rows[row] != rows[row - 1]);
        let (JoinedRows { batch, inputs, rest }, failed) = lookup.apply(self.frame(now_ms), may_begin)?;
        let row_of = |row: u32| self.inputs.as_ref().map_or(row, |rows| rows[row as usize]);
        self.rest = rest.map(|row| InputRest { row: row_of(row), element: 0 });
        self.replace(batch, inputs, failed);
        Ok(())
    }

    /// Has a keyed operator work on the rows.
    fn keep(&mut self, key: &KeyExpressions, side: JoinSide, keyed: &mut KeyedNode, now_ms: i64) -> Result<(), Error> {
        let (mut rows, mut failed) = (KeyedRows::default(), Vec::new());
        key.each(&self.batch, |row, found| match found {
            Ok(found) => rows.push(row as u32, found),
            Err(failure) => failed.push(failure.of_row(row as u32, key.text())),
        });
        let input = KeyedInput { batch: &self.batch, rows: &rows, inputs: self.inputs.as_deref(), now_ms, side };
        match keyed.operator.apply(&input)? {
            KeyedOutput::Passed(kept) => {
                let batch = self.batch.select(kept.iter().copied());
                self.replace(batch, kept, failed);
            }
            KeyedOutput::Made(KeyedMade { rows, failed: others, late, rest }) => {
                failed.extend(others);
                let row_of = |row: u32| self.inputs.as_ref().map_or(row, |rows| rows[row as usize]);
                self.late = late.into_iter().map(row_of).collect();
                self.late.dedup();
                self.rest = rest.map(|row| InputRest { row: row_of(row), element: 0 });
                let (batch, inputs) = rows.finish(&keyed.name, Some(&self.batch));
                self.replace(batch, inputs, failed);
            }
            KeyedOutput::Joined(JoinedRows { batch, inputs, rest }, others) => {
                failed.extend(others);
                let row_of = |row: u32| self.inputs.as_ref().map_or(row, |rows| rows[row as usize]);
                self.rest = rest.map(|row| InputRest { row: row_of(row), element: 0 });
                self.replace(batch, inputs, failed);
            }
        }
        Ok(())
    }

    fn project(&mut self, projection: &RecordProjection, now_ms: i64) {
        let (mut kept, mut failed) = (Vec::with_capacity(self.batch.len()), Vec::new());
        let batch = projection.apply(
            self.frame(now_ms),
            |row| kept.push(row as u32),
            |row, failure| failed.push(failure.of_row(row as u32, projection.text())),
        );
        self.replace(batch, kept, failed);
    }

    /// Takes the result of a further step, whose rows are numbered by the step before it.
    fn replace(&mut self, batch: Batch, inputs: Vec<u32>, failed: Vec<RecordError>) {
        let row_of = |row: u32| self.inputs.as_ref().map_or(row, |rows| rows[row as usize]);
        let inputs = if self.inputs.is_some() { inputs.into_iter().map(row_of).collect() } else { inputs };
        self.failed.extend(failed.into_iter().map(|error| RecordError { row: row_of(error.row), ..error }));
        (self.batch, self.inputs) = (batch, Some(inputs));
    }
}
