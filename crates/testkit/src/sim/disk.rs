//! The state behind a [`SimFiles`](super::SimFiles): a tree of names and files, and the planned failures.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::contents::{self, FileContents};
use super::names::{self, DirectoryNames, NodeId};
use super::power_loss::PowerLoss;
use super::rng::Rng;

const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
enum DiskNode {
    Directory(DirectoryNames),
    File(FileContents),
}

/// An operation: an ordinary one, or the one during which the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskOperation {
    Whole,
    Last,
}

#[derive(Debug, Clone)]
pub(super) struct Disk {
    nodes: Vec<DiskNode>,
    /// Locked files; a crash unlocks them.
    locked: HashSet<NodeId>,
    off: bool,
    /// The operation count at which the power goes.
    off_at: Option<u64>,
    fail_next_sync: bool,
    forgetful: Option<Forgetful>,
    /// Bytes by which files may still grow.
    free_bytes: Option<u64>,
    told_free_bytes: u64,
    operations: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Grows with every change, to order changes of different files.
    moment: u64,
}

/// Decides which syncs are forgotten.
#[derive(Debug, Clone)]
struct Forgetful {
    rng: Rng,
    percent: u64,
    of: fn(&Path) -> bool,
}

impl Default for Disk {
    fn default() -> Self {
        Self::with_nodes(vec![DiskNode::Directory(DirectoryNames::default())])
    }
}

impl Disk {
    fn with_nodes(nodes: Vec<DiskNode>) -> Self {
        Self {
            nodes,
            locked: HashSet::new(),
            off: false,
            off_at: None,
            fail_next_sync: false,
            forgetful: None,
            free_bytes: None,
            told_free_bytes: u64::MAX,
            operations: 0,
            bytes_read: 0,
            bytes_written: 0,
            moment: 0,
        }
    }

    // --- Failures.

    pub(super) fn switch_off(&mut self) {
        self.off = true;
    }

    pub(super) fn switch_off_after(&mut self, operations: u64) {
        self.off_at = Some(self.operations + operations);
    }

    pub(super) fn fail_next_sync(&mut self) {
        self.fail_next_sync = true;
    }

    pub(super) fn forget_syncs(&mut self, seed: u64, percent: u64, of: fn(&Path) -> bool) {
        self.forgetful = Some(Forgetful { rng: Rng::new(seed), percent, of });
    }

    fn forgets(&mut self, node: NodeId) -> bool {
        let Some(mut forgetful) = self.forgetful.take() else { return false };
        let is_meant = self.names().iter().any(|(path, named)| *named == node && (forgetful.of)(path));
        let forgets = is_meant && forgetful.rng.chance(forgetful.percent);
        self.forgetful = Some(forgetful);
        forgets
    }

    pub(super) fn tell_free(&mut self, bytes: u64) {
        self.told_free_bytes = bytes;
    }

    pub(super) fn told_free_bytes(&self) -> u64 {
        self.told_free_bytes
    }

    pub(super) fn set_free_bytes(&mut self, bytes: u64) {
        self.free_bytes = Some(bytes);
    }

    pub(super) fn is_off(&self) -> bool {
        self.off
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// The disk after `kill -9`: all written bytes, durable or not.
    pub(super) fn after_kill(&self) -> Self {
        Self::with_nodes(self.nodes.clone()).at(self.moment)
    }

    /// The disk after a power loss.
    pub(super) fn after_power_loss(&self, loss: PowerLoss, rng: &mut Rng) -> Self {
        // Sometimes everything stops at one moment; otherwise each file and directory loses changes independently.
        let stopped_at = rng.chance(30).then(|| rng.below(self.moment + 1));
        let mut survivors = vec![DiskNode::Directory(DirectoryNames::default())];
        self.copy_directory(ROOT, ROOT, &mut survivors, loss, stopped_at, rng);
        Self::with_nodes(survivors)
    }

    fn copy_directory(
        &self,
        from: NodeId,
        to: NodeId,
        survivors: &mut Vec<DiskNode>,
        loss: PowerLoss,
        stopped_at: Option<u64>,
        rng: &mut Rng,
    ) {
        let DiskNode::Directory(names) = &self.nodes[from] else { return };
        let mut kept = BTreeMap::new();
        for (name, node) in names.after_power_loss(loss, stopped_at, rng) {
            let copy = survivors.len();
            match &self.nodes[node] {
                DiskNode::File(contents) => {
                    survivors
                        .push(DiskNode::File(FileContents::durable(contents.after_power_loss(loss, stopped_at, rng))));
                }
                DiskNode::Directory(_) => {
                    survivors.push(DiskNode::Directory(DirectoryNames::default()));
                    self.copy_directory(node, copy, survivors, loss, stopped_at, rng);
                }
            }
            kept.insert(name, copy);
        }
        survivors[to] = DiskNode::Directory(DirectoryNames::durable(kept));
    }

    fn at(mut self, moment: u64) -> Self {
        self.moment = moment;
        self
    }

    // --- Operations.

    /// Counts an operation that changes something.
    pub(super) fn begin(&mut self) -> io::Result<DiskOperation> {
        if self.off {
            return Err(power_is_off());
        }
        self.operations += 1;
        if self.off_at.is_some_and(|at| self.operations >= at) {
            self.off = true;
            return Ok(DiskOperation::Last);
        }
        Ok(DiskOperation::Whole)
    }

    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(super) fn create_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        let mut parent = ROOT;
        for name in names_of(dir)? {
            let existing = self.directory(parent)?.now().get(&name).copied();
            parent = match existing {
                Some(node) => node,
                None => self.add(parent, name, DiskNode::Directory(DirectoryNames::default()))?,
            };
            self.directory(parent)?;
        }
        Ok(())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        let (parent, name) = self.parent(path)?;
        let existing = self.directory(parent)?.now().get(&name).copied();
        match existing {
            Some(node) => self.change(node, contents::FileChange::Size(0)).map(|()| node),
            None => self.add(parent, name, DiskNode::File(FileContents::default())),
        }
    }

    fn add(&mut self, parent: NodeId, name: String, node: DiskNode) -> io::Result<NodeId> {
        let id = self.nodes.len();
        self.nodes.push(node);
        let moment = self.tick();
        self.directory_mut(parent)?.change(moment, names::NameChange::Add { name, node: id });
        Ok(id)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        if parent != to_parent {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only renames within a directory are simulated"));
        }
        let node = self.node(from)?;
        let moment = self.tick();
        let change = names::NameChange::Rename { from: from_name, to: to_name, node };
        self.directory_mut(parent)?.change(moment, change);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(self.node(path)?)?;
        self.unlink(path)
    }

    /// Removes the names one by one, innermost first, as the system does: a crash may leave any of them.
    pub(super) fn remove_dir_all(&mut self, dir: &Path) -> io::Result<()> {
        for (name, node) in self.directory(self.node(dir)?)?.now().clone() {
            match self.nodes[node] {
                DiskNode::Directory(_) => self.remove_dir_all(&dir.join(name))?,
                DiskNode::File(_) => self.unlink(&dir.join(name))?,
            }
        }
        self.unlink(dir)
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let moment = self.tick();
        self.directory_mut(parent)?.change(moment, names::NameChange::Remove { name });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        let node = self.node(dir)?;
        self.directory_mut(node)?.sync();
        Ok(())
    }

    /// Locks the file, which is created if needed; `None` if it is locked.
    pub(super) fn lock(&mut self, path: &Path) -> io::Result<Option<NodeId>> {
        let node = match self.file_node(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.create(path)?,
            found => found?,
        };
        Ok(self.locked.insert(node).then_some(node))
    }

    pub(super) fn unlock(&mut self, node: NodeId) {
        self.locked.remove(&node);
    }

    pub(super) fn write(&mut self, node: NodeId, at: u64, mut bytes: Vec<u8>) -> io::Result<()> {
        let size = self.file(node)?.now().len() as u64;
        let missing = match self.free_bytes {
            Some(free) => (at + bytes.len() as u64).saturating_sub(size).saturating_sub(free),
            None => 0,
        };
        bytes.truncate(bytes.len().saturating_sub(missing as usize));
        self.bytes_written += bytes.len() as u64;
        self.change(node, contents::FileChange::Write { at, bytes })?;
        if missing > 0 { Err(disk_is_full()) } else { Ok(()) }
    }

    pub(super) fn set_size(&mut self, node: NodeId, bytes: u64) -> io::Result<()> {
        self.change(node, contents::FileChange::Size(bytes))
    }

    fn change(&mut self, node: NodeId, change: contents::FileChange) -> io::Result<()> {
        let growth = change.growth(self.file(node)?.now().len() as u64);
        if let Some(free) = &mut self.free_bytes {
            *free = free.checked_sub(growth).ok_or_else(disk_is_full)?;
        }
        let moment = self.tick();
        self.file_mut(node)?.change(moment, change);
        Ok(())
    }

    /// Changes before the returned moment are durable after a sync that begins now.
    pub(super) fn sync_begins(&mut self) -> u64 {
        self.tick()
    }

    pub(super) fn sync_ends(&mut self, node: NodeId, moment: u64) -> io::Result<()> {
        if self.off {
            return Err(power_is_off());
        }
        if std::mem::take(&mut self.fail_next_sync) {
            self.file_mut(node)?.forget(moment);
            return Err(io::Error::other("the medium reports a failed write"));
        }
        if !self.forgets(node) {
            self.file_mut(node)?.sync(moment);
        }
        Ok(())
    }

    pub(super) fn read(&mut self, node: NodeId, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = self.file(node)?.now();
        let from = bytes.len().min(at as usize);
        let read = buf.len().min(bytes.len() - from);
        buf[..read].copy_from_slice(&bytes[from..from + read]);
        self.bytes_read += read as u64;
        Ok(read)
    }

    pub(super) fn size(&self, node: NodeId) -> io::Result<u64> {
        Ok(self.file(node)?.now().len() as u64)
    }

    pub(super) fn flip_bit(&mut self, path: &Path, bit: u64) -> io::Result<()> {
        let node = self.node(path)?;
        self.file_mut(node)?.flip_bit(bit);
        Ok(())
    }

    // --- Look-ups.

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        Ok(self.directory(self.node(dir)?)?.now().keys().cloned().collect())
    }

    /// All files with their sizes, by path.
    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let size = |node| self.file(node).map_or(0, |contents| contents.now().len() as u64);
        let mut found: Vec<_> = self.names().into_iter().map(|(path, node)| (path, size(node))).collect();
        found.sort_unstable();
        found
    }

    /// A number that stands for the bytes of all files.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut names = self.names();
        names.sort_unstable();
        let mut hasher = DefaultHasher::new();
        for (path, node) in names {
            path.hash(&mut hasher);
            self.file(node).map_or(&[][..], |contents| contents.now()).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn names(&self) -> Vec<(PathBuf, NodeId)> {
        let mut found = Vec::new();
        let mut ahead = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, node)) = ahead.pop() {
            match &self.nodes[node] {
                DiskNode::File(_) => found.push((path, node)),
                DiskNode::Directory(names) => {
                    ahead.extend(names.now().iter().map(|(name, node)| (path.join(name), *node)));
                }
            }
        }
        found
    }

    pub(super) fn node(&self, path: &Path) -> io::Result<NodeId> {
        let mut node = ROOT;
        for name in names_of(path)? {
            node = *self.directory(node)?.now().get(&name).ok_or_else(|| not_found(path))?;
        }
        Ok(node)
    }

    pub(super) fn file_node(&self, path: &Path) -> io::Result<NodeId> {
        let node = self.node(path)?;
        self.file(node).map(|_| node)
    }

    fn parent(&self, path: &Path) -> io::Result<(NodeId, String)> {
        let name = names_of(path)?.pop().ok_or_else(|| not_found(path))?;
        let parent = self.node(path.parent().unwrap_or(Path::new("/")))?;
        self.directory(parent)?;
        Ok((parent, name))
    }

    fn directory(&self, node: NodeId) -> io::Result<&DirectoryNames> {
        match &self.nodes[node] {
            DiskNode::Directory(names) => Ok(names),
            DiskNode::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn directory_mut(&mut self, node: NodeId) -> io::Result<&mut DirectoryNames> {
        match &mut self.nodes[node] {
            DiskNode::Directory(names) => Ok(names),
            DiskNode::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&self, node: NodeId) -> io::Result<&FileContents> {
        match &self.nodes[node] {
            DiskNode::File(contents) => Ok(contents),
            DiskNode::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn file_mut(&mut self, node: NodeId) -> io::Result<&mut FileContents> {
        match &mut self.nodes[node] {
            DiskNode::File(contents) => Ok(contents),
            DiskNode::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

fn names_of(path: &Path) -> io::Result<Vec<String>> {
    path.components()
        .filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
        .map(|part| match part {
            Component::Normal(name) => Ok(name.to_string_lossy().into_owned()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} leads upwards", path.display()))),
        })
        .collect()
}

pub(super) fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn disk_is_full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the simulated disk is full")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}
