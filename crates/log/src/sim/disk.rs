//! The state behind a [`SimFiles`](super::SimFiles): a tree of names and files, and what is to go wrong with it.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::contents::{self, Contents};
use super::names::{self, Names, NodeId};
use super::{PowerLoss, Rng};

const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
enum Node {
    Directory(Names),
    File(Contents),
}

/// Whether an operation is an ordinary one, or the one during which the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Whole,
    Last,
}

#[derive(Debug, Clone)]
pub(super) struct Disk {
    nodes: Vec<Node>,
    /// Files that somebody has locked; a crash gives them free.
    locked: HashSet<NodeId>,
    off: bool,
    /// The count of operations at which the power goes.
    off_at: Option<u64>,
    fail_next_sync: bool,
    forgetful: Option<Forgetful>,
    /// Bytes by which files may still grow.
    free_bytes: Option<u64>,
    told_free_bytes: u64,
    operations: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Ascends with every change, so that changes of different files can be put in order.
    moment: u64,
}

/// Decides which syncs are forgotten.
#[derive(Debug, Clone)]
struct Forgetful {
    rng: Rng,
    /// How many of a hundred.
    percent: u64,
    /// Of which files.
    of: fn(&Path) -> bool,
}

impl Default for Disk {
    fn default() -> Self {
        Self::with_nodes(vec![Node::Directory(Names::default())])
    }
}

impl Disk {
    fn with_nodes(nodes: Vec<Node>) -> Self {
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

    // --- What goes wrong.

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

    /// What the next owner of the machine's memory finds: all that was written, durable or not.
    pub(super) fn after_kill(&self) -> Self {
        Self::with_nodes(self.nodes.clone()).at(self.moment)
    }

    /// What is on the medium once the power is back.
    pub(super) fn after_power_loss(&self, loss: PowerLoss, rng: &mut Rng) -> Self {
        // Sometimes everything stops at one moment, in order; else each file and directory loses what it loses.
        let stopped_at = rng.chance(30).then(|| rng.below(self.moment + 1));
        let mut survivors = vec![Node::Directory(Names::default())];
        self.copy_directory(ROOT, ROOT, &mut survivors, loss, stopped_at, rng);
        Self::with_nodes(survivors)
    }

    fn copy_directory(
        &self,
        from: NodeId,
        to: NodeId,
        survivors: &mut Vec<Node>,
        loss: PowerLoss,
        stopped_at: Option<u64>,
        rng: &mut Rng,
    ) {
        let Node::Directory(names) = &self.nodes[from] else { return };
        let mut kept = BTreeMap::new();
        for (name, node) in names.after_power_loss(loss, stopped_at, rng) {
            let copy = survivors.len();
            match &self.nodes[node] {
                Node::File(contents) => {
                    survivors.push(Node::File(Contents::durable(contents.after_power_loss(loss, stopped_at, rng))));
                }
                Node::Directory(_) => {
                    survivors.push(Node::Directory(Names::default()));
                    self.copy_directory(node, copy, survivors, loss, stopped_at, rng);
                }
            }
            kept.insert(name, copy);
        }
        survivors[to] = Node::Directory(Names::durable(kept));
    }

    fn at(mut self, moment: u64) -> Self {
        self.moment = moment;
        self
    }

    // --- Operations.

    /// Counts an operation that changes something.
    pub(super) fn begin(&mut self) -> io::Result<Operation> {
        if self.off {
            return Err(power_is_off());
        }
        self.operations += 1;
        if self.off_at.is_some_and(|at| self.operations >= at) {
            self.off = true;
            return Ok(Operation::Last);
        }
        Ok(Operation::Whole)
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
                None => self.add(parent, name, Node::Directory(Names::default()))?,
            };
            self.directory(parent)?;
        }
        Ok(())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        let (parent, name) = self.parent(path)?;
        let existing = self.directory(parent)?.now().get(&name).copied();
        match existing {
            Some(node) => self.change(node, contents::Change::Size(0)).map(|()| node),
            None => self.add(parent, name, Node::File(Contents::default())),
        }
    }

    fn add(&mut self, parent: NodeId, name: String, node: Node) -> io::Result<NodeId> {
        let id = self.nodes.len();
        self.nodes.push(node);
        let moment = self.tick();
        self.directory_mut(parent)?.change(moment, names::Change::Add { name, node: id });
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
        let change = names::Change::Rename { from: from_name, to: to_name, node };
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
                Node::Directory(_) => self.remove_dir_all(&dir.join(name))?,
                Node::File(_) => self.unlink(&dir.join(name))?,
            }
        }
        self.unlink(dir)
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let moment = self.tick();
        self.directory_mut(parent)?.change(moment, names::Change::Remove { name });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        let node = self.node(dir)?;
        self.directory_mut(node)?.sync();
        Ok(())
    }

    /// The lock file, created if need be; `None` if it is locked.
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
        self.change(node, contents::Change::Write { at, bytes })?;
        if missing > 0 { Err(disk_is_full()) } else { Ok(()) }
    }

    pub(super) fn set_size(&mut self, node: NodeId, bytes: u64) -> io::Result<()> {
        self.change(node, contents::Change::Size(bytes))
    }

    fn change(&mut self, node: NodeId, change: contents::Change) -> io::Result<()> {
        let growth = change.growth(self.file(node)?.now().len() as u64);
        if let Some(free) = &mut self.free_bytes {
            *free = free.checked_sub(growth).ok_or_else(disk_is_full)?;
        }
        let moment = self.tick();
        self.file_mut(node)?.change(moment, change);
        Ok(())
    }

    /// The moment up to which a sync that begins now makes changes durable.
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

    // --- Looking things up.

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

    /// Every file by its name.
    fn names(&self) -> Vec<(PathBuf, NodeId)> {
        let mut found = Vec::new();
        let mut ahead = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, node)) = ahead.pop() {
            match &self.nodes[node] {
                Node::File(_) => found.push((path, node)),
                Node::Directory(names) => {
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

    fn directory(&self, node: NodeId) -> io::Result<&Names> {
        match &self.nodes[node] {
            Node::Directory(names) => Ok(names),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn directory_mut(&mut self, node: NodeId) -> io::Result<&mut Names> {
        match &mut self.nodes[node] {
            Node::Directory(names) => Ok(names),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&self, node: NodeId) -> io::Result<&Contents> {
        match &self.nodes[node] {
            Node::File(contents) => Ok(contents),
            Node::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn file_mut(&mut self, node: NodeId) -> io::Result<&mut Contents> {
        match &mut self.nodes[node] {
            Node::File(contents) => Ok(contents),
            Node::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
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
