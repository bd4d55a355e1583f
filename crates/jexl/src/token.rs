//! Cuts the text of an expression into tokens.

use std::borrow::Cow;

use crate::error::SyntaxError;

/// Punctuation, longer marks before their beginnings.
const MARKS: [&str; 26] = [
    "==", "!=", ">=", "<=", "&&", "||", "//", "+", "-", "*", "/", "%", "^", ">", "<", "?", ":", "|", ".", ",", "(",
    ")", "[", "]", "{", "}",
];
const FOUND_MAX_CHARS: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token<'t> {
    Number(f64),
    Text(Cow<'t, str>),
    Name(&'t str),
    Mark(&'static str),
    End,
}

/// A text and the token at hand.
pub(crate) struct Tokens<'t> {
    text: &'t str,
    /// The byte where the token at hand begins.
    begin: usize,
    /// The byte behind the token at hand.
    end: usize,
    token: Token<'t>,
}

impl<'t> Tokens<'t> {
    pub(crate) fn new(text: &'t str) -> Result<Self, SyntaxError> {
        let mut tokens = Self { text, begin: 0, end: 0, token: Token::End };
        tokens.advance()?;
        Ok(tokens)
    }

    pub(crate) fn token(&self) -> &Token<'t> {
        &self.token
    }

    /// Returns the token at hand and goes to the next.
    pub(crate) fn take(&mut self) -> Result<Token<'t>, SyntaxError> {
        let token = std::mem::replace(&mut self.token, Token::End);
        self.advance()?;
        Ok(token)
    }

    /// Goes on if the token at hand is `mark`.
    pub(crate) fn skip(&mut self, mark: &str) -> Result<bool, SyntaxError> {
        let is_here = self.is(mark);
        if is_here {
            self.advance()?;
        }
        Ok(is_here)
    }

    pub(crate) fn is(&self, mark: &str) -> bool {
        matches!(self.token, Token::Mark(here) if here == mark)
    }

    /// The place of the token at hand, in characters from 1.
    pub(crate) fn place(&self) -> usize {
        self.place_of(self.begin)
    }

    /// The text of the token at hand, shortened.
    pub(crate) fn found(&self) -> String {
        self.excerpt(self.begin, self.end)
    }

    /// The error of a token that may not stand where it does.
    pub(crate) fn unexpected(&self, expected: &'static str) -> SyntaxError {
        SyntaxError::Unexpected { place: self.place(), found: self.found(), expected }
    }

    fn place_of(&self, byte: usize) -> usize {
        self.text.get(..byte).map_or(0, |before| before.chars().count()) + 1
    }

    fn excerpt(&self, begin: usize, end: usize) -> String {
        match self.text.get(begin..end) {
            None | Some("") => "end".to_owned(),
            Some(found) => found.chars().take(FOUND_MAX_CHARS).collect(),
        }
    }

    fn advance(&mut self) -> Result<(), SyntaxError> {
        let rest = self.text.get(self.end..).unwrap_or_default();
        let rest = rest.trim_start();
        self.begin = self.text.len() - rest.len();
        let (token, length) = self.read(rest)?;
        self.token = token;
        self.end = self.begin + length;
        Ok(())
    }

    /// Reads the token at the beginning of `rest`; returns it and its length in bytes.
    fn read(&self, rest: &'t str) -> Result<(Token<'t>, usize), SyntaxError> {
        let Some(first) = rest.chars().next() else { return Ok((Token::End, 0)) };
        if first == '\'' || first == '"' {
            return self.read_text(rest, first);
        }
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = digits(rest);
        let fraction = rest.get(whole..).and_then(|behind| behind.strip_prefix('.')).map_or(0, digits);
        if whole > 0 || fraction > 0 {
            let length = if fraction > 0 { whole + 1 + fraction } else { whole };
            let number = rest.get(..length).unwrap_or_default();
            return Ok((Token::Number(number.parse().unwrap_or(f64::INFINITY)), length));
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
            return Ok((Token::Name(rest.get(..length).unwrap_or_default()), length));
        }
        match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            Some(mark) => Ok((Token::Mark(mark), mark.len())),
            None => Err(SyntaxError::Unexpected {
                place: self.place_of(self.begin),
                found: self.excerpt(self.begin, self.begin + first.len_utf8()),
                expected: "a name, a number, a text in quotes or an operator",
            }),
        }
    }

    /// Reads a text in quotes. A backslash before a quote of the same kind or before a backslash stands for that
    /// character; before any other it is itself, so that regular expressions need no second one.
    fn read_text(&self, rest: &'t str, quote: char) -> Result<(Token<'t>, usize), SyntaxError> {
        let (mut text, mut begin, mut escaped) = (String::new(), 1, false);
        for (at, c) in rest.char_indices().skip(1) {
            if escaped {
                escaped = false;
                if c == quote || c == '\\' {
                    text.push_str(rest.get(begin..at - 1).unwrap_or_default());
                    begin = at;
                }
            } else if c == '\\' {
                escaped = true;
            } else if c == quote {
                let last = rest.get(begin..at).unwrap_or_default();
                let text = if text.is_empty() { Cow::Borrowed(last) } else { Cow::Owned(text + last) };
                return Ok((Token::Text(text), at + 1));
            }
        }
        Err(SyntaxError::OpenText { place: self.place_of(self.begin), quote })
    }
}
