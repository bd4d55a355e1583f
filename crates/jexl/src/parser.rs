//! Parses the text of an expression into a program, in one pass.
//!
//! From loose to tight: `a ? b : c`; `&&` and `||`, which are equals; comparisons and `in`; `+` and `-`; `*`, `/` and
//! `//`; `%` and `^`; `.name`, `[index]`, `[filter]` and `|function`. Operators of one level go from left to right.
//! This is the order of the JEXL libraries of JavaScript and of Mozilla, but for the conditional, which Mozilla's binds
//! tighter.
//!
//! There is no unary operator, as in Orion: `-1` and `!a` are errors.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::SyntaxError;
use crate::function::Function;
use crate::limits::{EXPRESSION_MAX_BYTES, NESTING_MAX};
use crate::number::number;
use crate::operator::Operator;
use crate::program::{Call, Program, Step};
use crate::token::{Token, Tokens};

const VALUE: &str = "a value: a name, a number, a text in quotes, true, false, null, '(', '[' or '{' (JEXL has no sign \
                     before a value: write 0-1 for -1, and a==false for !a)";
const CONTINUATION: &str = "an operator or the end";

pub(crate) fn parse(text: &str) -> Result<Program, SyntaxError> {
    if text.len() > EXPRESSION_MAX_BYTES {
        return Err(SyntaxError::TooLong { bytes: text.len() });
    }
    let mut parser = Parser {
        tokens: Tokens::new(text)?,
        program: Program::default(),
        names: HashMap::new(),
        nesting: 0,
        filters: Vec::new(),
    };
    parser.conditional()?;
    match parser.tokens.token() {
        Token::End => Ok(parser.program),
        _ => Err(parser.tokens.unexpected(CONTINUATION)),
    }
}

struct Parser<'t> {
    tokens: Tokens<'t>,
    program: Program,
    /// The numbers of the names met.
    names: HashMap<&'t str, usize>,
    nesting: usize,
    /// For each open `[…]` behind a value: whether a member of an element was named, which makes it a filter.
    filters: Vec<bool>,
}

/// The strength with which a binary operator binds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Logic,
    Comparison,
    Sum,
    Product,
    Power,
}

impl Level {
    fn tighter(self) -> Option<Self> {
        match self {
            Self::Logic => Some(Self::Comparison),
            Self::Comparison => Some(Self::Sum),
            Self::Sum => Some(Self::Product),
            Self::Product => Some(Self::Power),
            Self::Power => None,
        }
    }
}

enum Binary {
    Or,
    And,
    Operation(Operator),
}

fn binary(token: &Token<'_>) -> Option<(Level, Binary)> {
    let operation = |level, operator| Some((level, Binary::Operation(operator)));
    match token {
        Token::Name("in") => operation(Level::Comparison, Operator::In),
        Token::Mark(mark) => match *mark {
            "||" => Some((Level::Logic, Binary::Or)),
            "&&" => Some((Level::Logic, Binary::And)),
            "==" => operation(Level::Comparison, Operator::Equal),
            "!=" => operation(Level::Comparison, Operator::NotEqual),
            ">" => operation(Level::Comparison, Operator::Greater),
            ">=" => operation(Level::Comparison, Operator::GreaterOrEqual),
            "<" => operation(Level::Comparison, Operator::Less),
            "<=" => operation(Level::Comparison, Operator::LessOrEqual),
            "+" => operation(Level::Sum, Operator::Add),
            "-" => operation(Level::Sum, Operator::Subtract),
            "*" => operation(Level::Product, Operator::Multiply),
            "/" => operation(Level::Product, Operator::Divide),
            "//" => operation(Level::Product, Operator::FloorDivide),
            "%" => operation(Level::Power, Operator::Remainder),
            "^" => operation(Level::Power, Operator::Power),
            _ => None,
        },
        _ => None,
    }
}

impl<'t> Parser<'t> {
    /// Appends a step and returns its number.
    fn push(&mut self, step: Step) -> usize {
        self.program.steps.push(step);
        self.here() - 1
    }

    /// The number of the next step.
    fn here(&self) -> usize {
        self.program.steps.len()
    }

    fn replace(&mut self, at: usize, step: Step) {
        if let Some(place) = self.program.steps.get_mut(at) {
            *place = step;
        }
    }

    fn expect(&mut self, mark: &str, expected: &'static str) -> Result<(), SyntaxError> {
        if self.tokens.skip(mark)? { Ok(()) } else { Err(self.tokens.unexpected(expected)) }
    }

    /// Parses with `inner` one level deeper.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, SyntaxError>) -> Result<T, SyntaxError> {
        if self.nesting == NESTING_MAX {
            return Err(SyntaxError::TooDeep { place: self.tokens.place(), found: self.tokens.found() });
        }
        self.nesting += 1;
        let parsed = inner(self)?;
        self.nesting -= 1;
        Ok(parsed)
    }

    /// A chain `a ? b : c ? d : e` is a loop and does not nest; its middle parts do.
    fn conditional(&mut self) -> Result<(), SyntaxError> {
        let mut jumps = Vec::new();
        self.operation(Level::Logic)?;
        while self.tokens.skip("?")? {
            let branch = self.push(Step::Nothing);
            self.nested(Self::conditional)?;
            self.expect(":", "':' and the value for a condition that is not true")?;
            jumps.push(self.push(Step::Nothing));
            let otherwise = self.here();
            self.replace(branch, Step::Branch { otherwise });
            self.operation(Level::Logic)?;
        }
        let to = self.here();
        for jump in jumps {
            self.replace(jump, Step::Jump { to });
        }
        Ok(())
    }

    fn operation(&mut self, least: Level) -> Result<(), SyntaxError> {
        self.operand()?;
        while let Some((level, binary)) = binary(self.tokens.token()).filter(|(level, _)| *level >= least) {
            self.tokens.take()?;
            let at = match binary {
                Binary::Or | Binary::And => self.push(Step::Nothing),
                Binary::Operation(_) => self.here(),
            };
            match level.tighter() {
                Some(tighter) => self.operation(tighter)?,
                None => self.operand()?,
            }
            let end = self.here();
            match binary {
                Binary::Or => self.replace(at, Step::OrElse { end }),
                Binary::And => self.replace(at, Step::AndThen { end }),
                Binary::Operation(operator) => _ = self.push(Step::Operation(operator)),
            }
        }
        Ok(())
    }

    /// A value with everything that is attached to it.
    fn operand(&mut self) -> Result<(), SyntaxError> {
        self.value()?;
        loop {
            if self.tokens.skip(".")? {
                let name = self.name("the name of a member behind '.'")?;
                self.push(Step::Member(name.into()));
            } else if self.tokens.skip("[")? {
                self.nested(Self::index)?;
            } else if self.tokens.skip("|")? {
                let name = self.name("the name of a function behind '|'")?;
                self.call(name)?;
            } else {
                return Ok(());
            }
        }
    }

    fn name(&mut self, expected: &'static str) -> Result<&'t str, SyntaxError> {
        match *self.tokens.token() {
            Token::Name(name) => {
                self.tokens.take()?;
                Ok(name)
            }
            _ => Err(self.tokens.unexpected(expected)),
        }
    }

    fn value(&mut self) -> Result<(), SyntaxError> {
        if self.tokens.skip("(")? {
            self.nested(Self::conditional)?;
            self.expect(")", "an operator or ')'")
        } else if self.tokens.skip("[")? {
            self.nested(Self::array)
        } else if self.tokens.skip("{")? {
            self.nested(Self::object)
        } else {
            self.plain_value()
        }
    }

    /// A value without others inside. (By itself, so that the frames of nested values are small.)
    fn plain_value(&mut self) -> Result<(), SyntaxError> {
        let step = match self.tokens.token() {
            Token::Number(value) => Step::Literal(number(*value)),
            Token::Text(text) => Step::Literal(Value::from(&**text)),
            Token::Name("true") => Step::Literal(Value::Bool(true)),
            Token::Name("false") => Step::Literal(Value::Bool(false)),
            Token::Name("null") => Step::Literal(Value::Null),
            Token::Name(name) => {
                let names = &mut self.program.names;
                Step::Name(*self.names.entry(name).or_insert_with(|| {
                    names.push((*name).into());
                    names.len() - 1
                }))
            }
            Token::Mark(".") if !self.filters.is_empty() => {
                self.tokens.take()?;
                let name = self.name("the name of a member of the elements")?;
                if let Some(is_filter) = self.filters.last_mut() {
                    *is_filter = true;
                }
                self.push(Step::Element(name.into()));
                return Ok(());
            }
            _ => return Err(self.tokens.unexpected(VALUE)),
        };
        self.tokens.take()?;
        self.push(step);
        Ok(())
    }

    /// The inside of `[…]` behind a value.
    fn index(&mut self) -> Result<(), SyntaxError> {
        let at = self.push(Step::Nothing);
        self.filters.push(false);
        self.conditional()?;
        let is_filter = self.filters.pop() == Some(true);
        self.expect("]", "an operator or ']'")?;
        if is_filter {
            let end = self.here();
            self.replace(at, Step::Filter { end });
        } else {
            self.push(Step::Index);
        }
        Ok(())
    }

    /// Parses values up to `close`; returns the number of the first step of each.
    fn list(&mut self, close: &str, expected: &'static str) -> Result<Vec<usize>, SyntaxError> {
        let mut begins = Vec::new();
        while !self.tokens.skip(close)? {
            begins.push(self.here());
            self.conditional()?;
            if !self.tokens.skip(",")? {
                self.expect(close, expected)?;
                break;
            }
        }
        Ok(begins)
    }

    fn array(&mut self) -> Result<(), SyntaxError> {
        let begins = self.list("]", "',' or ']'")?;
        match self.take_literals(&begins) {
            Some(items) => self.push(Step::Literal(Value::Array(items))),
            None => self.push(Step::Array { length: begins.len() }),
        };
        Ok(())
    }

    /// Takes back the steps from the first of `begins` if each is a literal and a value by itself.
    fn take_literals(&mut self, begins: &[usize]) -> Option<Vec<Value>> {
        let first = begins.first().copied().unwrap_or(self.here());
        let is_single = begins.iter().enumerate().all(|(i, begin)| *begin == first + i);
        let steps = self.program.steps.get(first..)?;
        if !is_single || steps.len() != begins.len() || !steps.iter().all(|step| matches!(step, Step::Literal(_))) {
            return None;
        }
        let literal = |step| if let Step::Literal(value) = step { value } else { Value::Null };
        Some(self.program.steps.drain(first..).map(literal).collect())
    }

    fn object(&mut self) -> Result<(), SyntaxError> {
        let (mut keys, mut begins) = (HashMap::new(), Vec::new());
        while !self.tokens.skip("}")? {
            self.key(&mut keys)?;
            begins.push(self.here());
            self.conditional()?;
            if !self.tokens.skip(",")? {
                self.expect("}", "',' or '}'")?;
                break;
            }
        }
        self.push_object(keys, &begins);
        Ok(())
    }

    /// A key of an object and the ':' behind it; puts it among the others with its number.
    fn key(&mut self, keys: &mut HashMap<Box<str>, usize>) -> Result<(), SyntaxError> {
        let key: Box<str> = match self.tokens.token() {
            Token::Name(name) => (*name).into(),
            Token::Text(text) => (**text).into(),
            _ => return Err(self.tokens.unexpected("a key: a name or a text in quotes")),
        };
        if keys.contains_key(&key) {
            return Err(SyntaxError::RepeatedKey { place: self.tokens.place(), key: key.into() });
        }
        keys.insert(key, keys.len());
        self.tokens.take()?;
        self.expect(":", "':' and the value of the key")
    }

    fn push_object(&mut self, keys: HashMap<Box<str>, usize>, begins: &[usize]) {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_unstable_by_key(|(_, number)| *number);
        let keys = keys.into_iter().map(|(key, _)| key);
        match self.take_literals(begins) {
            Some(items) => {
                let members: Map<String, Value> = keys.map(String::from).zip(items).collect();
                self.push(Step::Literal(Value::Object(members)))
            }
            None => self.push(Step::Object { keys: keys.collect() }),
        };
    }

    /// The arguments of a function, and its call.
    fn call(&mut self, name: &str) -> Result<(), SyntaxError> {
        let function = Function::of(name);
        let begins = match self.tokens.skip("(")? {
            true => self.nested(|parser| parser.list(")", "',' or ')'"))?,
            false => Vec::new(),
        };
        self.push(Step::Call(Call { function, arguments: begins.len() }));
        Ok(())
    }
}
