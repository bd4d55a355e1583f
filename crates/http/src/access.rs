//! The callers of a route.

use axum::http::Method;
use millstream_types::Role;

/// The callers that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone, without authentication; the handler gets no caller.
    Public,
    /// Callers with this role in the tenant of the request.
    Role(Role),
    /// Callers with this role in every tenant, for routes that affect the whole installation.
    Operator(Role),
    /// The route is open to authenticated devices only.
    Device,
}

impl Access {
    /// `true` for requests that change something and take the role of an administrator.
    pub(crate) fn administers(self, method: &Method) -> bool {
        self.role() == Some(Role::Admin) && !method.is_safe()
    }

    pub(crate) const fn role(self) -> Option<Role> {
        match self {
            Self::Public => None,
            Self::Role(role) | Self::Operator(role) => Some(role),
            Self::Device => Some(Role::Device),
        }
    }
}
