//! Moves over a JSON text value by value.
//!
//! An unchecked scanner reads only as much structure as it needs to skip the rest, and accepts much that is not JSON. A
//! `CHECKED` one accepts JSON alone, except that texts may have bytes that are not UTF-8. Neither recurses.

/// The payload ends or is malformed where a value should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedJson;

pub(super) struct Scanner<'a, const CHECKED: bool> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a, const CHECKED: bool> Scanner<'a, CHECKED> {
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    pub(super) fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> Result<(), MalformedJson> {
        if self.peek() != Some(byte) {
            return Err(MalformedJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Checks that only white space is left.
    pub(super) fn end(&mut self) -> Result<(), MalformedJson> {
        self.skip_space();
        if self.at == self.bytes.len() { Ok(()) } else { Err(MalformedJson) }
    }

    /// Enters a container. Returns true, behind the container, if it is empty.
    pub(super) fn opens_empty(&mut self, open: u8, close: u8) -> Result<bool, MalformedJson> {
        self.take(open)?;
        self.skip_space();
        Ok(self.take(close).is_ok())
    }

    /// Moves from the end of an element to the next one. Returns true, behind the container, if there is none.
    pub(super) fn ends(&mut self, close: u8) -> Result<bool, MalformedJson> {
        self.skip_space();
        if self.take(close).is_ok() {
            return Ok(true);
        }
        self.take(b',')?;
        self.skip_space();
        Ok(false)
    }

    /// The name of a member as [`Self::string`]; moves to the member's value.
    #[inline]
    pub(super) fn name(&mut self) -> Result<&'a [u8], MalformedJson> {
        let name = self.string()?;
        self.skip_space();
        self.take(b':')?;
        self.skip_space();
        Ok(name)
    }

    /// The bytes between the quotes of a string, escapes unchanged.
    pub(super) fn string(&mut self) -> Result<&'a [u8], MalformedJson> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            let length = find_end_of_run::<CHECKED>(&self.bytes[self.at..]).ok_or(MalformedJson)?;
            self.at += length;
            match self.bytes[self.at] {
                b'"' => {
                    self.at += 1;
                    return Ok(&self.bytes[start..self.at - 1]);
                }
                b'\\' if CHECKED => self.escape()?,
                b'\\' => {
                    self.at += 2;
                    if self.at > self.bytes.len() {
                        return Err(MalformedJson);
                    }
                }
                _ => return Err(MalformedJson),
            }
        }
    }

    fn escape(&mut self) -> Result<(), MalformedJson> {
        let length = match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => {
                let digits = self.bytes.get(self.at + 2..self.at + 6).ok_or(MalformedJson)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(MalformedJson);
                }
                6
            }
            _ => return Err(MalformedJson),
        };
        self.at += length;
        Ok(())
    }

    pub(super) fn skip_value(&mut self) -> Result<(), MalformedJson> {
        match self.peek().ok_or(MalformedJson)? {
            b'"' => self.string().map(|_| ()),
            b'{' | b'[' if CHECKED => self.skip_checked(),
            b'{' | b'[' => self.skip_container(),
            b',' | b':' | b'}' | b']' => Err(MalformedJson),
            _ if CHECKED => self.scalar(),
            _ => {
                let scalar_ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                let rest = &self.bytes[self.at..];
                self.at += rest.iter().position(scalar_ends).unwrap_or(rest.len());
                Ok(())
            }
        }
    }

    /// Skips a container: counts brackets of any kind outside of strings.
    fn skip_container(&mut self) -> Result<(), MalformedJson> {
        let mut depth = 0_usize;
        loop {
            match self.peek().ok_or(MalformedJson)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Skips a container and checks it.
    fn skip_checked(&mut self) -> Result<(), MalformedJson> {
        let mut open = OpenContainers::default();
        loop {
            // At the beginning of a value.
            match self.peek().ok_or(MalformedJson)? {
                b'{' => {
                    if !self.opens_empty(b'{', b'}')? {
                        open.push(true);
                        self.name()?;
                        continue;
                    }
                }
                b'[' => {
                    if !self.opens_empty(b'[', b']')? {
                        open.push(false);
                        continue;
                    }
                }
                b'"' => drop(self.string()?),
                _ => self.scalar()?,
            }
            // Behind a value.
            loop {
                let Some(is_object) = open.last() else { return Ok(()) };
                if !self.ends(if is_object { b'}' } else { b']' })? {
                    if is_object {
                        self.name()?;
                    }
                    break;
                }
                open.pop();
            }
        }
    }

    /// Skips a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<(), MalformedJson> {
        let rest = &self.bytes[self.at..];
        self.at += match rest.first() {
            Some(b't') if rest.starts_with(b"true") => 4,
            Some(b'f') if rest.starts_with(b"false") => 5,
            Some(b'n') if rest.starts_with(b"null") => 4,
            Some(b'-' | b'0'..=b'9') => length_of_number(rest).ok_or(MalformedJson)?,
            _ => return Err(MalformedJson),
        };
        Ok(())
    }
}

/// The length of the number at the beginning of `bytes`; `None` if it is not as JSON writes it.
fn length_of_number(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    at += match bytes.get(at)? {
        b'0' => 1,
        b'1'..=b'9' => digits(at),
        _ => return None,
    };
    if bytes.get(at) == Some(&b'.') {
        let count = digits(at + 1);
        if count == 0 {
            return None;
        }
        at += 1 + count;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
        let count = digits(at);
        if count == 0 {
            return None;
        }
        at += count;
    }
    // `01` is no number.
    if bytes.get(at).is_some_and(u8::is_ascii_digit) { None } else { Some(at) }
}

/// The containers around a place: a bit each, 1 for an object. The first 64 need no memory.
#[derive(Default)]
struct OpenContainers {
    bits: u64,
    depth: usize,
    outer: Vec<u64>,
}

impl OpenContainers {
    fn push(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(u64::BITS as usize) {
            self.outer.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(is_object);
        self.depth += 1;
    }

    fn last(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.bits & 1 == 1)
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.bits >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(u64::BITS as usize) {
            self.bits = self.outer.pop().unwrap_or_default();
        }
    }
}

/// The index of the first `"`, `\` or, if `CHECKED`, control character, eight bytes at a time.
#[inline]
fn find_end_of_run<const CHECKED: bool>(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let mut hits = zero_bytes(word ^ repeated(b'"')) | zero_bytes(word ^ repeated(b'\\'));
        if CHECKED {
            hits |= word.wrapping_sub(repeated(FIRST_PRINTABLE)) & !word & repeated(0x80);
        }
        if hits != 0 {
            return Some(i * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\') || CHECKED && *byte < FIRST_PRINTABLE;
    Some(words.len() * 8 + rest.iter().position(ends)?)
}

/// Bytes below it are control characters, which a text of JSON does not contain.
const FIRST_PRINTABLE: u8 = 0x20;

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The high bit of every zero byte of `word`; bits above the lowest one may be wrong.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeated(0x01)) & !word & repeated(0x80)
}
