//! Merges the bundles that a document names under `use` into it.
//!
//! The nodes of a bundle are renamed to `<use>.<node>`, and so is every reference to them. Values keep their places in the
//! text of the bundle, so that findings name it.

mod parameters;
mod rename;

use super::DocumentContext;
use super::check::{Checker, ENTRIES_MAX};
use super::finding::{Findings, join};
use super::keys::BUNDLE;
use super::model::NODE_MAPS;
use super::reader::read;
use super::tree::{Tree, TreeContent, TreeMember};

/// Merges all bundles; false after a finding, as the merged document is not complete then.
pub(super) fn merge(tree: &mut Tree, context: &DocumentContext, findings: &mut Findings) -> bool {
    let TreeContent::Object(members) = &mut tree.content else { return false };
    let Some(at) = members.iter().position(|member| member.key == "use") else { return true };
    let uses = members.remove(at).value;
    let mut is_complete = true;
    for member in uses.members().iter().take(ENTRIES_MAX) {
        let path = join("use", &member.key);
        match bundle(member, &path, context, findings) {
            Some(bundle) => is_complete &= add(tree, bundle, &path, findings),
            None => is_complete = false,
        }
        if !is_complete && node_count(tree) > ENTRIES_MAX {
            break;
        }
    }
    is_complete
}

/// The bundle with its parameters and the names that it has in the document.
fn bundle(user: &TreeMember, path: &str, context: &DocumentContext, findings: &mut Findings) -> Option<Tree> {
    let name_tree = user.value.get("bundle")?;
    let name = name_tree.text()?;
    let Some(text) = context.bundles.get(name) else {
        let message = format!("no bundle '{name}' is registered");
        let known = context.bundles.keys().map(String::as_str);
        findings
            .add(name_tree.place, &join(path, "bundle"), "unknown_bundle", message)
            .value(name_tree)
            .near(name, known);
        return None;
    };
    findings.bundles.push(name.to_owned());
    let source = findings.bundles.len();
    let before = findings.len();
    let bundle = read(text, source, findings)?;
    let parameters = parameters::given(&bundle, user, path, findings);
    let bundle = parameters::filled(bundle, &parameters);
    Checker { context, findings }.section(&bundle, "", &BUNDLE);
    rename::check_names(&bundle, user, path, findings);
    (findings.len() == before).then(|| rename::renamed(bundle, user, &parameters))
}

/// Adds nodes, edges, routes and hooks of a renamed bundle to the document.
fn add(tree: &mut Tree, bundle: Tree, path: &str, findings: &mut Findings) -> bool {
    let place = tree.place;
    let (TreeContent::Object(bundled), TreeContent::Object(members)) = (bundle.content, &mut tree.content) else {
        return false;
    };
    for member in bundled {
        match members.iter_mut().find(|known| known.key == member.key) {
            Some(known) => append(&mut known.value.content, member.value.content),
            None => members.push(member),
        }
    }
    let count = node_count(tree);
    if count > ENTRIES_MAX {
        let message = format!("the job has {count} nodes with this bundle, more than {ENTRIES_MAX}; split the job");
        findings.add(place, path, "too_many", message);
    }
    count <= ENTRIES_MAX
}

fn append(known: &mut TreeContent, more: TreeContent) {
    match (known, more) {
        (TreeContent::Object(known), TreeContent::Object(more)) => known.extend(more),
        (TreeContent::List(known), TreeContent::List(more)) => known.extend(more),
        _ => {}
    }
}

fn node_count(tree: &Tree) -> usize {
    NODE_MAPS.iter().filter_map(|(map, _)| tree.get(map)).map(|map| map.members().len()).sum()
}
