//! JSON objects as bytes: members found, left out and spliced in without building a tree.
//!
//! The functions expect valid JSON; [`is_object`] checks it.

pub(crate) use millstream_columns::is_object;
use millstream_types::iso_time;

/// Appends the object without its closing brace. Further members may follow with [`begin_member`].
pub(crate) fn write_open(object: &[u8], out: &mut Vec<u8>) {
    let end = object.iter().rposition(|byte| *byte == b'}').unwrap_or(0);
    let kept = object[..end].trim_ascii_end();
    out.extend_from_slice(if kept.is_empty() { b"{" } else { kept });
}

/// Like [`write_open`], without the members that `is_left_out` names.
pub(crate) fn write_open_without(object: &[u8], is_left_out: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
    out.push(b'{');
    for (name, value) in Members::of(object) {
        let is_left_out = match std::str::from_utf8(&name[1..name.len() - 1]) {
            Ok(plain) if !plain.contains('\\') => is_left_out(plain),
            _ => serde_json::from_slice::<String>(name).is_ok_and(|name| is_left_out(&name)),
        };
        if !is_left_out {
            separate(out);
            out.extend_from_slice(name);
            out.push(b':');
            out.extend_from_slice(value);
        }
    }
}

/// The value at a name, as written: of the member of that very name, else, of `a.b`, of the member `b` inside the object `a`.
pub(crate) fn find<'a>(object: &'a [u8], path: &str) -> Option<&'a [u8]> {
    let member = |name: &str| Members::of(object).find(|(quoted, _)| is_named(quoted, name)).map(|(_, value)| value);
    member(path).or_else(|| {
        path.match_indices('.').find_map(|(point, _)| {
            let inner = member(&path[..point]).filter(|value| value.starts_with(b"{"))?;
            find(inner, &path[point + 1..])
        })
    })
}

/// Appends the object without the members at these names, which are read as by [`find`].
pub(crate) fn write_without(object: &[u8], paths: &[&str], out: &mut Vec<u8>) {
    let is_own = |path: &str| Members::of(object).any(|(quoted, _)| is_named(quoted, path));
    let (own, nested): (Vec<&str>, Vec<&str>) = paths.iter().partition(|path| is_own(path));
    out.push(b'{');
    for (quoted, value) in Members::of(object) {
        if own.iter().any(|name| is_named(quoted, name)) {
            continue;
        }
        separate(out);
        out.extend_from_slice(quoted);
        out.push(b':');
        let inner: Vec<&str> = nested.iter().filter_map(|path| path_inside(path, quoted)).collect();
        if inner.is_empty() || !value.starts_with(b"{") {
            out.extend_from_slice(value);
        } else {
            write_without(value, &inner, out);
        }
    }
    out.push(b'}');
}

/// The rest of a path that leads into the member of this quoted name.
fn path_inside<'p>(path: &'p str, quoted: &[u8]) -> Option<&'p str> {
    let point = path.match_indices('.').map(|(point, _)| point).find(|point| is_named(quoted, &path[..*point]))?;
    Some(&path[point + 1..])
}

/// `true` if a name in quotes, as written, is `name`.
fn is_named(quoted: &[u8], name: &str) -> bool {
    match &quoted[1..quoted.len() - 1] {
        plain if !plain.contains(&b'\\') => plain == name.as_bytes(),
        _ => serde_json::from_slice::<String>(quoted).is_ok_and(|found| found == name),
    }
}

/// Appends the comma, if one is needed, and the name of a member whose value follows.
pub(crate) fn begin_member(name: &str, out: &mut Vec<u8>) {
    separate(out);
    write_text(out, name);
    out.push(b':');
}

/// Appends a text as JSON.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory cannot fail");
}

pub(crate) fn write_number(number: i64, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &number).expect("writing to memory cannot fail");
}

/// Appends a time, milliseconds since 1970-01-01T00:00:00Z, as an ISO 8601 text.
pub(crate) fn write_time(out: &mut Vec<u8>, time_ms: i64) {
    write_text(out, &iso_time(time_ms));
}

/// Appends a comma, unless the object has just been opened.
pub(crate) fn separate(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

/// The members of an object: names in quotes as written, and values.
pub(crate) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    pub(crate) fn of(object: &'a [u8]) -> Self {
        let at = object.iter().position(|byte| *byte == b'{').map_or(object.len(), |at| at + 1);
        Self { bytes: object, at }
    }

    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) {
        while self.bytes.get(self.at).is_some_and(|byte| is_skipped(*byte)) {
            self.at += 1;
        }
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.at = end_of_text(self.bytes, start)?;
        Some(&self.bytes[start..self.at])
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip(|byte| byte.is_ascii_whitespace() || byte == b',');
        let name = self.text()?;
        self.skip(|byte| byte.is_ascii_whitespace() || byte == b':');
        let start = self.at;
        self.at = end_of_value(self.bytes, start)?;
        Some((name, &self.bytes[start..self.at]))
    }
}

/// The elements of an array, as written.
pub(crate) fn elements(array: &[u8]) -> Option<Vec<&[u8]>> {
    let inner = array.trim_ascii().strip_prefix(b"[")?;
    let (mut at, mut found) = (0, Vec::new());
    loop {
        while inner.get(at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b',') {
            at += 1;
        }
        if inner.get(at).is_none_or(|byte| *byte == b']') {
            return Some(found);
        }
        let end = end_of_value(inner, at)?;
        found.push(&inner[at..end]);
        at = end;
    }
}

fn end_of_text(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start) != Some(&b'"') {
        return None;
    }
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn end_of_value(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match *bytes.get(at)? {
            b'"' => {
                at = end_of_text(bytes, at)?;
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Some(at),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b',' if depth == 0 => return Some(at),
            byte if depth == 0 && byte.is_ascii_whitespace() => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_left_out_and_spliced_in() {
        for (object, left_out, expected) in [
            (r#"{"a":1,"b":{"c":"},]"},"d":[1,2]}"#, "b", r#"{"a":1,"d":[1,2],"n":7}"#),
            (r#" { "a" : "x\"y" , "b" : -1.5e3 } "#, "a", r#"{"b":-1.5e3,"n":7}"#),
            (r#"{"\u0061":1}"#, "a", r#"{"n":7}"#),
            ("{}", "a", r#"{"n":7}"#),
        ] {
            let mut out = Vec::new();
            write_open_without(object.as_bytes(), |name| name == left_out, &mut out);
            begin_member("n", &mut out);
            out.extend_from_slice(b"7}");
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{object}");
        }
    }

    #[test]
    fn an_object_keeps_its_bytes_before_new_members() {
        for (object, expected) in [(r#"{"a": 1 }"#, r#"{"a": 1,"n":7}"#), ("{ }", r#"{"n":7}"#)] {
            let mut out = Vec::new();
            write_open(object.as_bytes(), &mut out);
            begin_member("n", &mut out);
            out.extend_from_slice(b"7}");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn a_name_with_points_is_a_member_of_that_name_or_one_inside_others() {
        for (object, path, expected, without) in [
            (r#"{"o":{"l":1,"k":2},"z":3}"#, "o.l", Some("1"), r#"{"o":{"k":2},"z":3}"#),
            (r#"{"o.l":7,"o":{"l":1}}"#, "o.l", Some("7"), r#"{"o":{"l":1}}"#),
            (r#"{"a":{"b.c":{"d":1}}}"#, "a.b.c.d", Some("1"), r#"{"a":{"b.c":{}}}"#),
            (r#"{"a.b":{"c":1},"a":2}"#, "a.b.c", Some("1"), r#"{"a.b":{},"a":2}"#),
            (r#"{"\u006f":{"\u006c":1}}"#, "o.l", Some("1"), r#"{"\u006f":{}}"#),
            (r#"{"o":[1]}"#, "o.l", None, r#"{"o":[1]}"#),
            (r#"{"o":{"k":2}}"#, "o.l", None, r#"{"o":{"k":2}}"#),
        ] {
            let mut out = Vec::new();
            write_without(object.as_bytes(), &[path], &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), without, "{object} without {path}");
            assert_eq!(find(object.as_bytes(), path), expected.map(str::as_bytes), "{path} of {object}");
        }
    }

    #[test]
    fn elements_are_found_as_written() {
        let found = elements(br#"[1, "a,b", {"c": [2]}, []]"#).unwrap();
        assert_eq!(found, [&b"1"[..], br#""a,b""#, br#"{"c": [2]}"#, b"[]"]);
        assert_eq!(elements(b"{}"), None);
    }
}
