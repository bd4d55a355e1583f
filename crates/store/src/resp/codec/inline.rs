//! The arguments of a request that is typed as a line, with the quoting of Redis.

use bytes::Bytes;

/// A quote that is not closed, or that something follows directly.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnbalancedQuotes;

/// Splits `line` at white space. `"…"` knows `\n \r \t \b \a \xHH` and `\` before any
/// other character; `'…'` knows `\'`.
pub(super) fn split(line: &[u8], arguments: &mut Vec<Bytes>) -> Result<(), UnbalancedQuotes> {
    let mut rest = line;
    loop {
        while let [first, after @ ..] = rest
            && is_space(*first)
        {
            rest = after;
        }
        if rest.is_empty() {
            return Ok(());
        }
        arguments.push(argument(&mut rest)?.into());
    }
}

fn argument(rest: &mut &[u8]) -> Result<Vec<u8>, UnbalancedQuotes> {
    let mut argument = Vec::new();
    while let [first, after @ ..] = *rest {
        match first {
            b'"' => {
                *rest = after;
                double_quoted(rest, &mut argument)?;
                return Ok(argument);
            }
            b'\'' => {
                *rest = after;
                single_quoted(rest, &mut argument)?;
                return Ok(argument);
            }
            // A zero byte ends the line for Redis, whose strings end with one.
            0 => {
                *rest = &[];
                return Ok(argument);
            }
            byte if is_space(*byte) => return Ok(argument),
            byte => argument.push(*byte),
        }
        *rest = after;
    }
    Ok(argument)
}

fn double_quoted(rest: &mut &[u8], argument: &mut Vec<u8>) -> Result<(), UnbalancedQuotes> {
    loop {
        let (byte, after) = match *rest {
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), after)
            }
            [b'\\', escaped, after @ ..] => (unescaped(*escaped), after),
            [b'"', after @ ..] => return closed(rest, after),
            [byte, after @ ..] => (*byte, after),
            [] => return Err(UnbalancedQuotes),
        };
        argument.push(byte);
        *rest = after;
    }
}

fn single_quoted(rest: &mut &[u8], argument: &mut Vec<u8>) -> Result<(), UnbalancedQuotes> {
    loop {
        let (byte, after) = match *rest {
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [b'\'', after @ ..] => return closed(rest, after),
            [byte, after @ ..] => (*byte, after),
            [] => return Err(UnbalancedQuotes),
        };
        argument.push(byte);
        *rest = after;
    }
}

/// White space or the end must follow a closing quote.
fn closed<'a>(rest: &mut &'a [u8], after: &'a [u8]) -> Result<(), UnbalancedQuotes> {
    *rest = after;
    if after.first().is_none_or(|byte| is_space(*byte)) { Ok(()) } else { Err(UnbalancedQuotes) }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_follows_redis() {
        type Case = (&'static [u8], Option<&'static [&'static [u8]]>);
        let cases: &[Case] = &[
            (b"", Some(&[])),
            (b"  \t ", Some(&[])),
            (b"set a  b", Some(&[b"set", b"a", b"b"])),
            (b" a\"b c\" ", Some(&[b"ab c"])),
            (br#""\x41\n\r\t\b\a\q\"" x"#, Some(&[b"A\n\r\t\x08\x07q\"", b"x"])),
            (br#""\xZ1""#, Some(&[b"xZ1"])),
            (br"'a\'b\n'", Some(&[br"a'b\n"])),
            (b"\"\" ''", Some(&[b"", b""])),
            (b"\"a", None),
            (b"'a", None),
            (b"\"a\"b", None),
            (b"'a'b", None),
            (b"\"a\\", None),
            (b"a\\\"b c\"", Some(&[b"a\\b c"])),
        ];
        for (line, expected) in cases {
            let mut arguments = Vec::new();
            let split = split(line, &mut arguments).map(|()| arguments);
            let expected = expected
                .map(|arguments| arguments.iter().map(|argument| Bytes::copy_from_slice(argument)).collect::<Vec<_>>())
                .ok_or(UnbalancedQuotes);
            assert_eq!(split, expected, "{}", line.escape_ascii());
        }
    }
}
