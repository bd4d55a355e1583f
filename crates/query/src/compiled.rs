//! A plan made ready to meet records: fields by number, constants read, columns named.

use crate::expr::{Comparison, Expr, Literal};
use crate::index::Key;
use crate::rows::write_text;
use crate::value::{CanonicalNumber, Value};
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
    /// Whether a missing field can make the filter TRUE, so that it matters whether the payload is damaged.
    pub(crate) tests_null: bool,
}

/// A member of a row.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) field: usize,
    /// The member's name as it is written: `"name":`, with a comma before it unless it is the first.
    pub(crate) prefix: Vec<u8>,
}

/// What is compared.
#[derive(Debug)]
pub(crate) enum Operand {
    Field(usize),
    Constant(Value<'static>),
    Now,
    Test(Box<Test>),
}

/// A condition.
#[derive(Debug)]
pub(crate) enum Test {
    /// The value itself, if it is TRUE or FALSE.
    Truth(Operand),
    Compare(Comparison, Operand, Operand),
    In(Operand, Vec<Operand>),
    Rlike(Operand, Pattern),
    IsNull(Operand),
    Not(Box<Test>),
    And(Vec<Test>),
    Or(Vec<Test>),
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
        let columns = match &plan.select {
            Select::All => None,
            Select::Items(items) => {
                Some(items.iter().enumerate().map(|(i, item)| compiler.column(i, &item.field, &item.name())).collect())
            }
        };
        Self { fields: compiler.fields, conjuncts, columns, tests_null: compiler.tests_null }
    }

    /// The fields that the filter reads.
    pub(crate) fn filter_fields(&self) -> usize {
        // The filter is compiled before the columns, so that its fields come first.
        self.conjuncts.iter().map(Test::fields_end).max().unwrap_or(0)
    }
}

#[derive(Default)]
struct Compiler {
    fields: Vec<Field>,
    tests_null: bool,
}

impl Compiler {
    fn field(&mut self, field: &Field) -> usize {
        self.fields.iter().position(|known| known == field).unwrap_or_else(|| {
            self.fields.push(field.clone());
            self.fields.len() - 1
        })
    }

    fn column(&mut self, position: usize, field: &Field, name: &str) -> Column {
        let mut prefix = if position == 0 { Vec::new() } else { b",".to_vec() };
        write_text(&mut prefix, name);
        prefix.push(b':');
        Column { field: self.field(field), prefix }
    }

    fn operand(&mut self, expr: &Expr) -> Operand {
        match expr {
            Expr::Literal(Literal::Now) => Operand::Now,
            Expr::Literal(literal) => Operand::Constant(constant(literal)),
            Expr::Field(field) => Operand::Field(self.field(field)),
            // A comparison gives NULL for a value of another type, which is what the coercion asks for.
            Expr::Coerce { value, .. } => self.operand(value),
            condition => Operand::Test(Box::new(self.test(condition))),
        }
    }

    fn test(&mut self, expr: &Expr) -> Test {
        match expr {
            Expr::Literal(_) | Expr::Field(_) | Expr::Coerce { .. } => Test::Truth(self.operand(expr)),
            Expr::Compare { comparison, left, right } => {
                Test::Compare(*comparison, self.operand(left), self.operand(right))
            }
            Expr::In { value, list } => {
                Test::In(self.operand(value), list.iter().map(|item| self.operand(item)).collect())
            }
            Expr::Rlike { value, pattern } => Test::Rlike(self.operand(value), pattern.clone()),
            Expr::IsNull(value) => {
                self.tests_null = true;
                Test::IsNull(self.operand(value))
            }
            Expr::Not(part) => Test::Not(Box::new(self.test(part))),
            Expr::And(parts) => Test::And(parts.iter().map(|part| self.test(part)).collect()),
            Expr::Or(parts) => Test::Or(parts.iter().map(|part| self.test(part)).collect()),
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
    /// If only records with one of some values in one field can satisfy it: the field and the values.
    pub(crate) fn required_values(&self) -> Option<(usize, Vec<Key>)> {
        match self {
            Self::Compare(Comparison::Equal, Operand::Field(field), Operand::Constant(value))
            | Self::Compare(Comparison::Equal, Operand::Constant(value), Operand::Field(field)) => {
                Some((*field, Key::of(value).into_iter().collect()))
            }
            Self::In(Operand::Field(field), list) => {
                let mut keys = Vec::new();
                for item in list {
                    let Operand::Constant(value) = item else {
                        return None;
                    };
                    keys.extend(Key::of(value).filter(|key| !keys.contains(key)));
                }
                Some((*field, keys))
            }
            Self::Truth(Operand::Field(field)) => Some((*field, vec![Key::Boolean(true)])),
            _ => None,
        }
    }

    /// One more than the highest field it reads.
    fn fields_end(&self) -> usize {
        let of_operand = |operand: &Operand| match operand {
            Operand::Field(field) => field + 1,
            Operand::Test(test) => test.fields_end(),
            Operand::Constant(_) | Operand::Now => 0,
        };
        match self {
            Self::Truth(operand) | Self::IsNull(operand) | Self::Rlike(operand, _) => of_operand(operand),
            Self::Compare(_, left, right) => of_operand(left).max(of_operand(right)),
            Self::In(value, list) => list.iter().map(of_operand).max().unwrap_or(0).max(of_operand(value)),
            Self::Not(part) => part.fields_end(),
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::fields_end).max().unwrap_or(0),
        }
    }
}

impl Key {
    /// The key of a value that something can be equal to.
    pub(crate) fn of(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(Self::Boolean(*value)),
            Value::Integer(value) => Some(Self::Number(CanonicalNumber::Integer(*value))),
            Value::Double(value) => Some(Self::Number(CanonicalNumber::of_double(*value))),
            Value::Text(value) => Some(Self::Text(value.as_ref().into())),
            Value::Null | Value::Nested => None,
        }
    }
}
