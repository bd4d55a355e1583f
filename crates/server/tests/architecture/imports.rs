//! Reads the imports between the modules in each folder of a crate, a file and its folder being one.
//!
//! An import is a path that begins with `crate::`, `super::` or `self::`, in a `use` or in code. Comments, texts and
//! what is compiled for tests only do not count. The module that a folder belongs to (for all of the crate `lib.rs` or
//! `main.rs`) is above the modules in it; a path to a name that it imports or re-exports leads to the module that the name comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tokens::{Token, tokens};

/// The place of an import: file, line and path, as a message shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// Importing module → imported module → the first import of it.
pub(crate) type Graph = BTreeMap<String, BTreeMap<String, Import>>;

/// A path in a source file, with its line.
type Found = (Vec<String>, usize);

/// The contents of one source file.
#[derive(Debug, Default)]
struct SourceFile {
    file: String,
    module: Vec<String>,
    /// Absolute paths within the crate that it imports.
    imports: Vec<Found>,
    /// The names that its `use` items bring, with their absolute paths. Those of the root are visible to all modules.
    names: Vec<(String, Vec<String>)>,
    /// Modules that are compiled for tests only.
    test_modules: Vec<Vec<String>>,
}

/// The imports between the modules of each folder of the crate in `source_folder`. The name of a folder is the path of its module,
/// that of the whole crate is empty.
pub(crate) fn graphs(source_folder: &Path, shown_folder: &str) -> BTreeMap<String, Graph> {
    let mut sources = Vec::new();
    collect(source_folder, &mut Vec::new(), shown_folder, &mut sources);
    graphs_of(&sources)
}

/// The same for files given as pairs of a name below the source folder and a text.
pub(crate) fn graphs_of_texts(files: &[(&str, &str)]) -> BTreeMap<String, Graph> {
    let parse = |(name, text): &(&str, &str)| {
        let parts: Vec<String> = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        source(text, module(parts), (*name).to_owned())
    };
    graphs_of(&files.iter().map(parse).collect::<Vec<_>>())
}

/// The files of the crate in this folder that import `name`, but for tests.
pub(crate) fn importers(source_folder: &Path, shown_folder: &str, name: &str) -> Vec<String> {
    let mut sources = Vec::new();
    collect(source_folder, &mut Vec::new(), shown_folder, &mut sources);
    let test_modules = test_modules(&sources);
    let imports =
        |source: &&SourceFile| source.names.iter().any(|(_, path)| path.last().is_some_and(|last| last == name));
    let product = sources.iter().filter(|source| !is_test(&test_modules, &source.module));
    product.filter(imports).map(|source| source.file.clone()).collect()
}

fn collect(folder: &Path, parents: &mut Vec<String>, shown_folder: &str, sources: &mut Vec<SourceFile>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        parents.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        if path.is_dir() {
            collect(&path, parents, shown_folder, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = format!("{shown_folder}/{}.rs", parents.join("/"));
            sources.push(source(&std::fs::read_to_string(&path).unwrap(), module(parents.clone()), file));
        }
        parents.pop();
    }
}

/// The path of a module by its file; that of the root is empty.
fn module(mut parts: Vec<String>) -> Vec<String> {
    let is_root = parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str());
    if is_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// The modules that are compiled for tests only.
fn test_modules(sources: &[SourceFile]) -> BTreeSet<&Vec<String>> {
    sources.iter().flat_map(|source| &source.test_modules).collect()
}

/// `true` if `module` is one of them, or lies within one.
fn is_test(test_modules: &BTreeSet<&Vec<String>>, module: &[String]) -> bool {
    (1..=module.len()).any(|end| test_modules.contains(&module[..end].to_vec()))
}

fn graphs_of(sources: &[SourceFile]) -> BTreeMap<String, Graph> {
    let folders = sources.iter().flat_map(|source| (0..source.module.len()).map(|end| &source.module[..end]));
    let folders: BTreeSet<&[String]> = folders.collect();
    folders.into_iter().map(|folder| (folder.join("::"), graph_in(sources, folder))).collect()
}

/// The imports between the modules in the folder of the module `folder`.
fn graph_in(sources: &[SourceFile], folder: &[String]) -> Graph {
    let test_modules = test_modules(sources);
    // The module in the folder that a path leads to.
    let inside = |path: &'_ [String]| path.strip_prefix(folder).and_then(|rest| rest.first()).cloned();
    let modules: BTreeSet<String> = sources.iter().filter_map(|source| inside(&source.module)).collect();
    let above = sources.iter().filter(|source| source.module == folder);
    let origins: BTreeMap<&String, String> = above
        .flat_map(|above| above.names.iter().filter_map(|(name, path)| Some((name, inside(path)?))))
        .filter(|(_, module)| modules.contains(module))
        .collect();
    let mut graph = Graph::new();
    for source in sources.iter().filter(|source| !is_test(&test_modules, &source.module)) {
        let Some(own) = inside(&source.module) else { continue };
        for (path, line) in &source.imports {
            let Some(first) = inside(path) else { continue };
            let imported = if modules.contains(&first) { Some(first) } else { origins.get(&first).cloned() };
            if let Some(imported) = imported.filter(|imported| *imported != own) {
                let import = Import { file: source.file.clone(), line: *line, path: path.join("::") };
                graph.entry(own.clone()).or_default().entry(imported).or_insert(import);
            }
        }
    }
    graph
}

fn source(text: &str, module: Vec<String>, file: String) -> SourceFile {
    let mut reader =
        Reader { tokens: tokens(text), at: 0, source: SourceFile { file, module, ..SourceFile::default() } };
    let mut module = reader.source.module.clone();
    reader.items(&mut module);
    reader.source
}

/// Walks over the tokens of one file.
struct Reader {
    tokens: Vec<(Token, usize)>,
    at: usize,
    source: SourceFile,
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(token, _)| token)
    }

    fn is(&self, ahead: usize, text: &str) -> bool {
        self.peek(ahead).is_some_and(|token| token.is(text))
    }

    fn word(&self, ahead: usize) -> Option<String> {
        match self.peek(ahead) {
            Some(Token::Word(word)) => Some(word.clone()),
            _ => None,
        }
    }

    /// Reads up to the brace that closes the module, or up to the end of the file.
    fn items(&mut self, module: &mut Vec<String>) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            if self.is(0, "#") && self.is(1, "[") {
                self.attribute(module);
            } else if self.is(0, "mod") && self.is(2, "{") {
                module.extend(self.word(1));
                self.at += 3;
                self.items(module);
                module.pop();
            } else if self.is(0, "use") && !self.is(1, "<") {
                self.import(module);
            } else if self.begins_path() {
                let line = self.tokens[self.at].1;
                let path = self.path();
                self.note(module, path, line);
            } else {
                match (self.is(0, "{"), self.is(0, "}")) {
                    (true, _) => depth += 1,
                    (_, true) if depth == 0 => {
                        self.at += 1;
                        return;
                    }
                    (_, true) => depth -= 1,
                    _ => {}
                }
                self.at += 1;
            }
        }
    }

    /// Passes over an attribute, and over the item behind it if that is for tests only.
    fn attribute(&mut self, module: &[String]) {
        let start = self.at;
        self.at += 1;
        self.group();
        let attribute: Vec<&Token> = self.tokens[start..self.at].iter().map(|(token, _)| token).collect();
        let has = |text: &str| attribute.iter().any(|token| token.is(text));
        if has("cfg") && has("test") && !has("not") {
            self.skip_item(module);
        }
    }

    fn skip_item(&mut self, module: &[String]) {
        while self.is(0, "#") {
            self.at += 1;
            self.group();
        }
        let mut is_item = false;
        while self.at < self.tokens.len() && !self.is(0, "}") {
            if self.is(0, "mod") && self.is(2, ";") {
                self.source.test_modules.push([module, &self.word(1).into_iter().collect::<Vec<_>>()].concat());
            }
            is_item |= ["fn", "mod", "use", "impl", "struct", "enum", "const", "static", "type", "trait", "let"]
                .iter()
                .any(|keyword| self.is(0, keyword));
            if self.is(0, "{") {
                self.group();
                if self.is(0, ";") {
                    self.at += 1;
                }
                return;
            }
            let is_end = self.is(0, ";") || self.is(0, ",") && !is_item;
            if self.is(0, "(") || self.is(0, "[") {
                self.group()
            } else {
                self.at += 1
            }
            if is_end {
                return;
            }
        }
    }

    /// Passes over a group in brackets.
    fn group(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            let opens = ["(", "[", "{"].iter().any(|bracket| self.is(0, bracket));
            let closes = [")", "]", "}"].iter().any(|bracket| self.is(0, bracket));
            depth = if opens { depth + 1 } else { depth - usize::from(closes) };
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// A path in code, but not the `crate` of `pub(crate)` or `pub(in crate::part)`.
    fn begins_path(&self) -> bool {
        let is_head = ["crate", "super", "self"].iter().any(|head| self.is(0, head));
        let before = self.at.checked_sub(1).map(|at| &self.tokens[at].0);
        is_head && self.is(1, "::") && !before.is_some_and(|token| token.is("::") || token.is("in"))
    }

    /// The words of a path, up to what is no part of it.
    fn path(&mut self) -> Vec<String> {
        let mut path = Vec::new();
        while let Some(word) = self.word(0) {
            path.push(word);
            self.at += 1;
            if !self.is(0, "::") || self.word(1).is_none() {
                break;
            }
            self.at += 1;
        }
        path
    }

    fn import(&mut self, module: &[String]) {
        self.at += 1;
        let mut found = Vec::new();
        self.tree(&[], &mut found);
        for (path, name, line) in found {
            if let Some(path) = self.absolute(module, path.clone(), true) {
                self.source.names.push((name, path));
            }
            self.note(module, path, line);
        }
    }

    /// A part of a `use`: collects its paths, the names that they get, and their lines.
    fn tree(&mut self, prefix: &[String], found: &mut Vec<(Vec<String>, String, usize)>) {
        let mut path = prefix.to_vec();
        while let Some((token, line)) = self.tokens.get(self.at).cloned() {
            match token {
                Token::Word(word) if word == "as" => {
                    let name = self.word(1).unwrap_or_default();
                    self.at += 2;
                    found.push((path, name, line));
                    return;
                }
                Token::Word(word) => path.push(word),
                Token::Mark(mark) if mark == "*" => path.push(mark),
                Token::Mark(mark) if mark == "::" => {}
                Token::Mark(mark) if mark == "{" => {
                    self.at += 1;
                    while self.at < self.tokens.len() && !self.is(0, "}") {
                        self.tree(&path, found);
                        if self.is(0, ",") {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                Token::Mark(_) => {
                    let line = self.tokens[self.at.saturating_sub(1)].1;
                    let name = path.last().cloned().unwrap_or_default();
                    found.push((path, name, line));
                    return;
                }
            }
            self.at += 1;
        }
    }

    fn note(&mut self, module: &[String], path: Vec<String>, line: usize) {
        if let Some(path) = self.absolute(module, path, false) {
            self.source.imports.push((path, line));
        }
    }

    /// The path from the crate's root. One that begins with a plain name is of another crate, or of a module beside it.
    fn absolute(&self, module: &[String], path: Vec<String>, may_be_plain: bool) -> Option<Vec<String>> {
        let mut rest = path.as_slice();
        let mut from = match rest.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => module.to_vec(),
            _ if may_be_plain => return Some([module, rest].concat()),
            _ => return None,
        };
        while let Some(("crate" | "self" | "super", after)) =
            rest.split_first().map(|(head, after)| (head.as_str(), after))
        {
            if rest[0] == "super" {
                from.pop();
            }
            rest = after;
        }
        from.extend_from_slice(rest);
        Some(from)
    }
}
