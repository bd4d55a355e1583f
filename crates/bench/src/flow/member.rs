//! Finds members of JSON objects by hand, as a loop without an engine would.

/// The values of two members of a flat JSON object, as written; `None`
/// for those that are missing. Looks no further than the second.
pub(super) fn find_two<'a>(object: &'a [u8], names: [&[u8]; 2]) -> [Option<&'a [u8]>; 2] {
    let (mut found, mut at) = ([None; 2], 0);
    while found.contains(&None) {
        let Some((name, after)) = text(object, at) else { break };
        let Some(start) = position(object, after, |byte| byte != b':' && !byte.is_ascii_whitespace()) else { break };
        let end = match object[start] {
            b'"' => text(object, start).map(|(_, end)| end),
            _ => position(object, start, |byte| matches!(byte, b',' | b'}')),
        };
        let Some(end) = end else { break };
        for (known, found) in names.iter().zip(&mut found) {
            if *known == name {
                *found = Some(object[start..end].trim_ascii_end());
            }
        }
        at = end;
    }
    found
}

/// The next text at or behind `at`, without its quotes, and the place behind it.
fn text(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let start = position(bytes, at, |byte| byte == b'"')? + 1;
    let mut end = start;
    loop {
        match bytes.get(end)? {
            b'\\' => end += 2,
            b'"' => return Some((&bytes[start..end], end + 1)),
            _ => end += 1,
        }
    }
}

fn position(bytes: &[u8], from: usize, is_wanted: impl Fn(u8) -> bool) -> Option<usize> {
    Some(from + bytes.get(from..)?.iter().position(|byte| is_wanted(*byte))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_in_any_order_and_not_inside_texts() {
        for (object, expected) in [
            (r#"{"a":1,"b":2.5}"#, [Some("1"), Some("2.5")]),
            (r#"{ "b" : true , "x" : "\"a\": 7" , "a" : "t" }"#, [Some("\"t\""), Some("true")]),
            (r#"{"x":"a"}"#, [None, None]),
            ("{}", [None, None]),
        ] {
            let found = find_two(object.as_bytes(), [b"a", b"b"]);
            assert_eq!(found, expected.map(|value| value.map(str::as_bytes)), "{object}");
        }
    }
}
