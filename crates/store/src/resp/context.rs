//! The context of a data command: the keys, the reply, and the events that its changes cause.

use std::borrow::Cow;

use bytes::Bytes;

use crate::resp::codec::ReplyWriter;
use crate::resp::events::{EventClass, EventClasses, KeyEvent};
use crate::resp::number::integer;
use crate::{Interrupted, KeyEntry, Transaction, Value};

/// Why a command has no reply of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Interrupted(Interrupted),
    /// The reply is this error.
    Error(Cow<'static, str>),
}

impl Fault {
    pub(crate) const SYNTAX: Self = Self::error("ERR syntax error");
    pub(crate) const NOT_AN_INTEGER: Self = Self::error("ERR value is not an integer or out of range");
    pub(crate) const TOO_LONG: Self = Self::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const NO_SUCH_KEY: Self = Self::error("ERR no such key");

    pub(crate) const fn error(text: &'static str) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    pub(crate) fn arity(command: &str) -> Self {
        Self::Error(format!("ERR wrong number of arguments for '{command}' command").into())
    }
}

impl From<Interrupted> for Fault {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Error(text.into())
    }
}

pub(crate) type Outcome = Result<(), Fault>;

/// A data command while it runs: its transaction, its reply and its limits.
pub(crate) struct Context<'a> {
    pub(crate) transaction: &'a mut dyn Transaction,
    pub(crate) reply: ReplyWriter<'a>,
    /// Number of the database that the client has selected.
    pub(crate) database: u32,
    /// Number of databases of the tenant.
    pub(crate) databases: u32,
    /// Longest value that a command may build.
    pub(crate) value_max_bytes: u64,
    /// Classes of events that somebody may listen to.
    pub(crate) classes: EventClasses,
    pub(crate) events: &'a mut Vec<KeyEvent>,
    /// `true` if the command has changed a key.
    pub(crate) has_written: bool,
}

impl Context<'_> {
    pub(crate) fn now_ms(&self) -> i64 {
        self.transaction.now_ms()
    }

    pub(crate) fn entry(&mut self, key: &[u8]) -> Option<KeyEntry> {
        self.transaction.entry(key)
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Value>, Fault> {
        Ok(self.transaction.get(key)?)
    }

    /// As [`Context::get`] for a command that only reads: a miss is an event.
    pub(crate) fn read(&mut self, key: &Bytes) -> Result<Option<Value>, Fault> {
        let value = self.transaction.get(key)?;
        if value.is_none() {
            self.event(EventClass::KeyMiss, "keymiss", key);
        }
        Ok(value)
    }

    /// The bytes of a value; none if there is no such key.
    pub(crate) fn bytes(&mut self, key: &Bytes) -> Result<Bytes, Fault> {
        Ok(self.read(key)?.map(|value| value.bytes).unwrap_or_default())
    }

    pub(crate) fn put(&mut self, key: &Bytes, value: Value) -> Outcome {
        let is_new = self.classes.contains(EventClass::New) && self.entry(key).is_none();
        self.transaction.put(key, value)?;
        self.has_written = true;
        if is_new {
            self.event(EventClass::New, "new", key);
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        let was_there = self.transaction.delete(key);
        self.has_written |= was_there;
        was_there
    }

    /// Notes an event that is published once the transaction has taken effect.
    pub(crate) fn event(&mut self, class: EventClass, name: &'static str, key: &Bytes) {
        if self.classes.contains(class) {
            self.events.push(KeyEvent { class, name, key: key.clone() });
        }
    }

    /// Refuses a value of more bytes than a command may build, before memory is taken for it.
    pub(crate) fn check_length(&self, bytes: u64) -> Outcome {
        if bytes > self.value_max_bytes { Err(Fault::TOO_LONG) } else { Ok(()) }
    }
}

/// Reads an integer argument of 64 bits.
pub(crate) fn integer_argument(argument: &[u8]) -> Result<i64, Fault> {
    integer(argument).ok_or(Fault::NOT_AN_INTEGER)
}

/// `true` if `argument` is the keyword `word`, in letters of either case.
pub(crate) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// Text of a client inside a message: what is not printable ASCII is escaped.
pub(crate) fn shown(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}
