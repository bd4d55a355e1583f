//! A member whose value is found by a key of the record.

use std::borrow::Cow;
use std::sync::Arc;

use millstream_columns::{Compiler, Expr, Field, Operand, ParserLimits, PathStep, Value, parser};

use super::fields::RowValues;
use super::{EvalFailure, FieldScope, Fields, Params, RowFrame, bound, in_words};
use crate::batch::{Batch, Column, ComputedMember, MemberName};
use crate::template::{Template, TemplatePart};

/// Bytes of the values of a batch that is made at a time, and the value that goes beyond. One value may be found for many rows.
const PART_MAX_BYTES: usize = 1 << 20;

/// A member of all records of a node, and the key by which its value is found.
#[derive(Debug)]
pub(crate) struct KeyedMember {
    text: String,
    fields: Fields,
    /// The key is these one after the other.
    key: Vec<KeyPart>,
    name: Arc<MemberName>,
    /// The number of the member in the fields.
    numbers: Vec<usize>,
}

#[derive(Debug)]
enum KeyPart {
    Text(String),
    Value(Operand),
}

/// The first rows of a batch, with members that were computed.
#[derive(Debug)]
pub(crate) struct JoinedRows {
    pub(crate) batch: Batch,
    /// The row that each row of `batch` came from.
    pub(crate) inputs: Vec<u32>,
    /// The first row that is not among them.
    pub(crate) rest: Option<u32>,
}

impl KeyedMember {
    /// # Errors
    /// All errors in the text of the key, in words.
    pub(crate) fn parse(key: &str, name: &str, params: &Params) -> Result<Self, String> {
        let read = parser::parametric_value(key, &bound(params)?, &ParserLimits::default());
        let mut compiler = Compiler::default();
        let operand = compiler.operand(&read.map_err(|found| in_words(&found))?.parsed);
        Ok(Self::new(key, name, vec![KeyPart::Value(operand)], compiler))
    }

    /// A member whose key is a text with `{field}` in it.
    pub(crate) fn of_template(key: &str, name: &str) -> Self {
        let mut compiler = Compiler::default();
        let mut part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => KeyPart::Text(text.clone()),
            TemplatePart::Field(field) => {
                let path = field.split('.').map(|step| PathStep::Key(step.to_owned())).collect();
                KeyPart::Value(compiler.operand(&Expr::Field(Field::Payload(path))))
            }
        };
        let parts = Template::read_text(key).parts().iter().map(&mut part).collect();
        Self::new(key, name, parts, compiler)
    }

    fn new(text: &str, name: &str, key: Vec<KeyPart>, compiler: Compiler) -> Self {
        let mut fields = Fields::new(compiler, FieldScope::Record);
        let numbers = fields.add_members([name]);
        Self { text: text.to_owned(), fields, key, name: MemberName::new(name), numbers }
    }

    /// The key as the document has it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn fields_mut(&mut self) -> &mut Fields {
        &mut self.fields
    }

    /// Makes the rows with the member, in the place of one of that name. `find` gets the key of each row, `None` for NULL, and
    /// gives the value as JSON; a row for which it gives none is left out. A record without a value stays one. Where the
    /// values become too large together, it ends before a row that `may_begin` allows.
    pub(crate) fn apply<'v>(
        &self,
        frame: RowFrame<'_>,
        may_begin: impl Fn(usize) -> bool,
        mut find: impl FnMut(usize, Result<Option<&[u8]>, EvalFailure>) -> Option<Cow<'v, [u8]>>,
    ) -> JoinedRows {
        let count = frame.batch.len();
        let (mut column, mut key) = (Column::with_room(count), Vec::new());
        let (mut kept, mut lose, mut nulls) = (Vec::with_capacity(count), Vec::new(), Vec::new());
        let (mut size_bytes, mut rest) = (0, None);
        self.fields.each(frame, |row, values| {
            if rest.is_none() && size_bytes >= PART_MAX_BYTES && may_begin(row) {
                rest = Some(row as u32);
            }
            if rest.is_some() {
                return;
            }
            let is_null = frame.batch.is_null(row);
            let mut has_member = false;
            let found = values.and_then(|mut values| {
                has_member = values.has_in_payload(&self.numbers);
                if is_null { Ok(false) } else { self.write_key(&mut values, &mut key) }
            });
            let value = match is_null {
                true => Some(Cow::Borrowed(&b"null"[..])),
                false => find(row, found.map(|has_key| has_key.then_some(&key[..]))),
            };
            let Some(value) = value else { return };
            column.push_json(&value);
            size_bytes += value.len();
            kept.push(row as u32);
            lose.push(has_member);
            nulls.push(is_null);
        });
        let rows = if kept.len() == count { frame.batch.clone() } else { frame.batch.select(kept.iter().copied()) };
        let member = ComputedMember { name: Arc::clone(&self.name), column: Arc::new(column) };
        let names = [Arc::clone(&self.name)];
        JoinedRows { batch: rows.with_members(Some((&names, &lose)), [member]).with_nulls(nulls), inputs: kept, rest }
    }

    /// Writes the key of a row: a text as it is, any other value as JSON; `false` for NULL.
    fn write_key(&self, values: &mut RowValues<'_, '_>, key: &mut Vec<u8>) -> Result<bool, EvalFailure> {
        key.clear();
        for part in &self.key {
            let operand = match part {
                KeyPart::Value(operand) => operand,
                KeyPart::Text(text) => {
                    key.extend_from_slice(text.as_bytes());
                    continue;
                }
            };
            match operand.value(values) {
                Ok(Value::Null) => return Ok(false),
                Ok(Value::Text(text)) => key.extend_from_slice(text.as_bytes()),
                Ok(Value::Double(_)) if let Some(raw) = values.whole_number(operand) => key.extend_from_slice(raw),
                Ok(value) => value.write_json(key),
                Err(error) => return Err(values.failure(error, None, |row| operand.value(row).is_ok())),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::SourceBatch;

    fn batch_of(payloads: &[&str]) -> Batch {
        let mut source = SourceBatch::default();
        for (number, payload) in (0..).zip(payloads) {
            source.push(number, None, 0, |out| out.extend_from_slice(payload.as_bytes()));
        }
        source.finish_unchecked()
    }

    fn frame(batch: &Batch) -> RowFrame<'_> {
        RowFrame { batch, input: None, errors: None, now_ms: 0 }
    }

    #[test]
    fn a_key_is_a_text_as_it_is_or_json_and_its_value_replaces_the_member() {
        let member = KeyedMember::parse("k", "v", &Params::new()).unwrap();
        let batch = batch_of(&[
            r#"{"k":"a\u0062","v":1,"z":2}"#,
            r#"{"k":7}"#,
            r#"{"k":1.5}"#,
            r#"{"k":18446744073709551615}"#,
            r#"{"k":true}"#,
            r#"{"k":null}"#,
            "{}",
            "no object",
            r#"{"k":[1, 2]}"#,
        ]);
        let mut keys = Vec::new();
        let joined = member.apply(
            frame(&batch),
            |_| true,
            |row, key| {
                let key = key.map(|key| key.map(|key| String::from_utf8(key.to_vec()).unwrap()));
                let is_found = key == Ok(Some("ab".to_owned()));
                keys.push(key.unwrap_or_else(|_| Some(format!("failure of {row}"))));
                if row == 4 { None } else { Some(Cow::Borrowed(if is_found { &b"{\"x\":[1]}"[..] } else { b"null" })) }
            },
        );
        let expected = [
            Some("ab"),
            Some("7"),
            Some("1.5"),
            Some("18446744073709551615"),
            Some("true"),
            None,
            None,
            Some("failure of 7"),
            Some("[1, 2]"),
        ];
        assert_eq!(keys, expected.map(|key| key.map(str::to_owned)));
        assert_eq!((joined.inputs, joined.rest), (vec![0, 1, 2, 3, 5, 6, 7, 8], None));
        let payload = |row: usize| std::str::from_utf8(joined.batch.payload(row).unwrap()).unwrap();
        assert_eq!((payload(0), payload(1)), (r#"{"k":"a\u0062","z":2,"v":{"x":[1]}}"#, r#"{"k":7,"v":null}"#));
    }

    #[test]
    fn a_key_of_a_template_is_made_of_texts_and_fields_or_is_none() {
        let member = KeyedMember::of_template("urn:{k}:{o.n}", "v");
        let batch = batch_of(&[
            r#"{"k":"a\u0062","o":{"n":7}}"#,
            r#"{"k":1.5,"o":{"n":true}}"#,
            r#"{"k":"x","o":{"n":null}}"#,
            r#"{"k":"x"}"#,
        ]);
        let mut keys = Vec::new();
        member.apply(
            frame(&batch),
            |_| true,
            |_, key| {
                keys.push(key.unwrap().map(|key| String::from_utf8(key.to_vec()).unwrap()));
                None
            },
        );
        assert_eq!(keys, [Some("urn:ab:7"), Some("urn:1.5:true"), None, None].map(|key| key.map(str::to_owned)));
    }

    #[test]
    fn large_values_end_a_part_at_a_row_that_may_begin_one() {
        let member = KeyedMember::parse("k", "v", &Params::new()).unwrap();
        let batch = batch_of(&[r#"{"k":1}"#; 10]);
        let value = serde_json::to_vec(&"x".repeat(PART_MAX_BYTES / 3)).unwrap();
        let whole = member.apply(frame(&batch), |_| true, |_, _| Some(Cow::Borrowed(&value[..])));
        assert_eq!((whole.inputs, whole.rest), (vec![0, 1, 2], Some(3)));
        let pairs = member.apply(frame(&batch), |row| row % 2 == 0, |_, _| Some(Cow::Borrowed(&value[..])));
        assert_eq!((pairs.inputs, pairs.rest), (vec![0, 1, 2, 3], Some(4)));
    }
}
