//! Rift's signature of a request: HMAC-SHA512 (RFC 2104) over method, path, sorted query and the headers `x-ell-*`.

use millstream_http::Claim;
use sha2::{Digest as _, Sha512};

/// Bytes of a block of SHA-512.
const BLOCK_BYTES: usize = 128;
const HEADERS: &str = "x-ell-";

/// The text that a client signs.
pub(super) fn signed_text(claim: &Claim<'_>) -> Vec<u8> {
    text(claim.method.as_str(), claim.path, claim.query.unwrap_or_default(), claim.headers.iter())
}

fn text<'a>(method: &str, path: &str, query: &str, headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut parameters: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    // Stable, so that parameters of one name stay in their order.
    parameters.sort_by(|one, other| one.split('=').next().cmp(&other.split('=').next()));
    let mut headers: Vec<(String, &[u8])> = headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_ascii()))
        .filter(|(name, _)| name.starts_with(HEADERS))
        .collect();
    headers.sort();
    let mut text = format!("{method}\n{path}").into_bytes();
    if !parameters.is_empty() {
        text.push(b'?');
        text.extend_from_slice(parameters.join("&").as_bytes());
    }
    text.push(b'\n');
    for (name, value) in headers {
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        text.extend_from_slice(value);
        text.push(b'\n');
    }
    text
}

/// `true` if `hex` is the signature of `text`. It takes the same time wherever they differ.
pub(super) fn is_signature(hex: &str, secret: &str, text: &[u8]) -> bool {
    let expected = hex_of(&hmac_sha512(secret.as_bytes(), text));
    let given = hex.to_ascii_lowercase();
    let differing = given.bytes().zip(expected.bytes()).fold(0, |differing, (one, other)| differing | (one ^ other));
    given.len() == expected.len() && std::hint::black_box(differing) == 0
}

fn hmac_sha512(secret: &[u8], text: &[u8]) -> [u8; 64] {
    let mut key = [0; BLOCK_BYTES];
    if secret.len() > BLOCK_BYTES {
        key[..64].copy_from_slice(&Sha512::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret);
    }
    let inner = Sha512::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha512::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// Writes bytes as small hexadecimal digits.
pub(super) fn hex_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| DIGITS[usize::from(digit)] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_a_sorted_query_and_sorted_headers() {
        let headers: [(&str, &[u8]); 4] =
            [("X-Ell-B", b" two "), ("Host", b"h"), ("x-ell-a", b"1"), ("Content-Type", b"t")];
        let signed = text("POST", "/upload/photos/a%20b", "size=7&x=&offset=5", headers.into_iter());
        let expected = "POST\n/upload/photos/a%20b?offset=5&size=7&x=\nx-ell-a:1\nx-ell-b:two\n";
        assert_eq!(String::from_utf8(signed).unwrap(), expected);
        assert_eq!(text("GET", "/list/photos", "", [].into_iter()), b"GET\n/list/photos\n");
        assert_eq!(text("GET", "/list/b", "b=0&a=2&a=1", [].into_iter()), b"GET\n/list/b?a=2&a=1&b=0\n");
    }

    /// Signatures that Python's `hmac` computed, and the second case of RFC 4231.
    #[test]
    fn signatures_are_those_of_another_implementation() {
        let text = b"POST\n/upload/photos/a%20b?offset=5&size=7&x=\nx-ell-a:1\nx-ell-b:two\n";
        let long = "k".repeat(200);
        let cases: [(&str, &[u8], &str); 3] = [
            (
                "secret",
                text,
                "75b863338e31766ecd97bf1713f1db31bfe304c89614fec9b41d54700f2b650b82833d1d20a284df03b3dc8d2715d546525efe670c2d32e459ad94ace6df0820",
            ),
            (
                &long,
                b"GET\n/list/photos\n",
                "8e42fa39222fcc0c1a0badd70288f523f4bbcdf8daf35618dc8821dc6796a8fb9faef9ac096e8d7a3274d6e310f9b3cff629afd02855c15e6842207a9f23f9b5",
            ),
            (
                "Jefe",
                b"what do ya want for nothing?",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ];
        for (secret, text, signature) in cases {
            assert!(is_signature(signature, secret, text));
            assert!(is_signature(&signature.to_uppercase(), secret, text));
            assert!(!is_signature(signature, "other", text));
            assert!(!is_signature(&signature[..126], secret, text));
            assert!(!is_signature("", secret, text));
            assert!(!is_signature(signature, secret, &text[1..]));
        }
    }
}
