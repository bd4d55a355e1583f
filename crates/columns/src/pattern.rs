//! Compiled patterns that have to match a whole text: regular expressions of RLIKE, and patterns of LIKE.

use std::fmt;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::field::Text;

/// The largest size of a compiled pattern.
const COMPILED_MAX_BYTES: usize = 256 << 10;

/// A pattern of RLIKE or LIKE. Patterns with the same text and syntax are equal.
#[derive(Clone)]
pub struct Pattern(Arc<Compiled>);

/// The syntax of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    /// A regular expression in Java's syntax.
    Regex,
    /// `%` stands for any text and `_` for one character, unless this character stands before them.
    Like(Option<char>),
}

/// The reason why a text is no pattern of LIKE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidLike {
    /// The escape character is followed by something else than `%`, `_` or itself.
    Escape(char),
    /// The compiled pattern is too large.
    TooLarge,
}

struct Compiled {
    syntax: Syntax,
    text: Box<str>,
    /// The text in the syntax of our regex engine.
    translated: Box<str>,
    whole: Regex,
}

impl Pattern {
    /// Compiles `text`, in Java's syntax. Matching takes linear time, so look-around and back references are refused.
    ///
    /// # Errors
    /// The error of the regex engine.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        // Compiled by itself first, so that `a)|(b` is not made valid by the group around it.
        let translated = translated(text);
        compile(&translated)?;
        Self::compiled(Syntax::Regex, text, translated)
    }

    /// Compiles `text`, in the syntax of LIKE.
    ///
    /// # Errors
    /// `InvalidLike` if an escape is wrong or the pattern is too large.
    pub fn like(text: &str, escape: Option<char>) -> Result<Self, InvalidLike> {
        let mut translated = String::with_capacity(text.len() + 16);
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            let plain = match letter {
                letter if Some(letter) == escape => match letters.next() {
                    Some(escaped) if matches!(escaped, '%' | '_') || Some(escaped) == escape => escaped,
                    _ => return Err(InvalidLike::Escape(letter)),
                },
                '%' => {
                    translated.push_str("(?s:.*)");
                    continue;
                }
                '_' => {
                    translated.push_str("(?s:.)");
                    continue;
                }
                plain => plain,
            };
            translated.push_str(&regex::escape(plain.encode_utf8(&mut [0; 4])));
        }
        Self::compiled(Syntax::Like(escape), text, translated).map_err(|_| InvalidLike::TooLarge)
    }

    fn compiled(syntax: Syntax, text: &str, translated: String) -> Result<Self, regex::Error> {
        let whole = compile(&format!(r"\A(?:{translated})\z"))?;
        Ok(Self(Arc::new(Compiled { syntax, text: text.into(), translated: translated.into(), whole })))
    }

    /// The text of the pattern, as written.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The pattern in the syntax of crates `regex` and `regex-syntax`.
    pub fn translated(&self) -> &str {
        &self.0.translated
    }

    /// True if all of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.whole.is_match(text)
    }
}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(COMPILED_MAX_BYTES).build()
}

/// Rewrites constructs that our engine reads differently from Java: classes of ASCII characters, and quoted text.
fn translated(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(escaped) = rest.chars().next() else {
            out.push('\\');
            break;
        };
        rest = &rest[escaped.len_utf8()..];
        match escaped {
            'd' => out.push_str("[0-9]"),
            'D' => out.push_str("[^0-9]"),
            'w' => out.push_str("[A-Za-z0-9_]"),
            'W' => out.push_str("[^A-Za-z0-9_]"),
            's' => out.push_str(r"[ \t\n\x0B\f\r]"),
            'S' => out.push_str(r"[^ \t\n\x0B\f\r]"),
            'Q' => {
                let (quoted, after) = rest.split_once(r"\E").unwrap_or((rest, ""));
                out.push_str(&regex::escape(quoted));
                rest = after;
            }
            other => out.extend(['\\', other]),
        }
    }
    out.push_str(rest);
    out
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text && self.0.syntax == other.0.syntax
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?}, {:?})", self.0.syntax, self.0.text)
    }
}

/// The pattern as in a query: `RLIKE 'a.*'` or `LIKE 'a!_%' ESCAPE '!'`.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text(&self.0.text);
        match self.0.syntax {
            Syntax::Regex => write!(f, "RLIKE {text}"),
            Syntax::Like(None) => write!(f, "LIKE {text}"),
            Syntax::Like(Some(escape)) => write!(f, "LIKE {text} ESCAPE {}", Text(escape.encode_utf8(&mut [0; 4]))),
        }
    }
}

impl fmt::Display for InvalidLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Escape(escape) => write!(f, "in a pattern of LIKE the escape {escape} stands before %, _ or itself"),
            Self::TooLarge => f.write_str("the pattern of LIKE is too large; shorten it"),
        }
    }
}
