//! Every setting that a text of ours names is there: read from the sources' string literals and from `config show`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use millstream_testkit::millstream;

/// All settings, by name.
fn settings() -> BTreeSet<String> {
    let shown = millstream().args(["config", "show"]).current_dir(std::env::temp_dir()).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    shown.lines().map(|line| line.split(" = ").next().unwrap().to_owned()).collect()
}

/// The Rust sources of all crates, without tests and benches.
fn sources() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.extension() {
                None if path.is_dir() => folders.push(path),
                Some(extension) if extension == "rs" => files.push(path),
                _ => {}
            }
        }
    }
    files
}

/// The string literals of Rust source, up to its tests; comments are passed over.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let mut chars = source.chars().peekable();
    let mut literals = Vec::new();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                let _ = chars.by_ref().find(|c| *c == '\n');
            }
            // A quote as a character, plain or escaped.
            '\'' if chars.peek() == Some(&'"') => {
                let _ = chars.next();
            }
            '\\' => {
                let _ = chars.next();
            }
            '"' => {
                let mut text = String::new();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    text.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
                }
                literals.push(text);
            }
            _ => {}
        }
    }
    literals
}

/// Returns the words of a text that have the form of a setting: one of the `sections`, a dot, names in lower case.
fn named(text: &str, sections: &BTreeSet<&str>) -> Vec<String> {
    let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.');
    // What stands in a path or in the middle of another name is none.
    let words = text.split(|c: char| !(of_a_name(c) || c.is_ascii_uppercase() || matches!(c, '/' | '-' | '<')));
    let words = words.map(|word| word.trim_matches('.')).filter(|word| word.chars().all(of_a_name));
    let is_setting = |word: &&str| {
        let section = word.split_once('.').map(|(section, _)| section);
        section.is_some_and(|section| sections.contains(section)) && !word.ends_with(".rs")
    };
    words.filter(is_setting).map(str::to_owned).collect()
}

#[test]
fn every_setting_that_a_text_names_is_there() {
    let settings = settings();
    let sections: BTreeSet<&str> = settings.iter().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    let (mut seen, mut unknown) = (BTreeSet::new(), Vec::new());
    // Names of Kafka's stand in one file alone.
    for file in sources().into_iter().filter(|file| !file.ends_with("kafka/src/broker_settings.rs")) {
        let source = std::fs::read_to_string(&file).unwrap();
        for name in literals(&source).iter().flat_map(|literal| named(literal, &sections)) {
            if !settings.contains(&name) {
                unknown.push(format!("{}: {name}", file.display()));
            }
            seen.insert(name);
        }
    }
    assert!(unknown.is_empty(), "no such settings ('millstream config show' lists all): {unknown:#?}");
    for name in ["memory.budget_bytes", "http.connections_max", "context.page_max_bytes", "log.pending_max_bytes"] {
        assert!(seen.contains(name), "{name} is named in a refusal, and was not found");
    }
}

#[test]
fn names_are_found_where_they_stand_in_texts_and_nowhere_else() {
    let sections = BTreeSet::from(["log", "context"]);
    let check = |source: &str, expected: &[&str]| {
        let found: Vec<String> = literals(source).iter().flat_map(|text| named(text, &sections)).collect();
        assert_eq!(found, expected, "{source}");
    };
    check(r#"f("at most log.nope_max = {limit}; raise it")"#, &["log.nope_max"]);
    check(r#"f("a \"b\" log.deep.er, or context.x_y.")"#, &["log.deep.er", "context.x_y"]);
    check("// \"log.in_a_comment\"\nlet c = '\"'; f(\"log.after\")", &["log.after"]);
    check(r#"f("crates/log.rs storage.log.x context.<tenant> dialog.x log")"#, &[]);
    check("f(\"log.before\");\n#[cfg(test)]\nmod tests { f(\"log.in_tests\") }", &["log.before"]);
}

#[test]
fn every_setting_that_config_show_prints_is_explained_in_a_sentence() {
    let lines = |arguments: &[&str]| -> Vec<(String, String)> {
        let shown =
            millstream().args(["config", "show"]).args(arguments).current_dir(std::env::temp_dir()).output().unwrap();
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        let text = String::from_utf8(shown.stdout).unwrap();
        let split =
            |line: &str| line.split_once("  # ").map(|(set, comment)| (set.trim().to_owned(), comment.to_owned()));
        text.lines().map(|line| split(line).unwrap_or_else(|| panic!("{line}"))).collect()
    };
    let named = ["--set", r#"query.bullet.meta_names={finished_ms="Finish Time"}"#];
    let (shown, explained) = (lines(&named), lines(&[&named[..], &["--explain"]].concat()));
    assert!(shown.len() > 200 && shown.iter().map(|(set, _)| set).eq(explained.iter().map(|(set, _)| set)));
    let is_sentence = |text: &str| {
        text.starts_with(|first: char| first.is_uppercase() || "`0123456789".contains(first))
            && text.ends_with('.')
            && text.split(' ').count() > 2
    };
    let without: Vec<_> = explained.iter().filter(|(_, sentence)| !is_sentence(sentence)).collect();
    assert!(without.is_empty(), "{without:#?}");
    let backlog = explained.iter().find(|(set, _)| set.starts_with("log.flush_interval_ms = ")).unwrap();
    assert!(backlog.1.contains("in milliseconds") && backlog.1.ends_with("Default 2,000."), "{backlog:?}");
}
