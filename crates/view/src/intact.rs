//! Checks that the files of a checkpoint store are whole, before the store itself reads them.
//!
//! The store checks its blocks of records and its journal, but believes two kinds of bytes: a keyspace's list of tables
//! (one that is damaged may name fewer tables, so that records are missing without a word) and the number of sections
//! in a file (it makes room for so many, up to 140 GB, and what asks for that ends the process). Both have a checksum
//! beside them, which is compared here.
//!
//! | file | form |
//! | --- | --- |
//! | `keyspaces/N/current` | number of the list (8 bytes), XXH3-128 of its file (16), kind of checksum (1, zero) |
//! | `keyspaces/N/vM` | list of tables |
//! | `keyspaces/N/tables/M` | sections; contents; trailer: `SFA!`, version 1, kind of checksum 0, XXH3-128 of the contents (16), their position (8) and length (8) |
//!
//! Numbers are little endian. A `current` of another form, or one whose list is not there, is damage: without it the list
//! would be believed. Tables of another form are left to the store: they are of another version, or the store says.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

/// `SFA!`, version, kind of checksum.
const TRAILER_BEGIN: &[u8; 6] = b"SFA!\x01\x00";
const TRAILER_BYTES: usize = TRAILER_BEGIN.len() + 16 + 8 + 8;
const CURRENT_BYTES: usize = 8 + 16 + 1;

/// A file of a store that is not what was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("{} is not what its checksum in '{}' says", .list.display(), .current.display())]
    List { list: PathBuf, current: PathBuf },
    #[error("'{}' names no list of tables that is there", .0.display())]
    Current(PathBuf),
    #[error("the table of contents of {} is not what its checksum says", .0.display())]
    Contents(PathBuf),
    #[error("cannot read {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Looks through the store in `path`, reading lists and contents only.
///
/// # Errors
/// The first [`Damage`] found. A store that does not exist is whole.
pub(crate) fn check(path: &Path) -> Result<(), Damage> {
    for keyspace in entries(&path.join("keyspaces"))? {
        check_list(&keyspace)?;
        for table in entries(&keyspace.join("tables"))? {
            match check_contents(&table) {
                Ok(true) => {}
                Ok(false) => return Err(Damage::Contents(table)),
                Err(source) => return Err(Damage::Io { path: table, source }),
            }
        }
    }
    Ok(())
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Damage> {
    let listed = fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    match listed {
        Err(e) if e.kind() == ErrorKind::NotFound || e.kind() == ErrorKind::NotADirectory => Ok(Vec::new()),
        listed => listed.map_err(|source| Damage::Io { path: dir.to_owned(), source }),
    }
}

fn check_list(keyspace: &Path) -> Result<(), Damage> {
    let current = keyspace.join("current");
    let content = match fs::read(&current) {
        Err(e) if e.kind() == ErrorKind::NotFound || e.kind() == ErrorKind::NotADirectory => return Ok(()),
        content => content.map_err(|source| Damage::Io { path: current.clone(), source })?,
    };
    let known = <[u8; CURRENT_BYTES]>::try_from(content).ok().filter(|content| content[CURRENT_BYTES - 1] == 0);
    let Some(content) = known else { return Err(Damage::Current(current)) };
    let list = keyspace.join(format!("v{}", le_u64(&content[..8])));
    match fs::read(&list) {
        Err(e) if e.kind() == ErrorKind::NotFound => Err(Damage::Current(current)),
        Err(source) => Err(Damage::Io { path: list, source }),
        Ok(bytes) if content[8..24] != xxh3_128(&bytes).to_le_bytes() => Err(Damage::List { list, current }),
        Ok(_) => Ok(()),
    }
}

/// Returns `true` if the table's contents are those that the trailer describes.
fn check_contents(table: &Path) -> io::Result<bool> {
    let file = File::open(table)?;
    let size = file.metadata()?.len();
    let Some(trailer_at) = size.checked_sub(TRAILER_BYTES as u64) else { return Ok(true) };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, trailer_at)?;
    let Some(fields) = trailer.strip_prefix(TRAILER_BEGIN) else { return Ok(true) };
    let (checksum, position, length) = (&fields[..16], le_u64(&fields[16..24]), le_u64(&fields[24..]));
    if position.checked_add(length) != Some(trailer_at) {
        return Ok(false);
    }
    let mut contents = vec![0; length as usize];
    file.read_exact_at(&mut contents, position)?;
    Ok(checksum == xxh3_128(&contents).to_le_bytes())
}

fn le_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
pub(crate) mod tests {
    use fjall::{Database, KeyspaceCreateOptions};

    use super::*;

    /// The lists of tables that are in force.
    pub(crate) fn lists(path: &Path) -> Vec<PathBuf> {
        let list = |keyspace: PathBuf| {
            let current = fs::read(keyspace.join("current")).unwrap();
            keyspace.join(format!("v{}", le_u64(&current[..8])))
        };
        entries(&path.join("keyspaces")).unwrap().into_iter().map(list).collect()
    }

    /// The files that name them.
    fn currents(path: &Path) -> Vec<PathBuf> {
        entries(&path.join("keyspaces")).unwrap().into_iter().map(|keyspace| keyspace.join("current")).collect()
    }

    /// Lists and tables of a store that was closed.
    fn store(path: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let database = Database::builder(path).open().unwrap();
        let keyspace = database.keyspace("tally", KeyspaceCreateOptions::default).unwrap();
        for round in 0..3 {
            (0..200).for_each(|n| keyspace.insert(format!("{round}-{n}"), "1").unwrap());
            keyspace.rotate_memtable_and_wait().unwrap();
        }
        // Until it is closed the store may merge its tables.
        drop((keyspace, database));
        let keyspaces = entries(&path.join("keyspaces")).unwrap();
        let tables = keyspaces.iter().flat_map(|keyspace| entries(&keyspace.join("tables")).unwrap());
        (lists(path), tables.collect())
    }

    /// Returns `true` if a store is found damaged when the byte `at` of `file` is another.
    fn is_seen(path: &Path, file: &Path, at: usize) -> bool {
        let whole = fs::read(file).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        fs::write(file, bytes).unwrap();
        let seen = check(path);
        fs::write(file, whole).unwrap();
        seen.is_err()
    }

    #[test]
    fn every_byte_of_lists_and_contents_counts() {
        let dir = tempfile::tempdir().unwrap();
        check(dir.path()).unwrap();
        check(&dir.path().join("none")).unwrap();
        let (lists, tables) = store(dir.path());
        check(dir.path()).unwrap();
        assert!(lists.len() >= 2 && tables.len() >= 3, "{lists:?} {tables:?}");
        for list in lists.iter().chain(&currents(dir.path())) {
            for at in 0..fs::read(list).unwrap().len() {
                assert!(is_seen(dir.path(), list, at), "byte {at} of {}", list.display());
            }
        }
        for table in &tables {
            let bytes = fs::read(table).unwrap();
            let trailer = bytes.len() - TRAILER_BYTES;
            let contents = bytes.windows(4).rposition(|four| four == b"TOC!").unwrap();
            for at in (contents..trailer).chain(trailer + TRAILER_BEGIN.len()..bytes.len()) {
                assert!(is_seen(dir.path(), table, at), "byte {at} of {}", table.display());
            }
        }
    }

    #[test]
    fn truncated_files_do_not_panic_the_check() {
        let dir = tempfile::tempdir().unwrap();
        let (lists, tables) = store(dir.path());
        for current in currents(dir.path()) {
            let whole = fs::read(&current).unwrap();
            for size in 0..whole.len() {
                fs::write(&current, &whole[..size]).unwrap();
                assert!(
                    check(dir.path()).is_err(),
                    "{size} bytes of {}: its list would be believed",
                    current.display()
                );
            }
            fs::write(current, whole).unwrap();
        }
        for file in lists.iter().chain(&tables) {
            let whole = fs::read(file).unwrap();
            for size in (0..whole.len()).rev().take(200).chain([0, 1, TRAILER_BYTES]) {
                fs::write(file, &whole[..size.min(whole.len())]).unwrap();
                // Either it is seen, or there is no trailer any more, which the store itself says.
                let _ = check(dir.path());
            }
            fs::write(file, whole).unwrap();
        }
        check(dir.path()).unwrap();
    }
}
