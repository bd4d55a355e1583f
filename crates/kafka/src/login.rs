//! The logins that the listener accepts: a trait that the server implements.

use std::fmt;
use std::sync::Arc;

use millstream_net::Revocation;
use millstream_types::Principal;

use crate::{ScramCredential, ScramMechanism};

/// A user with valid credentials.
#[derive(Debug, Clone)]
pub struct Login {
    /// The user, in its own tenant.
    pub principal: Arc<Principal>,
    /// The roles also hold for topics of all tenants whose names say their tenant (`telemetry.acme`).
    pub in_every_tenant: bool,
    /// Ends the login, and with it the connection; `None` for credentials that last as long as the process.
    pub revocation: Option<Revocation>,
}

/// Checks the credentials of users.
pub trait Logins: Send + Sync + 'static {
    /// The signal that ends connections without a login; `None` if every client must log in.
    fn open_access(&self) -> Option<Revocation>;

    /// The user `name`, if the password is right.
    fn log_in(&self, name: &str, password: &str) -> Option<Login>;

    /// The user `name`, and the keys for the check that it knows its password.
    fn scram(&self, name: &str, mechanism: ScramMechanism) -> Option<(ScramCredential, Login)>;
}

impl fmt::Debug for dyn Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}
