use std::borrow::Cow;

use serde_json::Value;

use crate::limits::{STEPS_MAX, VALUE_DEPTH_MAX, WORK_MAX_BYTES};

/// The steps and bytes that are left to an evaluation. Once they are used up they stay so, and the result is null.
pub(crate) struct Budget {
    steps: usize,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { steps: STEPS_MAX, bytes: WORK_MAX_BYTES }
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

    pub(crate) fn is_spent(&self) -> bool {
        self.steps == 0
    }

    fn spend(&mut self) {
        (self.steps, self.bytes) = (0, 0);
    }
}
