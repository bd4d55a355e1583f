//! Conditions and select lists over the rows of a batch.
//!
//! A route's expressions see more than the record: `input.field` and `input` (the record as it entered the node),
//! `error.code`, `error.message`, `error.node`, and `output_count`. A failed evaluation fails its row only.

mod aggregates;
#[cfg(test)]
mod bytes_and_columns;
mod fields;
mod history_values;
mod keyed_member;

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_columns::{
    Compiler, Diagnostic, EvalError, Expr, HistoryCall, Item, Operand, Parameters, ParserLimits, Predicate, Row,
    SelectList, Value, parser, time_ms,
};

pub(crate) use self::aggregates::Aggregates;
pub(crate) use self::fields::{Fields, share};
use self::fields::{ReadFields, RowValues};
pub(crate) use self::history_values::HistoryValues;
pub(crate) use self::keyed_member::{JoinedRows, KeyedMember};
use crate::batch::{Batch, Column, ComputedMember, MemberName};

/// The parameters of a node.
pub type Params = BTreeMap<String, serde_json::Value>;

/// The names that an expression may use beside the fields of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldScope {
    /// A node's own expressions: only the record and its metadata.
    Record,
    /// Those that are inputs of windows: `$timestamp` is the record's event time.
    Window,
    /// The expressions of a route.
    Route,
}

/// A failure of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// The row of the batch that entered the node.
    pub row: u32,
    /// A stable name, such as `division_by_zero`.
    pub code: &'static str,
    /// The failure in words, for the job's list of errors.
    pub message: String,
}

/// The failure of one evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EvalFailure {
    NotAnObject,
    /// An expression without a value.
    Eval {
        error: EvalError,
        /// The expression, if it is one of several.
        part: Option<String>,
        /// The fields that it has read, and their values.
        read: String,
    },
}

impl EvalFailure {
    /// The failure of `row` in the expression `text`.
    pub(crate) fn of_row(self, row: u32, text: &str) -> RecordError {
        match self {
            Self::NotAnObject => {
                let message = "the payload is not a JSON object; expressions need one".to_owned();
                RecordError { row, code: "invalid_json", message }
            }
            Self::Eval { error, part, read } => {
                let code = match error {
                    EvalError::NotANumber => "not_a_number",
                    EvalError::DivisionByZero => "division_by_zero",
                    EvalError::Overflow => "overflow",
                    EvalError::Cast => "cast_failed",
                    EvalError::Time => "no_time",
                    _ => "unreadable_value",
                };
                let text = part.as_deref().unwrap_or(text);
                RecordError { row, code, message: format!("'{text}' has no value: {error}{read}") }
            }
        }
    }
}

/// The rows over which expressions are evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowFrame<'a> {
    pub(crate) batch: &'a Batch,
    /// The batch that entered the node, and the row in it that each row came from.
    pub(crate) input: Option<(&'a Batch, &'a [u32])>,
    /// The error of each row, on error routes.
    pub(crate) errors: Option<(&'a str, &'a [RecordError])>,
    pub(crate) now_ms: i64,
}

/// A condition, such as that of `where` and `when`.
#[derive(Debug)]
pub(crate) struct Condition {
    text: String,
    fields: Fields,
    predicate: Predicate,
}

impl Condition {
    /// # Errors
    /// All errors in the text, in words.
    pub(crate) fn parse(text: &str, scope: FieldScope, params: &Params) -> Result<Self, String> {
        let read = parser::parametric_condition(text, &bound(params)?, &ParserLimits::default());
        let mut compiler = Compiler::default();
        let predicate = compiler.test(&read.map_err(|found| in_words(&found))?.parsed);
        Ok(Self { text: text.to_owned(), fields: Fields::new(compiler, scope), predicate })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn fields_mut(&mut self) -> &mut Fields {
        &mut self.fields
    }

    /// `true` if every row that has passed has a JSON object, or nothing, as its payload.
    pub(crate) fn checks_objects(&self) -> bool {
        self.fields.needs_object
    }

    /// Tells for each row if the condition is TRUE.
    pub(crate) fn each(&self, frame: RowFrame<'_>, mut tell: impl FnMut(usize, Result<bool, EvalFailure>)) {
        self.each_truth(frame, |row, truth| tell(row, truth.map(|truth| truth == Some(true))));
    }

    /// Tells for each row if the condition is TRUE, FALSE or unknown.
    pub(crate) fn each_truth(
        &self,
        frame: RowFrame<'_>,
        mut tell: impl FnMut(usize, Result<Option<bool>, EvalFailure>),
    ) {
        self.fields.each(frame, |row, values| {
            tell(
                row,
                values.and_then(|mut values| match self.predicate.truth(&mut values) {
                    Ok(truth) => Ok(truth),
                    Err(error) => Err(values.failure(error, None, |row| self.predicate.truth(row).is_ok())),
                }),
            );
        });
    }
}

/// A select list: `*` or nothing, then named expressions.
#[derive(Debug)]
pub(crate) struct RecordProjection {
    text: String,
    fields: Fields,
    star: Option<Star>,
    items: Vec<SelectedItem>,
    scope: FieldScope,
}

/// A named expression of a select list.
#[derive(Debug)]
struct SelectedItem {
    name: Arc<MemberName>,
    operand: Operand,
    /// The expression, for errors.
    text: String,
}

/// `*`, without the members that a later name replaces or EXCEPT names.
#[derive(Debug)]
struct Star {
    left_out: Vec<Arc<MemberName>>,
    /// Their numbers in the fields.
    numbers: Vec<usize>,
}

impl RecordProjection {
    /// # Errors
    /// All errors in the text, in words.
    pub(crate) fn parse(text: &str, scope: FieldScope, params: &Params) -> Result<Self, String> {
        let read = parser::select_list(text, &bound(params)?, &ParserLimits::default());
        Ok(Self::compile(text, scope, &read.map_err(|found| in_words(&found))?.parsed))
    }

    /// The same over records by key, whose [`HistoryValues`] are members of the rows that [`RecordProjection::apply`] gets.
    ///
    /// # Errors
    /// All errors in the text, in words.
    pub(crate) fn parse_keyed(text: &str, params: &Params) -> Result<Self, String> {
        Ok(Self::compile(text, FieldScope::Record, &keyed_select_list(text, params)?))
    }

    fn compile(text: &str, scope: FieldScope, list: &SelectList) -> Self {
        let history: Vec<String> = list.history_calls().into_iter().map(HistoryCall::member).collect();
        let SelectList { all, items } = list;
        let mut compiler = Compiler::default();
        let compile = |item: &Item| SelectedItem {
            name: MemberName::new(&item.name()),
            operand: compiler.operand(&item.value),
            text: item.value.to_string(),
        };
        let items: Vec<_> = items.iter().map(compile).collect();
        let mut fields = Fields::new(compiler, scope);
        let star = all.as_ref().map(|all| {
            let except = all.except.iter().chain(&history).map(|name| MemberName::new(name));
            let left_out: Vec<_> = items.iter().map(|item| Arc::clone(&item.name)).chain(except).collect();
            let numbers = fields.add_members(left_out.iter().map(|name| name.text.as_str()));
            Star { left_out, numbers }
        });
        Self { text: text.to_owned(), fields, star, items, scope }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn fields_mut(&mut self) -> &mut Fields {
        &mut self.fields
    }

    /// Makes a row of each row; `keep` gets the row that each new one came from, and `fail` the failures. A record without a
    /// value stays one without a value, since it deletes its key; a route's list makes an error record of it.
    pub(crate) fn apply(
        &self,
        frame: RowFrame<'_>,
        mut keep: impl FnMut(usize),
        mut fail: impl FnMut(usize, EvalFailure),
    ) -> Batch {
        let count = frame.batch.len();
        let mut columns: Vec<Column> = self.items.iter().map(|_| Column::with_room(count)).collect();
        let (mut kept, mut lose): (Vec<u32>, Vec<bool>) = (Vec::with_capacity(count), Vec::new());
        let mut nulls: Vec<bool> = Vec::with_capacity(count);
        self.fields.each(frame, |row, values| {
            let is_null = self.scope == FieldScope::Record && frame.batch.is_null(row);
            let computed = values.and_then(|mut values| {
                match is_null {
                    true => columns.iter_mut().for_each(|column| column.push(&Value::Null)),
                    false => self.compute(&mut values, &mut columns)?,
                }
                Ok(values)
            });
            match computed {
                Ok(values) => {
                    kept.push(row as u32);
                    nulls.push(is_null);
                    if let Some(star) = &self.star {
                        lose.push(values.has_in_payload(&star.numbers));
                    }
                    keep(row);
                }
                Err(failure) => {
                    columns.iter_mut().for_each(|column| column.truncate(kept.len()));
                    fail(row, failure);
                }
            }
        });
        let names = self.items.iter().map(|item| Arc::clone(&item.name));
        let members = names.zip(columns).map(|(name, column)| ComputedMember { name, column: Arc::new(column) });
        let left_out = self.star.as_ref().map(|star| (&star.left_out[..], &lose[..]));
        let made = match kept.len() == count {
            true => frame.batch.with_members(left_out, members),
            false => frame.batch.select(kept).with_members(left_out, members),
        };
        made.with_nulls(nulls)
    }

    fn compute(&self, values: &mut RowValues<'_, '_>, columns: &mut [Column]) -> Result<(), EvalFailure> {
        for (item, column) in self.items.iter().zip(columns) {
            match item.operand.value(values) {
                Ok(Value::Double(_)) if let Some(raw) = values.whole_number(&item.operand) => column.push_json(raw),
                Ok(value) => column.push(&value),
                Err(error) => {
                    let retrace = |row: &mut ReadFields<'_, '_, '_>| item.operand.value(row).is_ok();
                    return Err(values.failure(error, Some(&item.text), retrace));
                }
            }
        }
        Ok(())
    }
}

/// The expressions of `key_by`, as one key.
#[derive(Debug)]
pub(crate) struct KeyExpressions {
    text: String,
    fields: Fields,
    operands: Vec<Operand>,
}

impl KeyExpressions {
    /// # Errors
    /// All errors in the first faulty text, in words.
    pub(crate) fn parse(texts: &[String], params: &Params) -> Result<Self, String> {
        let (limits, params) = (ParserLimits::default(), bound(params)?);
        let parse = |text: &String| match parser::parametric_value(text, &params, &limits) {
            Ok(read) => Ok(read.parsed),
            Err(found) => Err(in_words(&found)),
        };
        let exprs: Vec<Expr> = texts.iter().map(parse).collect::<Result<_, _>>()?;
        let mut compiler = Compiler::default();
        let operands = exprs.iter().map(|expr| compiler.operand(expr)).collect();
        Ok(Self { text: texts.join(", "), fields: Fields::new(compiler, FieldScope::Record), operands })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Tells the key of each row as JSON text.
    pub(crate) fn each(&self, batch: &Batch, mut tell: impl FnMut(usize, Result<&[u8], EvalFailure>)) {
        let mut key = Vec::new();
        let frame = RowFrame { batch, input: None, errors: None, now_ms: 0 };
        self.fields.each(frame, |row, values| {
            key.clear();
            let written = values.and_then(|mut values| {
                self.operands.iter().try_for_each(|operand| {
                    match operand.value(&mut values) {
                        Ok(value) => {
                            let start = key.len();
                            value.write_json(&mut key);
                            // An object or list stands there as it was written; a line feed in it is white space.
                            key[start..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
                        }
                        Err(error) => return Err(values.failure(error, None, |row| operand.value(row).is_ok())),
                    }
                    key.push(b'\n');
                    Ok(())
                })
            });
            tell(row, written.map(|()| &key[..]));
        });
    }
}

/// The expression of a record's event time.
#[derive(Debug)]
pub(crate) struct TimeExpression {
    text: String,
    fields: Fields,
    operand: Operand,
}

impl TimeExpression {
    /// # Errors
    /// All errors in the text, in words.
    pub(crate) fn parse(text: &str, params: &Params) -> Result<Self, String> {
        let parsed = parser::parametric_value(text, &bound(params)?, &ParserLimits::default());
        let parsed = parsed.map_err(|found| in_words(&found))?.parsed;
        let mut compiler = Compiler::default();
        let operand = compiler.operand(&parsed);
        Ok(Self { text: text.to_owned(), fields: Fields::new(compiler, FieldScope::Record), operand })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Tells the time of each row, milliseconds since 1970-01-01T00:00:00Z; `None` for null.
    pub(crate) fn each(&self, batch: &Batch, mut tell: impl FnMut(usize, Result<Option<i64>, EvalFailure>)) {
        let frame = RowFrame { batch, input: None, errors: None, now_ms: 0 };
        self.fields.each(frame, |row, values| {
            let time = values.and_then(|mut values| match self.time(&mut values) {
                Ok(time) => Ok(time),
                Err(error) => Err(values.failure(error, None, |row| self.time(row).is_ok())),
            });
            tell(row, time);
        });
    }

    fn time<'a>(&self, row: &mut impl Row<'a>) -> Result<Option<i64>, EvalError> {
        let value = self.operand.value(row)?;
        match time_ms(&value)? {
            None if !matches!(value, Value::Null) => Err(EvalError::Time),
            time => Ok(time),
        }
    }
}

/// The select list of a map with `key_by`.
fn keyed_select_list(text: &str, params: &Params) -> Result<SelectList, String> {
    let read = parser::keyed_select_list(text, &bound(params)?, &ParserLimits::default());
    Ok(read.map_err(|found| in_words(&found))?.parsed)
}

fn in_words(found: &[Diagnostic]) -> String {
    found.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("; ")
}

/// The parameters of a node, bound by name. Those that are no scalar or list are for functions only.
fn bound(params: &Params) -> Result<Parameters, String> {
    let mut bound = Parameters::default();
    for (name, value) in params {
        if !value.is_object() {
            bound.set(name, value).map_err(|unfit| unfit.to_string())?;
        }
    }
    Ok(bound)
}
