//! The results of calls such as `LAG(temp)`, as members of the rows of a batch.

use std::sync::Arc;

use millstream_types::iso_time;
use serde_json::json;

use millstream_columns::{Compiler, HistoryCall, HistoryFunction, HistoryState, Operand, Value};

use super::fields::RowValues;
use super::{EvalFailure, FieldScope, Fields, JoinedRows, Params, RecordError, RowFrame, keyed_select_list};
use crate::Error;
use crate::batch::{Column, ComputedMember, MemberName};

/// Bytes of the texts and objects of a batch that is made at a time, and the row that goes beyond. One text may be the greatest of
/// many rows.
const PART_MAX_BYTES: usize = 1 << 20;

/// The calls of a select list that look back at the earlier records of a key.
#[derive(Debug)]
pub(crate) struct HistoryValues {
    /// The select list.
    text: String,
    fields: Fields,
    calls: Vec<CompiledCall>,
}

#[derive(Debug)]
struct CompiledCall {
    call: HistoryCall,
    /// The call as it is written, for errors.
    text: String,
    name: Arc<MemberName>,
    operand: Operand,
}

impl HistoryValues {
    /// The calls of a select list; `None` if it has none.
    ///
    /// # Errors
    /// All errors in the text, in words.
    pub(crate) fn parse(select: &str, params: &Params) -> Result<Option<Self>, String> {
        let list = keyed_select_list(select, params)?;
        let mut compiler = Compiler::default();
        let compile = |call: &HistoryCall| CompiledCall {
            text: call.to_string(),
            name: MemberName::new(&call.member()),
            operand: compiler.operand(&call.value),
            call: call.clone(),
        };
        let calls: Vec<_> = list.history_calls().into_iter().map(compile).collect();
        let fields = Fields::new(compiler, FieldScope::Record);
        Ok((!calls.is_empty()).then_some(Self { text: select.to_owned(), fields, calls }))
    }

    /// The states of a key without records, one for each call.
    pub(crate) fn new_states(&self) -> Box<[HistoryState]> {
        self.calls.iter().map(|CompiledCall { call, .. }| HistoryState::new(call)).collect()
    }

    /// `true` for states that were made for these calls.
    pub(crate) fn fit(&self, states: &[HistoryState]) -> bool {
        let are_of = |(state, CompiledCall { call, .. }): (&HistoryState, &CompiledCall)| state.is_of(call);
        states.len() == self.calls.len() && states.iter().zip(&self.calls).all(are_of)
    }

    /// The values of a key as JSON, each under its call as the document writes it.
    pub(crate) fn describe(&self, states: &[HistoryState]) -> serde_json::Value {
        let describe = |state: &HistoryState| {
            let mut json = Vec::new();
            state.write_json(&mut json);
            let value = serde_json::from_slice(&json).unwrap_or_default();
            match state.since_ms() {
                Some(since_ms) => json!({"value": value, "since": iso_time(since_ms)}),
                None => value,
            }
        };
        self.calls.iter().zip(states).map(|(call, state)| (call.text.clone(), describe(state))).collect()
    }

    /// Makes the rows with a member for each call. `keys` are the rows and their keys, in order; others are left out. `see` gets
    /// a row, its key and the value of each call, and tells the results by the number of the call. A record without a value
    /// stays one, and is not seen. Where the texts become too large together, it ends before a row that `may_begin` allows.
    ///
    /// # Errors
    /// The first one of `see`.
    pub(crate) fn apply<'k>(
        &self,
        frame: RowFrame<'_>,
        keys: impl Iterator<Item = (u32, &'k [u8])>,
        may_begin: impl Fn(usize) -> bool,
        mut see: impl FnMut(usize, &[u8], &[Value<'_>], &mut TellResult<'_>) -> Result<(), Error>,
    ) -> Result<(JoinedRows, Vec<RecordError>), Error> {
        let (count, mut keys) = (frame.batch.len(), keys.peekable());
        let mut columns: Vec<Column> = self.calls.iter().map(|_| Column::with_room(count)).collect();
        let (mut kept, mut nulls, mut failed) = (Vec::with_capacity(count), Vec::new(), Vec::new());
        let (mut size_bytes, mut rest, mut seen) = (0, None, Ok(()));
        self.fields.each(frame, |row, values| {
            if rest.is_none() && size_bytes >= PART_MAX_BYTES && may_begin(row) {
                rest = Some(row as u32);
            }
            let Some((_, key)) = keys.next_if(|(keyed, _)| *keyed == row as u32) else { return };
            if rest.is_some() || seen.is_err() {
                return;
            }
            let is_null = frame.batch.is_null(row);
            if is_null {
                columns.iter_mut().for_each(|column| column.push(&Value::Null));
            } else {
                match values.and_then(|values| self.values(values)) {
                    Ok(found) => {
                        seen = see(row, key, &found, &mut |call, result| {
                            size_bytes += text_bytes(result);
                            columns[call].push(result);
                        });
                    }
                    Err(failure) => return failed.push(failure.of_row(row as u32, &self.text)),
                }
            }
            kept.push(row as u32);
            nulls.push(is_null);
        });
        seen?;
        let rows = if kept.len() == count { frame.batch.clone() } else { frame.batch.select(kept.iter().copied()) };
        let names = self.calls.iter().map(|call| Arc::clone(&call.name));
        let members = names.zip(columns).map(|(name, column)| ComputedMember { name, column: Arc::new(column) });
        let batch = rows.with_members(Some((&[], &[])), members).with_nulls(nulls);
        Ok((JoinedRows { batch, inputs: kept, rest }, failed))
    }

    /// The value of each call in one row.
    fn values<'a>(&'a self, mut row: RowValues<'_, 'a>) -> Result<Vec<Value<'a>>, EvalFailure> {
        let mut values = Vec::with_capacity(self.calls.len());
        for CompiledCall { call, text, operand, .. } in &self.calls {
            values.push(match operand.value(&mut row) {
                Ok(Value::Double(_))
                    if keeps_values(call)
                        && let Some(raw) = row.whole_number(operand) =>
                {
                    Value::Nested(raw.into())
                }
                Ok(value) => value,
                Err(error) => return Err(row.failure(error, Some(text), |row| operand.value(row).is_ok())),
            });
        }
        Ok(values)
    }
}

/// Gets the number of a call and its result.
pub(crate) type TellResult<'t> = dyn FnMut(usize, &Value<'_>) + 't;

/// `true` for a call that gives or compares values as they are, with all digits.
fn keeps_values(call: &HistoryCall) -> bool {
    matches!(call.function, HistoryFunction::Lag | HistoryFunction::Changed | HistoryFunction::SinceChange)
}

fn text_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Nested(json) => json.len(),
        _ => 0,
    }
}
