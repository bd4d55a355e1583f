//! The cursor of the parser over the tokens, and the errors that it reports.

use std::collections::BTreeSet;

use crate::diagnostic::{Diagnostic, TextPosition};
use crate::expr::Expr;
use crate::field::metadata_names;
use crate::keyword::{self, is_reserved};
use crate::lexer::{Lexeme, Token, excerpt, lex};
use crate::parameters::Parameters;
use crate::suggest::nearest;

/// One diagnostic; boxed because it is large and rare.
pub type ParseError = Box<Diagnostic>;

/// A position in a list of tokens.
pub struct Cursor<'a> {
    text: &'a str,
    lexemes: Vec<Lexeme>,
    at: usize,
    /// The values of parameters, in texts of jobs.
    parameters: Option<&'a Parameters>,
    used: BTreeSet<String>,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `text`.
    ///
    /// # Errors
    /// One diagnostic for each invalid token.
    pub fn new(text: &'a str) -> Result<Self, Vec<Diagnostic>> {
        Ok(Self { text, lexemes: lex(text)?, at: 0, parameters: None, used: BTreeSet::new() })
    }

    /// As [`Self::new`], for the text of a job: it may use these parameters, and the field `$topic`.
    ///
    /// # Errors
    /// One diagnostic for each invalid token.
    pub fn of_job(text: &'a str, parameters: &'a Parameters) -> Result<Self, Vec<Diagnostic>> {
        Ok(Self { parameters: Some(parameters), ..Self::new(text)? })
    }

    /// True for the text of a job.
    pub(crate) fn is_of_job(&self) -> bool {
        self.parameters.is_some()
    }

    /// The names of the parameters that were taken, each once, in alphabetical order.
    pub fn into_parameters_used(self) -> Vec<String> {
        self.used.into_iter().collect()
    }

    /// Takes `:name`, and returns the value of that parameter.
    pub(crate) fn need_parameter(&mut self) -> Result<Expr, ParseError> {
        let Some(parameters) = self.parameters else {
            return Err(self.refuse("parameters such as :name are values of jobs; write the value here".to_owned()));
        };
        self.need_symbol(":")?;
        let (Token::Word(name) | Token::Name(name)) = self.peek() else {
            return Err(self.expected(&["the name of a parameter"]));
        };
        let Some(value) = parameters.get(name) else {
            let mut refusal = self.refuse(format!("there is no parameter :{name}; set it in the job's parameters"));
            refusal.expected = parameters.names().map(|known| format!(":{known}")).collect();
            refusal.suggestion = nearest(name, parameters.names()).map(|known| format!(":{known}"));
            return Err(refusal);
        };
        self.used.insert(name.clone());
        self.advance();
        Ok(value.clone())
    }

    fn here(&self) -> &Lexeme {
        &self.lexemes[self.at]
    }

    /// Returns the current token without taking it.
    pub fn peek(&self) -> &Token {
        &self.here().token
    }

    /// The token after this one.
    pub fn peek_next(&self) -> &Token {
        self.peek_at(1)
    }

    /// The token `distance` tokens after this one.
    pub fn peek_at(&self, distance: usize) -> &Token {
        &self.lexemes[(self.at + distance).min(self.lexemes.len() - 1)].token
    }

    /// Takes the current token; at the end the cursor does not move.
    pub fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.lexemes.len() - 1);
        token
    }

    /// True if the current token is `word`, in any case.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    /// True if the current token is `symbol`.
    pub fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    /// Takes the current token if it is `word`.
    pub fn take_word(&mut self, word: &str) -> bool {
        let there = self.is_word(word);
        if there {
            self.advance();
        }
        there
    }

    /// Takes the current token if it is `symbol`.
    pub fn take_symbol(&mut self, symbol: &str) -> bool {
        let there = self.is_symbol(symbol);
        if there {
            self.advance();
        }
        there
    }

    /// Takes the current token, which must be `word`.
    ///
    /// # Errors
    /// A diagnostic if the token is another one.
    pub fn need_word(&mut self, word: &str) -> Result<(), ParseError> {
        if self.take_word(word) { Ok(()) } else { Err(self.expected(&[word])) }
    }

    /// Takes the current token, which must be `symbol`.
    ///
    /// # Errors
    /// A diagnostic if the token is another one.
    pub fn need_symbol(&mut self, symbol: &str) -> Result<(), ParseError> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.expected(&[symbol])) }
    }

    /// Takes a plain name that is not reserved, or one in double quotes; `what` is the named thing, for the error.
    pub fn need_name(&mut self, what: &str) -> Result<String, ParseError> {
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

    /// The error that the current token is none of the `expected` ones.
    pub fn expected(&self, expected: &[&str]) -> ParseError {
        let found = self.found();
        let mut refusal = self.refuse(format!("expected {}, found {}", listed(expected), described(&found)));
        refusal.expected = expected.iter().map(|&word| word.to_owned()).collect();
        if let Token::Word(word) = self.peek() {
            let meant = if word.starts_with('$') {
                nearest(word, metadata_names(self.is_of_job()).iter().copied())
            } else {
                nearest(word, expected.iter().copied().filter(|word| word.starts_with(char::is_uppercase)))
            };
            refusal.suggestion = meant.filter(|meant| !meant.eq_ignore_ascii_case(word)).map(str::to_owned);
        }
        refusal
    }

    /// The error that the current token breaks the rule in `message`.
    pub fn refuse(&self, message: String) -> ParseError {
        self.refuse_at(self.at, message)
    }

    /// As [`Self::refuse`], for the token that was taken last.
    pub fn refuse_last(&self, message: String) -> ParseError {
        self.refuse_at(self.at.saturating_sub(1), message)
    }

    /// As [`Self::refuse`], for an earlier token by its [`Self::mark`].
    pub fn refuse_at(&self, mark: usize, message: String) -> ParseError {
        let lexeme = &self.lexemes[mark];
        Box::new(Diagnostic {
            place: TextPosition::of(self.text, lexeme.start),
            message,
            found: excerpt(&self.text[lexeme.start..lexeme.end]),
            expected: Vec::new(),
            suggestion: None,
        })
    }

    /// The error that this version does not support a feature of the language.
    pub fn unavailable(&self, what: &str) -> ParseError {
        self.unavailable_at(self.at, what)
    }

    /// As [`Self::unavailable`], for an earlier token by its [`Self::mark`].
    pub fn unavailable_at(&self, mark: usize, what: &str) -> ParseError {
        self.refuse_at(mark, format!("{what} is not there yet"))
    }

    /// The current position, for [`Self::refuse_at`].
    pub fn mark(&self) -> usize {
        self.at
    }

    /// The name that was read since `mark`, if nothing else was read.
    pub fn name_since(&self, mark: usize) -> Option<&str> {
        match &self.lexemes[mark].token {
            Token::Word(name) | Token::Name(name) if self.at == mark + 1 => Some(name),
            _ => None,
        }
    }

    /// The first position of a name, for [`Self::refuse_at`].
    pub fn mark_of_name(&self, name: &str) -> Option<usize> {
        let is_name =
            |lexeme: &Lexeme| matches!(&lexeme.token, Token::Word(found) | Token::Name(found) if found == name);
        self.lexemes.iter().position(is_name)
    }

    /// The first position of a name in double quotes, for [`Self::refuse_at`].
    pub fn mark_of_quoted(&self, name: &str) -> Option<usize> {
        self.lexemes.iter().position(|lexeme| matches!(&lexeme.token, Token::Name(found) if found == name))
    }

    fn found(&self) -> String {
        excerpt(&self.text[self.here().start..self.here().end])
    }

    /// The error for tokens after a complete query or condition.
    pub fn unexpected_rest(&self, expected: &[&str]) -> ParseError {
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
    if found.is_empty() { "the end".to_owned() } else { format!("'{found}'") }
}

fn listed(words: &[&str]) -> String {
    // A comma in this list would look like a separator.
    let is_symbol = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_punctuation());
    let named = |word: &&str| if is_symbol(word) { format!("'{word}'") } else { (*word).to_owned() };
    let words: Vec<String> = words.iter().map(named).collect();
    match &*words {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}
