//! Reads YAML 1.2 and JSON into a [`Tree`], with the place of each key and value.
//!
//! Bounds: the text, the depth and the number of values. Anchors, aliases and tags are refused, so a text never becomes
//! larger than it is. The work is linear in the length of the text.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::finding::{Findings, join};
use super::scalar::plain;
use super::tree::{TextPosition, Tree, TreeContent, TreeMember};

/// Longest text of a document or bundle, in bytes.
pub(super) const TEXT_MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of lists and objects.
pub(super) const DEPTH_MAX: usize = 64;
/// The message for anchors and aliases.
const NO_ANCHORS: &str = "anchors (&name) and aliases (*name) are not read; write the value again";
/// Most values that a document may have, keys included.
const VALUES_MAX: usize = 200_000;

/// Reads `text`, which is the source with this number; `None` after a finding that leaves nothing to check.
pub(super) fn read(text: &str, source: usize, findings: &mut Findings) -> Option<Tree> {
    let start = TextPosition { source, line: 1, column: 1 };
    if text.len() > TEXT_MAX_BYTES {
        let message =
            format!("the text has {} bytes, more than {TEXT_MAX_BYTES}; keep data in files or topics", text.len());
        findings.add(start, "", "text_size", message);
        return None;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let json = super::surrogates::replaced(text);
    let reader = TreeReader { source, parser: Parser::new_from_str(json.as_deref().unwrap_or(text)), values: 0 };
    reader.document(text, findings)
}

struct TreeReader<'t> {
    source: usize,
    parser: Parser<'t, StrInput<'t>>,
    values: usize,
}

/// A fault after which the rest of the text cannot be read.
struct Stop {
    place: TextPosition,
    rule: &'static str,
    message: String,
}

type Read<T> = Result<T, Stop>;

/// A list or object whose end has not come yet.
struct Open {
    place: TextPosition,
    path: String,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Tree>),
    Object { members: Vec<TreeMember>, lines: HashMap<String, usize>, key: Option<(String, TextPosition)> },
}

impl<'t> TreeReader<'t> {
    fn document(mut self, text: &str, findings: &mut Findings) -> Option<Tree> {
        match self.root(findings) {
            Ok(Some(tree)) => Some(tree),
            Ok(None) => {
                let place = TextPosition { source: self.source, line: 1, column: 1 };
                let message = "the text is empty; a job has at least version, kind, name, sources and sinks";
                findings.add(place, "", "empty", message.to_owned());
                None
            }
            Err(stop) => {
                let stop = super::surrogates::json_fault(text, &stop.message, stop.rule)
                    .map(|(line, column, message)| Stop {
                        place: TextPosition { source: self.source, line, column },
                        rule: "syntax",
                        message,
                    })
                    .unwrap_or(stop);
                findings.add(stop.place, "", stop.rule, stop.message);
                None
            }
        }
    }

    fn root(&mut self, findings: &mut Findings) -> Read<Option<Tree>> {
        let mut open: Vec<Open> = Vec::new();
        let mut root = None;
        loop {
            let (event, span) = match self.parser.next_event() {
                None => return Ok(root),
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    let marker = error.marker();
                    let place =
                        TextPosition { source: self.source, line: marker.line().max(1), column: marker.col() + 1 };
                    let (rule, message) = in_words(error.info());
                    return Err(Stop { place, rule, message });
                }
            };
            let place = self.place(&span);
            self.refuse_extras(&event, place)?;
            let done = match event {
                Event::DocumentStart(_) if root.is_some() => {
                    let message = "a second YAML document begins here; a text is one job, so submit it by itself";
                    return Err(Stop { place, rule: "several_documents", message: message.to_owned() });
                }
                Event::Scalar(text, style, _, _) => match self.scalar(&text, style, place, &mut open, findings)? {
                    Some(tree) => tree,
                    None => continue,
                },
                Event::SequenceStart(..) | Event::MappingStart(..) => {
                    let kind = match event {
                        Event::SequenceStart(..) => OpenKind::List(Vec::new()),
                        _ => OpenKind::Object { members: Vec::new(), lines: HashMap::new(), key: None },
                    };
                    self.begin(kind, place, &mut open)?;
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(done) => done.close(),
                    None => continue,
                },
                _ => continue,
            };
            match open.last_mut() {
                Some(parent) => parent.add(done, findings),
                None => root = Some(done),
            }
        }
    }

    fn place(&self, span: &Span) -> TextPosition {
        TextPosition { source: self.source, line: span.start.line().max(1), column: span.start.col() + 1 }
    }

    /// Refuses anchors, aliases and tags, and too many values.
    fn refuse_extras(&mut self, event: &Event<'_>, place: TextPosition) -> Read<()> {
        let (anchor, tag) = match event {
            Event::Alias(_) => (1, false),
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            _ => return Ok(()),
        };
        self.values += 1;
        let (rule, message) = if anchor > 0 {
            ("anchor", NO_ANCHORS.to_owned())
        } else if tag {
            ("tag", "tags (!name) are not read; put a text into quotes".to_owned())
        } else if self.values > VALUES_MAX {
            ("text_size", format!("the text has more than {VALUES_MAX} values; keep data in files or topics"))
        } else {
            return Ok(());
        };
        Err(Stop { place, rule, message })
    }

    /// A value, or `None` if the text was the key of an object.
    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        place: TextPosition,
        open: &mut [Open],
        findings: &mut Findings,
    ) -> Read<Option<Tree>> {
        if let Some(Open { kind: OpenKind::Object { key: key @ None, .. }, .. }) = open.last_mut() {
            *key = Some((text.to_owned(), place));
            return Ok(None);
        }
        let content = match style {
            ScalarStyle::Plain => plain(text).unwrap_or_else(|_| {
                let path = open.last().map_or_else(String::new, Open::next_path);
                let message = format!("{text} is no number of JSON with up to 64 bits; put it into quotes");
                findings.add(place, &path, "number_range", message).named(text);
                TreeContent::Text(text.to_owned())
            }),
            _ => TreeContent::Text(text.to_owned()),
        };
        Ok(Some(Tree { place, content }))
    }

    fn begin(&self, kind: OpenKind, place: TextPosition, open: &mut Vec<Open>) -> Read<()> {
        if let Some(Open { kind: OpenKind::Object { key: None, .. }, .. }) = open.last() {
            let message = "the key of an object is a list or an object; a key is a text";
            return Err(Stop { place, rule: "syntax", message: message.to_owned() });
        }
        if open.len() >= DEPTH_MAX {
            return Err(Stop { place, rule: "depth", message: too_deep() });
        }
        let path = open.last().map_or_else(String::new, Open::next_path);
        open.push(Open { place, path, kind });
        Ok(())
    }
}

impl Open {
    /// The path of the value that comes next.
    fn next_path(&self) -> String {
        match &self.kind {
            OpenKind::List(elements) => format!("{}[{}]", self.path, elements.len()),
            OpenKind::Object { key, .. } => join(&self.path, key.as_ref().map_or("", |(key, _)| key)),
        }
    }

    fn add(&mut self, value: Tree, findings: &mut Findings) {
        match &mut self.kind {
            OpenKind::List(elements) => elements.push(value),
            OpenKind::Object { members, lines, key } => {
                let Some((key, key_place)) = key.take() else { return };
                if let Some(line) = lines.get(&key) {
                    let message = format!("'{key}' stands here twice, first in line {line}; keep one of them");
                    findings.add(key_place, &join(&self.path, &key), "duplicate_key", message).named(&key);
                    return;
                }
                lines.insert(key.clone(), key_place.line);
                members.push(TreeMember { key, key_place, value });
            }
        }
    }

    fn close(self) -> Tree {
        let content = match self.kind {
            OpenKind::List(elements) => TreeContent::List(elements),
            OpenKind::Object { members, .. } => TreeContent::Object(members),
        };
        Tree { place: self.place, content }
    }
}

fn too_deep() -> String {
    format!("lists and objects are nested deeper than {DEPTH_MAX}; make the document flatter")
}

/// The rule and the message for an error of the parser.
fn in_words(info: &str) -> (&'static str, String) {
    // The parser counts lists and objects in brackets, and resolves aliases, by itself.
    if info.contains("recursion") {
        return ("depth", too_deep());
    }
    if info.contains("anchor") {
        return ("anchor", NO_ANCHORS.to_owned());
    }
    let hint = "compare the indentation with the lines above and quote texts that hold ': ' or ' #'";
    ("syntax", format!("the text is not YAML: {info}; {hint}"))
}
