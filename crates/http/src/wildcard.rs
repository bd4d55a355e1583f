//! Wildcard patterns for ids and names.

/// A pattern for text: `*` stands for any characters, `?` for one, everything else for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wildcard(Box<str>);

impl From<&str> for Wildcard {
    fn from(pattern: &str) -> Self {
        Self(pattern.into())
    }
}

impl Wildcard {
    /// Returns `true` if the pattern matches the whole `text`.
    pub fn fits(&self, text: &str) -> bool {
        let (mut pattern, mut text) = (&*self.0, text);
        // Pattern and text to retry from after a mismatch: behind the last star, one character further.
        let mut retry: Option<(&str, &str)> = None;
        loop {
            match (first(pattern), first(text)) {
                (Some(('*', rest)), _) => {
                    pattern = rest;
                    retry = Some((pattern, text));
                }
                (None, None) => return true,
                (Some((wanted, rest)), Some((found, further))) if wanted == '?' || wanted == found => {
                    (pattern, text) = (rest, further);
                }
                _ => {
                    let Some((star, from)) = retry else { return false };
                    let Some((_, from)) = first(from) else { return false };
                    retry = Some((star, from));
                    (pattern, text) = (star, from);
                }
            }
        }
    }
}

/// The first character and the rest.
fn first(text: &str) -> Option<(char, &str)> {
    let mut chars = text.chars();
    chars.next().map(|character| (character, chars.as_str()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wildcards_stand_for_characters_and_everything_else_for_itself() {
        for (pattern, text, is_fit) in [
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("x*", "x", true),
            ("x?", "x", false),
            ("x?", "xé", true),
            ("*b*", "abc", true),
            ("a*b?d", "a-b-b=d", true),
            ("a*b", "abc", false),
            ("A", "a", false),
            (".*", "x", false),
        ] {
            assert_eq!(Wildcard::from(pattern).fits(text), is_fit, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_the_text_that_it_was_made_from(text in "[ab]{0,12}", stars in proptest::collection::vec(0_usize..12, 0..4)) {
            let mut pattern: Vec<char> = text.chars().collect();
            for at in stars {
                if at < pattern.len() {
                    pattern[at] = if at % 2 == 0 { '*' } else { '?' };
                }
            }
            let pattern: String = pattern.into_iter().collect();
            prop_assert!(Wildcard::from(&*pattern).fits(&text), "{pattern} {text}");
        }

        #[test]
        fn a_pattern_matches_as_its_definition_says(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            fn matches(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern.split_first(), text.split_first()) {
                    (None, _) => text.is_empty(),
                    (Some((b'*', rest)), _) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
                    (Some((b'?', rest)), Some((_, further))) => matches(rest, further),
                    (Some((wanted, rest)), Some((found, further))) => wanted == found && matches(rest, further),
                    (Some(_), None) => false,
                }
            }
            prop_assert_eq!(Wildcard::from(&*pattern).fits(&text), matches(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
