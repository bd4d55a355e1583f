//! The rules of other planes for the members of `ext` that they read.

use serde_json::{Map, Value};

/// Asked before a document is stored. A refusal is a text with value, rule and remedy.
pub trait ExtRules: Send + Sync + 'static {
    /// Judges the `ext` of a tenant.
    ///
    /// # Errors
    /// Returns the reason for which the object is invalid.
    fn check_tenant(&self, ext: &Map<String, Value>) -> Result<(), String>;

    /// Judges the `ext` of a device of the tenant that has `of_tenant`.
    ///
    /// # Errors
    /// Returns the reason for which the object is invalid.
    fn check_device(&self, of_tenant: &Map<String, Value>, ext: &Map<String, Value>) -> Result<(), String>;
}

/// Accepts every object, for programs in which no plane reads `ext`.
impl ExtRules for () {
    fn check_tenant(&self, _: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }

    fn check_device(&self, _: &Map<String, Value>, _: &Map<String, Value>) -> Result<(), String> {
        Ok(())
    }
}
