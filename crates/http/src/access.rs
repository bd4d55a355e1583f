//! The callers of a route.

use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use millstream_types::Role;

use crate::Headers;

/// The callers that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone, without authentication; the handler gets no caller.
    Public,
    /// Anyone; a caller that shows credentials is authenticated, and refused if they are wrong.
    OptionalLogin,
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

    /// `true` if a request with these headers is authenticated.
    pub(crate) fn authenticates(self, headers: Headers<'_>) -> bool {
        match self {
            Self::Public => false,
            Self::OptionalLogin => headers.get(AUTHORIZATION.as_str()).is_some(),
            Self::Role(_) | Self::Operator(_) | Self::Device => true,
        }
    }

    /// The role that callers need; `None` if they need none.
    pub(crate) const fn role(self) -> Option<Role> {
        match self {
            Self::Public | Self::OptionalLogin => None,
            Self::Role(role) | Self::Operator(role) => Some(role),
            Self::Device => Some(Role::Device),
        }
    }
}
