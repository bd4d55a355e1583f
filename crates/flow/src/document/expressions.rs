//! All use of the expression language of `columns` by documents.

use std::collections::{BTreeMap, BTreeSet};

use millstream_columns::{
    Diagnostic, Expr, Field, Function, Item, Literal, Parameters, ParserLimits, PathStep, SelectList, parser,
    time_pattern_fault,
};
use serde_json::Value;

/// The form of a text in the language.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Condition,
    Value,
    SelectList,
    Aggregates,
    /// The select list of a map with `key_by`, which may look back at the earlier records of a key.
    KeyedSelectList,
}

impl Form {
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::Value => "expression",
            Self::SelectList | Self::KeyedSelectList => "select list",
            Self::Aggregates => "list of aggregates",
        }
    }
}

/// The names in a text.
#[derive(Debug, Default)]
pub(super) struct ExpressionNames {
    /// The members of the record that it reads.
    pub(super) fields: BTreeSet<String>,
    /// The members of the record that a select list makes; `None` if `*` keeps others, and for other forms.
    pub(super) selected: Option<BTreeSet<String>>,
    /// Those of a list of aggregates that stand outside of aggregates.
    pub(super) of_single_records: BTreeSet<String>,
    /// A function in it looks back at the earlier records of a key.
    pub(super) looks_back: bool,
    /// The faults of its time patterns and aggregates, in words.
    faults: Vec<String>,
}

/// A fault of an expression, in words that name its place in the expression.
pub(super) struct ExpressionFault {
    pub(super) message: String,
    pub(super) suggestion: Option<String>,
}

/// Functions whose second argument is a pattern of times.
const WITH_PATTERN: [Function; 3] = [Function::FormatTime, Function::ParseTime, Function::UnixTimestamp];

/// Most bytes of the parameters of one expression together; each counts as often as it is named.
pub(super) const PARAMETERS_MAX_BYTES: usize = 64 << 10;

/// Parses a text with the values of its parameters. A parameter without a value counts as NULL here.
///
/// The parser copies a value to each place that names it, so the values together have a bound.
pub(super) fn parse(
    form: Form,
    text: &str,
    value_of: impl Fn(&str, usize) -> Result<Value, usize>,
) -> Result<ExpressionNames, Vec<ExpressionFault>> {
    let one = |message| vec![ExpressionFault { message, suggestion: None }];
    let limits = ParserLimits::of_jobs();
    if text.len() > limits.text_max_bytes {
        return Err(one(format!("it has {} bytes, more than {}", text.len(), limits.text_max_bytes)));
    }
    let mut bound = Parameters::default();
    let mut left_bytes = PARAMETERS_MAX_BYTES;
    for (name, uses) in parameters(text) {
        let value = value_of(&name, left_bytes / uses).map_err(|max| {
            one(format!("the value of ':{name}' is too large for {uses} uses; it may have {max} bytes here"))
        })?;
        left_bytes = left_bytes.saturating_sub(uses * value.to_string().len());
        bound.set(&name, &value).map_err(|unfit| one(unfit.to_string()))?;
    }
    let parsed = match form {
        Form::Condition => parser::parametric_condition(text, &bound, &limits).map(|read| of_value(&read.parsed)),
        Form::Value => parser::parametric_value(text, &bound, &limits).map(|read| of_value(&read.parsed)),
        Form::Aggregates => parser::aggregate_list(text, &bound, &limits).map(|read| of_items(&read.parsed)),
        Form::SelectList => parser::select_list(text, &bound, &limits).map(|read| of_list(&read.parsed)),
        Form::KeyedSelectList => parser::keyed_select_list(text, &bound, &limits).map(|read| of_list(&read.parsed)),
    };
    let parsed = parsed.map_err(|diagnostics| diagnostics.into_iter().map(fault).collect::<Vec<_>>())?;
    if parsed.faults.is_empty() {
        return Ok(parsed);
    }
    Err(parsed.faults.into_iter().map(|message| ExpressionFault { message, suggestion: None }).collect())
}

fn of_value(value: &Expr) -> ExpressionNames {
    let mut parsed = ExpressionNames::default();
    parsed.add_fields(value);
    parsed
}

fn of_items(items: &[Item]) -> ExpressionNames {
    let mut parsed = ExpressionNames::default();
    items.iter().for_each(|item| parsed.add_fields(&item.value));
    parsed.of_single_records = parsed.fields.clone();
    for item in items {
        item.value.each(&mut |part| {
            let Expr::Aggregate(aggregate) = part else { return };
            aggregate.arguments().into_iter().for_each(|argument| parsed.add_fields(argument));
            if aggregate.figure().is_none() {
                parsed.faults.push(format!("{aggregate} has rows of its own, and a job makes one of each window"));
            }
        });
    }
    parsed.selected = Some(items.iter().map(Item::name).collect());
    parsed
}

fn of_list(list: &SelectList) -> ExpressionNames {
    let mut parsed = ExpressionNames::default();
    list.items.iter().for_each(|item| parsed.add_fields(&item.value));
    parsed.selected = list.all.is_none().then(|| list.items.iter().map(Item::name).collect());
    parsed
}

impl ExpressionNames {
    fn add_fields(&mut self, value: &Expr) {
        value.each(&mut |part| match part {
            Expr::Field(Field::Payload(steps)) => {
                if let Some(PathStep::Key(name)) = steps.first() {
                    self.fields.insert(name.clone());
                }
            }
            Expr::History(_) => self.looks_back = true,
            Expr::Call { function, arguments } if WITH_PATTERN.contains(function) => {
                if let Some(Expr::Literal(Literal::Text(pattern))) = arguments.get(1) {
                    self.faults.extend(time_pattern_fault(pattern));
                }
            }
            _ => {}
        });
    }
}

fn fault(diagnostic: Diagnostic) -> ExpressionFault {
    ExpressionFault { message: diagnostic.to_string(), suggestion: diagnostic.suggestion }
}

/// The parameters in an expression or select list, each with the number of its uses.
pub(super) fn parameters(text: &str) -> BTreeMap<String, usize> {
    let mut uses = BTreeMap::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (mut quote, mut before) = (None, ' ');
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            // A colon right after a name or a bracket is a type hint.
            None if c == ':' && !is_name(before) && !matches!(before, ')' | ']' | '"') => {
                let mut name = String::new();
                while let Some(c) = characters.next_if(|c| is_name(*c)) {
                    name.push(c);
                }
                if !name.is_empty() {
                    *uses.entry(name).or_insert(0) += 1;
                }
            }
            None => {}
        }
        before = c;
    }
    uses
}
