//! Finds the positions of a few member names in a payload, without reading its structure.
//!
//! In JSON without backslashes the value of a member called `id` can only stand after `"id"` and a colon, so a search for
//! these bytes misses none. It may find other members with the same name too, so the structure is read before a match counts
//! (`scan.rs`). That is rare, and this search is several times faster than reading.
//!
//! No two names overlap: in such a payload quotes come in pairs, and a closing quote is never followed by a letter.

use aho_corasick::packed::Searcher;
use memchr::memmem::Finder;
use millstream_columns::PathStep;

/// More names are found faster by reading the structure.
const NAMES_MAX: usize = 32;

/// The names to be found.
#[derive(Debug, Default)]
pub(crate) struct Prefilter {
    search: Search,
    /// The fields whose paths end with each name.
    slots: Vec<Vec<usize>>,
}

#[derive(Debug, Default)]
enum Search {
    #[default]
    Nothing,
    One(Box<Finder<'static>>),
    Several(Searcher),
}

impl Prefilter {
    /// For the fields with these paths; `None` if the structure must be read to find one of them.
    pub(crate) fn new<'p>(paths: impl IntoIterator<Item = (usize, &'p [PathStep])>) -> Option<Self> {
        let mut names: Vec<&str> = Vec::new();
        let mut slots: Vec<Vec<usize>> = Vec::new();
        for (slot, steps) in paths {
            let Some(PathStep::Key(name)) = steps.last().filter(|step| is_plain(step)) else {
                return None;
            };
            match names.iter().position(|known| known == name) {
                Some(position) => slots[position].push(slot),
                None => {
                    names.push(name);
                    slots.push(vec![slot]);
                }
            }
        }
        let needles: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        let search = match &needles[..] {
            [] => Search::Nothing,
            [needle] => Search::One(Box::new(Finder::new(needle).into_owned())),
            _ if needles.len() <= NAMES_MAX => Search::Several(Searcher::new(&needles)?),
            _ => return None,
        };
        Some(Self { search, slots })
    }

    /// Calls `hit` for each member that may be one of the fields, with the bytes of its value. False if the payload has
    /// to be read: then some may have been missed.
    pub(crate) fn find<'a>(&self, payload: &'a [u8], mut hit: impl FnMut(usize, &'a [u8])) -> bool {
        if memchr::memchr(b'\\', payload).is_some() {
            return false;
        }
        let mut found = |name: usize, end: usize| {
            if let Some(value) = value_at(payload, end) {
                self.slots[name].iter().for_each(|slot| hit(*slot, value));
            }
        };
        match &self.search {
            Search::Nothing => {}
            Search::One(finder) => {
                let length = finder.needle().len();
                finder.find_iter(payload).for_each(|start| found(0, start + length));
            }
            Search::Several(searcher) => searcher
                .find_iter(payload)
                .for_each(|occurrence| found(occurrence.pattern().as_usize(), occurrence.end())),
        }
        true
    }
}

/// True if JSON contains the name unchanged, and the name begins with a character that cannot follow a closing quote.
fn is_plain(step: &PathStep) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'$' | b'@' | b'#');
    matches!(step, PathStep::Key(name) if !name.is_empty() && name.bytes().all(plain))
}

/// The bytes of the value if `at` is where a member's name has ended.
fn value_at(payload: &[u8], at: usize) -> Option<&[u8]> {
    let rest = payload[at..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let length = match rest.first()? {
        b'"' => memchr::memchr(b'"', &rest[1..])? + 2,
        // That it is a container is all that matters of one.
        b'{' | b'[' => 1,
        _ => rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'))?,
    };
    Some(&rest[..length])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn prefilter(names: &[&str]) -> Option<Prefilter> {
        let paths: Vec<Vec<PathStep>> = names
            .iter()
            .map(|path| {
                path.split('/')
                    .map(|step| step.parse().map_or_else(|_| PathStep::Key(step.into()), PathStep::Index))
                    .collect()
            })
            .collect();
        Prefilter::new(paths.iter().enumerate().map(|(slot, steps)| (slot, &steps[..])))
    }

    fn found(names: &[&str], payload: &str) -> Option<Vec<(usize, String)>> {
        let mut found = Vec::new();
        let whole = prefilter(names).unwrap().find(payload.as_bytes(), |slot, value| {
            found.push((slot, String::from_utf8(value.to_vec()).unwrap()));
        });
        whole.then_some(found)
    }

    fn some(expected: &[(usize, &str)]) -> Option<Vec<(usize, String)>> {
        Some(expected.iter().map(|(slot, value)| (*slot, (*value).to_owned())).collect())
    }

    #[test]
    fn every_member_of_the_name_is_found_with_its_value() {
        let payload = r#"{"id" : "x","other":"id","id":1.5 ,"n":{"id":null,"b":true},"l":[{"id":[1]}],"b":false}"#;
        let ids = [(0, "\"x\""), (0, "1.5"), (0, "null"), (0, "[")];
        assert_eq!(found(&["id"], payload), some(&ids));
        let several =
            [(0, "\"x\""), (0, "1.5"), (0, "null"), (1, "true"), (2, "true"), (0, "["), (1, "false"), (2, "false")];
        assert_eq!(found(&["id", "b", "n/b"], payload), some(&several));
        assert_eq!(found(&["none"], payload), some(&[]));
        assert_eq!(found(&["id"], "{\"id\":"), some(&[]));
        assert_eq!(found(&["id"], "{\"id\":\"x"), some(&[]));
    }

    #[test]
    fn the_prefilter_says_which_names_it_cannot_find() {
        assert_eq!(found(&["id"], r#"{"\u0069d":1}"#), None);
        for names in [&["a/0"][..], &["id", "odd \"name"], &[","], &[""]] {
            assert!(prefilter(names).is_none(), "{names:?}");
        }
        let many: Vec<String> = (0..=NAMES_MAX).map(|i| format!("name{i}")).collect();
        assert!(prefilter(&many.iter().map(String::as_str).collect::<Vec<_>>()).is_none());
    }
}
