//! Who calls, and what he may do.

use crate::TenantId;

/// What a caller may do within a tenant. Each role includes nothing of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Reads entities, streams, queries.
    Reader,
    /// Writes entities and records, sends commands.
    Writer,
    /// Changes tenants, devices, credentials, topics, jobs.
    Admin,
    /// A device that proved itself with its credentials.
    Device,
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles(u8);

impl Roles {
    /// No role at all.
    pub const NONE: Self = Self(0);
    /// What a caller on loopback may do while no authentication is configured: everything but be a device.
    pub const APPLICATION: Self = Self(0b111);

    /// This set and `role`.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }

    /// Whether `role` is in the set.
    pub const fn has(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }
}

/// The caller of a request, as established at the rim. Handlers receive this, never a bare tenant string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant in which the caller acts.
    pub tenant: TenantId,
    /// The caller's name for logs: a token's name, a device id, or `anonymous`.
    pub name: String,
    /// What the caller may do in `tenant`.
    pub roles: Roles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_had_only_if_it_was_given() {
        const ALL: [Role; 4] = [Role::Reader, Role::Writer, Role::Admin, Role::Device];
        assert!(ALL.iter().all(|&role| !Roles::NONE.has(role)));
        for given in ALL {
            let roles = Roles::NONE.with(given);
            assert!(ALL.iter().all(|&role| roles.has(role) == (role == given)));
        }
        assert!(ALL.iter().all(|&role| Roles::APPLICATION.has(role) == (role != Role::Device)));
    }
}
