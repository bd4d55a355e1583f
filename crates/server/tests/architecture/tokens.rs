//! Cuts Rust source into words and marks. Comments, texts, characters and lifetimes are left out.

/// A word, or a mark: `::` or a single character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    Mark(String),
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        let (Self::Word(own) | Self::Mark(own)) = self;
        own == text
    }
}

/// The tokens of a source text with their lines, from 1.
pub(crate) fn tokens(text: &str) -> Vec<(Token, usize)> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, token) = match ignored(rest) {
            Some(length) => (length, None),
            None if is_of_word(first) => {
                let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                (length, Some(Token::Word(rest[..length].to_owned())))
            }
            None if rest.starts_with("::") => (2, Some(Token::Mark("::".to_owned()))),
            None => (first.len_utf8(), Some(Token::Mark(first.to_string()))),
        };
        tokens.extend(token.map(|token| (token, line)));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of white space, a comment, a text, a character or a lifetime at the beginning of `rest`.
fn ignored(rest: &str) -> Option<usize> {
    let first = rest.chars().next()?;
    if first.is_whitespace() {
        return Some(first.len_utf8());
    }
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    let word = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
    match &rest[..word] {
        "r" | "br" | "cr" if raw_text(&rest[word..]).is_some() => Some(word + raw_text(&rest[word..])?),
        "" | "b" | "c" if rest[word..].starts_with('"') => Some(word + quoted(&rest[word..], '"')),
        "" | "b" if rest[word..].starts_with('\'') => Some(word + character(&rest[word..])),
        _ => None,
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let (step, change) = match rest.as_bytes().get(at..at + 2) {
            Some(b"/*") => (2, 1),
            Some(b"*/") => (2, -1),
            _ => (1, 0),
        };
        at += step;
        depth = depth.saturating_add_signed(change);
        if depth == 0 {
            break;
        }
    }
    at
}

fn raw_text(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(hashes + 1 + body.find(&end)? + end.len())
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + c.len_utf8();
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

/// A character in quotes, or a lifetime or a label.
fn character(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => quoted(rest, '\''),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1 + rest[1..].find(|c| !is_of_word(c)).unwrap_or(rest.len() - 1),
    }
}
