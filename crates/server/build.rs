//! Contents of the binary beside its code: the built console, as `console/dist` is when this is compiled, and the
//! known facts about the build itself.
//!
//! This crate alone is compiled again when the console or the commit is another one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use flate2::Compression;
use flate2::bufread::GzEncoder;

/// Names the commit where there is no checkout to ask.
const GIT_HASH: &str = "MILLSTREAM_GIT_HASH";
/// Seconds since 1970 that a build which is to be the same again says it was made at.
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";
/// Libraries whose versions are told.
const LIBRARIES: [&str; 9] = ["axum", "fjall", "hyper", "jiff", "parquet", "rustls", "serde_json", "tokio", "zstd"];
const UNKNOWN: &str = "unknown";

fn main() -> io::Result<()> {
    let manifest_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    println!("cargo:rerun-if-changed=build.rs");
    let root = manifest_dir.join("../..");
    fs::write(out.join("console_files.rs"), console(&root.join("console/dist"), &out)?)?;
    println!("cargo:rustc-env=MILLSTREAM_BUILT_FROM={}", git_hash(&manifest_dir));
    println!("cargo:rustc-env=MILLSTREAM_BUILT_AT_S={}", built_at_s()?);
    println!("cargo:rustc-env=MILLSTREAM_BUILT_BY={}", compiler());
    fs::write(out.join("libraries.rs"), libraries(&root.join("Cargo.lock"))?)
}

/// A table of the console's files, each of them compressed into `out`.
fn console(dist: &Path, out: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    if dist.is_dir() {
        println!("cargo:rerun-if-changed={}", dist.display());
        collect(dist, &mut files)?;
    } else if let Some(console) = dist.parent() {
        // What does not exist would count as changed each time.
        println!("cargo:rerun-if-changed={}", console.display());
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (number, file) in files.iter().enumerate() {
        let name = file.strip_prefix(dist).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
        let path = out.join(format!("console_{number}.gz"));
        io::copy(&mut GzEncoder::new(&*fs::read(file)?, Compression::best()), &mut fs::File::create(&path)?)?;
        writeln!(table, "    ({name:?}, include_bytes!({path:?})),").map_err(io::Error::other)?;
    }
    table.push(']');
    Ok(table)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            println!("cargo:rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The commit that is checked out: as the environment says, else as git does.
fn git_hash(manifest_dir: &Path) -> String {
    println!("cargo:rerun-if-env-changed={GIT_HASH}");
    if let Ok(given) = env::var(GIT_HASH)
        && !given.is_empty()
    {
        return given;
    }
    let git = |arguments: &[&str]| said(Command::new("git").current_dir(manifest_dir).args(arguments));
    // Sources without a history of their own may lie in the checkout of something else.
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return UNKNOWN.to_owned();
    }
    // One of these changes with every commit and every checkout; what does not exist would count as changed each time.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in [Some("HEAD".to_owned()), Some("logs/HEAD".to_owned()), branch].into_iter().flatten() {
        let path = git(&["rev-parse", "--git-path", &name]).map(|path| manifest_dir.join(path));
        if let Some(path) = path.filter(|path| path.exists()) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "HEAD"]).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// The moment of the build, in seconds since 1970.
fn built_at_s() -> io::Result<u64> {
    println!("cargo:rerun-if-env-changed={SOURCE_DATE_EPOCH}");
    if let Ok(given) = env::var(SOURCE_DATE_EPOCH) {
        return given.parse().map_err(|_| {
            io::Error::other(format!("{SOURCE_DATE_EPOCH} = '{given}': use seconds since 1970, or leave it out"))
        });
    }
    let now = std::time::UNIX_EPOCH.elapsed().map_err(io::Error::other)?;
    Ok(now.as_secs())
}

fn compiler() -> String {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    said(Command::new(rustc).arg("--version")).unwrap_or_else(|| UNKNOWN.to_owned())
}

/// A table of libraries and the versions that are locked.
fn libraries(lock: &Path) -> io::Result<String> {
    println!("cargo:rerun-if-changed={}", lock.display());
    let text = fs::read_to_string(lock)?;
    let mut table = String::from("&[\n");
    for library in LIBRARIES {
        let head = format!("name = \"{library}\"\nversion = \"");
        // Of some there are several, each for another library.
        let versions = text.split(&head).skip(1).filter_map(|rest| rest.split_once('"'));
        let versions: Vec<&str> = versions.map(|(version, _)| version).collect();
        let version = if versions.is_empty() { UNKNOWN.to_owned() } else { versions.join(", ") };
        writeln!(table, "    ({library:?}, {version:?}),").map_err(io::Error::other)?;
    }
    table.push(']');
    Ok(table)
}

/// Returns the output of a command, if it succeeds.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}
