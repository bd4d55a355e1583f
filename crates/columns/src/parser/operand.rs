//! Values: arithmetic (`* / %` before `+ -`), fields, literals, lists, functions, and what stands in parentheses.

use super::aggregate::{self, aggregate};
use super::expression::{Power, Reader};
use super::path::{self, field};
use crate::cursor::Refusal;
use crate::lexer::Token;
use crate::suggest::nearest;
use crate::{Expr, Field, Function, Literal, Operator, Step, Type};

const SUM: [(&str, Operator); 2] = [("+", Operator::Add), ("-", Operator::Subtract)];
const PRODUCT: [(&str, Operator); 3] = [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)];

/// The types of hints and casts.
const TYPES: [(&str, Type); 9] = [
    ("BOOLEAN", Type::Boolean),
    ("INTEGER", Type::Integer),
    ("LONG", Type::Integer),
    ("FLOAT", Type::Double),
    ("DOUBLE", Type::Double),
    ("STRING", Type::Text),
    ("MAP", Type::Map),
    ("LIST", Type::List),
    ("ANY", Type::Any),
];

impl Reader<'_, '_> {
    pub(super) fn sum(&mut self) -> Result<Expr, Refusal> {
        self.chain(&SUM, Self::product)
    }

    fn product(&mut self) -> Result<Expr, Refusal> {
        self.chain(&PRODUCT, Self::operand)
    }

    /// Parts joined by operators of one power, from the left.
    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        part: fn(&mut Self) -> Result<Expr, Refusal>,
    ) -> Result<Expr, Refusal> {
        let mut mark = self.cursor.mark();
        let mut expr = part(self)?;
        while let Some((symbol, operator)) = operators.iter().find(|(symbol, _)| self.cursor.is_symbol(symbol)) {
            self.count_operator(mark)?;
            self.need_number(mark, &expr)?;
            self.cursor.need_symbol(symbol)?;
            mark = self.cursor.mark();
            let right = part(self)?;
            self.need_number(mark, &right)?;
            expr = expr.arithmetic(*operator, right);
        }
        Ok(expr)
    }

    fn need_number(&self, mark: usize, expr: &Expr) -> Result<(), Refusal> {
        if expr.kind().may_be(Type::Number) {
            return Ok(());
        }
        Err(self.cursor.refuse_at(mark, format!("expected a number, found {}", expr.kind().noun())))
    }

    pub(super) fn operand(&mut self) -> Result<Expr, Refusal> {
        match self.cursor.peek().clone() {
            Token::Text(text) => {
                self.cursor.advance();
                Ok(Expr::Literal(Literal::Text(text)))
            }
            Token::Number(_) | Token::Symbol("-") => self.number(),
            Token::Symbol("(") => self.parenthesised(),
            Token::Symbol("[") => self.deeper(Self::list_literal),
            Token::Word(word) if *self.cursor.peek_next() == Token::Symbol("(") => self.call(&word),
            Token::Word(word) => match constant(&word) {
                Some(literal) => {
                    self.cursor.advance();
                    Ok(Expr::Literal(literal))
                }
                None => self.field(),
            },
            Token::Name(_) => self.field(),
            _ => Err(self.cursor.expected(&["a field", "a value", "NOT", "("])),
        }
    }

    /// A field with its subscripts and its type.
    fn field(&mut self) -> Result<Expr, Refusal> {
        let mark = self.cursor.mark();
        let field = field(self.cursor, self.limits)?;
        let mut expr = self.scope.resolve(field);
        for steps in 1.. {
            let key = if self.cursor.take_symbol("[") {
                let key = self.deeper(|reader| reader.boolean(Power::Nothing))?;
                self.need_closing("]")?;
                key
            } else if matches!(expr, Expr::Element { .. }) && self.cursor.is_symbol(".") {
                Expr::Literal(Literal::Text(path::member(self.cursor)?))
            } else {
                break;
            };
            expr = subscript(expr, key);
            if steps > self.limits.path_max_steps {
                return Err(self.cursor.refuse_at(mark, path::too_many_steps(self.limits)));
            }
        }
        if !self.cursor.take_symbol(":") {
            return Ok(expr);
        }
        let to = self.type_name(0)?;
        Ok(if to == Type::Any { expr } else { Expr::Hint { to, value: Box::new(expr) } })
    }

    /// `STRING`, `MAP[LONG]`, `LIST[MAP[STRING]]`; of containers only that they are.
    fn type_name(&mut self, depth: usize) -> Result<Type, Refusal> {
        let names = || TYPES.iter().map(|(name, _)| *name);
        let known = match self.cursor.peek() {
            Token::Word(word) => TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, kind)| *kind),
            _ => None,
        };
        let Some(kind) = known else {
            return Err(self.cursor.expected(&names().collect::<Vec<_>>()));
        };
        self.cursor.advance();
        if matches!(kind, Type::Map | Type::List) && depth < 2 && self.cursor.take_symbol("[") {
            self.type_name(depth + 1)?;
            self.need_closing("]")?;
        }
        Ok(kind)
    }

    fn list_literal(&mut self) -> Result<Expr, Refusal> {
        self.cursor.need_symbol("[")?;
        if self.cursor.is_symbol("]") {
            return Err(self.cursor.refuse("a list has at least one value".to_owned()));
        }
        self.values("]").map(Expr::List)
    }

    /// Values with commas between them, and what closes them.
    fn values(&mut self, closing: &'static str) -> Result<Vec<Expr>, Refusal> {
        let mut values = Vec::new();
        loop {
            let mark = self.cursor.mark();
            values.push(self.boolean(Power::Nothing)?);
            self.within_list_max(mark, values.len())?;
            if self.cursor.take_symbol(closing) {
                return Ok(values);
            }
            if !self.cursor.take_symbol(",") {
                return Err(self.cursor.unexpected_rest(&[",", closing]));
            }
        }
    }

    fn need_closing(&mut self, closing: &'static str) -> Result<(), Refusal> {
        if self.cursor.take_symbol(closing) { Ok(()) } else { Err(self.cursor.unexpected_rest(&[closing])) }
    }

    fn call(&mut self, word: &str) -> Result<Expr, Refusal> {
        let name = word.to_ascii_uppercase();
        let mark = self.cursor.mark();
        if aggregate::NAMES.contains(&name.as_str()) {
            if let Some(why) = self.scope.no_aggregates {
                return Err(self.cursor.refuse(why.to_owned()));
            }
            self.cursor.advance();
            self.cursor.need_symbol("(")?;
            return aggregate(self.cursor, self.limits, &name).map(Expr::Aggregate);
        }
        if name == "CAST" {
            return self.deeper(Self::cast);
        }
        let Some(function) = Function::named(&name) else {
            return Err(self.unknown_function(&name));
        };
        self.deeper(|reader| {
            reader.cursor.advance();
            reader.cursor.need_symbol("(")?;
            let arguments = if reader.cursor.take_symbol(")") { Vec::new() } else { reader.values(")")? };
            reader.checked_call(mark, function, arguments)
        })
    }

    fn unknown_function(&self, name: &str) -> Refusal {
        if name == "EXPLODE" {
            return self.cursor.unavailable("EXPLODE");
        }
        let mut refusal = self.cursor.refuse(format!("there is no function {name}"));
        let known = aggregate::NAMES.into_iter().chain(Function::names()).chain(["CAST"]);
        refusal.suggestion = nearest(name, known).map(str::to_owned);
        refusal
    }

    fn checked_call(&self, mark: usize, function: Function, arguments: Vec<Expr>) -> Result<Expr, Refusal> {
        let (takes, name) = (function.takes(), function.as_str());
        if !(function.required()..=takes.len()).contains(&arguments.len()) {
            let message = match (function.required(), takes.len()) {
                (least, most) if least == most => format!("{name} takes {least} values, not {}", arguments.len()),
                (least, most) => format!("{name} takes {least} to {most} values, not {}", arguments.len()),
            };
            return Err(self.cursor.refuse_at(mark, message));
        }
        for (argument, needed) in arguments.iter().zip(takes) {
            if !argument.kind().may_be(*needed) {
                let message = format!("{name} needs {} here, not {}", needed.noun(), argument.kind().noun());
                return Err(self.cursor.refuse_at(mark, message));
            }
        }
        let arguments = arguments.into_iter().zip(takes).map(|(argument, needed)| argument.coerced(*needed)).collect();
        Ok(Expr::Call { function, arguments })
    }

    /// `CAST(value AS TYPE)`.
    fn cast(&mut self) -> Result<Expr, Refusal> {
        self.cursor.advance();
        self.cursor.need_symbol("(")?;
        let value = Box::new(self.boolean(Power::Nothing)?);
        if !self.cursor.take_word("AS") {
            return Err(self.cursor.unexpected_rest(&["AS"]));
        }
        let mark = self.cursor.mark();
        let to = self.type_name(0)?;
        if to.is_nested() || to == Type::Any {
            let message = "a value is cast to BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE or STRING";
            return Err(self.cursor.refuse_at(mark, message.to_owned()));
        }
        self.need_closing(")")?;
        Ok(Expr::Cast { to, value })
    }

    fn parenthesised(&mut self) -> Result<Expr, Refusal> {
        self.deeper(|reader| {
            reader.cursor.need_symbol("(")?;
            let inner = reader.boolean(Power::Nothing)?;
            if reader.cursor.take_symbol(")") {
                return Ok(inner);
            }
            Err(reader.cursor.unexpected_rest(&["AND", "OR", ")"]))
        })
    }

    fn number(&mut self) -> Result<Expr, Refusal> {
        let negative = self.cursor.take_symbol("-");
        let Token::Number(written) = self.cursor.peek().clone() else {
            return Err(self.cursor.expected(&["a number"]));
        };
        let literal = number(&written, negative).map_err(|message| self.cursor.refuse(message.to_owned()))?;
        self.cursor.advance();
        Ok(Expr::Literal(literal))
    }
}

/// The part of `of` at `key`; where the key is known it is a step of the field.
fn subscript(of: Expr, key: Expr) -> Expr {
    let step = match &key {
        Expr::Literal(Literal::Text(name)) => Some(Step::Key(name.clone())),
        Expr::Literal(Literal::Integer(index)) => usize::try_from(*index).ok().map(Step::Index),
        _ => None,
    };
    match (of, step) {
        (Expr::Field(Field::Payload(mut steps)), Some(step)) => {
            steps.push(step);
            Expr::Field(Field::Payload(steps))
        }
        (of, _) => Expr::Element { of: Box::new(of), key: Box::new(key) },
    }
}

fn constant(word: &str) -> Option<Literal> {
    let constants = [
        ("NULL", Literal::Null),
        ("TRUE", Literal::Boolean(true)),
        ("FALSE", Literal::Boolean(false)),
        ("NOW", Literal::Now),
    ];
    constants.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, literal)| literal)
}

/// The value of a number as written. Without suffix an integer beyond 64 bits is a double, as it is in a payload.
fn number(written: &str, negative: bool) -> Result<Literal, &'static str> {
    let digits = written.trim_end_matches(['l', 'L', 'f', 'F']);
    let suffix = written[digits.len()..].to_ascii_uppercase();
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    if suffix != "F"
        && let Ok(integer) = signed.parse()
    {
        return Ok(Literal::Integer(integer));
    }
    if suffix == "L" {
        return Err("not a 64-bit integer; the suffix L needs one");
    }
    match signed.parse::<f64>() {
        Ok(double) if double.is_finite() => Ok(Literal::Double(double)),
        _ => Err("beyond the largest double, 1.7976931348623157e308"),
    }
}
