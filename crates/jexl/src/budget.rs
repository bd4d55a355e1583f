use std::borrow::Cow;

use serde_json::Value;

use crate::limits::{STEPS_MAX, VALUE_DEPTH_MAX, WORK_MAX_BYTES};

/// The work that is left to one evaluation or several: at first [`STEPS_MAX`] steps and [`WORK_MAX_BYTES`] bytes. Once either is
/// used up it stays so, and all further results are null.
#[derive(Debug)]
pub struct Budget {
    steps: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps: STEPS_MAX, bytes: WORK_MAX_BYTES }
    }
}

impl Budget {
    /// Returns a budget of which nothing is left.
    pub fn spent() -> Self {
        Self { steps: 0, bytes: 0 }
    }

    /// The part that is used, from 0 to 1.
    pub fn used(&self) -> f64 {
        let of = |left: usize, all: usize| 1.0 - left as f64 / all as f64;
        of(self.steps, STEPS_MAX).max(of(self.bytes, WORK_MAX_BYTES))
    }

    /// Takes one step; `None` if there is none left.
    pub(crate) fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }

    /// Takes bytes that are read or made; `None` if too few are left.
    pub(crate) fn bytes(&mut self, bytes: usize) -> Option<()> {
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                Some(())
            }
            None => {
                self.spend();
                None
            }
        }
    }

    /// Takes the bytes of a value that is copied; `None` if too few are left or the value is too deep.
    pub(crate) fn copy(&mut self, value: &Value) -> Option<()> {
        self.walk(value, VALUE_DEPTH_MAX)
    }

    /// Returns the value as the caller's own; `None` if it has to be copied and too few bytes are left, or it is too
    /// deep.
    pub(crate) fn own(&mut self, value: Cow<'_, Value>) -> Option<Value> {
        if let Cow::Borrowed(value) = &value {
            self.copy(value)?;
        }
        Some(value.into_owned())
    }

    fn walk(&mut self, value: &Value, depth: usize) -> Option<()> {
        let own = size_of::<Value>();
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.bytes(own),
            Value::String(text) => self.bytes(own + text.len()),
            Value::Array(items) => {
                let deeper = depth.checked_sub(1)?;
                self.bytes(own)?;
                items.iter().try_for_each(|item| self.walk(item, deeper))
            }
            Value::Object(members) => {
                let deeper = depth.checked_sub(1)?;
                self.bytes(own)?;
                members.iter().try_for_each(|(name, member)| {
                    self.bytes(own + name.len())?;
                    self.walk(member, deeper)
                })
            }
        }
    }

    /// `true` if it did not suffice.
    pub fn is_spent(&self) -> bool {
        self.steps == 0
    }

    fn spend(&mut self) {
        (self.steps, self.bytes) = (0, 0);
    }
}
