//! Where the parser stands in the text, and how it says that it expected something else.

use crate::diagnostic::{Diagnostic, Place};
use crate::field::METADATA;
use crate::keyword::{self, is_reserved};
use crate::lexer::{Lexeme, Token, excerpt, lex};
use crate::suggest::nearest;

/// One diagnostic; boxed because it is large and rare.
pub type Refusal = Box<Diagnostic>;

/// A place in a text that has been cut into tokens.
pub struct Cursor<'a> {
    text: &'a str,
    lexemes: Vec<Lexeme>,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning of `text`.
    ///
    /// # Errors
    /// All that is no token.
    pub fn new(text: &'a str) -> Result<Self, Vec<Diagnostic>> {
        Ok(Self { text, lexemes: lex(text)?, at: 0 })
    }

    fn here(&self) -> &Lexeme {
        &self.lexemes[self.at]
    }

    /// This token.
    pub fn peek(&self) -> &Token {
        &self.here().token
    }

    /// The token after this one.
    pub fn peek_next(&self) -> &Token {
        self.peek_at(1)
    }

    /// The token so many after this one.
    pub fn peek_at(&self, distance: usize) -> &Token {
        &self.lexemes[(self.at + distance).min(self.lexemes.len() - 1)].token
    }

    /// Takes this token; at the end it stays there.
    pub fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.lexemes.len() - 1);
        token
    }

    /// Whether this token is that word, in any case.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    /// Whether this token is that symbol.
    pub fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    /// Takes the word if it is there.
    pub fn take_word(&mut self, word: &str) -> bool {
        let there = self.is_word(word);
        if there {
            self.advance();
        }
        there
    }

    /// Takes the symbol if it is there.
    pub fn take_symbol(&mut self, symbol: &str) -> bool {
        let there = self.is_symbol(symbol);
        if there {
            self.advance();
        }
        there
    }

    /// Takes the word.
    ///
    /// # Errors
    /// It is not there.
    pub fn need_word(&mut self, word: &str) -> Result<(), Refusal> {
        if self.take_word(word) { Ok(()) } else { Err(self.expected(&[word])) }
    }

    /// Takes the symbol.
    ///
    /// # Errors
    /// It is not there.
    pub fn need_symbol(&mut self, symbol: &str) -> Result<(), Refusal> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.expected(&[symbol])) }
    }

    /// A plain name that is not reserved, or one in double quotes; `what` says what it would name.
    pub fn need_name(&mut self, what: &str) -> Result<String, Refusal> {
        match self.peek() {
            Token::Word(word) if is_reserved(word) => {
                let message =
                    format!("{} is a reserved word; as {what} it stands in double quotes", word.to_uppercase());
                Err(self.refuse(message))
            }
            Token::Word(name) | Token::Name(name) => {
                let name = name.clone();
                self.advance();
                Ok(name)
            }
            _ => Err(self.expected(&[what])),
        }
    }

    /// This token is not what can stand here.
    pub fn expected(&self, expected: &[&str]) -> Refusal {
        let found = self.found();
        let mut refusal = self.refuse(format!("expected {}, found {}", listed(expected), described(&found)));
        refusal.expected = expected.iter().map(|&word| word.to_owned()).collect();
        if let Token::Word(word) = self.peek() {
            let meant = if word.starts_with('$') {
                nearest(word, METADATA)
            } else {
                nearest(word, expected.iter().copied().filter(|word| word.starts_with(char::is_uppercase)))
            };
            refusal.suggestion = meant.filter(|meant| !meant.eq_ignore_ascii_case(word)).map(str::to_owned);
        }
        refusal
    }

    /// This token breaks a rule that `message` tells.
    pub fn refuse(&self, message: String) -> Refusal {
        self.refuse_at(self.at, message)
    }

    /// As [`Self::refuse`], for the token that was taken last.
    pub fn refuse_last(&self, message: String) -> Refusal {
        self.refuse_at(self.at.saturating_sub(1), message)
    }

    /// As [`Self::refuse`], for an earlier token by its [`Self::mark`].
    pub fn refuse_at(&self, mark: usize, message: String) -> Refusal {
        let lexeme = &self.lexemes[mark];
        Box::new(Diagnostic {
            place: Place::of(self.text, lexeme.start),
            message,
            found: excerpt(&self.text[lexeme.start..lexeme.end]),
            expected: Vec::new(),
            suggestion: None,
        })
    }

    /// What the language has, or will have, and this version does not.
    pub fn unavailable(&self, what: &str) -> Refusal {
        self.unavailable_at(self.at, what)
    }

    /// As [`Self::unavailable`], for an earlier token by its [`Self::mark`].
    pub fn unavailable_at(&self, mark: usize, what: &str) -> Refusal {
        self.refuse_at(mark, format!("{what} is not there yet"))
    }

    /// The current place, for [`Self::refuse_at`].
    pub fn mark(&self) -> usize {
        self.at
    }

    /// The name that is all that was read since `mark`, if it is one.
    pub fn name_since(&self, mark: usize) -> Option<&str> {
        match &self.lexemes[mark].token {
            Token::Word(name) | Token::Name(name) if self.at == mark + 1 => Some(name),
            _ => None,
        }
    }

    /// Where a name stands first, for [`Self::refuse_at`].
    pub fn mark_of_name(&self, name: &str) -> Option<usize> {
        let is_name =
            |lexeme: &Lexeme| matches!(&lexeme.token, Token::Word(found) | Token::Name(found) if found == name);
        self.lexemes.iter().position(is_name)
    }

    fn found(&self) -> String {
        excerpt(&self.text[self.here().start..self.here().end])
    }

    /// The refusal of whatever follows a complete query or condition.
    pub fn unexpected_rest(&self, expected: &[&str]) -> Refusal {
        match self.peek() {
            Token::Word(word) => match keyword::unavailable(word) {
                Some(what) => self.unavailable(what),
                None => self.expected(expected),
            },
            _ => self.expected(expected),
        }
    }
}

fn described(found: &str) -> String {
    if found.is_empty() { "the end of the query".to_owned() } else { format!("'{found}'") }
}

fn listed(words: &[&str]) -> String {
    // A comma among commas could not be told from those.
    let is_symbol = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_punctuation());
    let named = |word: &&str| if is_symbol(word) { format!("'{word}'") } else { (*word).to_owned() };
    let words: Vec<String> = words.iter().map(named).collect();
    match &*words {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}
