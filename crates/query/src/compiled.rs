//! A plan made ready to meet records: fields by number, constants read, columns named.

use std::fmt::Write as _;
use std::sync::Arc;

use millstream_columns::{Compiler, Expr, Field, HashWriter, Item, Operand, Predicate, write_text};

use crate::pool::Pool;
use crate::{QueryPlan, Select};

/// A query ready to be matched. It is the same for all threads.
#[derive(Debug)]
pub struct Compiled {
    /// The fields it reads; conditions and columns refer to them by their place here.
    pub(crate) fields: Arc<[Field]>,
    /// The conditions of the filter, all of which a record must satisfy.
    pub(crate) conjuncts: Box<[Predicate]>,
    pub(crate) row: Row,
    /// True if a missing field can make the filter TRUE, so that damaged payloads must be found.
    pub(crate) tests_null: bool,
    filter_hash: u64,
}

/// The content of a row.
#[derive(Debug, PartialEq)]
pub(crate) enum Row {
    /// The payload as a whole.
    Payload,
    /// The payload, with a member that tells when it was received.
    StampedPayload,
    /// A value that cannot be computed is NULL.
    Columns(Box<[RowMember]>),
    /// As `Columns`, and then the members of the payload.
    ColumnsAndPayload(Box<[RowMember]>),
    /// For aggregating queries: the values of a record for its groups.
    Inputs(Box<[Operand]>),
    /// For raw queries with sorted results.
    Sorted(Box<SortedRow>),
    /// For windows by event time.
    Timed(Box<TimedRow>),
}

/// A row and the time of its record.
#[derive(Debug, PartialEq)]
pub(crate) struct TimedRow {
    pub(crate) time: Operand,
    pub(crate) row: Row,
}

/// A row and its sort keys.
#[derive(Debug, PartialEq)]
pub(crate) struct SortedRow {
    pub(crate) by: Box<[Operand]>,
    pub(crate) row: Row,
}

/// A member of a row.
#[derive(Debug, PartialEq)]
pub(crate) struct RowMember {
    pub(crate) value: Operand,
    /// The member's name as in JSON: `"name":`, after a comma unless it is the first.
    pub(crate) prefix: Vec<u8>,
}

impl RowMember {
    /// The member called `name` at this place of the row.
    pub(crate) fn new(compiler: &mut Compiler, position: usize, value: &Expr, name: &str) -> Self {
        let mut prefix = if position == 0 { Vec::new() } else { b",".to_vec() };
        write_text(&mut prefix, name);
        prefix.push(b':');
        Self { value: compiler.operand(value), prefix }
    }
}

impl Compiled {
    /// Compiles the plan of a query.
    pub fn new(plan: &QueryPlan) -> Self {
        let mut compiler = Compiler::default();
        let conjuncts = match &plan.filter {
            None => Box::default(),
            Some(Expr::And(parts)) => parts.iter().map(|part| compiler.test(part)).collect(),
            Some(other) => Box::new([compiler.test(other)]) as Box<[Predicate]>,
        };
        let row = match &plan.select {
            _ if !plan.is_raw() => {
                Row::Inputs(plan.inputs().into_iter().map(|input| compiler.operand(input)).collect())
            }
            Select::Items(items) | Select::WithAll(items) => {
                let column = |(i, item): (usize, &Item)| RowMember::new(&mut compiler, i, &item.value, &item.name());
                let columns = items.iter().enumerate().map(column).collect();
                if plan.select.holds_payload() { Row::ColumnsAndPayload(columns) } else { Row::Columns(columns) }
            }
            Select::All if plan.stamped => Row::StampedPayload,
            Select::All => Row::Payload,
        };
        let row = if plan.is_raw() && !plan.order_by.is_empty() {
            let by = plan.order_by.iter().map(|order| compiler.operand(&order.by)).collect();
            Row::Sorted(Box::new(SortedRow { by, row }))
        } else {
            row
        };
        let row = match &plan.event_time {
            Some(time) => Row::Timed(Box::new(TimedRow { time: compiler.operand(&time.value), row })),
            None => row,
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
        let end = self.conjuncts.iter().map(Predicate::fields_end).max().unwrap_or(0);
        &self.fields[..end]
    }

    /// True if both filters accept the same records.
    pub(crate) fn has_filter_of(&self, other: &Self) -> bool {
        self.conjuncts == other.conjuncts && self.filter_fields() == other.filter_fields()
    }

    /// True if both make the same rows of a record.
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
