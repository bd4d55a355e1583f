//! Finds the few values that somebody needs in a JSON payload: one pass, which ends when all are found.
//!
//! The pass reads only as much structure as it needs to skip the rest, so it also accepts much that is not JSON.
//! Whoever acts on what it found checks the whole payload first; a payload that is JSON is always read
//! rightly. Of members with the same name the first counts.
//!
//! Nothing here recurses deeper than the paths that are asked for.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::Step;
use crate::value::{Unreadable, Value};

/// The payload ends or breaks where a value was to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// The paths to be found, by their common beginnings.
#[derive(Debug, Default)]
pub struct PathTree {
    root: Node,
    nodes: usize,
}

#[derive(Debug, Default)]
struct Node {
    /// Its number, for the marks of one pass.
    id: usize,
    /// Whose value this is.
    slot: Option<usize>,
    keys: Vec<(String, Node)>,
    /// Positions in `keys`, kept where there are more than [`FEW_KEYS`].
    by_key: HashMap<String, usize>,
    indexes: BTreeMap<usize, Node>,
}

/// The number of the node that stands for the payload as a whole.
const ROOT: usize = 0;

/// Up to this many names are compared one by one.
const FEW_KEYS: usize = 8;

impl PathTree {
    /// Adds a path whose value goes to `slot`. Each path is added once.
    pub fn add(&mut self, steps: &[Step], slot: usize) {
        let mut node = &mut self.root;
        for step in steps {
            node = node.child(step, &mut self.nodes);
        }
        node.slot = Some(slot);
    }

    /// Whether no path has been added.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// Finds the values in `payload`; `found[slot]` gets the bytes of each that is there.
    pub fn find<'a>(
        &self,
        payload: &'a [u8],
        visited: &mut Vec<bool>,
        found: &mut [Option<&'a [u8]>],
    ) -> Result<(), Damaged> {
        visited.clear();
        visited.resize(self.nodes + 1, false);
        let mut scanner = Scanner { bytes: payload, at: 0 };
        scanner.skip_space();
        Pass { scanner, visited, found }.node(&self.root)
    }
}

impl Node {
    fn child(&mut self, step: &Step, nodes: &mut usize) -> &mut Self {
        match step {
            Step::Key(name) => {
                let known = self.keys.iter().position(|(known, _)| known == name);
                let position = known.unwrap_or_else(|| {
                    *nodes += 1;
                    self.keys.push((name.clone(), Self { id: *nodes, ..Self::default() }));
                    self.by_key.insert(name.clone(), self.keys.len() - 1);
                    self.keys.len() - 1
                });
                &mut self.keys[position].1
            }
            Step::Index(index) => self.indexes.entry(*index).or_insert_with(|| {
                *nodes += 1;
                Self { id: *nodes, ..Self::default() }
            }),
        }
    }

    /// The part called `name`, which is written as it stands between its quotes.
    fn key(&self, name: &[u8]) -> Option<&Self> {
        if name.contains(&b'\\') {
            let quoted = [b"\"", name, b"\""].concat();
            return self.plain_key(serde_json::from_slice::<String>(&quoted).ok()?.as_bytes());
        }
        self.plain_key(name)
    }

    fn plain_key(&self, name: &[u8]) -> Option<&Self> {
        if self.keys.len() <= FEW_KEYS {
            return self.keys.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, node)| node);
        }
        let position = self.by_key.get(std::str::from_utf8(name).ok()?)?;
        Some(&self.keys[*position].1)
    }
}

/// One pass over one payload.
struct Pass<'a, 'p> {
    scanner: Scanner<'a>,
    visited: &'p mut [bool],
    found: &'p mut [Option<&'a [u8]>],
}

impl Pass<'_, '_> {
    /// Reads the value at which the scanner stands, to its end. Only the root may be left as soon as all is found.
    fn node(&mut self, node: &Node) -> Result<(), Damaged> {
        let start = self.scanner.at;
        match self.scanner.peek() {
            Some(b'{') if !node.keys.is_empty() => self.object(node)?,
            Some(b'[') if !node.indexes.is_empty() => self.array(node)?,
            _ => self.scanner.skip_value()?,
        }
        if let Some(slot) = node.slot {
            self.found[slot] = Some(&self.scanner.bytes[start..self.scanner.at]);
        }
        Ok(())
    }

    fn object(&mut self, node: &Node) -> Result<(), Damaged> {
        let mut wanted = node.keys.len();
        if self.scanner.opens_empty(b'{', b'}')? {
            return Ok(());
        }
        loop {
            let name = self.scanner.string()?;
            self.scanner.skip_space();
            self.scanner.take(b':')?;
            self.scanner.skip_space();
            match node.key(name).filter(|child| !self.visited[child.id]) {
                Some(child) => {
                    self.visited[child.id] = true;
                    self.node(child)?;
                    wanted -= 1;
                    if wanted == 0 && node.id == ROOT {
                        return Ok(());
                    }
                }
                None => self.scanner.skip_value()?,
            }
            if self.scanner.ends(b'}')? {
                return Ok(());
            }
        }
    }

    fn array(&mut self, node: &Node) -> Result<(), Damaged> {
        if self.scanner.opens_empty(b'[', b']')? {
            return Ok(());
        }
        let mut index = 0;
        loop {
            match node.indexes.get(&index) {
                Some(child) => self.node(child)?,
                None => self.scanner.skip_value()?,
            }
            if self.scanner.ends(b']')? {
                return Ok(());
            }
            index += 1;
        }
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), Damaged> {
        if self.peek() != Some(byte) {
            return Err(Damaged);
        }
        self.at += 1;
        Ok(())
    }

    /// Goes into a container, to its first part; or past it if it is empty, which is told.
    fn opens_empty(&mut self, open: u8, close: u8) -> Result<bool, Damaged> {
        self.take(open)?;
        self.skip_space();
        Ok(self.take(close).is_ok())
    }

    /// Goes from the end of a part to the next one; or past the container's end, which is told.
    fn ends(&mut self, close: u8) -> Result<bool, Damaged> {
        self.skip_space();
        if self.take(close).is_ok() {
            return Ok(true);
        }
        self.take(b',')?;
        self.skip_space();
        Ok(false)
    }

    /// What stands between the quotes of a string, escapes as they are.
    fn string(&mut self) -> Result<&'a [u8], Damaged> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            let length = find_quote_or_escape(&self.bytes[self.at..]).ok_or(Damaged)?;
            self.at += length;
            if self.peek() == Some(b'"') {
                self.at += 1;
                return Ok(&self.bytes[start..self.at - 1]);
            }
            self.at += 2;
            if self.at > self.bytes.len() {
                return Err(Damaged);
            }
        }
    }

    fn skip_value(&mut self) -> Result<(), Damaged> {
        match self.peek().ok_or(Damaged)? {
            b'"' => self.string().map(|_| ()),
            b'{' | b'[' => self.skip_container(),
            b',' | b':' | b'}' | b']' => Err(Damaged),
            _ => {
                let scalar_ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                let rest = &self.bytes[self.at..];
                self.at += rest.iter().position(scalar_ends).unwrap_or(rest.len());
                Ok(())
            }
        }
    }

    /// Counts brackets, of whatever kind, outside of strings.
    fn skip_container(&mut self) -> Result<(), Damaged> {
        let mut depth = 0_usize;
        loop {
            match self.peek().ok_or(Damaged)? {
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
}

/// Where the first `"` or `\` stands, eight bytes at a time.
fn find_quote_or_escape(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let hits = zero_bytes(word ^ repeated(b'"')) | zero_bytes(word ^ repeated(b'\\'));
        if hits != 0 {
            return Some(i * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let tail = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + tail)
}

const fn repeated(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The high bit of every zero byte of `word`; bits above the lowest one may be wrong.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeated(0x01)) & !word & repeated(0x80)
}

impl<'a> Value<'a> {
    /// The value whose bytes were found.
    ///
    /// # Errors
    /// What about it cannot be read.
    pub fn read(raw: &'a [u8]) -> Result<Self, Unreadable> {
        match raw.first() {
            Some(b'"') => text(raw).map(Value::Text),
            Some(b'{' | b'[') => Ok(Value::Nested(raw)),
            Some(b't') => Ok(Value::Boolean(true)),
            Some(b'f') => Ok(Value::Boolean(false)),
            Some(b'n') => Ok(Value::Null),
            _ => number(raw),
        }
    }
}

fn text(raw: &[u8]) -> Result<Cow<'_, str>, Unreadable> {
    let inner = raw.get(1..raw.len() - 1).ok_or(Unreadable::Text)?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice(raw).map(Cow::Owned).map_err(|_| Unreadable::Text);
    }
    std::str::from_utf8(inner).map(Cow::Borrowed).map_err(|_| Unreadable::Text)
}

fn number(raw: &[u8]) -> Result<Value<'static>, Unreadable> {
    let digits = std::str::from_utf8(raw).map_err(|_| Unreadable::Number)?;
    if let Ok(integer) = digits.parse() {
        return Ok(Value::Integer(integer));
    }
    match digits.parse::<f64>() {
        Ok(double) if double.is_finite() => Ok(Value::Double(double)),
        _ => Err(Unreadable::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<Step> {
        text.split('/').map(|step| step.parse().map_or_else(|_| Step::Key(step.to_owned()), Step::Index)).collect()
    }

    fn find(payload: &str, paths: &[&str]) -> Result<Vec<Option<String>>, Damaged> {
        let mut tree = PathTree::default();
        for (slot, steps) in paths.iter().enumerate() {
            tree.add(&path(steps), slot);
        }
        let mut found = vec![None; paths.len()];
        tree.find(payload.as_bytes(), &mut Vec::new(), &mut found)?;
        Ok(found.into_iter().map(|raw| raw.map(|raw| String::from_utf8(raw.to_vec()).unwrap())).collect())
    }

    #[test]
    fn values_are_found_at_any_depth_in_one_pass() {
        let payload = r#" { "a" : {"b":[1, {"c":"x\"y"}], "d":{} } ,"e":[[],[2]] , "f":null, "g":-1.5e3} "#;
        for (paths, expected) in [
            (vec!["a/b/0"], vec![Some("1")]),
            (vec!["a/b/1/c", "g"], vec![Some(r#""x\"y""#), Some("-1.5e3")]),
            (
                vec!["a", "a/d", "a/b"],
                vec![Some(r#"{"b":[1, {"c":"x\"y"}], "d":{} }"#), Some("{}"), Some(r#"[1, {"c":"x\"y"}]"#)],
            ),
            (
                vec!["e/1/0", "e/0/0", "e/x", "a/0", "f", "f/x", "none"],
                vec![Some("2"), None, None, None, Some("null"), None, None],
            ),
        ] {
            let expected: Vec<Option<String>> = expected.into_iter().map(|raw| raw.map(str::to_owned)).collect();
            assert_eq!(find(payload, &paths), Ok(expected), "{paths:?}");
        }
    }

    #[test]
    fn of_members_with_one_name_the_first_counts_however_it_is_written() {
        let payload = r#"{"id":1,"\u0069d":2,"x":{"y":1},"x":{"y":2,"z":3}}"#;
        let found = find(payload, &["id", "x/y", "x/z"]).unwrap();
        assert_eq!(found, [Some("1".to_owned()), Some("1".to_owned()), None]);
        assert_eq!(find(r#"{"\u0069d":2}"#, &["id"]).unwrap(), [Some("2".to_owned())]);
    }

    #[test]
    fn many_names_are_found_as_few_are() {
        let names: Vec<String> = (0..100).map(|i| format!("field{i}")).collect();
        let paths: Vec<&str> = names.iter().map(String::as_str).collect();
        let members: Vec<String> = names.iter().rev().map(|name| format!("\"{name}\":\"{name}!\"")).collect();
        let found = find(&format!("{{{}}}", members.join(",")), &paths).unwrap();
        for (name, raw) in names.iter().zip(found) {
            assert_eq!(raw, Some(format!("\"{name}!\"")));
        }
    }

    #[test]
    fn a_broken_payload_is_told_and_never_panics() {
        let whole = r#"{"a":{"b":[1,2,"x\\"]},"c":"d\u00e9","e":tru}"#;
        assert!(find(whole, &["z"]).is_ok());
        for cut in 0..whole.len() {
            if whole.is_char_boundary(cut) {
                assert_eq!(find(&whole[..cut], &["z", "a/b/9"]), Err(Damaged), "{cut}");
            }
        }
        for payload in ["", " ", "{a:1}", "{\"a\" 1}", "{\"a\":}", "{\"a\":[}", "{\"\\", "{,}"] {
            assert_eq!(find(payload, &["z", "a/0"]), Err(Damaged), "{payload}");
        }
        for deep in ["[".repeat(1 << 20), "{\"a\":".repeat(1 << 18)] {
            assert_eq!(find(&deep, &["z", "a/a/0"]), Err(Damaged));
        }
    }

    #[test]
    fn values_read_as_json_says() {
        for (raw, expected) in [
            ("1", Ok(Value::Integer(1))),
            ("-0", Ok(Value::Integer(0))),
            ("9223372036854775807", Ok(Value::Integer(i64::MAX))),
            ("9223372036854775808", Ok(Value::Double(9_223_372_036_854_775_808.0))),
            ("1.0", Ok(Value::Double(1.0))),
            ("1e999", Err(Unreadable::Number)),
            (r#""a\"\u00e9\ud83d\ude00""#, Ok(Value::Text("a\"é😀".into()))),
            (r#""\ud800""#, Err(Unreadable::Text)),
            ("true", Ok(Value::Boolean(true))),
            ("null", Ok(Value::Null)),
            ("{}", Ok(Value::Nested(b"{}"))),
        ] {
            assert_eq!(Value::read(raw.as_bytes()), expected, "{raw}");
        }
    }
}
