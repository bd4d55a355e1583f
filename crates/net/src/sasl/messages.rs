//! The first messages of clients in PLAIN and OAUTHBEARER.

/// Returns the token of a message of OAUTHBEARER: `n,[a=name to act under],` and, between characters 1, `auth=Bearer token` among pairs (RFC 7628).
pub fn bearer_message(message: &[u8]) -> Option<&str> {
    let mut parts = std::str::from_utf8(message).ok()?.split('\x01');
    parts.next().filter(|header| header.starts_with("n,") && header.ends_with(','))?;
    let (scheme, token) = parts.find_map(|pair| pair.strip_prefix("auth="))?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// Returns name and password of a message of PLAIN: `[name to act under] NUL name NUL password` (RFC 4616). A name to act
/// under must be the name itself.
pub fn plain_message(message: &[u8]) -> Option<(&str, &str)> {
    let mut parts = std::str::from_utf8(message).ok()?.split('\0');
    let (acting, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    (parts.next().is_none() && (acting.is_empty() || acting == name)).then_some((name, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_message_is_a_name_and_a_password_and_nothing_else() {
        assert_eq!(plain_message(b"\0ops\0secret"), Some(("ops", "secret")));
        assert_eq!(plain_message(b"ops\0ops\0secret"), Some(("ops", "secret")));
        for bad in [&b"ops\0secret"[..], b"other\0ops\0secret", b"\0ops\0secret\0more", b"\0\xff\0secret", b""] {
            assert_eq!(plain_message(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_bearer_message_has_a_token_and_may_have_extensions() {
        for (message, token) in [
            (&b"n,,\x01auth=Bearer t.o.k\x01\x01"[..], Some("t.o.k")),
            (b"n,a=ops,\x01host=h\x01auth=bearer t\x01x=y\x01\x01", Some("t")),
            (b"n,,\x01auth=Basic t\x01\x01", None),
            (b"n,,\x01auth=Bearer \x01\x01", None),
            (b"p=tls-exporter,,\x01auth=Bearer t\x01\x01", None),
            (b"\x01auth=Bearer t\x01\x01", None),
            (b"n,,\x01\x01", None),
            (b"\xff", None),
        ] {
            assert_eq!(bearer_message(message), token, "{message:?}");
        }
    }
}
