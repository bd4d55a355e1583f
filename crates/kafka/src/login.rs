//! The logins that the listener accepts: a trait that the server implements.

use std::fmt;
use std::sync::Arc;

use millstream_types::Principal;

/// A user with a valid password.
#[derive(Debug, Clone)]
pub struct Login {
    /// The user, in its own tenant.
    pub principal: Arc<Principal>,
    /// The roles also hold for topics of all tenants whose names say their tenant (`telemetry.acme`).
    pub in_every_tenant: bool,
}

/// Checks names and passwords of users.
pub trait Logins: Send + Sync + 'static {
    /// The user `name`, if the password is right.
    fn log_in(&self, name: &str, password: &str) -> Option<Login>;
}

impl fmt::Debug for dyn Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}
