//! Expressions made ready to meet records: fields by number, constants read.

use crate::expr::{Comparison, Expr, Literal, Type};
use crate::formula::Formula;
use crate::value::Value;
use crate::{Field, Pattern};

/// What is compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A field by its number.
    Field(usize),
    /// A value that is the same for every record.
    Constant(Value<'static>),
    /// The time of evaluation.
    Now,
    /// Whether a condition holds.
    Test(Box<Test>),
    /// A value that is computed.
    Formula(Box<Formula>),
}

/// A condition.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// The value itself, if it is TRUE or FALSE.
    Truth(Operand),
    /// Both compared.
    Compare(Comparison, Operand, Operand),
    /// Equal to one of these.
    In(Operand, Vec<Operand>),
    /// It holds for one value of the list, or for every.
    Quantified {
        /// How each is compared.
        comparison: Comparison,
        /// Whether it must hold for every element.
        every: bool,
        /// What is compared.
        value: Operand,
        /// With whose elements.
        list: Operand,
    },
    /// The text as a whole matches.
    Rlike(Operand, Pattern),
    /// It is NULL.
    IsNull(Operand),
    /// The opposite.
    Not(Box<Test>),
    /// All of these.
    And(Vec<Test>),
    /// One of these.
    Or(Vec<Test>),
    /// Exactly one of both.
    Xor(Box<Test>, Box<Test>),
}

/// Numbers the fields of expressions as it makes them ready.
#[derive(Debug, Default)]
pub struct Compiler {
    /// Expressions whose values are given, instead of a record: a field is the place of one of these.
    given: Vec<Expr>,
    fields: Vec<Field>,
    tests_null: bool,
}

impl Compiler {
    /// One for which these expressions have their values already.
    pub fn of_given(given: Vec<Expr>) -> Self {
        Self { given, ..Self::default() }
    }

    /// The fields met so far, by their numbers.
    pub fn into_fields(self) -> Vec<Field> {
        self.fields
    }

    /// Whether a missing field can make a condition TRUE.
    pub fn tests_null(&self) -> bool {
        self.tests_null
    }

    fn field(&mut self, field: &Field) -> usize {
        self.fields.iter().position(|known| known == field).unwrap_or_else(|| {
            self.fields.push(field.clone());
            self.fields.len() - 1
        })
    }

    /// The expression as a value.
    pub fn operand(&mut self, expr: &Expr) -> Operand {
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

    /// What a comparison with `other` looks at. A hint that every value passes to which a constant of this type can be
    /// equal changes nothing there, and the index finds the bare field.
    fn compared(&mut self, expr: &Expr, other: &Expr) -> Operand {
        match expr {
            Expr::Hint { to, value }
                if self.given.is_empty()
                    && matches!(other, Expr::Literal(_))
                    && *to == other.kind()
                    && matches!(to, Type::Text | Type::Boolean) =>
            {
                self.operand(value)
            }
            _ => self.operand(expr),
        }
    }

    /// The expression as a condition.
    pub fn test(&mut self, expr: &Expr) -> Test {
        if self.given.contains(expr) {
            return Test::Truth(self.operand(expr));
        }
        match expr {
            Expr::Compare { comparison, left, right } => {
                Test::Compare(*comparison, self.compared(left, right), self.compared(right, left))
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
    pub fn fields_end(&self) -> usize {
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

    /// Shows the number of each field, as often as it stands there, to `change`.
    pub fn each_field(&mut self, change: &mut impl FnMut(&mut usize)) {
        match self {
            Self::Truth(operand) | Self::IsNull(operand) | Self::Rlike(operand, _) => operand.each_field(change),
            Self::Compare(_, left, right) | Self::Quantified { value: left, list: right, .. } => {
                left.each_field(change);
                right.each_field(change);
            }
            Self::In(value, list) => {
                value.each_field(change);
                list.iter_mut().for_each(|item| item.each_field(change));
            }
            Self::Not(part) => part.each_field(change),
            Self::And(parts) | Self::Or(parts) => parts.iter_mut().for_each(|part| part.each_field(change)),
            Self::Xor(left, right) => {
                left.each_field(change);
                right.each_field(change);
            }
        }
    }
}

impl Operand {
    /// Its value, if that is the same for every record.
    pub fn constant(&self) -> Option<&Value<'static>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// As that of a test.
    fn each_field(&mut self, change: &mut impl FnMut(&mut usize)) {
        match self {
            Self::Field(field) => change(field),
            Self::Test(test) => test.each_field(change),
            Self::Formula(formula) => {
                formula.operands_mut().into_iter().for_each(|operand| operand.each_field(change));
            }
            Self::Constant(_) | Self::Now => {}
        }
    }

    fn fields_end(&self) -> usize {
        match self {
            Self::Field(field) => field + 1,
            Self::Test(test) => test.fields_end(),
            Self::Formula(formula) => formula.operands().into_iter().map(Self::fields_end).max().unwrap_or(0),
            Self::Constant(_) | Self::Now => 0,
        }
    }
}
