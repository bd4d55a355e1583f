//! The lexer: it splits the text of a query into words, names, literals and symbols.

use crate::diagnostic::{Diagnostic, TextPosition};

/// The kind of a token, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A keyword or a plain name; the parser decides which.
    Word(String),
    /// A name in double quotes, without the quotes.
    Name(String),
    /// A text in single quotes, without the quotes.
    Text(String),
    /// Digits with fraction, exponent and suffix as written.
    Number(String),
    /// Any other symbol of the language.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

/// A token and its bytes in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Longer symbols first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 23] = [
    "||", "<=", ">=", "<>", "!=", "==", "=", "<", ">", "(", ")", "[", "]", ",", ".", "*", "-", "+", "/", "%", ":", ";",
    "|",
];

/// True if `c` may begin a plain name.
pub(crate) fn begins_name(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

/// True if `c` may continue a plain name.
pub(crate) fn continues_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Splits `text` into lexemes; the last one is [`Token::End`].
pub(crate) fn lex(text: &str) -> Result<Vec<Lexeme>, Vec<Diagnostic>> {
    let mut lexer = Lexer { text, at: 0, lexemes: Vec::new(), wrong: Vec::new() };
    while lexer.step() {}
    if lexer.wrong.is_empty() { Ok(lexer.lexemes) } else { Err(lexer.wrong) }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    lexemes: Vec<Lexeme>,
    wrong: Vec<Diagnostic>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Reads one token; false at the end.
    fn step(&mut self) -> bool {
        self.skip_blank();
        let start = self.at;
        let token = match self.rest().chars().next() {
            None => Some(Token::End),
            Some('\'') => self.quoted('\'').map(Token::Text),
            Some('"') => self.quoted('"').map(Token::Name),
            Some(c) if c.is_ascii_digit() => self.number().map(Token::Number),
            Some(c) if begins_name(c) => Some(Token::Word(self.take_while(continues_name))),
            Some(c) => self.symbol(c),
        };
        let more = token != Some(Token::End);
        if let Some(token) = token {
            self.lexemes.push(Lexeme { token, start, end: self.at });
        }
        more
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) {
        loop {
            self.at += self.rest().len() - self.rest().trim_start().len();
            let rest = self.rest();
            if rest.starts_with("--") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let start = self.at;
                match comment.find("*/") {
                    Some(length) => self.at += length + 4,
                    None => {
                        self.at = self.text.len();
                        self.refuse(start, start + 2, "the closing */ of this comment is missing".to_owned());
                    }
                }
            } else {
                return;
            }
        }
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let taken = rest[..rest.find(|c| !accept(c)).unwrap_or(rest.len())].to_owned();
        self.at += taken.len();
        taken
    }

    /// A text between two `quote`s; two quotes in it stand for one.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let start = self.at;
        let mut content = String::new();
        self.at += 1;
        while let Some(length) = self.rest().find(quote) {
            content.push_str(&self.text[self.at..self.at + length]);
            self.at += length + 1;
            if !self.rest().starts_with(quote) {
                return Some(content);
            }
            content.push(quote);
            self.at += 1;
        }
        self.at = self.text.len();
        self.refuse(start, start + 1, format!("the closing {quote} of this {} is missing", quoted_kind(quote)));
        None
    }

    fn number(&mut self) -> Option<String> {
        let start = self.at;
        let digits = |c: char| c.is_ascii_digit();
        self.take_while(digits);
        if self.rest().strip_prefix('.').is_some_and(|fraction| fraction.starts_with(digits)) {
            self.at += 1;
            self.take_while(digits);
        }
        if let Some(exponent) = self.rest().strip_prefix(['e', 'E']) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.starts_with(digits) {
                self.at += 1 + exponent.len() - unsigned.len();
                self.take_while(digits);
            }
        }
        if self.rest().starts_with(['l', 'L', 'f', 'F']) {
            self.at += 1;
        }
        if self.rest().starts_with(continues_name) {
            self.take_while(continues_name);
            self.refuse(
                start,
                self.at,
                "a number is digits with an optional fraction, exponent and suffix L or F; put a name in double quotes"
                    .to_owned(),
            );
            return None;
        }
        Some(self.text[start..self.at].to_owned())
    }

    fn symbol(&mut self, first: char) -> Option<Token> {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| self.rest().starts_with(**symbol)) {
            self.at += symbol.len();
            return Some(Token::Symbol(symbol));
        }
        let start = self.at;
        self.at += first.len_utf8();
        self.refuse(start, self.at, format!("the character '{}' has no meaning here", first.escape_debug()));
        None
    }

    fn refuse(&mut self, start: usize, end: usize, message: String) {
        self.wrong.push(Diagnostic {
            place: TextPosition::of(self.text, start),
            message,
            found: excerpt(&self.text[start..end]),
            expected: Vec::new(),
            suggestion: None,
        });
    }
}

fn quoted_kind(quote: char) -> &'static str {
    if quote == '"' { "name" } else { "text" }
}

/// The beginning of `text`, short enough for a message.
pub fn excerpt(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}
