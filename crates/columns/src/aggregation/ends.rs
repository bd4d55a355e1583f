//! The first or the last value, by event time; of equal times the partition and the offset decide, so that the result does not
//! depend on which thread saw a record.

use datasketches::codec::{SketchBytes, SketchSlice};
use datasketches::error::Error;

use super::key::{cut, damaged, owned, read_bytes, read_tuple, write_input};
use crate::Value;

/// The end of the records that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordEnd {
    First,
    Last,
}

/// A value and the place of its record: time, partition, offset.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    place: [i64; 3],
    value: Value<'static>,
}

impl Placed {
    /// Keeps the one of `kept` and the record's value that is nearer to the end. `inputs` are the value and its place. NULL, lists
    /// and maps do not count.
    pub(crate) fn take(kept: &mut Option<Box<Self>>, end: RecordEnd, inputs: &[Value<'_>]) {
        let [value, place @ ..] = inputs else { return };
        if matches!(value, Value::Null | Value::Nested(_) | Value::List(_)) {
            return;
        }
        let number = |place: Option<&Value<'_>>| match place {
            Some(Value::Integer(number)) => *number,
            _ => i64::MIN,
        };
        let place = std::array::from_fn(|i| number(place.get(i)));
        if !kept.as_ref().is_none_or(|kept| kept.is_beaten_by(end, place)) {
            return;
        }
        match (kept.as_deref_mut(), value) {
            (Some(Self { place: kept_place, value: Value::Text(kept) }), Value::Text(text)) => {
                *kept_place = place;
                // The memory of the text before is used again.
                let kept = kept.to_mut();
                kept.clear();
                kept.push_str(text);
            }
            (Some(kept), value) => *kept = Self { place, value: owned(value.clone()) },
            (None, value) => *kept = Some(Box::new(Self { place, value: owned(value.clone()) })),
        }
    }

    pub(crate) fn merge(kept: &mut Option<Box<Self>>, end: RecordEnd, other: Option<&Self>) {
        if let Some(other) = other
            && kept.as_ref().is_none_or(|kept| kept.is_beaten_by(end, other.place))
        {
            *kept = Some(Box::new(other.clone()));
        }
    }

    fn is_beaten_by(&self, end: RecordEnd, place: [i64; 3]) -> bool {
        match end {
            RecordEnd::First => place < self.place,
            RecordEnd::Last => place > self.place,
        }
    }

    pub(crate) fn value(&self) -> Value<'static> {
        self.value.clone()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>() + if let Value::Text(text) = &self.value { text.len() } else { 0 }
    }

    pub(crate) fn write(kept: Option<&Self>, out: &mut SketchBytes) {
        let mut value = Vec::new();
        if let Some(kept) = kept {
            write_input(&mut value, &kept.value);
        }
        out.write_u64_le(value.len() as u64);
        out.write(&value);
        kept.into_iter().flat_map(|kept| kept.place).for_each(|number| out.write_i64_le(number));
    }

    pub(crate) fn read(input: &mut SketchSlice<'_>) -> Result<Option<Box<Self>>, Error> {
        let length = input.read_u64_le().map_err(cut)?;
        if length == 0 {
            return Ok(None);
        }
        let bytes = read_bytes(input, length)?;
        let value = match <[Value<'_>; 1]>::try_from(read_tuple(&bytes)?) {
            Ok([value]) => owned(value),
            Err(_) => return Err(damaged("several values where one is needed")),
        };
        let mut place = [0; 3];
        for number in &mut place {
            *number = input.read_i64_le().map_err(cut)?;
        }
        Ok(Some(Box::new(Self { place, value })))
    }
}
