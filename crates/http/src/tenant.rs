//! The tenant that the headers of a request name.

use std::borrow::Cow;

use millstream_types::TenantId;

use crate::{Problem, Reason};

/// Headers that name the tenant of a request if the path of its route does not.
pub const TENANT_HEADERS: [&str; 3] = [FIWARE_SERVICE, "x-tenant", NGSILD_TENANT];
/// NGSI's tenant headers, whose values are not case-sensitive.
const FIWARE_SERVICE: &str = "fiware-service";
const NGSILD_TENANT: &str = "ngsild-tenant";

/// The tenant that a request's headers name.
pub(crate) fn tenant_of<'h>(get: impl Fn(&str) -> Option<&'h [u8]>) -> Result<Option<TenantId>, Problem> {
    let mut named: Option<Cow<'_, str>> = None;
    for header in TENANT_HEADERS {
        let Some(bytes) = get(header) else { continue };
        let Some(value) = std::str::from_utf8(bytes).ok().filter(|value| !value.contains(|c: char| !is_text(c))) else {
            return Err(Problem::new(Reason::MalformedParameter, format!("header {header} is not ASCII text"))
                .value(String::from_utf8_lossy(bytes)));
        };
        // The value is folded before authorization, because the tenant decides what the caller may do.
        let value = match header {
            FIWARE_SERVICE | NGSILD_TENANT => Cow::from(value.to_ascii_lowercase()),
            _ => Cow::from(value),
        };
        if named.is_some_and(|other| other != value) {
            return Err(Problem::invalid("two headers name different tenants")
                .value(value)
                .rule("Fiware-Service, X-Tenant and NGSILD-Tenant mean the same")
                .remedy("send one of them"));
        }
        named = Some(value);
    }
    Ok(named.filter(|value| !value.is_empty()).map(|value| TenantId::new(&value)).transpose()?)
}

/// Returns `true` if a header's value may contain the character.
const fn is_text(c: char) -> bool {
    matches!(c, ' '..='~' | '\t')
}
