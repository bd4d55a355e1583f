//! The place of a job's file: below `flow.files_dir`, in the folder of the job's tenant, and nowhere else.

use std::path::{Component, Path, PathBuf};

use millstream_types::TenantId;
use serde_json::Value;

pub(crate) const FILES_DIR: &str = "flow.files_dir";

/// Checks the key `path` of a document.
pub(crate) fn check_path(value: &Value) -> Result<(), String> {
    let text = value.as_str().ok_or("write the path of a file as text")?;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if text.is_empty() || text.contains('\0') || !Path::new(text).components().all(is_plain) {
        return Err(format!(
            "'{text}' is no path below {FILES_DIR}; write one such as readings/may.jsonl, without a leading / and without .."
        ));
    }
    Ok(())
}

/// A file of a tenant.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    files_dir: PathBuf,
    folder: PathBuf,
    path: String,
}

impl Location {
    pub(crate) fn new(dir: &Path, tenant: &TenantId, path: &str) -> Result<Self, String> {
        check_path(&path.into())?;
        // A tenant may be called '..', which is no folder of its own.
        check_path(&tenant.as_str().into()).map_err(|_| format!("tenant '{tenant}' has no folder of files"))?;
        Ok(Self { files_dir: dir.to_owned(), folder: dir.join(tenant.as_str()), path: path.to_owned() })
    }

    /// The tenant's folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path as the document has it.
    pub(super) fn name(&self) -> &str {
        &self.path
    }

    /// The file's path without symbolic links. The file must exist, and be below the tenant's folder.
    pub(super) fn existing(&self) -> Result<PathBuf, String> {
        let wanted = self.folder.join(&self.path);
        let found = wanted.canonicalize().map_err(|error| self.failed("be found", &error))?;
        self.check(&found)?;
        let kind = found.metadata().map_err(|error| self.failed("be looked at", &error))?;
        if kind.is_file() { Ok(found) } else { Err(format!("'{}' is no regular file; name one", self.path)) }
    }

    /// The path of a file that is written: below the tenant's folder, whose missing folders are created.
    pub(super) fn to_write(&self) -> Result<PathBuf, String> {
        let wanted = self.folder.join(&self.path);
        if wanted.symlink_metadata().is_ok() {
            return self.existing();
        }
        let mut folder = self.folder.clone();
        let parts: Vec<Component<'_>> = Path::new(&self.path).components().collect();
        let (name, folders) = parts.split_last().ok_or_else(|| format!("'{}' names no file", self.path))?;
        for part in std::iter::once(None).chain(folders.iter().map(Some)) {
            folder.extend(part);
            match std::fs::create_dir(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(self.failed("get its folder", &error));
                }
                _ => self.check(&folder.canonicalize().map_err(|error| self.failed("be found", &error))?)?,
            }
        }
        folder.push(name);
        Ok(folder)
    }

    fn check(&self, found: &Path) -> Result<(), String> {
        let files_dir = self.files_dir.canonicalize().map_err(|error| self.failed("be found", &error))?;
        let folder = self.folder.canonicalize().map_err(|error| self.failed("be found", &error))?;
        if folder.starts_with(&files_dir) && found.starts_with(&folder) {
            return Ok(());
        }
        Err(format!(
            "'{}' leads out of the tenant's folder '{}' by a symbolic link; put the file itself there",
            self.path,
            self.folder.display()
        ))
    }

    /// An error of the system about the file.
    pub(super) fn failed(&self, verb: &str, error: &std::io::Error) -> String {
        format!("file '{}' in '{}' ({FILES_DIR}) cannot {verb}: {error}", self.path, self.folder.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_nowhere_but_down() {
        for path in ["a.csv", "a/b/c.jsonl", "..a/b"] {
            assert_eq!(check_path(&path.into()), Ok(()), "{path}");
        }
        for path in ["", "/etc/passwd", "../a", "a/../../b", "./a", "a\0b"] {
            assert!(check_path(&path.into()).is_err(), "{path}");
        }
        assert!(check_path(&7.into()).is_err());
    }

    #[test]
    fn links_and_other_tenants_are_out_of_reach() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("acme"), dir.path().join("other"));
        std::fs::create_dir(&own).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("secret"), "x").unwrap();
        std::fs::write(own.join("plain"), "x").unwrap();
        std::os::unix::fs::symlink(other.join("secret"), own.join("link")).unwrap();
        std::os::unix::fs::symlink(&other, own.join("folder")).unwrap();
        std::os::unix::fs::symlink(own.join("plain"), own.join("own-link")).unwrap();
        let tenant = TenantId::new("acme").unwrap();
        let found = |path: &str| Location::new(dir.path(), &tenant, path).unwrap().existing();
        assert!(found("plain").is_ok() && found("own-link").is_ok());
        for path in ["link", "folder/secret"] {
            let error = found(path).unwrap_err();
            assert!(error.contains("symbolic link"), "{error}");
        }
        for path in ["link", "folder/new", "folder/a/b"] {
            let error = Location::new(dir.path(), &tenant, path).unwrap().to_write().unwrap_err();
            assert!(error.contains("symbolic link"), "{error}");
        }
        let new = Location::new(dir.path(), &tenant, "a/b/c").unwrap().to_write().unwrap();
        assert!(new.parent().unwrap().is_dir() && !other.join("a").exists());
        assert!(found("absent").unwrap_err().contains(FILES_DIR));
        let up = TenantId::new("..").unwrap();
        assert!(Location::new(dir.path(), &up, "plain").is_err(), "a tenant is no way up");
    }
}
