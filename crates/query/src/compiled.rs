//! A plan made ready to meet records: fields by number, constants read, columns named.

use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};

use crate::expr::{Comparison, Expr, Literal, Type};
use crate::formula::Formula;
use crate::rows::write_text;
use crate::value::Value;
use crate::{Field, Pattern, Plan, Select};

/// A query ready to be matched. It is the same for all threads.
#[derive(Debug)]
pub struct Compiled {
    /// The fields it reads; conditions and columns refer to them by their place here.
    pub(crate) fields: Vec<Field>,
    /// What a record must satisfy: all of these.
    pub(crate) conjuncts: Vec<Test>,
    /// What a row holds; `None` is the payload.
    pub(crate) columns: Option<Vec<Column>>,
    /// Of a query that is not raw: what is computed of a record for its groups; then the row holds that.
    pub(crate) inputs: Option<Vec<Operand>>,
    /// Whether a missing field can make the filter TRUE, so that it matters whether the payload is damaged.
    pub(crate) tests_null: bool,
}

/// A member of a row.
#[derive(Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) value: Operand,
    /// The member's name as it is written: `"name":`, with a comma before it unless it is the first.
    pub(crate) prefix: Vec<u8>,
}

/// What is compared.
#[derive(Debug, PartialEq)]
pub(crate) enum Operand {
    Field(usize),
    Constant(Value<'static>),
    Now,
    Test(Box<Test>),
    Formula(Box<Formula>),
}

/// A condition.
#[derive(Debug, PartialEq)]
pub(crate) enum Test {
    /// The value itself, if it is TRUE or FALSE.
    Truth(Operand),
    Compare(Comparison, Operand, Operand),
    In(Operand, Vec<Operand>),
    /// It holds for one value of the list, or for every.
    Quantified {
        comparison: Comparison,
        every: bool,
        value: Operand,
        list: Operand,
    },
    Rlike(Operand, Pattern),
    IsNull(Operand),
    Not(Box<Test>),
    And(Vec<Test>),
    Or(Vec<Test>),
    Xor(Box<Test>, Box<Test>),
}

impl Compiled {
    /// Compiles a plan.
    pub fn new(plan: &Plan) -> Self {
        let mut compiler = Compiler::default();
        let conjuncts = match &plan.filter {
            None => Vec::new(),
            Some(Expr::And(parts)) => parts.iter().map(|part| compiler.test(part)).collect(),
            Some(other) => vec![compiler.test(other)],
        };
        let inputs = (!plan.is_raw()).then(|| plan.inputs().into_iter().map(|input| compiler.operand(input)).collect());
        let columns = match &plan.select {
            Select::Items(items) if inputs.is_none() => {
                Some(items.iter().enumerate().map(|(i, item)| compiler.column(i, &item.value, &item.name())).collect())
            }
            _ => None,
        };
        Self { fields: compiler.fields, conjuncts, columns, inputs, tests_null: compiler.tests_null }
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
        self.columns == other.columns && self.inputs == other.inputs && self.fields == other.fields
    }

    /// Equal for queries that take the same records.
    pub(crate) fn filter_hash(&self) -> u64 {
        let mut writer = HashWriter(DefaultHasher::new());
        // Writing to a hasher cannot fail.
        let _ = write!(writer, "{:?}{:?}", self.filter_fields(), self.conjuncts);
        writer.0.finish()
    }
}

/// Hashes what is written to it.
struct HashWriter(DefaultHasher);

impl fmt::Write for HashWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Compiler {
    /// Expressions whose values are given, instead of a record: a field is the place of one of these.
    given: Vec<Expr>,
    fields: Vec<Field>,
    tests_null: bool,
}

impl Compiler {
    /// One for which these expressions have their values already.
    pub(crate) fn of_given(given: Vec<Expr>) -> Self {
        Self { given, ..Self::default() }
    }

    fn field(&mut self, field: &Field) -> usize {
        self.fields.iter().position(|known| known == field).unwrap_or_else(|| {
            self.fields.push(field.clone());
            self.fields.len() - 1
        })
    }

    pub(crate) fn column(&mut self, position: usize, value: &Expr, name: &str) -> Column {
        let mut prefix = if position == 0 { Vec::new() } else { b",".to_vec() };
        write_text(&mut prefix, name);
        prefix.push(b':');
        Column { value: self.operand(value), prefix }
    }

    pub(crate) fn operand(&mut self, expr: &Expr) -> Operand {
        if let Some(place) = self.given.iter().position(|given| given == expr) {
            return Operand::Field(place);
        }
        match expr {
            Expr::Literal(Literal::Now) => Operand::Now,
            Expr::Literal(literal) => Operand::Constant(constant(literal)),
            Expr::Field(field) => Operand::Field(self.field(field)),
            // Of many records, not of one.
            Expr::Aggregate(_) => Operand::Constant(Value::Null),
            // Whatever needs a type gives NULL for a value of another, which is what the coercion asks for.
            Expr::Coerce { value, .. } => self.operand(value),
            Expr::Hint { to, value } => self.formula(|compiler| Formula::Hint(*to, compiler.operand(value))),
            Expr::Cast { to, value } => self.formula(|compiler| Formula::Cast(*to, compiler.operand(value))),
            Expr::Arithmetic { operator, left, right } => {
                self.formula(|compiler| Formula::Arithmetic(*operator, compiler.operand(left), compiler.operand(right)))
            }
            Expr::List(parts) => self.formula(|compiler| Formula::List(compiler.operands(parts))),
            Expr::Element { of, key } => {
                self.formula(|compiler| Formula::Element(compiler.operand(of), compiler.operand(key)))
            }
            Expr::Call { function, arguments } => {
                self.formula(|compiler| Formula::Call(*function, compiler.operands(arguments)))
            }
            Expr::Compare { .. }
            | Expr::In { .. }
            | Expr::Quantified { .. }
            | Expr::Rlike { .. }
            | Expr::IsNull(_)
            | Expr::Not(_)
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::Xor(..) => Operand::Test(Box::new(self.test(expr))),
        }
    }

    fn operands(&mut self, exprs: &[Expr]) -> Vec<Operand> {
        exprs.iter().map(|expr| self.operand(expr)).collect()
    }

    /// What is computed of constants is computed now, unless that fails: then it fails for every record.
    fn formula(&mut self, make: impl FnOnce(&mut Self) -> Formula) -> Operand {
        let formula = make(self);
        self.tests_null |= formula.looks_at_null();
        match formula.constant() {
            Some(value) => Operand::Constant(value),
            None => Operand::Formula(Box::new(formula)),
        }
    }

    /// What a comparison looks at. A hint that every value passes to which a constant of type `other` can be equal
    /// changes nothing there, and the index finds the bare field.
    fn compared(&mut self, expr: &Expr, other: Type) -> Operand {
        match expr {
            Expr::Hint { to, value }
                if self.given.is_empty() && *to == other && matches!(to, Type::Text | Type::Boolean) =>
            {
                self.operand(value)
            }
            _ => self.operand(expr),
        }
    }

    pub(crate) fn test(&mut self, expr: &Expr) -> Test {
        if self.given.contains(expr) {
            return Test::Truth(self.operand(expr));
        }
        match expr {
            Expr::Compare { comparison, left, right } => {
                Test::Compare(*comparison, self.compared(left, right.kind()), self.compared(right, left.kind()))
            }
            Expr::In { value, list } => Test::In(self.operand(value), self.operands(list)),
            Expr::Quantified { comparison, every, value, list } => Test::Quantified {
                comparison: *comparison,
                every: *every,
                value: self.operand(value),
                list: self.operand(list),
            },
            Expr::Xor(left, right) => Test::Xor(Box::new(self.test(left)), Box::new(self.test(right))),
            Expr::Rlike { value, pattern } => Test::Rlike(self.operand(value), pattern.clone()),
            Expr::IsNull(value) => {
                self.tests_null = true;
                Test::IsNull(self.operand(value))
            }
            Expr::Not(part) => Test::Not(Box::new(self.test(part))),
            Expr::And(parts) => Test::And(parts.iter().map(|part| self.test(part)).collect()),
            Expr::Or(parts) => Test::Or(parts.iter().map(|part| self.test(part)).collect()),
            value => Test::Truth(self.operand(value)),
        }
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null | Literal::Now => Value::Null,
        Literal::Boolean(value) => Value::Boolean(*value),
        Literal::Integer(value) => Value::Integer(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::Text(value) => Value::Text(value.clone().into()),
    }
}

impl Test {
    /// One more than the highest field it reads.
    fn fields_end(&self) -> usize {
        let of = Operand::fields_end;
        match self {
            Self::Truth(operand) | Self::IsNull(operand) | Self::Rlike(operand, _) => of(operand),
            Self::Compare(_, left, right) => of(left).max(of(right)),
            Self::Quantified { value, list, .. } => of(value).max(of(list)),
            Self::In(value, list) => list.iter().map(of).max().unwrap_or(0).max(of(value)),
            Self::Not(part) => part.fields_end(),
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::fields_end).max().unwrap_or(0),
            Self::Xor(left, right) => left.fields_end().max(right.fields_end()),
        }
    }
}

impl Operand {
    fn fields_end(&self) -> usize {
        match self {
            Self::Field(field) => field + 1,
            Self::Test(test) => test.fields_end(),
            Self::Formula(formula) => formula.operands().into_iter().map(Self::fields_end).max().unwrap_or(0),
            Self::Constant(_) | Self::Now => 0,
        }
    }
}
