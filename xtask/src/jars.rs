//! Kafka's classes: fetched once by Maven, as `pom.xml` names them, and kept under the target directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// The jars and their versions. Jars that were fetched for another text than this one are fetched again.
const POM: &str = include_str!("../pom.xml");

/// Heap of the command-line classes.
pub(crate) const TOOL_HEAP_MB: u32 = 256;

/// A directory of jars that work together.
#[derive(Debug)]
pub(crate) struct Jars {
    dir: PathBuf,
}

impl Jars {
    /// Fetches the jars unless they are there.
    pub(crate) fn fetched() -> anyhow::Result<Self> {
        let home = home()?;
        let (dir, stamp) = (home.join("jars"), home.join("fetched-pom.xml"));
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        java.map_err(no_java)?;
        if std::fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == POM) {
            return Ok(Self { dir });
        }
        eprintln!("fetching Kafka's jars into {}", dir.display());
        std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let partial = home.join("jars-partial");
        for old in [&dir, &partial] {
            if old.exists() {
                std::fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
            }
        }
        fetch(&home, &partial)?;
        std::fs::rename(&partial, &dir).with_context(|| format!("cannot name {}", dir.display()))?;
        std::fs::write(&stamp, POM).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(Self { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// `java` with all the jars and this much heap; the class and its arguments are the caller's.
    pub(crate) fn java(&self, heap_mb: u32) -> Command {
        let mut java = Command::new("java");
        java.arg(format!("-Xmx{heap_mb}m")).arg("-cp").arg(self.dir.join("*"));
        java
    }
}

/// The error for a `java` that did not start.
pub(crate) fn no_java(error: std::io::Error) -> anyhow::Error {
    missing(error, "java", "default-jre-headless, 17 or newer")
}

fn missing(error: std::io::Error, program: &str, package: &str) -> anyhow::Error {
    anyhow::Error::new(error).context(format!(
        "cannot run `{program}`, which Kafka needs: `scripts/setup-clients` installs it (Debian package {package})"
    ))
}

/// `kafka` in the target directory, which is where this program lies.
fn home() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let target =
        program.ancestors().nth(2).with_context(|| format!("{} is in no target directory", program.display()))?;
    Ok(target.join("kafka"))
}

fn fetch(home: &Path, into: &Path) -> anyhow::Result<()> {
    let pom = home.join("pom.xml");
    std::fs::write(&pom, POM).with_context(|| format!("cannot write {}", pom.display()))?;
    let mut maven = Command::new("mvn");
    maven
        .args(["-q", "-B", "-Dstyle.color=never", "-f"])
        .arg(&pom)
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    maven.arg(format!("-DoutputDirectory={}", into.display()));
    let status = maven.status().map_err(|error| missing(error, "mvn", "maven"))?;
    if !status.success() {
        bail!("Maven could not fetch Kafka's jars ({status}); what it said stands above");
    }
    Ok(())
}
