//! Described lists of fields: performatives, termini, outcomes and sections.

use crate::Error;
use crate::value::{Items, Map, Multiple};
use crate::value::{Symbol, Timestamp, Value};
use crate::write::{self, FieldWriter};

/// A described list of fields.
pub(crate) trait Composite<'a>: Sized {
    const DESCRIPTOR: u64;

    fn read(fields: Items<'a>) -> Result<Self, Error>;

    fn write(&self, out: &mut Vec<u8>);
}

/// The value of a field.
pub(crate) trait Field<'a>: Sized + PartialEq {
    /// The value of a field that is left out or null; `None` if it must be there.
    fn absent() -> Option<Self> {
        None
    }

    /// Reads a value that is not null; `None` if it has another type.
    fn read(value: Value<'a>) -> Option<Self>;

    fn is_absent(&self) -> bool {
        false
    }

    fn write(&self, out: &mut Vec<u8>);
}

/// The fields of a list, read in order.
pub(crate) struct FieldReader<'a, V> {
    composite: &'static str,
    values: V,
    _borrowed: std::marker::PhantomData<&'a ()>,
}

impl<'a, V: Iterator<Item = Result<Value<'a>, Error>>> FieldReader<'a, V> {
    pub(crate) fn new(composite: &'static str, values: V) -> Self {
        Self { composite, values, _borrowed: std::marker::PhantomData }
    }

    pub(crate) fn next<T: Field<'a>>(&mut self, field: &'static str, default: Option<T>) -> Result<T, Error> {
        let composite = self.composite;
        match self.values.next().transpose()? {
            None | Some(Value::Null) => default.or_else(T::absent).ok_or(Error::Missing { composite, field }),
            Some(value) => T::read(value).ok_or(Error::Type { composite, field }),
        }
    }
}

/// Writes a field, or leaves it out if it has no value or the default one.
pub(crate) fn write_field<'a, T: Field<'a>>(fields: &mut FieldWriter<'_>, field: &T, default: Option<&T>) {
    if field.is_absent() || default == Some(field) {
        fields.absent();
    } else {
        field.write(fields.field());
    }
}

macro_rules! composite {
    (
        $(#[$about:meta])*
        $name:ident $(<$life:lifetime>)? = $descriptor:literal {
            $($(#[$of_field:meta])* $field:ident: $type:ty $(= $default:expr)?),* $(,)?
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct $name $(<$life>)? {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl<'a> $crate::composite::Composite<'a> for $name $(<$life>)? {
            const DESCRIPTOR: u64 = $descriptor;

            #[allow(unused_mut, unused_variables, reason = "some have no fields")]
            fn read(fields: $crate::value::Items<'a>) -> Result<Self, $crate::Error> {
                let mut fields = $crate::composite::FieldReader::new(stringify!($name), fields.values());
                Ok(Self { $($field: fields.next(stringify!($field), composite!(@default $($default)?))?,)* })
            }

            #[allow(unused_mut, reason = "some have no fields")]
            fn write(&self, out: &mut Vec<u8>) {
                let mut fields = $crate::write::FieldWriter::begin(out, $descriptor);
                $($crate::composite::write_field(&mut fields, &self.$field, composite!(@default $($default)?).as_ref());)*
                fields.finish();
            }
        }
    };
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
}

pub(crate) use composite;

macro_rules! plain_field {
    ($($type:ty: $variant:ident),* $(,)?) => {
        $(impl<'a> Field<'a> for $type {
            fn read(value: Value<'a>) -> Option<Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }

            fn write(&self, out: &mut Vec<u8>) {
                write::value(out, Value::$variant(*self));
            }
        })*
    };
}

plain_field! {
    bool: Bool,
    u8: Ubyte,
    u16: Ushort,
    u32: Uint,
    u64: Ulong,
    Timestamp: Timestamp,
    &'a str: String,
    &'a [u8]: Binary,
    Symbol<'a>: Symbol,
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn absent() -> Option<Self> {
        Some(None)
    }

    fn read(value: Value<'a>) -> Option<Self> {
        T::read(value).map(Some)
    }

    fn is_absent(&self) -> bool {
        self.as_ref().is_none_or(Field::is_absent)
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(inner) = self {
            inner.write(out);
        }
    }
}

impl<'a> Field<'a> for Map<'a> {
    fn read(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Map(items) => Some(Self(items)),
            _ => None,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        write::value(out, Value::Map(self.0));
    }
}

impl<'a> Field<'a> for Multiple<'a> {
    fn absent() -> Option<Self> {
        Some(Self::None)
    }

    fn read(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Symbol(symbol) => Some(Self::One(symbol)),
            Value::Array(array) => Some(Self::Many(array)),
            _ => None,
        }
    }

    fn is_absent(&self) -> bool {
        *self == Self::None
    }

    fn write(&self, out: &mut Vec<u8>) {
        write::value(
            out,
            match *self {
                Self::None => Value::Null,
                Self::One(symbol) => Value::Symbol(symbol),
                Self::Many(array) => Value::Array(array),
            },
        );
    }
}

/// A field of any type.
impl<'a> Field<'a> for Value<'a> {
    fn read(value: Self) -> Option<Self> {
        Some(value)
    }

    fn write(&self, out: &mut Vec<u8>) {
        write::value(out, *self);
    }
}

/// Reads a field that is a described list of one type.
pub(crate) fn read_composite<'a, T: Composite<'a>>(value: Value<'a>) -> Option<T> {
    match value {
        Value::Described(described) if described.descriptor == T::DESCRIPTOR => T::read(described.fields().ok()?).ok(),
        _ => None,
    }
}
