//! The fields of compiled expressions, and their values in the rows of a batch.

use std::sync::Arc;

use millstream_columns::{Compiler, EvalError, Field, Operand, PathStep, PathTree, Row, Value};

use super::{EvalFailure, FieldScope, RowFrame};
use crate::batch::{Batch, Column, FieldPlaces, FieldSet, MemberSource, NO_TIME};

/// Fields that an error names, those read last, and bytes of each value.
const NAMED_MAX: usize = 4;
const VALUE_MAX_BYTES: usize = 64;
/// Fields that the expressions of a chain look for together. A chain with more looks for those of each expression.
const SHARED_MAX: usize = 32;

/// The fields of compiled expressions.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    sources: Vec<FieldSource>,
    /// The fields as expressions write them, for errors.
    names: Vec<String>,
    /// Paths of members of the record's payload.
    payload: Paths,
    /// Paths of members of the record that entered the node.
    input: Paths,
    /// A payload that is no JSON object is a failure.
    pub(super) needs_object: bool,
}

#[derive(Debug)]
enum FieldSource {
    Payload(usize),
    Input(usize),
    InputText,
    ErrorCode,
    ErrorMessage,
    ErrorNode,
    OutputCount,
    /// The time that places the record in windows.
    EventTime,
    Metadata(Field),
}

/// Paths into a record, and their places in the set of all that are looked for together.
#[derive(Debug, Default)]
struct Paths {
    paths: Vec<Vec<PathStep>>,
    set: Arc<FieldSet>,
    slots: Vec<usize>,
}

impl Paths {
    fn add(&mut self, path: Vec<PathStep>) -> usize {
        if let Some(known) = self.paths.iter().position(|known| *known == path) {
            return known;
        }
        self.paths.push(path);
        self.paths.len() - 1
    }

    fn look_in(&mut self, set: &Arc<FieldSet>) {
        self.slots = self.paths.iter().filter_map(|path| set.slot(path)).collect();
        assert_eq!(self.slots.len(), self.paths.len(), "the set has all paths");
        self.set = Arc::clone(set);
    }
}

/// Lets expressions look for their fields together.
pub(crate) fn share<'f>(fields: impl IntoIterator<Item = &'f mut Fields>) {
    let mut fields: Vec<&mut Fields> = fields.into_iter().collect();
    let all = fields.iter().flat_map(|fields| fields.payload.paths.iter().chain(&fields.input.paths)).cloned();
    let set = Arc::new(FieldSet::new(all));
    if set.len() <= SHARED_MAX {
        fields.iter_mut().for_each(|fields| fields.look_in(&set));
    }
}

impl Fields {
    pub(super) fn new(compiler: Compiler, scope: FieldScope) -> Self {
        let mut fields = Self::default();
        for field in compiler.into_fields() {
            fields.names.push(field.to_string());
            let source = match field {
                Field::Payload(steps) => fields.source(steps, scope),
                Field::Timestamp if scope == FieldScope::Window => FieldSource::EventTime,
                Field::Record => {
                    fields.needs_object = true;
                    FieldSource::Metadata(Field::Record)
                }
                metadata => FieldSource::Metadata(metadata),
            };
            fields.sources.push(source);
        }
        fields.look_for_own();
        fields
    }

    fn look_for_own(&mut self) {
        self.look_in(&Arc::new(FieldSet::new(self.payload.paths.iter().chain(&self.input.paths).cloned())));
    }

    fn look_in(&mut self, set: &Arc<FieldSet>) {
        self.payload.look_in(set);
        self.input.look_in(set);
    }

    fn source(&mut self, steps: Vec<PathStep>, scope: FieldScope) -> FieldSource {
        let names: Vec<&str> = steps
            .iter()
            .map(|step| match step {
                PathStep::Key(name) => name.as_str(),
                PathStep::Index(_) => "",
            })
            .collect();
        match (scope, names.as_slice()) {
            (FieldScope::Route, ["input"]) => FieldSource::InputText,
            (FieldScope::Route, ["input", ..]) => FieldSource::Input(self.input.add(steps[1..].to_vec())),
            (FieldScope::Route, ["error", "code"]) => FieldSource::ErrorCode,
            (FieldScope::Route, ["error", "message"]) => FieldSource::ErrorMessage,
            (FieldScope::Route, ["error", "node"]) => FieldSource::ErrorNode,
            (FieldScope::Route, ["output_count"]) => FieldSource::OutputCount,
            _ => {
                self.needs_object = true;
                FieldSource::Payload(self.payload.add(steps))
            }
        }
    }

    /// Looks for these members as well; their numbers for [`RowValues::has_in_payload`].
    pub(super) fn add_members<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) -> Vec<usize> {
        self.needs_object = true;
        let numbers = names.into_iter().map(|name| self.payload.add(vec![PathStep::Key(name.to_owned())])).collect();
        self.look_for_own();
        numbers
    }

    /// Calls `see` with the fields of each row, in order.
    pub(super) fn each<'a>(
        &self,
        frame: RowFrame<'a>,
        mut see: impl FnMut(usize, Result<RowValues<'_, 'a>, EvalFailure>),
    ) {
        let record = Located::new(&self.payload, frame.batch, self.needs_object);
        let input = match frame.input {
            Some((input, _)) if !self.input.paths.is_empty() => Located::new(&self.input, input, true),
            _ => Located::default(),
        };
        for row in 0..frame.batch.len() {
            if record.is_odd(frame.batch, row) {
                see(row, Err(EvalFailure::NotAnObject));
            } else {
                see(row, Ok(RowValues { fields: self, frame, row, record: &record, input: &input }));
            }
        }
    }
}

/// The places of some fields in a batch.
#[derive(Default)]
struct Located<'a> {
    found: Option<Arc<FieldPlaces>>,
    places: Vec<FieldPlace<'a>>,
}

enum FieldPlace<'a> {
    /// A slot of what was found in the payloads.
    Payload(usize),
    Column(&'a Column),
    /// A part of the values of a column.
    Inside(&'a Column, PathTree),
    Nowhere,
}

impl<'a> Located<'a> {
    fn new(paths: &Paths, batch: &'a Batch, needs_object: bool) -> Self {
        let place = |(path, slot): (&Vec<PathStep>, &usize)| {
            let Some(PathStep::Key(name)) = path.first() else { return FieldPlace::Nowhere };
            match batch.member(name) {
                MemberSource::Payload => FieldPlace::Payload(*slot),
                MemberSource::Column(column) if path.len() == 1 => FieldPlace::Column(column),
                MemberSource::Column(column) => {
                    let mut tree = PathTree::default();
                    tree.add(&path[1..], 0);
                    FieldPlace::Inside(column, tree)
                }
                MemberSource::Nowhere => FieldPlace::Nowhere,
            }
        };
        let places: Vec<FieldPlace<'a>> = paths.paths.iter().zip(&paths.slots).map(place).collect();
        let is_needed = places.iter().any(|place| matches!(place, FieldPlace::Payload(_)));
        let found = (is_needed || needs_object && !batch.has_objects()).then(|| batch.find(&paths.set));
        Self { found, places }
    }

    fn is_odd(&self, batch: &Batch, row: usize) -> bool {
        self.found.as_ref().is_some_and(|found| batch.is_odd(found, row))
    }

    /// The JSON text of a field that is not a number of a column.
    fn text(&self, batch: &'a Batch, row: usize, number: usize) -> Option<&'a [u8]> {
        match (self.places.get(number)?, &self.found) {
            (FieldPlace::Payload(slot), Some(found)) => batch.found(found, row, *slot),
            (FieldPlace::Column(column), _) => column.text(batch.column_row(row)),
            _ => None,
        }
    }

    fn value(&self, batch: &'a Batch, row: usize, number: usize) -> Result<Value<'a>, EvalError> {
        let read = |raw: Option<&'a [u8]>| raw.map_or(Ok(Value::Null), |raw| Value::read(raw).map_err(Into::into));
        match (self.places.get(number), &self.found) {
            (Some(FieldPlace::Payload(slot)), Some(found)) => read(batch.found(found, row, *slot)),
            (Some(FieldPlace::Column(column)), _) => column.value(batch.column_row(row)),
            (Some(FieldPlace::Inside(column, tree)), _) => {
                let mut found = [None];
                if let Some(text) = column.text(batch.column_row(row)) {
                    // It is a value that was written here, so it is whole.
                    let _ = tree.find(text, &mut Vec::new(), &mut found);
                }
                read(found[0])
            }
            _ => Ok(Value::Null),
        }
    }
}

/// The fields of one row.
pub(super) struct RowValues<'f, 'a> {
    fields: &'f Fields,
    frame: RowFrame<'a>,
    row: usize,
    record: &'f Located<'a>,
    input: &'f Located<'a>,
}

impl<'f, 'a> RowValues<'f, 'a> {
    /// The failure of an expression, which `retrace` evaluates once more to see what it reads.
    pub(super) fn failure(
        &mut self,
        error: EvalError,
        part: Option<&str>,
        retrace: impl FnOnce(&mut ReadFields<'_, 'f, 'a>) -> bool,
    ) -> EvalFailure {
        let mut fields = ReadFields { values: self, read: Vec::new() };
        assert!(!retrace(&mut fields), "an expression without a value has none when it is evaluated again");
        let (numbers, mut read) = (fields.read, String::new());
        for number in &numbers[numbers.len().saturating_sub(NAMED_MAX)..] {
            write_read(&self.fields.names[*number], self.field(*number), &mut read);
        }
        EvalFailure::Eval { error, part: part.map(str::to_owned), read }
    }

    /// The text of a field that is a whole number beyond 64 bits with sign. As a value it would lose digits.
    pub(super) fn whole_number(&self, operand: &Operand) -> Option<&'a [u8]> {
        let Operand::Field(field) = operand else { return None };
        let raw = match &self.fields.sources[*field] {
            FieldSource::Payload(number) => self.record.text(self.frame.batch, self.row, *number),
            FieldSource::Input(number) => {
                let (input, rows) = self.frame.input?;
                self.input.text(input, rows[self.row] as usize, *number)
            }
            _ => None,
        };
        raw.filter(|raw| raw.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))
    }

    /// `true` if the row's payload has one of these members, which [`Fields::add_members`] has numbered.
    pub(super) fn has_in_payload(&self, numbers: &[usize]) -> bool {
        let Some(found) = &self.record.found else { return false };
        numbers.iter().any(|number| match self.record.places[*number] {
            FieldPlace::Payload(slot) => self.frame.batch.found(found, self.row, slot).is_some(),
            _ => false,
        })
    }

    fn input_text(&self) -> Value<'a> {
        let payload = match self.frame.input {
            Some((input, rows)) => input.payload(rows[self.row] as usize),
            None => self.frame.batch.payload(self.row),
        };
        payload.map_or(Value::Null, |payload| Value::Text(String::from_utf8_lossy(payload)))
    }

    fn error(&self, part: impl Fn(&'a str, &'a super::RecordError) -> &'a str) -> Value<'a> {
        self.frame.errors.map_or(Value::Null, |(node, errors)| Value::Text(part(node, &errors[self.row]).into()))
    }

    fn output_count(&self) -> Value<'a> {
        let Some((_, rows)) = self.frame.input else { return Value::Integer(1) };
        // Rows of one input are neighbours.
        let same = |other: &&u32| **other == rows[self.row];
        let after = rows[self.row..].iter().take_while(same).count();
        let before = rows[..self.row].iter().rev().take_while(same).count();
        Value::Integer((before + after) as i64)
    }

    fn metadata(&self, field: &Field) -> Result<Value<'a>, EvalError> {
        let RowFrame { batch, .. } = self.frame;
        let text = |bytes: Option<&'a [u8]>| match bytes.map(std::str::from_utf8) {
            None => Ok(Value::Null),
            Some(Ok(text)) => Ok(Value::Text(text.into())),
            Some(Err(_)) => Err(EvalError::Unreadable),
        };
        match field {
            Field::Key => text(batch.key(self.row)),
            Field::Header(name) => text(batch.header(self.row, name)),
            Field::Timestamp => Ok(Value::Integer(batch.timestamp_ms(self.row))),
            Field::Offset if batch.maker().is_some() => Ok(Value::Null),
            Field::Offset => Ok(Value::Integer(batch.offset(self.row).0 as i64)),
            Field::Partition => Ok(batch.partition().map_or(Value::Null, |number| Value::Integer(number.0.into()))),
            Field::Record => batch.payload(self.row).map_or(Ok(Value::Null), |json| Ok(Value::read(json)?)),
            Field::Topic => Ok(batch.topic().map_or(Value::Null, |name| Value::Text(name.into()))),
            Field::Payload(_) => Ok(Value::Null),
        }
    }
}

impl<'a> Row<'a> for RowValues<'_, 'a> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, EvalError> {
        match &self.fields.sources[field] {
            FieldSource::Payload(number) => self.record.value(self.frame.batch, self.row, *number),
            FieldSource::Input(number) => match self.frame.input {
                Some((input, rows)) => self.input.value(input, rows[self.row] as usize, *number),
                None => Ok(Value::Null),
            },
            FieldSource::InputText => Ok(self.input_text()),
            FieldSource::ErrorCode => Ok(self.error(|_, error| error.code)),
            FieldSource::ErrorMessage => Ok(self.error(|_, error| &error.message)),
            FieldSource::ErrorNode => Ok(self.error(|node, _| node)),
            FieldSource::OutputCount => Ok(self.output_count()),
            FieldSource::EventTime => Ok(match self.frame.batch.time_ms(self.row) {
                NO_TIME => Value::Null,
                time_ms => Value::Integer(time_ms),
            }),
            FieldSource::Metadata(field) => self.metadata(field),
        }
    }

    fn now_ms(&self) -> i64 {
        self.frame.now_ms
    }

    fn refuses_arithmetic_on_others(&self) -> bool {
        true
    }
}

/// The fields of one row, with notes on which of them were read.
pub(super) struct ReadFields<'v, 'f, 'a> {
    values: &'v mut RowValues<'f, 'a>,
    /// The numbers of the fields, the latest last.
    read: Vec<usize>,
}

impl<'a> Row<'a> for ReadFields<'_, '_, 'a> {
    fn field(&mut self, field: usize) -> Result<Value<'a>, EvalError> {
        self.read.retain(|known| *known != field);
        self.read.push(field);
        self.values.field(field)
    }

    fn now_ms(&self) -> i64 {
        self.values.now_ms()
    }

    fn refuses_arithmetic_on_others(&self) -> bool {
        self.values.refuses_arithmetic_on_others()
    }
}

/// Appends a field and its value, such as `; temp is "hot"`. A function that looks back is read from a member `$LAG(temp)`, and shown as
/// it is written.
fn write_read(name: &str, value: Result<Value<'_>, EvalError>, out: &mut String) {
    let mut json = Vec::new();
    match value {
        Ok(value) => value.write_json(&mut json),
        Err(_) => json.extend_from_slice(b"unreadable"),
    }
    let json = String::from_utf8_lossy(&json);
    let shown = &json[..json.floor_char_boundary(VALUE_MAX_BYTES)];
    let cut = if shown.len() < json.len() { "…" } else { "" };
    let call = name.strip_prefix("\"$").and_then(|name| name.strip_suffix('"')).filter(|name| name.ends_with(')'));
    let name = call.map_or_else(|| name.to_owned(), |call| call.replace("\"\"", "\""));
    out.push_str(&format!("; {name} is {shown}{cut}"));
}
