//! The notices of the software that the binary carries: every crate that it links, its licence, and the licence's text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// The crate that links everything.
const BINARY: &str = "millstream-server";
/// The binary prints this file.
const FILE: &str = "crates/server/third_party_notices.txt";
/// Names of files that hold a licence's text.
const TEXT_NAMES: [&str; 5] = ["license", "licence", "copying", "copyright", "notice"];

struct Package {
    title: String,
    licence: String,
    texts: Vec<String>,
}

/// Writes the notices, or only checks that those that are there are up to date.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's folder")?;
    let (file, notices) = (root.join(FILE), notices(root)?);
    if !check {
        return std::fs::write(&file, notices).with_context(|| format!("cannot write {}", file.display()));
    }
    ensure!(std::fs::read_to_string(&file).ok() == Some(notices), "{FILE} is out of date: run 'cargo xtask notices'");
    Ok(())
}

fn notices(root: &Path) -> anyhow::Result<String> {
    let packages = linked(&metadata(root)?)?;
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut out = String::from("Millstream is licensed under Apache-2.0. Its binary contains the software below.\n\n");
    for package in &packages {
        out.push_str(&format!("{}: {}\n", package.title, package.licence));
        for text in &package.texts {
            users.entry(text).or_default().push(&package.title);
        }
    }
    // By the first crate that uses them.
    let mut texts: Vec<_> = users.into_iter().collect();
    texts.sort_by_key(|(_, users)| users[0].to_owned());
    for (text, users) in texts {
        out.push_str(&format!("\n{}\n{}\n\n{text}\n", "=".repeat(80), users.join(", ")));
    }
    Ok(out)
}

/// Cargo's metadata of the packages, for the platform that releases are built for.
fn metadata(root: &Path) -> anyhow::Result<Value> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = cargo.current_dir(root).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The packages of others that the binary links, by name.
fn linked(metadata: &Value) -> anyhow::Result<Vec<Package>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let binary = packages.iter().find(|(_, package)| package["name"] == BINARY).context("the binary's crate")?.0;
    let (mut todo, mut seen) = (vec![binary.clone()], BTreeSet::new());
    while let Some(id) = todo.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let dependencies = list(&nodes[&id]["deps"]);
        let is_linked = |dependency: &&Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        todo.extend(dependencies.iter().filter(is_linked).map(|dependency| text(&dependency["pkg"])));
    }
    let foreign = seen.iter().map(|id| &packages[id]).filter(|package| !package["source"].is_null());
    let mut linked = foreign.map(|package| {
        let licence = text(&package["license"]);
        let folder = PathBuf::from(text(&package["manifest_path"])).parent().map(Path::to_owned).unwrap_or_default();
        let title = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let texts = texts(&folder, &licence).with_context(|| format!("licence texts of {title}"))?;
        Ok(Package { title, licence, texts })
    });
    let mut linked = linked.by_ref().collect::<anyhow::Result<Vec<_>>>()?;
    linked.sort_by(|a, b| a.title.cmp(&b.title));
    Ok(linked)
}

/// The texts of a package's licence. Where MIT is one of several to choose from, its text alone.
fn texts(folder: &Path, licence: &str) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let (path, name) = {
            let entry = entry?;
            (entry.path(), entry.file_name().to_string_lossy().to_lowercase())
        };
        if path.is_file() && TEXT_NAMES.iter().any(|known| name.starts_with(known)) {
            files.push((name, path));
        }
    }
    files.sort();
    let may_choose = licence.contains(" OR ") || licence.contains('/');
    if may_choose && let Some(mit) = files.iter().find(|(name, _)| name.contains("mit")).cloned() {
        files = vec![mit];
    }
    let read = |(_, path): &(String, PathBuf)| {
        let text = String::from_utf8_lossy(&std::fs::read(path)?).replace('\r', "");
        Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned())
    };
    files.iter().map(read).collect()
}
