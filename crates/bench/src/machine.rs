//! Conditions of the machine: processor, load average and disk.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

/// The machine at the start of a run.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    /// Load average of the last minute before the run.
    load_1min: Option<f64>,
    dir: String,
    /// Type and device of the file system that holds `dir`.
    filesystem: Option<(String, String)>,
}

impl Machine {
    /// Looks at the machine and at the file system under `dir`.
    pub(crate) fn with_files_in(dir: &Path) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let loadavg = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        Self {
            cpu: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            load_1min: loadavg.split(' ').next().and_then(|load| load.parse().ok()),
            dir: dir.display().to_string(),
            filesystem: filesystem(&mounts, dir),
        }
    }

    /// Returns the machine as members of a case's conditions.
    pub(crate) fn conditions(&self) -> Map<String, Value> {
        let (filesystem, device) = self.filesystem.clone().unzip();
        let conditions = json!({
            "cpu": self.cpu, "cores": self.cores, "load_1min_before": self.load_1min,
            "disk": { "dir": self.dir, "filesystem": filesystem, "device": device },
        });
        match conditions {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// Returns a warning if the file system is in memory, where a sync does nothing.
    pub(crate) fn warning(&self) -> Option<String> {
        let (kind, _) = self.filesystem.as_ref()?;
        matches!(kind.as_str(), "tmpfs" | "ramfs").then(|| {
            format!(
                "{} lies in memory ({kind}), where a sync costs nothing: set TMPDIR to a directory on a disk.",
                self.dir
            )
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores", self.cpu, self.cores)?;
        if let Some(load) = self.load_1min {
            write!(f, ", load average {load:.2} before the run")?;
        }
        write!(f, "; files in {}", self.dir)?;
        match &self.filesystem {
            Some((kind, device)) => write!(f, " ({kind} on {device})"),
            None => Ok(()),
        }
    }
}

/// Type and device of the innermost mount that holds `dir`.
fn filesystem(mounts: &str, dir: &Path) -> Option<(String, String)> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        dir.starts_with(point).then_some((point.len(), kind, device))
    });
    // Of two mounts on one point the later one covers the earlier; so does the last maximum.
    mounts.max_by_key(|(length, ..)| *length).map(|(_, kind, device)| (kind.to_owned(), device.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_and_latest_mount_holds_a_directory() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/x xfs rw 0 0\n/dev/c / btrfs rw 0 0\n";
        for (dir, expected) in [("/home", "btrfs"), ("/tmp", "tmpfs"), ("/tmp/x/y", "xfs"), ("/tmpfoo", "btrfs")] {
            assert_eq!(filesystem(mounts, Path::new(dir)).unwrap().0, expected, "{dir}");
        }
    }

    #[test]
    fn a_directory_in_memory_is_warned_about() {
        let mut machine = Machine::with_files_in(Path::new("/"));
        machine.filesystem = Some(("tmpfs".to_owned(), "tmpfs".to_owned()));
        assert!(machine.warning().unwrap().contains("TMPDIR"));
        machine.filesystem = Some(("ext4".to_owned(), "/dev/a".to_owned()));
        assert_eq!(machine.warning(), None);
    }
}
