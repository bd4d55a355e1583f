//! Runs a program on the values of a caller.
//!
//! A failure is a value on the stack: each step that takes it hands it on, until `||` or a condition takes it as false.
//! A failure that is left at the end makes the result null.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::input::Input;
use crate::names::Names;
use crate::operator::is_true;
use crate::pattern::Pattern;
use crate::pattern_cache::compiled;
use crate::program::{Call, Program, Step};

/// The reason why there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Values do not fit an operator or an index.
    Misfit,
    /// The caller has no value for a name.
    UndefinedName,
    UnknownFunction,
    /// The budget is spent, or a value is too deep.
    OverLimit,
}

type Slot<'a> = Result<Cow<'a, Value>, Failure>;

/// The element that the innermost filter looks at, and whether it outlives the evaluation.
#[derive(Clone, Copy)]
enum Element<'a, 'e> {
    None,
    Lasting(&'a Value),
    Passing(&'e Value),
}

struct Evaluation<'a> {
    program: &'a Program,
    names: &'a dyn Names,
    now_ms: i64,
    budget: &'a mut Budget,
    stack: Vec<Slot<'a>>,
    /// Regular expressions with their texts.
    patterns: Vec<(String, Pattern)>,
}

pub(crate) fn evaluate<'a>(program: &'a Program, names: &'a dyn Names, now_ms: i64, budget: &'a mut Budget) -> Value {
    let (stack, patterns) = (Vec::new(), Vec::new());
    let mut evaluation = Evaluation { program, names, now_ms, budget, stack, patterns };
    let result = evaluation.run(0, program.steps.len(), Element::None);
    match result {
        Ok(value) if evaluation.budget.copy(&value).is_some() && !evaluation.budget.is_spent() => value.into_owned(),
        _ => Value::Null,
    }
}

impl<'a> Evaluation<'a> {
    /// Runs the steps from `begin` up to `end`, which leave one value.
    fn run(&mut self, begin: usize, end: usize, element: Element<'a, '_>) -> Slot<'a> {
        let (program, base) = (self.program, self.stack.len());
        let mut at = begin;
        while at < end {
            let Some(step) = program.steps.get(at) else { break };
            if self.budget.step().is_none() {
                self.stack.truncate(base);
                return Err(Failure::OverLimit);
            }
            at += 1;
            match step {
                Step::Nothing => {}
                Step::Jump { to } => at = *to,
                Step::OrElse { end } => match self.top_is_true() {
                    true => at = *end,
                    false => _ = self.pop(),
                },
                Step::AndThen { end } => match self.top_is_true() {
                    true => _ = self.pop(),
                    false => at = *end,
                },
                Step::Branch { otherwise } => {
                    if !self.pop().is_ok_and(|value| is_true(&value)) {
                        at = *otherwise;
                    }
                }
                Step::Filter { end } => {
                    let filtered = self.pop().and_then(|subject| self.filter(subject, at, *end));
                    self.stack.push(filtered);
                    at = *end;
                }
                Step::Element(name) => {
                    let member = self.member_of(element, name);
                    self.stack.push(member);
                }
                step => {
                    let made = self.make(step);
                    self.stack.push(made);
                }
            }
        }
        self.pop()
    }

    fn pop(&mut self) -> Slot<'a> {
        self.stack.pop().unwrap_or(Err(Failure::Misfit))
    }

    fn top_is_true(&self) -> bool {
        matches!(self.stack.last(), Some(Ok(value)) if is_true(value))
    }

    /// Takes the last `count` values; the first failure among them if there is one.
    fn pop_many(&mut self, count: usize) -> Result<Vec<Cow<'a, Value>>, Failure> {
        let begin = self.stack.len().saturating_sub(count);
        self.stack.drain(begin..).collect()
    }

    /// Does a step that neither jumps nor looks at elements.
    fn make(&mut self, step: &'a Step) -> Slot<'a> {
        match step {
            Step::Literal(value) => Ok(Cow::Borrowed(value)),
            Step::Name(number) => {
                let name = self.program.names.get(*number).ok_or(Failure::UndefinedName)?;
                let value = self.names.value(name).ok_or(Failure::UndefinedName)?;
                if let Cow::Owned(owned) = &value {
                    self.budget.copy(owned).ok_or(Failure::OverLimit)?;
                }
                Ok(value)
            }
            Step::Member(name) => Ok(member(self.pop()?, name)),
            Step::Index => {
                let (index, subject) = (self.pop(), self.pop()?);
                match &*index? {
                    Value::String(name) => Ok(member(subject, name)),
                    Value::Number(number) => Ok(item(subject, number.as_f64().unwrap_or(-1.0))),
                    _ => Err(Failure::Misfit),
                }
            }
            Step::Operation(operator) => {
                let (right, left) = (self.pop(), self.pop()?);
                operator.apply(left, &*right?, self.budget).map(Cow::Owned).ok_or(Failure::Misfit)
            }
            Step::Array { length } => {
                let items = self.pop_many(*length)?;
                let items = items.into_iter().map(|item| self.own(item)).collect::<Result<_, _>>()?;
                Ok(Cow::Owned(Value::Array(items)))
            }
            Step::Object { keys } => {
                let mut members = Map::with_capacity(keys.len());
                for (key, value) in keys.iter().zip(self.pop_many(keys.len())?) {
                    self.budget.bytes(key.len()).ok_or(Failure::OverLimit)?;
                    members.insert(key.to_string(), self.own(value)?);
                }
                Ok(Cow::Owned(Value::Object(members)))
            }
            Step::Call(call) => self.call(call),
            Step::Nothing
            | Step::Jump { .. }
            | Step::OrElse { .. }
            | Step::AndThen { .. }
            | Step::Branch { .. }
            | Step::Filter { .. }
            | Step::Element(_) => Err(Failure::Misfit),
        }
    }

    fn own(&mut self, value: Cow<'_, Value>) -> Result<Value, Failure> {
        self.budget.own(value).ok_or(Failure::Misfit)
    }

    fn call(&mut self, call: &'a Call) -> Slot<'a> {
        let arguments = self.pop_many(call.arguments);
        let (piped, arguments) = (self.pop()?, arguments?);
        let function = call.function.ok_or(Failure::UnknownFunction)?;
        let number = match arguments.first().map(|argument| &**argument) {
            Some(Value::String(text)) if function.takes_pattern => self.compile(text),
            _ => None,
        };
        let pattern = number.and_then(|number| self.patterns.get(number)).map(|(_, pattern)| pattern);
        let input = Input { piped, arguments, pattern, now_ms: self.now_ms, budget: self.budget };
        Ok(Cow::Owned((function.evaluate)(input).unwrap_or(Value::Null)))
    }

    /// Compiles a regular expression; returns its number in `patterns`. Whether it is known already does not change the cost.
    fn compile(&mut self, text: &str) -> Option<usize> {
        let known = self.patterns.iter().position(|(known, _)| known == text);
        if known.is_none() {
            let pattern = compiled(text);
            self.budget.bytes(pattern.compiled_max_bytes())?;
            self.patterns.push((text.to_owned(), pattern));
        }
        Some(known.unwrap_or(self.patterns.len() - 1))
    }

    fn filter(&mut self, subject: Cow<'a, Value>, begin: usize, end: usize) -> Slot<'a> {
        let mut kept = Vec::new();
        match subject {
            Cow::Borrowed(Value::Array(items)) => {
                for item in items {
                    if self.keeps(begin, end, Element::Lasting(item))? {
                        kept.push(self.own(Cow::Borrowed(item))?);
                    }
                }
            }
            Cow::Owned(Value::Array(items)) => {
                for item in items {
                    if self.keeps(begin, end, Element::Passing(&item))? {
                        kept.push(item);
                    }
                }
            }
            _ => return Err(Failure::Misfit),
        }
        Ok(Cow::Owned(Value::Array(kept)))
    }

    /// An element that does not fit the condition is left out; a name without a value fails the whole.
    fn keeps(&mut self, begin: usize, end: usize, element: Element<'a, '_>) -> Result<bool, Failure> {
        self.budget.step().ok_or(Failure::OverLimit)?;
        match self.run(begin, end, element) {
            Ok(value) => Ok(is_true(&value)),
            Err(Failure::Misfit) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn member_of(&mut self, element: Element<'a, '_>, name: &str) -> Slot<'a> {
        match element {
            Element::None => Err(Failure::Misfit),
            Element::Lasting(value) => Ok(member(Cow::Borrowed(value), name)),
            Element::Passing(value) => match value.get(name) {
                Some(member) => self.own(Cow::Borrowed(member)).map(Cow::Owned),
                None => Ok(Cow::Owned(Value::Null)),
            },
        }
    }
}

/// A member of an object; null if there is none.
fn member<'a>(subject: Cow<'a, Value>, name: &str) -> Cow<'a, Value> {
    let member = match subject {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        Cow::Owned(Value::Object(mut members)) => members.swap_remove(name).map(Cow::Owned),
        Cow::Owned(_) => None,
    };
    member.unwrap_or(Cow::Owned(Value::Null))
}

/// An item of an array, from 0; null if there is none.
fn item(subject: Cow<'_, Value>, number: f64) -> Cow<'_, Value> {
    let number = if number >= 0.0 { number as usize } else { usize::MAX };
    let item = match subject {
        Cow::Borrowed(value) => value.get(number).map(Cow::Borrowed),
        Cow::Owned(Value::Array(mut items)) if number < items.len() => Some(Cow::Owned(items.swap_remove(number))),
        Cow::Owned(_) => None,
    };
    item.unwrap_or(Cow::Owned(Value::Null))
}
