//! The address of a receiver.

use std::net::IpAddr;

/// A host and port, and whether it speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name, or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The connection is TLS.
    pub is_tls: bool,
}

/// Longest name of a host and longest part of it between two points (RFC 1035, section 2.3.4).
const NAME_MAX_CHARS: usize = 253;
const LABEL_MAX_CHARS: usize = 63;

/// The text is an IP address, or may be a host's name: parts of letters, digits, hyphens and underscores, which do not
/// begin or end with a hyphen (RFC 1123, section 2.1; names of containers have underscores). A last part of digits alone
/// makes it an address.
pub fn is_host(text: &str) -> bool {
    if text.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_legal = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    let is_label = |label: &str| {
        (1..=LABEL_MAX_CHARS).contains(&label.len())
            && label.bytes().all(is_legal)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= NAME_MAX_CHARS && name.split('.').all(is_label) && !last.bytes().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_name_by_its_rules() {
        let (label, name) = ("x".repeat(LABEL_MAX_CHARS), "a.".repeat(126) + "b");
        for host in
            ["h", "localhost", "a-b.example", "quantum_leap", "3com.com", "h.", "127.0.0.1", "::1", &label, &name]
        {
            assert!(is_host(host), "{host}");
        }
        let (label, name) = (format!("{label}x"), format!("{name}.c"));
        for host in
            ["", ".", ".bad", "a..b", "-a", "a-.b", "a b", "a$", "300.1.1.1", "1.2.3", "12", "ä.de", &label, &name]
        {
            assert!(!is_host(host), "{host}");
        }
    }
}
