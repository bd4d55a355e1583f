//! The logins that the listener accepts: a trait that the server implements.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use millstream_types::{Principal, TenantId};

use super::scram::{ScramCredential, ScramMechanism};
use crate::{RefusedLogin, Revocation};

/// A user with valid credentials.
#[derive(Debug, Clone)]
pub struct Login {
    /// The user, in its own tenant.
    pub principal: Arc<Principal>,
    /// The roles also hold for topics of all tenants whose names say their tenant (`telemetry.acme`).
    pub in_every_tenant: bool,
    /// Ends the login, and with it the connection; `None` for credentials that last as long as the process.
    pub revocation: Option<Revocation>,
    /// Wall time at which the credentials expire, milliseconds since 1970-01-01T00:00:00Z; `None` if they do not.
    pub expires_ms: Option<i64>,
}

/// A user that can log in by SCRAM, without its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScramUser {
    /// Its name.
    pub name: String,
    /// How often its secret is hashed for SCRAM-SHA-256.
    pub sha_256_iterations: u32,
    /// The same for SCRAM-SHA-512.
    pub sha_512_iterations: u32,
}

impl ScramUser {
    /// How often its secret is hashed for `mechanism`.
    pub fn iterations(&self, mechanism: ScramMechanism) -> u32 {
        match mechanism {
            ScramMechanism::Sha256 => self.sha_256_iterations,
            ScramMechanism::Sha512 => self.sha_512_iterations,
        }
    }
}

/// The check of a password, which may wait for somebody who knows.
pub type LoginCheck<'a> = Pin<Box<dyn Future<Output = Result<Login, RefusedLogin>> + Send + 'a>>;

/// Checks the credentials of users.
pub trait Logins: Send + Sync + 'static {
    /// The signal that ends connections without a login; `None` if every client must log in.
    fn open_access(&self) -> Option<Revocation>;

    /// The user `name`, if the password is right; without a name, the user whose token the password is.
    fn log_in<'a>(&'a self, name: Option<&'a str>, password: &'a str) -> LoginCheck<'a>;

    /// The user `name`, and the keys for the check that it knows its password.
    fn scram(&self, name: &str, mechanism: ScramMechanism) -> Option<(ScramCredential, Login)>;

    /// The users of `tenant` that can log in by SCRAM; all users if `None`.
    fn scram_users(&self, tenant: Option<&TenantId>) -> Vec<ScramUser>;
}

impl fmt::Debug for dyn Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logins")
    }
}
