//! The records of a batch that are not yet bytes: members of a payload that pass, and columns that follow them.

use std::borrow::Cow;
use std::sync::Arc;

use super::base::Base;
use super::column::Column;
use crate::object;

/// Room that is made for objects before they are written.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// The name of a member, and as JSON.
#[derive(Debug)]
pub(crate) struct MemberName {
    pub(crate) text: String,
    /// `"name":`
    prefix: Vec<u8>,
}

impl MemberName {
    pub(crate) fn new(text: &str) -> Arc<Self> {
        let mut prefix = Vec::new();
        object::write_text(&mut prefix, text);
        prefix.push(b':');
        Arc::new(Self { text: text.to_owned(), prefix })
    }
}

/// A member of every row.
#[derive(Debug, Clone)]
pub(crate) struct ComputedMember {
    pub(crate) name: Arc<MemberName>,
    pub(crate) column: Arc<Column>,
}

/// The members of the rows of a [`Base`]: those of their payloads, and then columns.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    /// `None` if no member of the payloads passes.
    passing: Option<Passing>,
    members: Vec<ComputedMember>,
    /// Rows without a value; empty without such rows.
    nulls: Vec<bool>,
}

/// All members of the payloads but some.
#[derive(Debug, Clone, Default)]
struct Passing {
    left_out: Vec<Arc<MemberName>>,
    /// Rows whose payload has one of `left_out`; empty without such rows.
    lose: Vec<bool>,
}

/// The source of a member's values.
pub(crate) enum MemberSource<'a> {
    /// The payloads, those that have it.
    Payload,
    Column(&'a Column),
    /// The member is in no row of the batch.
    Nowhere,
}

impl Shape {
    pub(super) fn whole() -> Self {
        Self { passing: Some(Passing::default()), ..Self::default() }
    }

    pub(super) fn nothing() -> Self {
        Self::default()
    }

    pub(super) fn set_nulls(&mut self, nulls: Vec<bool>) {
        self.nulls = nulls;
    }

    /// `true` if a row has no value.
    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.get(row).is_some_and(|is_null| *is_null)
    }

    pub(super) fn member(&self, name: &str) -> MemberSource<'_> {
        if let Some(member) = self.members.iter().find(|member| member.name.text == name) {
            return MemberSource::Column(&member.column);
        }
        match &self.passing {
            Some(passing) if !passing.left_out.iter().any(|left_out| left_out.text == name) => MemberSource::Payload,
            _ => MemberSource::Nowhere,
        }
    }

    /// Leaves out these members. `lose` tells of each row if its payload has one; it is empty if none has.
    pub(super) fn leave_out(&mut self, names: &[Arc<MemberName>], lose: &[bool]) {
        self.members.retain(|member| !names.iter().any(|name| name.text == member.name.text));
        let Some(passing) = &mut self.passing else { return };
        if passing.lose.is_empty() {
            passing.lose = lose.to_vec();
        } else {
            passing.lose.iter_mut().zip(lose).for_each(|(loses, also)| *loses |= also);
        }
        for name in names {
            if !passing.left_out.iter().any(|left_out| left_out.text == name.text) {
                passing.left_out.push(Arc::clone(name));
            }
        }
    }

    pub(super) fn extend(&mut self, members: impl IntoIterator<Item = ComputedMember>) {
        self.members.extend(members);
    }

    /// The same members for rows in another selection and order.
    pub(super) fn gather(&self, rows: &[u32]) -> Self {
        let gather = |member: &ComputedMember| ComputedMember {
            name: Arc::clone(&member.name),
            column: Arc::new(member.column.gather(rows)),
        };
        let passing = self.passing.as_ref().map(|Passing { left_out, lose }| Passing {
            left_out: left_out.clone(),
            lose: if lose.is_empty() { Vec::new() } else { rows.iter().map(|row| lose[*row as usize]).collect() },
        });
        let nulls = match self.nulls.is_empty() {
            true => Vec::new(),
            false => rows.iter().map(|row| self.nulls[*row as usize]).collect(),
        };
        Self { passing, members: self.members.iter().map(gather).collect(), nulls }
    }

    /// Writes the objects of `rows`.
    pub(super) fn render(&self, base: &Base, rows: impl ExactSizeIterator<Item = usize>) -> Rendered {
        let mut rendered = Rendered { bytes: Vec::new(), ends: Vec::with_capacity(rows.len()) };
        let count = rows.len();
        for (written, row) in rows.enumerate() {
            self.write(base, row, &mut rendered.bytes);
            rendered.ends.push(rendered.bytes.len());
            if written == 0 {
                // Others are about as long.
                let expected = (rendered.bytes.len() + rendered.bytes.len() / 8).saturating_mul(count);
                rendered.bytes.reserve(expected.min(BUFFER_BYTES));
            }
        }
        rendered
    }

    fn write(&self, base: &Base, row: usize, out: &mut Vec<u8>) {
        match self.passing.as_ref().zip(base.payload(row)) {
            None => out.push(b'{'),
            Some((passing, object)) if !passing.lose.get(row).is_some_and(|loses| *loses) => {
                object::write_open(object, out);
            }
            Some((passing, object)) => {
                let is_left_out = |name: &str| passing.left_out.iter().any(|left_out| left_out.text == name);
                object::write_open_without(object, is_left_out, out);
            }
        }
        for member in &self.members {
            object::separate(out);
            out.extend_from_slice(&member.name.prefix);
            member.column.write_json(row, out);
        }
        out.push(b'}');
    }
}

/// Objects that were written, one after the other.
#[derive(Debug)]
pub(super) struct Rendered {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Rendered {
    pub(super) fn object(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[row]]
    }
}

/// The whole numbers of a member, by row.
#[derive(Debug, Clone)]
pub struct Integers<'a> {
    /// 0 for a row without one.
    pub values: Cow<'a, [i64]>,
    /// The rows without one, ascending.
    pub missing: Vec<u32>,
}
