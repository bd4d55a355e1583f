//! The caller of a request and its roles.

use crate::{AccessScope, TenantId};

/// A permission of a caller within a tenant. No role includes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// May read entities, streams and queries.
    Reader,
    /// May write entities and records, and send commands.
    Writer,
    /// May change tenants, devices, credentials, topics and jobs.
    Admin,
    /// A device that proved itself with its credentials.
    Device,
}

/// A set of [`Role`]s of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles(u8);

impl Roles {
    /// The set without any role.
    pub const NONE: Self = Self(0);
    /// The roles of a caller on loopback while no authentication is configured: all except `Device`.
    pub const APPLICATION: Self = Self(0b111);

    /// Returns the set with `role` added.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }

    /// `true` if the set contains `role`.
    pub const fn has(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }
}

/// The authenticated caller of a request. Handlers receive this, never a bare tenant string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant in which the caller acts.
    pub tenant: TenantId,
    /// Name of the caller for logs: a token's name, a device id, or `anonymous`.
    pub name: String,
    /// The roles of the caller in `tenant`.
    pub roles: Roles,
    /// The part of `tenant` for which it has them.
    pub scope: AccessScope,
}

impl Principal {
    /// `true` for an administrator of the whole tenant: one whose scope has no limit.
    pub fn administers_tenant(&self) -> bool {
        self.roles.has(Role::Admin) && !self.scope.is_limited()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_only_the_roles_that_were_given() {
        const ALL: [Role; 4] = [Role::Reader, Role::Writer, Role::Admin, Role::Device];
        assert!(ALL.iter().all(|&role| !Roles::NONE.has(role)));
        for given in ALL {
            let roles = Roles::NONE.with(given);
            assert!(ALL.iter().all(|&role| roles.has(role) == (role == given)));
        }
        assert!(ALL.iter().all(|&role| Roles::APPLICATION.has(role) == (role != Role::Device)));
    }

    #[test]
    fn a_tenant_is_administered_by_admins_without_a_limit() {
        let (limited, whole) = (AccessScope::new(&["ord".to_owned()], &[], &[]), AccessScope::default());
        for (roles, scope, is_admin) in [
            (Roles::APPLICATION, &whole, true),
            (Roles::NONE.with(Role::Admin), &whole, true),
            (Roles::APPLICATION, &limited, false),
            (Roles::NONE.with(Role::Reader).with(Role::Writer), &whole, false),
        ] {
            let caller = Principal { tenant: TenantId::default(), name: String::new(), roles, scope: scope.clone() };
            assert_eq!(caller.administers_tenant(), is_admin, "{caller:?}");
        }
    }
}
