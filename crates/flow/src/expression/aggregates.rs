//! Values over many records of one key: aggregates, and expressions of them and of the key.

use millstream_columns::{
    Aggregate, AggregateShape, AggregateState, Compiler, Expr, FigureOf, Item, Operand, ParserLimits, SketchSizes,
    Value, parser,
};

use super::fields::Fields;
use super::{EvalFailure, FieldScope, Params, RowFrame, bound, in_words};
use crate::object;

/// The list `aggregates` of a node.
#[derive(Debug)]
pub(crate) struct Aggregates {
    text: String,
    fields: Fields,
    /// The inputs of a record.
    inputs: Vec<Operand>,
    shape: AggregateShape,
    sizes: SketchSizes,
    /// Values of a result, of those of the key and then of the figures.
    columns: Vec<AggregateColumn>,
}

#[derive(Debug)]
struct AggregateColumn {
    name: String,
    operand: Operand,
}

impl Aggregates {
    /// The values of `text`, over the records of one value of these expressions.
    ///
    /// # Errors
    /// All errors in the text, in words.
    pub(crate) fn parse(text: &str, key_by: &[String], params: &Params) -> Result<Self, String> {
        let (limits, params) = (ParserLimits::default(), bound(params)?);
        let items = parser::aggregate_list(text, &params, &limits).map_err(|found| in_words(&found))?.parsed;
        let parse = |key: &String| parser::parametric_value(key, &params, &limits).map(|read| read.parsed);
        let keys: Vec<Expr> = key_by.iter().map(parse).collect::<Result<_, _>>().map_err(|found| in_words(&found))?;
        let aggregates = aggregates(&items);
        let (mut compiler, mut inputs, mut figures) = (Compiler::default(), Vec::new(), Vec::new());
        for aggregate in &aggregates {
            let kind = aggregate
                .figure()
                .ok_or_else(|| format!("{aggregate} has rows of its own; a job has one for each window"))?;
            let first = inputs.len();
            inputs.extend(aggregate.arguments().into_iter().map(|argument| compiler.operand(argument)));
            figures.push(FigureOf { name: aggregate.to_string(), kind, inputs: first..inputs.len() });
        }
        let given = keys.into_iter().chain(aggregates.into_iter().map(Expr::Aggregate)).collect();
        let mut of_results = Compiler::of_given(given);
        let column = |item: &Item| AggregateColumn { name: item.name(), operand: of_results.operand(&item.value) };
        let columns = items.iter().map(column).collect();
        if let Some(field) = of_results.into_fields().first() {
            return Err(format!("'{field}' is of single records; write an aggregate of it, or add it to key_by"));
        }
        Ok(Self {
            text: text.to_owned(),
            fields: Fields::new(compiler, FieldScope::Window),
            inputs,
            shape: AggregateShape::Groups { keys: 0, figures: figures.into() },
            sizes: SketchSizes::default(),
            columns,
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn state(&self) -> AggregateState {
        AggregateState::new(&self.shape, self.sizes)
    }

    /// The state of a stored form; `None` if it is that of other aggregates.
    pub(crate) fn read(&self, stored: &[u8]) -> Option<AggregateState> {
        AggregateState::read(&self.shape, self.sizes, stored).ok()
    }

    /// Tells the inputs of each row.
    pub(crate) fn each(&self, frame: RowFrame<'_>, mut tell: impl FnMut(usize, Result<&[Value<'_>], EvalFailure>)) {
        self.fields.each(frame, |row, values| {
            let mut found = Vec::with_capacity(self.inputs.len());
            let read = values.and_then(|mut values| {
                for operand in &self.inputs {
                    match operand.value(&mut values) {
                        Ok(value) => found.push(value),
                        Err(error) => return Err(values.failure(error, None, |row| operand.value(row).is_ok())),
                    }
                }
                Ok(())
            });
            tell(row, read.map(|()| &found[..]));
        });
    }

    /// Appends the members of a result to an object. A value that cannot be computed is null.
    pub(crate) fn write(&self, key: &[Value<'static>], state: &AggregateState, now_ms: i64, out: &mut Vec<u8>) {
        let figures = state.rows().into_iter().next().unwrap_or_default();
        let given: Vec<Value<'static>> = key.iter().cloned().chain(figures).collect();
        for AggregateColumn { name, operand } in &self.columns {
            object::begin_member(name, out);
            operand.value_of_given(&given, now_ms).unwrap_or(Value::Null).write_json(out);
        }
    }
}

/// The aggregates in the items, each once.
fn aggregates(items: &[Item]) -> Vec<Aggregate> {
    let mut found: Vec<Aggregate> = Vec::new();
    for item in items {
        item.value.each(&mut |part| {
            if let Expr::Aggregate(aggregate) = part
                && !found.contains(aggregate)
            {
                found.push(aggregate.clone());
            }
        });
    }
    found
}
