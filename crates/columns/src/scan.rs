//! Finds a few values in a JSON payload in one pass.
//!
//! [`PathTree::find`] ends when all are found. It reads only as much structure as it needs to skip the rest, so it also accepts
//! much that is not JSON: its callers validate the whole payload first. [`PathTree::find_in_object`] validates in the same
//! pass. Valid JSON is always read correctly. Of members with the same name the first counts.
//!
//! The recursion is never deeper than the requested paths.

mod scanner;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde::de::IgnoredAny;

pub use self::scanner::MalformedJson;
use self::scanner::Scanner;
use crate::PathStep;
use crate::value::{Unreadable, Value};

/// True if the whole payload is JSON.
pub fn is_json(payload: &[u8]) -> bool {
    std::str::from_utf8(payload).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// True if the payload is one JSON object and nothing else. Texts in it may have bytes that are not UTF-8.
pub fn is_object(payload: &[u8]) -> bool {
    let mut scanner = Scanner::<true> { bytes: payload, at: 0 };
    scanner.skip_space();
    scanner.peek() == Some(b'{') && scanner.skip_value().is_ok() && scanner.end().is_ok()
}

/// The requested paths, as a tree of their common prefixes.
#[derive(Debug, Default)]
pub struct PathTree {
    root: PathNode,
    nodes: usize,
}

#[derive(Debug, Default)]
struct PathNode {
    /// The node's number, for the marks of one pass.
    id: usize,
    /// The slot of the path that ends here.
    slot: Option<usize>,
    keys: Vec<(String, PathNode)>,
    /// Positions in `keys`, for nodes with more than [`FEW_KEYS`] keys.
    by_key: HashMap<String, usize>,
    indexes: BTreeMap<usize, PathNode>,
}

/// The node of the payload as a whole.
const ROOT: usize = 0;

/// Up to this number of keys are compared one by one.
const FEW_KEYS: usize = 8;

impl PathTree {
    /// Adds a path; its value goes to `slot`. Each path is added once.
    pub fn add(&mut self, steps: &[PathStep], slot: usize) {
        let mut node = &mut self.root;
        for step in steps {
            node = node.child(step, &mut self.nodes);
        }
        node.slot = Some(slot);
    }

    /// True if no path was added.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// Finds the values in `payload`; `found[slot]` gets the bytes of each value that exists.
    pub fn find<'a>(
        &self,
        payload: &'a [u8],
        visited: &mut Vec<bool>,
        found: &mut [Option<&'a [u8]>],
    ) -> Result<(), MalformedJson> {
        let mut pass = self.begin::<false>(payload, visited, found);
        pass.node(&self.root)
    }

    /// As [`Self::find`], and checks that the payload is one JSON object
    /// and nothing else. Texts in it may have bytes that are not UTF-8.
    pub fn find_in_object<'a>(
        &self,
        payload: &'a [u8],
        visited: &mut Vec<bool>,
        found: &mut [Option<&'a [u8]>],
    ) -> Result<(), MalformedJson> {
        let mut pass = self.begin::<true>(payload, visited, found);
        if pass.scanner.peek() != Some(b'{') {
            return Err(MalformedJson);
        }
        pass.node(&self.root)?;
        pass.scanner.end()
    }

    fn begin<'a, 'p, const CHECKED: bool>(
        &self,
        payload: &'a [u8],
        visited: &'p mut Vec<bool>,
        found: &'p mut [Option<&'a [u8]>],
    ) -> ScanPass<'a, 'p, CHECKED> {
        visited.clear();
        visited.resize(self.nodes + 1, false);
        let mut scanner = Scanner { bytes: payload, at: 0 };
        scanner.skip_space();
        ScanPass { scanner, visited, found }
    }
}

impl PathNode {
    fn child(&mut self, step: &PathStep, nodes: &mut usize) -> &mut Self {
        match step {
            PathStep::Key(name) => {
                let known = self.keys.iter().position(|(known, _)| known == name);
                let position = known.unwrap_or_else(|| {
                    *nodes += 1;
                    self.keys.push((name.clone(), Self { id: *nodes, ..Self::default() }));
                    self.by_key.insert(name.clone(), self.keys.len() - 1);
                    self.keys.len() - 1
                });
                &mut self.keys[position].1
            }
            PathStep::Index(index) => self.indexes.entry(*index).or_insert_with(|| {
                *nodes += 1;
                Self { id: *nodes, ..Self::default() }
            }),
        }
    }

    /// The child called `name`, which is given as in the payload, with its escapes.
    fn key(&self, name: &[u8]) -> Option<&Self> {
        if name.contains(&b'\\') {
            return self.plain_key(unescaped(name)?.as_bytes());
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
struct ScanPass<'a, 'p, const CHECKED: bool> {
    scanner: Scanner<'a, CHECKED>,
    visited: &'p mut [bool],
    found: &'p mut [Option<&'a [u8]>],
}

impl<const CHECKED: bool> ScanPass<'_, '_, CHECKED> {
    /// Reads the value at the scanner's position to its end. Only an unchecked root may end early, once all values are found.
    fn node(&mut self, node: &PathNode) -> Result<(), MalformedJson> {
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

    fn object(&mut self, node: &PathNode) -> Result<(), MalformedJson> {
        let mut wanted = node.keys.len();
        if self.scanner.opens_empty(b'{', b'}')? {
            return Ok(());
        }
        loop {
            let name = self.scanner.name()?;
            match node.key(name).filter(|child| !self.visited[child.id]) {
                Some(child) => {
                    self.visited[child.id] = true;
                    self.node(child)?;
                    wanted -= 1;
                    if !CHECKED && wanted == 0 && node.id == ROOT {
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

    fn array(&mut self, node: &PathNode) -> Result<(), MalformedJson> {
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

/// Appends the members of the JSON object `payload` to `out`, without its braces and without the members called one of
/// `dropped`, which is sorted. Runs of members keep their bytes. Returns true if there was one.
pub(crate) fn copy_members(payload: &[u8], dropped: &[String], out: &mut Vec<u8>) -> Result<bool, MalformedJson> {
    let inner = payload.strip_prefix(b"{").and_then(|inner| inner.strip_suffix(b"}")).ok_or(MalformedJson)?;
    if dropped.is_empty() {
        out.extend_from_slice(inner);
        return Ok(!inner.trim_ascii().is_empty());
    }
    let mut scanner = Scanner::<false> { bytes: payload, at: 0 };
    if scanner.opens_empty(b'{', b'}')? {
        return Ok(false);
    }
    let (mut has_members, mut run) = (false, None);
    loop {
        let start = scanner.at;
        let name = scanner.name()?;
        scanner.skip_value()?;
        if is_one_of(name, dropped) {
            has_members |= copy_run(payload, run.take(), has_members, out);
        } else {
            run = Some(run.map_or(start, |run: Range<usize>| run.start)..scanner.at);
        }
        if scanner.ends(b'}')? {
            return Ok(copy_run(payload, run, has_members, out) || has_members);
        }
    }
}

/// True if the name, which is given as in the payload, is in the sorted list.
fn is_one_of(name: &[u8], sorted: &[String]) -> bool {
    let is_known = |name: &[u8]| sorted.binary_search_by(|known| known.as_bytes().cmp(name)).is_ok();
    if name.contains(&b'\\') { unescaped(name).is_some_and(|name| is_known(name.as_bytes())) } else { is_known(name) }
}

/// Appends some members, after a comma unless they are the first.
fn copy_run(payload: &[u8], run: Option<Range<usize>>, has_members: bool, out: &mut Vec<u8>) -> bool {
    let Some(run) = run else { return false };
    if has_members {
        out.push(b',');
    }
    out.extend_from_slice(&payload[run]);
    true
}

/// A name that is given as in the payload, without its escapes.
fn unescaped(name: &[u8]) -> Option<String> {
    let quoted = [b"\"", name, b"\""].concat();
    serde_json::from_slice(&quoted).ok()
}

impl<'a> Value<'a> {
    /// Reads the value in these bytes.
    ///
    /// # Errors
    /// [`Unreadable`] if the number or text is invalid.
    pub fn read(raw: &'a [u8]) -> Result<Self, Unreadable> {
        match raw.first() {
            Some(b'"') => text(raw).map(Value::Text),
            Some(b'{' | b'[') => Ok(Value::Nested(raw.into())),
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
    if let Some(integer) = short_integer(raw) {
        return Ok(Value::Integer(integer));
    }
    let digits = std::str::from_utf8(raw).map_err(|_| Unreadable::Number)?;
    if let Ok(integer) = digits.parse() {
        return Ok(Value::Integer(integer));
    }
    match digits.parse::<f64>() {
        Ok(double) if double.is_finite() => Ok(Value::Double(double)),
        _ => Err(Unreadable::Number),
    }
}

/// Most digits of which no number overflows 64 bits.
const DIGITS_MAX: usize = 18;

/// A whole number of few digits; `None` for other numbers.
fn short_integer(raw: &[u8]) -> Option<i64> {
    let (is_negative, digits) = raw.strip_prefix(b"-").map_or((false, raw), |digits| (true, digits));
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return None;
    }
    let mut number = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<PathStep> {
        text.split('/')
            .map(|step| step.parse().map_or_else(|_| PathStep::Key(step.to_owned()), PathStep::Index))
            .collect()
    }

    fn find(payload: &str, paths: &[&str]) -> Result<Vec<Option<String>>, MalformedJson> {
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
    fn the_first_of_duplicate_members_counts_even_if_its_name_is_escaped() {
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
    fn a_broken_payload_is_reported_and_never_panics() {
        let whole = r#"{"a":{"b":[1,2,"x\\"]},"c":"d\u00e9","e":tru}"#;
        assert!(find(whole, &["z"]).is_ok());
        for cut in 0..whole.len() {
            if whole.is_char_boundary(cut) {
                assert_eq!(find(&whole[..cut], &["z", "a/b/9"]), Err(MalformedJson), "{cut}");
            }
        }
        for payload in ["", " ", "{a:1}", "{\"a\" 1}", "{\"a\":}", "{\"a\":[}", "{\"\\", "{,}"] {
            assert_eq!(find(payload, &["z", "a/0"]), Err(MalformedJson), "{payload}");
        }
        for deep in ["[".repeat(1 << 20), "{\"a\":".repeat(1 << 18)] {
            assert_eq!(find(&deep, &["z", "a/a/0"]), Err(MalformedJson));
        }
    }

    #[test]
    fn a_checked_pass_takes_the_objects_that_serde_json_takes() {
        let mut tree = PathTree::default();
        ["a", "b/c", "d/1"].iter().enumerate().for_each(|(slot, steps)| tree.add(&path(steps), slot));
        let check = |payload: &[u8]| {
            let is_whole = serde_json::from_slice::<IgnoredAny>(payload).is_ok();
            let expected = is_whole && payload.trim_ascii_start().starts_with(b"{");
            let (mut found, mut of_find) = ([None; 3], [None; 3]);
            let checked = tree.find_in_object(payload, &mut Vec::new(), &mut found);
            let shown = String::from_utf8_lossy(payload);
            assert_eq!((checked.is_ok(), is_object(payload)), (expected, expected), "{shown}");
            if expected {
                assert_eq!(tree.find(payload, &mut Vec::new(), &mut of_find), Ok(()));
                assert_eq!(found, of_find, "{shown}");
            }
        };
        let whole =
            r#" {"a":-0.5e+10,"b":{"c":[{},[],{"x":[1,{"y":null}]}]},"\u0064":[true, 0 ,"t\n\\"],"e":{ },"z":""} "#;
        let deep = format!("{{\"x\":{}1{}}}", "[{\"y\":".repeat(100), "}]".repeat(100));
        let strange: [&[u8]; 3] = [b"{\"a\":\"\xff\"}", b"{\"a\":\"\x1f\"}", b"\x0c{}"];
        strange
            .into_iter()
            .chain([whole.as_bytes(), deep.as_bytes(), b"[{}]", b"{}{}", b"", b"{", b"3"])
            .for_each(check);
        for payload in [whole.as_bytes(), deep.as_bytes()] {
            for at in 0..payload.len() {
                check(&payload[..at]);
                let mut changed = payload.to_vec();
                for byte in *b"\"\\{}[]:,0-.e1tu \x1f" {
                    changed[at] = byte;
                    check(&changed);
                }
                changed.remove(at);
                check(&changed);
            }
        }
        for number in ["01", "-", "1.", ".5", "1e", "1e+", "+1", "-0", "0", "10", "1.50", "1E-9", "0x1", "1-1", "NaN"] {
            check(format!("{{\"z\":{number}}}").as_bytes());
            check(format!("{{\"a\":{number} }}").as_bytes());
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
            ("{}", Ok(Value::Nested(b"{}".into()))),
        ] {
            assert_eq!(Value::read(raw.as_bytes()), expected, "{raw}");
        }
    }
}
