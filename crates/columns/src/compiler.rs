//! The compiler of expressions: it numbers the fields and computes the constants.

use crate::expr::{Expr, Literal};
use crate::field::Field;
use crate::operand::{Formula, Operand, Predicate};
use crate::value::Value;
use crate::value_type::Type;

/// Numbers the fields of the expressions that it compiles.
#[derive(Debug, Default)]
pub struct Compiler {
    /// Expressions whose values are already computed: a field is then an index into this list.
    given: Vec<Expr>,
    fields: Vec<Field>,
    tests_null: bool,
}

impl Compiler {
    /// A compiler for rows that hold the values of `given`.
    pub fn of_given(given: Vec<Expr>) -> Self {
        Self { given, ..Self::default() }
    }

    /// The fields of all compiled expressions, by number.
    pub fn into_fields(self) -> Vec<Field> {
        self.fields
    }

    /// True if a missing field can make a condition TRUE.
    pub fn tests_null(&self) -> bool {
        self.tests_null
    }

    fn field(&mut self, field: &Field) -> usize {
        self.fields.iter().position(|known| known == field).unwrap_or_else(|| {
            self.fields.push(field.clone());
            self.fields.len() - 1
        })
    }

    /// Compiles the expression to a value.
    pub fn operand(&mut self, expr: &Expr) -> Operand {
        if let Some(place) = self.given.iter().position(|given| given == expr) {
            return Operand::Field(place);
        }
        match expr {
            Expr::Literal(Literal::Now) => Operand::Now,
            Expr::Literal(literal) => Operand::Constant(constant(literal)),
            Expr::Field(field) => Operand::Field(self.field(field)),
            // It was computed before, and is a member of the record.
            Expr::History(call) => Operand::Field(self.field(&call.field())),
            // An aggregate has no value in one record.
            Expr::Aggregate(_) => Operand::Constant(Value::Null),
            // An operator that needs a type gives NULL for a value of another type, as the coercion would.
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
            | Expr::Xor(..) => Operand::Predicate(Box::new(self.test(expr))),
        }
    }

    fn operands(&mut self, exprs: &[Expr]) -> Vec<Operand> {
        exprs.iter().map(|expr| self.operand(expr)).collect()
    }

    /// Computes a formula of constants now. If that fails, it stays a formula and fails for every record.
    fn formula(&mut self, make: impl FnOnce(&mut Self) -> Formula) -> Operand {
        let formula = make(self);
        self.tests_null |= formula.looks_at_null();
        match formula.constant() {
            Some(value) => Operand::Constant(value),
            None => Operand::Formula(Box::new(formula)),
        }
    }

    /// Compiles one side of a comparison with `other`. A hint is dropped if every value that can equal a constant of this
    /// type passes it, so that the index finds the bare field.
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

    /// Compiles the expression to a condition.
    pub fn test(&mut self, expr: &Expr) -> Predicate {
        if self.given.contains(expr) {
            return Predicate::Truth(self.operand(expr));
        }
        match expr {
            Expr::Compare { comparison, left, right } => {
                Predicate::Compare(*comparison, self.compared(left, right), self.compared(right, left))
            }
            Expr::In { value, list } => Predicate::In(self.operand(value), self.operands(list)),
            Expr::Quantified { comparison, every, value, list } => Predicate::Quantified {
                comparison: *comparison,
                every: *every,
                value: self.operand(value),
                list: self.operand(list),
            },
            Expr::Xor(left, right) => Predicate::Xor(Box::new(self.test(left)), Box::new(self.test(right))),
            Expr::Rlike { value, pattern } => Predicate::Rlike(self.operand(value), pattern.clone()),
            Expr::IsNull(value) => {
                self.tests_null = true;
                Predicate::IsNull(self.operand(value))
            }
            Expr::Not(part) => Predicate::Not(Box::new(self.test(part))),
            Expr::And(parts) => Predicate::And(parts.iter().map(|part| self.test(part)).collect()),
            Expr::Or(parts) => Predicate::Or(parts.iter().map(|part| self.test(part)).collect()),
            value => Predicate::Truth(self.operand(value)),
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
