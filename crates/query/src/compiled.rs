//! A plan made ready to meet records: fields by number, constants read, columns named.

use std::fmt::Write as _;
use std::sync::Arc;

use millstream_columns::{Compiler, Expr, Field, Item, Operand, Test, write_text};

use crate::hash::HashWriter;
use crate::pool::Pool;
use crate::{Plan, Select};

/// A query ready to be matched. It is the same for all threads.
#[derive(Debug)]
pub struct Compiled {
    /// The fields it reads; conditions and columns refer to them by their place here.
    pub(crate) fields: Arc<[Field]>,
    /// What a record must satisfy: all of these.
    pub(crate) conjuncts: Box<[Test]>,
    pub(crate) row: Row,
    /// Whether a missing field can make the filter TRUE, so that it matters whether the payload is damaged.
    pub(crate) tests_null: bool,
    filter_hash: u64,
}

/// What a row holds.
#[derive(Debug, PartialEq)]
pub(crate) enum Row {
    /// The payload.
    Payload,
    /// The payload, with a member that tells when it was received.
    StampedPayload,
    Columns(Box<[Column]>),
    /// As `Columns`; a value that cannot be computed is NULL.
    LenientColumns(Box<[Column]>),
    /// Of a query that is not raw: what is computed of a record for its groups.
    Inputs(Box<[Operand]>),
}

/// A member of a row.
#[derive(Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) value: Operand,
    /// The member's name as it is written: `"name":`, with a comma before it unless it is the first.
    pub(crate) prefix: Vec<u8>,
}

impl Column {
    /// The member called `name` at this place of the row.
    pub(crate) fn new(compiler: &mut Compiler, position: usize, value: &Expr, name: &str) -> Self {
        let mut prefix = if position == 0 { Vec::new() } else { b",".to_vec() };
        write_text(&mut prefix, name);
        prefix.push(b':');
        Self { value: compiler.operand(value), prefix }
    }
}

impl Compiled {
    /// Compiles a plan.
    pub fn new(plan: &Plan) -> Self {
        let mut compiler = Compiler::default();
        let conjuncts = match &plan.filter {
            None => Box::default(),
            Some(Expr::And(parts)) => parts.iter().map(|part| compiler.test(part)).collect(),
            Some(other) => Box::new([compiler.test(other)]) as Box<[Test]>,
        };
        let row = match &plan.select {
            _ if !plan.is_raw() => {
                Row::Inputs(plan.inputs().into_iter().map(|input| compiler.operand(input)).collect())
            }
            Select::Items(items) => {
                let column = |(i, item): (usize, &Item)| Column::new(&mut compiler, i, &item.value, &item.name());
                let columns = items.iter().enumerate().map(column).collect();
                if plan.lenient { Row::LenientColumns(columns) } else { Row::Columns(columns) }
            }
            Select::All if plan.stamped => Row::StampedPayload,
            Select::All => Row::Payload,
        };
        let tests_null = compiler.tests_null();
        let mut compiled = Self { fields: compiler.into_fields().into(), conjuncts, row, tests_null, filter_hash: 0 };
        compiled.filter_hash = compiled.hash_filter();
        compiled
    }

    /// Has it share its list of fields with others that read the same.
    pub(crate) fn share_fields(&mut self, known: &mut Pool<Field>) {
        self.fields = known.share(self.fields.clone());
    }

    /// The fields that the filter reads.
    pub(crate) fn filter_fields(&self) -> &[Field] {
        // The filter is compiled before the columns, so that its fields come first.
        let end = self.conjuncts.iter().map(Test::fields_end).max().unwrap_or(0);
        &self.fields[..end]
    }

    /// Whether both take the same records.
    pub(crate) fn has_filter_of(&self, other: &Self) -> bool {
        self.conjuncts == other.conjuncts && self.filter_fields() == other.filter_fields()
    }

    /// Whether both make the same rows of a record.
    pub(crate) fn has_rows_of(&self, other: &Self) -> bool {
        self.row == other.row && self.fields == other.fields
    }

    /// Equal for queries that take the same records.
    pub(crate) fn filter_hash(&self) -> u64 {
        self.filter_hash
    }

    fn hash_filter(&self) -> u64 {
        let mut writer = HashWriter::default();
        // Writing to a hasher cannot fail.
        let _ = write!(writer, "{:?}{:?}", self.filter_fields(), self.conjuncts);
        writer.finish()
    }
}
