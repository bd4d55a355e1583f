//! Names of certificates' subjects and issuers: from DER, and from text as operators write it (RFC 2253, RFC 4514).
//!
//! Both ways lead to one form, so that names can be compared as text: the most particular part first, no space between
//! parts, short names in capitals, other attributes by number with the value's DER in hexadecimal digits.

use std::fmt::Write as _;

use super::der::{OID, SEQUENCE, element, expect};

/// Short names of RFC 4514; all other attributes are named by their numbers.
const ATTRIBUTES: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 1], "UID"),
];

/// A text that is no name of a certificate's subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{value}' is no distinguished name: {reason}; write it as RFC 2253 does, for example CN=thermometer-7,O=Example, with \
     CN, L, ST, O, OU, C, STREET, DC, UID, or a number and the value in DER, as in 1.2.840.113549.1.9.1=#1603612e62"
)]
pub struct NameError {
    value: String,
    reason: &'static str,
}

impl NameError {
    /// The refusal of a name that is longer than its reader takes.
    pub fn too_long(text: &str) -> Self {
        Self { value: text.chars().take(128).collect(), reason: "it is too long" }
    }
}

/// The common form of a name that is given as text.
///
/// # Errors
/// [`NameError`] with the text, the rule that it breaks and an example.
pub fn normalized_name(text: &str) -> Result<String, NameError> {
    let refuse = |reason| NameError { value: text.chars().take(128).collect(), reason };
    let mut out = String::new();
    let mut rest = text;
    loop {
        let (kind, behind) = rest.split_once('=').ok_or_else(|| refuse("a part has no '='"))?;
        let kind = short_name(kind.trim()).ok_or_else(|| refuse("an attribute has an unknown name"))?;
        let (value, end, behind) = read_value(behind).map_err(refuse)?;
        let is_number = kind.starts_with(|first: char| first.is_ascii_digit());
        out.push_str(&kind);
        out.push('=');
        match value {
            AttributeValue::Text(_) if is_number => return Err(refuse("a numbered attribute has its value as text")),
            AttributeValue::Text(text) if text.is_empty() => return Err(refuse("a value is empty")),
            AttributeValue::Text(text) => write_escaped(&mut out, &text),
            AttributeValue::Hex(digits) => {
                out.push('#');
                out.push_str(&digits);
            }
        }
        match end {
            None => return Ok(out),
            Some(';') => out.push(','),
            Some(end) => out.push(end),
        }
        rest = behind;
    }
}

/// The value of the first attribute of this kind (such as `CN`) in a name of the common form.
pub(super) fn attribute(name: &str, kind: &str) -> Option<String> {
    let mut rest = name;
    loop {
        let (found, behind) = rest.split_once('=')?;
        let (value, end, behind) = read_value(behind).ok()?;
        match value {
            AttributeValue::Text(text) if found == kind => return Some(text),
            _ => {}
        }
        end?;
        rest = behind;
    }
}

/// The name of an attribute as the common form has it.
fn short_name(given: &str) -> Option<String> {
    let upper = given.to_ascii_uppercase();
    if upper == "S" {
        return Some("ST".to_owned());
    }
    if ATTRIBUTES.iter().any(|(_, short)| *short == upper) {
        return Some(upper);
    }
    let number = upper.strip_prefix("OID.").unwrap_or(&upper);
    let is_number = |arc: &str| !arc.is_empty() && arc.bytes().all(|byte| byte.is_ascii_digit());
    (number.contains('.') && number.split('.').all(is_number)).then(|| number.to_owned())
}

enum AttributeValue {
    Text(String),
    Hex(String),
}

/// A value, the separator behind it, and what follows that.
fn read_value(text: &str) -> Result<(AttributeValue, Option<char>, &str), &'static str> {
    let text = text.trim_start();
    if let Some(digits) = text.strip_prefix('#') {
        let length = digits.find([',', ';', '+']).unwrap_or(digits.len());
        let hex = digits[..length].trim_end();
        if hex.is_empty() || !hex.len().is_multiple_of(2) || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("a value after '#' is not in hexadecimal digits");
        }
        let mut behind = digits[length..].chars();
        let end = behind.next();
        return Ok((AttributeValue::Hex(hex.to_ascii_lowercase()), end, behind.as_str()));
    }
    let quoted = text.strip_prefix('"');
    let mut characters = quoted.unwrap_or(text).chars();
    // Bytes, because an escaped byte may be a part of a character.
    let (mut value, mut kept) = (Vec::new(), 0);
    let end = loop {
        match characters.next() {
            None if quoted.is_some() => return Err("a quote is not closed"),
            None => break None,
            Some('"') if quoted.is_some() => break end_of_quoted(&mut characters)?,
            Some('\\') => {
                read_escaped(&mut characters, &mut value)?;
                kept = value.len();
            }
            Some(end @ (',' | ';' | '+')) if quoted.is_none() => break Some(end),
            Some('"' | '<' | '>') if quoted.is_none() => return Err("a character must be escaped by '\\'"),
            Some(character) => {
                value.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                if character != ' ' || quoted.is_some() {
                    kept = value.len();
                }
            }
        }
    };
    value.truncate(kept);
    let value = String::from_utf8(value).map_err(|_| "an escaped value is not UTF-8")?;
    Ok((AttributeValue::Text(value), end, characters.as_str()))
}

fn end_of_quoted(characters: &mut std::str::Chars<'_>) -> Result<Option<char>, &'static str> {
    match characters.find(|character| *character != ' ') {
        None => Ok(None),
        Some(end @ (',' | ';' | '+')) => Ok(Some(end)),
        Some(_) => Err("a quoted value is followed by more"),
    }
}

/// Reads what follows a backslash: a character, or two hexadecimal digits of a byte.
fn read_escaped(characters: &mut std::str::Chars<'_>, value: &mut Vec<u8>) -> Result<(), &'static str> {
    let first = characters.next().ok_or("it ends with '\\'")?;
    let Some(high) = first.to_digit(16) else {
        value.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
        return Ok(());
    };
    let low = characters.next().and_then(|digit| digit.to_digit(16)).ok_or("an escaped byte has one digit")?;
    value.push(u8::try_from(high << 4 | low).unwrap_or_default());
    Ok(())
}

/// A name in DER in the form of RFC 4514: the most particular part first.
pub(super) fn distinguished_name(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (_, mut set, rest) = element(name)?;
        name = rest;
        let mut part = String::new();
        while !set.is_empty() {
            let (pair, rest) = expect(set, SEQUENCE)?;
            set = rest;
            let (oid, value) = expect(pair, OID)?;
            if !part.is_empty() {
                part.push('+');
            }
            write_attribute(&mut part, oid, value)?;
        }
        parts.push(part);
    }
    parts.reverse();
    Some(parts.join(","))
}

fn write_attribute(out: &mut String, oid: &[u8], value: &[u8]) -> Option<()> {
    let (tag, content, _) = element(value)?;
    let short = ATTRIBUTES.iter().find(|(known, _)| *known == oid).map(|(_, short)| *short);
    let text = short.and_then(|_| text(tag, content));
    match short {
        Some(short) => out.push_str(short),
        None => write_oid(out, oid)?,
    }
    out.push('=');
    match text {
        Some(text) => write_escaped(out, &text),
        None => {
            out.push('#');
            for byte in value {
                write!(out, "{byte:02x}").ok()?;
            }
        }
    }
    Some(())
}

/// The text of a string of ASN.1; `None` for other types.
fn text(tag: u8, content: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, NumericString, PrintableString, IA5String.
        0x0C | 0x12 | 0x13 | 0x16 => std::str::from_utf8(content).ok().map(str::to_owned),
        // TeletexString, which in practice is Latin-1.
        0x14 => Some(content.iter().map(|byte| char::from(*byte)).collect()),
        // BMPString.
        0x1E => {
            let units: Vec<u16> = content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

fn write_escaped(out: &mut String, text: &str) {
    let last = text.chars().count().saturating_sub(1);
    for (at, character) in text.chars().enumerate() {
        match character {
            '\0' => {
                out.push_str("\\00");
                continue;
            }
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.push('\\'),
            ' ' if at == 0 || at == last => out.push('\\'),
            '#' if at == 0 => out.push('\\'),
            _ => {}
        }
        out.push(character);
    }
}

fn write_oid(out: &mut String, oid: &[u8]) -> Option<()> {
    let (mut number, mut is_first) = (0_u64, true);
    for byte in oid {
        number = number.checked_mul(128)? | u64::from(byte & 0x7F);
        if byte & 0x80 != 0 {
            continue;
        }
        if std::mem::take(&mut is_first) {
            let top = (number / 40).min(2);
            write!(out, "{top}.{}", number - top * 40).ok()?;
        } else {
            write!(out, ".{number}").ok()?;
        }
        number = 0;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_brought_into_one_form() {
        for (given, expected) in [
            ("CN=a", "CN=a"),
            ("cn = a , o=Example Org ; C=DE", "CN=a,O=Example Org,C=DE"),
            ("S=x+L=y", "ST=x+L=y"),
            ("CN=\\ a\\, b\\ ", "CN=\\ a\\, b\\ "),
            ("CN=\"a, b\" , O=x", "CN=a\\, b,O=x"),
            ("CN=M\\C3\\BCller", "CN=Müller"),
            ("OID.1.2.3=#0C0161,CN=a", "1.2.3=#0c0161,CN=a"),
        ] {
            let normalized = normalized_name(given).unwrap();
            assert_eq!(normalized, expected);
            assert_eq!(normalized_name(&normalized).as_deref(), Ok(expected), "twice");
        }
        for (given, reason) in [
            ("", "no '='"),
            ("thermometer", "no '='"),
            ("CN=", "empty"),
            ("CN=a,", "no '='"),
            ("X=a", "unknown name"),
            ("1.2.3=a", "as text"),
            ("CN=#0", "hexadecimal"),
            ("CN=\"a", "not closed"),
            ("CN=\"a\"b", "followed by more"),
            ("CN=a<b", "escaped"),
            ("CN=a\\", "ends with"),
            ("CN=\\FF", "UTF-8"),
        ] {
            let refusal = normalized_name(given).unwrap_err().to_string();
            assert!(refusal.contains(reason) && refusal.contains("CN=thermometer-7,O=Example"), "{given}: {refusal}");
        }
    }

    #[test]
    fn an_attribute_is_found_by_its_kind() {
        let name = "CN=a\\,b,OU=first,OU=second,1.2.3=#0c0161";
        for (kind, expected) in [("CN", Some("a,b")), ("OU", Some("first")), ("O", None), ("1.2.3", None)] {
            assert_eq!(attribute(name, kind).as_deref(), expected, "{kind}");
        }
    }
}
