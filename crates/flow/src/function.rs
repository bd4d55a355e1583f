//! Native functions: Rust code that a document names by `fn`.
//!
//! A function takes a batch and the node's parameters and returns a batch, with the input row of each output row. A
//! panic fails the records on which it happens, and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use crate::batch::{Batch, Integers};
use crate::expression::{Params, RecordError};

/// The result of a function.
#[derive(Debug)]
pub struct FunctionOutput {
    /// The records that go on.
    pub batch: Batch,
    /// The input row of each row of `batch`, ascending.
    pub inputs: Vec<u32>,
    /// The records that failed, each with its error.
    pub failed: Vec<RecordError>,
}

/// A function that documents may name.
#[derive(Debug, Clone, Copy)]
pub struct NativeFunction {
    /// The name in `fn`, such as `bench.inc`.
    pub name: &'static str,
    /// One sentence for the reference page.
    pub doc: &'static str,
    /// The compiled code of the function.
    pub call: fn(&Batch, &Params) -> FunctionOutput,
}

/// The functions of this program.
#[derive(Debug, Clone)]
pub struct Functions(Vec<NativeFunction>);

impl Default for Functions {
    fn default() -> Self {
        let function = |name, doc, call| NativeFunction { name, doc, call };
        Self(vec![
            function("bench.inc", "Adds 1 to the whole number in `field`.", |input, params| {
                change_number(input, params, |number| number.checked_add(1))
            }),
            function(
                "math.add",
                "Adds the parameter `value`, a whole number, to the whole number in `field`.",
                |input, params| change_by_value(input, params, i64::checked_add),
            ),
            function(
                "math.multiply",
                "Multiplies the whole number in `field` by the parameter `value`, a whole number.",
                |input, params| change_by_value(input, params, i64::checked_mul),
            ),
            function("math.negate", "Changes the sign of the whole number in `field`.", |input, params| {
                change_number(input, params, i64::checked_neg)
            }),
        ])
    }
}

impl Functions {
    /// Adds a function; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, function: NativeFunction) -> Self {
        self.0.retain(|known| known.name != function.name);
        self.0.push(function);
        self
    }

    /// The functions in the order of their names.
    pub fn all(&self) -> &[NativeFunction] {
        &self.0
    }

    /// The function of that name.
    pub fn get(&self, name: &str) -> Option<NativeFunction> {
        self.0.iter().find(|function| function.name == name).copied()
    }
}

impl NativeFunction {
    /// Calls the function. After a panic it is called again for
    /// each record, so that only those fail on which it panics.
    pub(crate) fn apply(&self, input: &Batch, params: &Params) -> FunctionOutput {
        if let Ok(output) = catch_unwind(AssertUnwindSafe(|| (self.call)(input, params))) {
            return output;
        }
        let (mut writer, mut inputs, mut failed) = (input.rewrite(), Vec::new(), Vec::new());
        for row in 0..input.len() as u32 {
            let one = input.select([row]);
            let Ok(output) = catch_unwind(AssertUnwindSafe(|| (self.call)(&one, params))) else {
                let message = format!("function '{}' panicked on this record", self.name);
                failed.push(RecordError { row, code: "panic", message });
                continue;
            };
            for made in 0..output.batch.len() {
                let payload = output.batch.payload(made).unwrap_or(b"{}");
                let Ok(()) = writer.push(row as usize, |out| {
                    out.extend_from_slice(payload);
                    Ok::<(), std::convert::Infallible>(())
                });
                inputs.push(row);
            }
            failed.extend(output.failed.into_iter().map(|error| RecordError { row, ..error }));
        }
        FunctionOutput { batch: writer.finish(), inputs, failed }
    }
}

/// As [`change_number`], by a rule that sees the parameter `value`. Hooks may have given it, so it is looked at here again.
fn change_by_value(input: &Batch, params: &Params, change: fn(i64, i64) -> Option<i64>) -> FunctionOutput {
    if let Some(value) = params.get("value").and_then(Value::as_i64) {
        return change_number(input, params, |number| change(number, value));
    }
    let message = "the parameter 'value' is missing or no whole number; give it in params or by a start hook";
    let error = |row| RecordError { row, code: "invalid_parameter", message: message.to_owned() };
    let failed = (0..input.len() as u32).map(error).collect();
    FunctionOutput { batch: input.select([]), inputs: Vec::new(), failed }
}

/// Replaces the number in the field that the parameter `field` names.
fn change_number(input: &Batch, params: &Params, change: impl Fn(i64) -> Option<i64>) -> FunctionOutput {
    let field = params.get("field").and_then(Value::as_str).unwrap_or("n");
    let Integers { values, missing } = input.integers(field);
    let mut changed = Vec::with_capacity(values.len());
    let (mut inputs, mut failed, mut missing) =
        (Vec::with_capacity(values.len()), Vec::new(), missing.iter().peekable());
    for (row, number) in (0..).zip(values.iter()) {
        let is_missing = missing.next_if_eq(&&row).is_some();
        match change(*number).filter(|_| !is_missing) {
            Some(number) => {
                changed.push(number);
                inputs.push(row);
            }
            None => {
                let message = format!("field '{field}' is no whole number that the function can change");
                failed.push(RecordError { row, code: "not_a_number", message });
            }
        }
    }
    let batch = if failed.is_empty() {
        input.with_integers(field, changed)
    } else {
        input.select(inputs.iter().copied()).with_integers(field, changed)
    };
    FunctionOutput { batch, inputs, failed }
}
