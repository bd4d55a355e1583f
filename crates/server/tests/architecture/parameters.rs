//! Functions take their parameters one by one. A tuple among them stands for a type that has no name, or only hides how
//! many parameters there are.

use std::path::{Path, PathBuf};

use crate::tokens::{Token, tokens};

/// The lines of tuple patterns among the parameters of named functions.
fn tuples(text: &str) -> Vec<usize> {
    let tokens = tokens(text);
    let is_word = |at: usize| matches!(tokens.get(at), Some((Token::Word(_), _)));
    let is_function = |at: &usize| tokens[*at].0.is("fn") && is_word(at + 1);
    let mut found = Vec::new();
    for function in (0..tokens.len()).filter(is_function) {
        let (mut open, mut is_pattern) = (Vec::new(), true);
        for (at, (token, line)) in tokens.iter().enumerate().skip(function + 2) {
            let (Token::Word(text) | Token::Mark(text)) = token;
            match &**text {
                "(" | "[" | "{" | "<" => {
                    is_pattern |= open.is_empty();
                    open.push(at);
                }
                ")" if open.len() == 1 => break,
                ">" if tokens[at - 1].0.is("-") => {}
                ")" | "]" | "}" | ">" => drop(open.pop()),
                ":" | "in" if open.len() == 1 => is_pattern = false,
                "," if open.len() == 1 => is_pattern = true,
                "," if is_pattern => {
                    let is_tuple = |open: &&usize| tokens[**open].0.is("(") && !is_word(**open - 1);
                    found.extend(open.last().filter(is_tuple).map(|_| *line));
                }
                _ => {}
            }
        }
    }
    found.dedup();
    found
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

#[test]
fn no_function_takes_a_tuple_apart_in_its_parameters() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = crate::ALLOWED.iter().flat_map(|(name, _)| sources(&crates.join(name).join("src")));
    let shown = |path: PathBuf| {
        let lines = tuples(&std::fs::read_to_string(&path).unwrap());
        lines.into_iter().map(move |line| format!("{}:{line}", path.strip_prefix(crates).unwrap().display()))
    };
    let found: Vec<String> = files.flat_map(shown).collect();
    assert!(found.is_empty(), "pass the parts by themselves, or give the tuple a type: {found:#?}");
}

#[test]
fn a_tuple_is_found_in_each_form_and_nowhere_else() {
    for (text, expected) in [
        ("fn f((a, b): (u8, u8)) {}", &[1][..]),
        ("fn f(\n    x: Map<u8, u8>,\n    &(a, _): &(u8, u8),\n) {}", &[3]),
        ("fn f<T: Into<(u8, u8)>, const N: usize>(self, (a, (b, c)): T) {}", &[1]),
        ("fn f<F: Fn(u8) -> u8>(\n    State((a, b)): State<(u8, u8)>,\n    f: F,\n) {}", &[2]),
        ("fn f(pair: (u8, u8), Own(a, b): Own, Other { a, b }: Other, (): ()) {}", &[]),
        ("fn f(g: impl Fn((u8, u8), u8) -> (u8, u8), h: fn(u8, u8)) -> (u8, u8) { let (a, b) = pair; }", &[]),
        ("fn f(list in vec((0..9, any()), 0..9), n: u8) {}", &[]),
        ("fn f() { list.map(|(a, b)| g((a, b), 1)) }", &[]),
    ] {
        assert_eq!(tuples(text), expected, "{text}");
    }
}
