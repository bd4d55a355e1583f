//! Values: arithmetic (`* / %` before `+ -`), fields, literals, lists, functions, and expressions in parentheses.

use super::aggregate::aggregate;
use super::expression::{BindingPower, ExpressionParser};
use super::path::{self, field};
use crate::cursor::ParseError;
use crate::function::{Signature, aggregate_named};
use crate::lexer::Token;
use crate::suggest::nearest;
use crate::{Expr, Field, Function, HistoryFunction, Literal, Operator, PathStep, Type};

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

impl ExpressionParser<'_, '_> {
    /// `a || b || c`: the call of CONCAT.
    pub(super) fn concatenation(&mut self) -> Result<Expr, ParseError> {
        let mark = self.cursor.mark();
        let first = self.sum()?;
        if !self.cursor.is_symbol("||") {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.cursor.take_symbol("||") {
            let mark = self.cursor.mark();
            parts.push(self.sum()?);
            self.within_list_max(mark, parts.len())?;
        }
        self.checked_call(mark, Function::Concat, parts)
    }

    fn sum(&mut self) -> Result<Expr, ParseError> {
        self.chain(&SUM, Self::product)
    }

    fn product(&mut self) -> Result<Expr, ParseError> {
        self.chain(&PRODUCT, Self::operand)
    }

    /// A chain of operators of the same power, from left to right.
    fn chain(
        &mut self,
        operators: &[(&str, Operator)],
        part: fn(&mut Self) -> Result<Expr, ParseError>,
    ) -> Result<Expr, ParseError> {
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

    fn need_number(&self, mark: usize, expr: &Expr) -> Result<(), ParseError> {
        if expr.kind().may_be(Type::Number) {
            return Ok(());
        }
        Err(self.cursor.refuse_at(mark, format!("expected a number, found {}", expr.kind().noun())))
    }

    pub(super) fn operand(&mut self) -> Result<Expr, ParseError> {
        match self.cursor.peek().clone() {
            Token::Text(text) => {
                self.cursor.advance();
                Ok(Expr::Literal(Literal::Text(text)))
            }
            Token::Number(_) => self.number(),
            Token::Symbol("-") if matches!(self.cursor.peek_next(), Token::Number(_)) => self.number(),
            Token::Symbol("-") => self.deeper(Self::negative),
            Token::Symbol(":") => self.cursor.need_parameter(),
            Token::Symbol("(") => self.parenthesised(),
            Token::Symbol("[") => self.deeper(Self::list_literal),
            Token::Word(word) if word.eq_ignore_ascii_case("CASE") => self.deeper(Self::case),
            Token::Word(word) if *self.cursor.peek_next() == Token::Symbol("(") => {
                let mark = self.cursor.mark();
                let called = self.call(&word)?;
                self.subscripts(mark, called)
            }
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
    fn field(&mut self) -> Result<Expr, ParseError> {
        let mark = self.cursor.mark();
        let field = field(self.cursor, self.limits)?;
        let resolved = self.scope.resolve(field);
        let expr = self.subscripts(mark, resolved)?;
        if !self.cursor.take_symbol(":") {
            return Ok(expr);
        }
        let to = self.type_name(0)?;
        Ok(if to == Type::Any { expr } else { Expr::Hint { to, value: Box::new(expr) } })
    }

    /// `[key]` and `.name` behind a value that begins at `mark`, as often as they stand there.
    fn subscripts(&mut self, mark: usize, mut expr: Expr) -> Result<Expr, ParseError> {
        for steps in 1.. {
            if self.cursor.is_symbol("[") && !expr.kind().may_be(Type::List) && !expr.kind().may_be(Type::Map) {
                let message = format!("expected a list or a map, found {}", expr.kind().noun());
                return Err(self.cursor.refuse_at(mark, message));
            }
            let key = if self.cursor.take_symbol("[") {
                let key = self.deeper(|reader| reader.boolean(BindingPower::Nothing))?;
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
        Ok(expr)
    }

    /// `STRING`, `MAP[LONG]`, `LIST[MAP[STRING]]`; the element types of containers are ignored.
    pub(super) fn type_name(&mut self, depth: usize) -> Result<Type, ParseError> {
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

    fn list_literal(&mut self) -> Result<Expr, ParseError> {
        self.cursor.need_symbol("[")?;
        if self.cursor.is_symbol("]") {
            return Err(self.cursor.refuse("a list has at least one value".to_owned()));
        }
        self.values("]").map(Expr::List)
    }

    /// Values with commas between them, and the closing symbol.
    fn values(&mut self, closing: &'static str) -> Result<Vec<Expr>, ParseError> {
        let mut values = Vec::new();
        loop {
            let mark = self.cursor.mark();
            values.push(self.boolean(BindingPower::Nothing)?);
            self.within_list_max(mark, values.len())?;
            if self.cursor.take_symbol(closing) {
                return Ok(values);
            }
            if !self.cursor.take_symbol(",") {
                return Err(self.cursor.unexpected_rest(&[",", closing]));
            }
        }
    }

    pub(super) fn need_closing(&mut self, closing: &'static str) -> Result<(), ParseError> {
        if self.cursor.take_symbol(closing) { Ok(()) } else { Err(self.cursor.unexpected_rest(&[closing])) }
    }

    fn call(&mut self, word: &str) -> Result<Expr, ParseError> {
        let name = word.to_ascii_uppercase();
        let mark = self.cursor.mark();
        if aggregate_named(&name).is_some() {
            if let Some(why) = self.scope.no_aggregates {
                return Err(self.cursor.refuse(why.to_owned()));
            }
            self.cursor.advance();
            self.cursor.need_symbol("(")?;
            return aggregate(self.cursor, self.limits, &name).map(Expr::Aggregate);
        }
        if let Some(function) = HistoryFunction::named(&name) {
            return self.deeper(|reader| reader.look_back(mark, function));
        }
        if name == "CAST" {
            return self.deeper(Self::cast);
        }
        if name == "EXTRACT" {
            return self.deeper(Self::extract);
        }
        if name == "BETWEEN" {
            return self.deeper(Self::between_call);
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

    fn unknown_function(&self, name: &str) -> ParseError {
        if name == "EXPLODE" {
            return self.cursor.unavailable("EXPLODE");
        }
        let mut refusal = self.cursor.refuse(format!("there is no function {name}"));
        refusal.suggestion = nearest(name, Function::names()).map(str::to_owned);
        refusal
    }

    fn checked_call(&self, mark: usize, function: Function, arguments: Vec<Expr>) -> Result<Expr, ParseError> {
        let (Signature { takes, required, repeats, .. }, name) = (function.signature(), function.as_str());
        let most = if repeats { usize::MAX } else { takes.len() };
        if !(required..=most).contains(&arguments.len()) {
            let takes = match (required, most) {
                (least, usize::MAX) => format!("at least {least}"),
                (least, most) if least == most => least.to_string(),
                (least, most) => format!("{least} to {most}"),
            };
            return Err(self.cursor.refuse_at(mark, format!("{name} takes {takes} values, not {}", arguments.len())));
        }
        let needed = |place: usize| takes[place.min(takes.len().saturating_sub(1))];
        for (place, argument) in arguments.iter().enumerate() {
            let (kind, needed) = (argument.kind(), needed(place));
            let joins_nested = function == Function::Concat && kind.is_nested();
            if !kind.may_be(needed) || joins_nested {
                let needed = if joins_nested { Type::Text } else { needed };
                let message = format!("{name} needs {} here, not {}", needed.noun(), kind.noun());
                return Err(self.cursor.refuse_at(mark, message));
            }
        }
        let coerced = |(place, argument): (usize, Expr)| argument.coerced(needed(place));
        let mut arguments: Vec<Expr> = arguments.into_iter().enumerate().map(coerced).collect();
        if function == Function::DateTrunc {
            arguments[0] = self.part_to_truncate(mark, &arguments[0])?;
        }
        Ok(Expr::Call { function, arguments })
    }

    /// `CAST(value AS TYPE)`.
    fn cast(&mut self) -> Result<Expr, ParseError> {
        self.cursor.advance();
        self.cursor.need_symbol("(")?;
        let value = Box::new(self.boolean(BindingPower::Nothing)?);
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

    fn parenthesised(&mut self) -> Result<Expr, ParseError> {
        self.deeper(|reader| {
            reader.cursor.need_symbol("(")?;
            let inner = reader.boolean(BindingPower::Nothing)?;
            if reader.cursor.take_symbol(")") {
                return Ok(inner);
            }
            Err(reader.cursor.unexpected_rest(&["AND", "OR", ")"]))
        })
    }

    /// `-value`: the value taken from 0.
    fn negative(&mut self) -> Result<Expr, ParseError> {
        self.cursor.need_symbol("-")?;
        let mark = self.cursor.mark();
        self.count_operator(mark)?;
        let value = self.operand()?;
        self.need_number(mark, &value)?;
        Ok(Expr::Literal(Literal::Integer(0)).arithmetic(Operator::Subtract, value))
    }

    pub(super) fn number(&mut self) -> Result<Expr, ParseError> {
        let negative = self.cursor.take_symbol("-");
        let Token::Number(written) = self.cursor.peek().clone() else {
            return Err(self.cursor.expected(&["a number"]));
        };
        let literal = number(&written, negative).map_err(|message| self.cursor.refuse(message.to_owned()))?;
        self.cursor.advance();
        Ok(Expr::Literal(literal))
    }
}

/// The part of `of` at `key`; a constant key becomes a step of the field's path.
fn subscript(of: Expr, key: Expr) -> Expr {
    let step = match &key {
        Expr::Literal(Literal::Text(name)) => Some(PathStep::Key(name.clone())),
        Expr::Literal(Literal::Integer(index)) => usize::try_from(*index).ok().map(PathStep::Index),
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

/// The value of a number literal. An integer beyond 64 bits without a suffix is a double, as in a payload.
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
