//! Patterns of key and channel names, matched as Redis matches them.

/// `true` if `text` matches `pattern`: `*` any bytes, `?` any one byte, `[abc]`, `[^abc]`, `[a-z]`,
/// `\x` the byte x itself.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, false)
}

/// As [`matches`], but letters of either case are the same.
pub(crate) fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, true)
}

/// Goes back to the last `*` only: an earlier one could not match what the last one does not. So time is at most the
/// product of both lengths, also for patterns made to be slow.
fn matches_with(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut at_pattern, mut at_text) = (0, 0);
    // Where to go on if what follows the last star does not match here.
    let mut retry = None;
    loop {
        if pattern.get(at_pattern) == Some(&b'*') {
            at_pattern += 1;
            if at_pattern == pattern.len() {
                return true;
            }
            retry = Some((at_pattern, at_text));
            continue;
        }
        let step = match (at_pattern < pattern.len(), text.get(at_text)) {
            (false, None) => return true,
            (true, Some(byte)) => one(&pattern[at_pattern..], *byte, ignore_case),
            _ => None,
        };
        if let Some(length) = step {
            at_pattern += length;
            at_text += 1;
            continue;
        }
        let Some((after_star, from)) = retry else { return false };
        if from >= text.len() {
            return false;
        }
        retry = Some((after_star, from + 1));
        (at_pattern, at_text) = (after_star, from + 1);
    }
}

/// Matches one byte with the first element of `pattern`, which is no star. Returns the length of the element.
fn one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let same = |a: u8, b: u8| a == b || (ignore_case && a.eq_ignore_ascii_case(&b));
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (length, is_in) = in_class(class, byte, ignore_case);
            is_in.then_some(1 + length)
        }
        [b'\\', escaped, ..] => same(*escaped, byte).then_some(2),
        [other, ..] => same(*other, byte).then_some(1),
        [] => None,
    }
}

/// `true` if `byte` is in the class behind a `[`, and the length of the class with its `]`, which may
/// be missing at the end.
fn in_class(class: &[u8], byte: u8, ignore_case: bool) -> (usize, bool) {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    loop {
        match rest {
            [b'\\', escaped, after @ ..] => {
                found |= fold(*escaped) == fold(byte);
                rest = after;
            }
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [] => break,
            [first, b'-', last, after @ ..] => {
                let (first, last) = (fold(*first), fold(*last));
                found |= (first.min(last)..=first.max(last)).contains(&fold(byte));
                rest = after;
            }
            [only, after @ ..] => {
                found |= fold(*only) == fold(byte);
                rest = after;
            }
        }
    }
    (class.len() - rest.len(), found != negated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("**a**", "bab", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("[\\]]", "]", true),
            ("[a\\-z]", "-", true),
            ("[a\\-z]", "b", false),
            ("[abc", "c", true),
            ("[abc", "ca", false),
            ("a[]b", "a", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("foo:*:bar:*", "foo:1:bar:", true),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("x*?", "x", false),
            ("A", "a", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), *expected, "{pattern:?} {text:?}");
        }
        assert!(matches_ignoring_case(b"Max[A-C]*", b"mAXbytes"));
    }

    #[test]
    fn a_pattern_of_many_stars_is_not_slow() {
        let (pattern, text) = ("a*".repeat(10_000) + "b", "a".repeat(20_000));
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
    }
}
