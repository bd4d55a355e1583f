//! Checks the frames of the journal.

use std::sync::Arc;

use crate::frame::{Frame, FramePart};
use crate::journal::{JournalFile, journal_file};
use crate::layout::{Layout, journal_slot};
use crate::meta::Meta;
use crate::recovery;
use crate::repair::Damage;
use crate::{Error, Files};

/// The parts of the journal that a repair removes.
#[derive(Default)]
pub(super) struct Cut {
    /// Files with a damaged header.
    pub(super) unreadable: Vec<std::path::PathBuf>,
    /// Positions of the frames after a damaged one.
    pub(super) behind: Vec<(Arc<JournalFile>, u64)>,
}

/// Checks the journal frames after `meta`.
pub(super) fn look(files: &dyn Files, layout: &Layout, meta: &Meta, damages: &mut Vec<Damage>) -> Result<Cut, Error> {
    let mut cut = Cut::default();
    let mut found = Vec::new();
    let dir = layout.journal_dir();
    for name in files.list(&dir).map_err(|e| Error::io("list", &dir, e))? {
        let (path, Some(slot)) = (dir.join(&name), journal_slot(&name)) else { continue };
        match journal_file(files, path, slot) {
            Ok(file) => found.push(Arc::new(file)),
            Err(Error::CorruptFile { path, at, what }) => {
                let loses = match meta.clean {
                    true => "nothing: the log was closed cleanly".to_owned(),
                    false => "the latest records, if only this file has them".to_owned(),
                };
                damages.push(Damage { path: path.clone(), at, what, loses });
                cut.unreadable.push(path);
            }
            Err(other) => return Err(other),
        }
    }
    if meta.clean {
        return Ok(cut);
    }
    let (frames, damage) = recovery::read_up_to_damage(&found, meta)?;
    let Some(Error::CorruptFile { path, at, what }) = damage else { return Ok(cut) };
    let last = frames.last().map_or(meta.journal.sequence, |frame| frame.stamp.sequence);
    let behind = recovery::frames_behind(&found, meta, last)?;
    let records: u64 = behind.iter().map(|(_, _, frame)| records(frame)).sum();
    let loses = format!("it and the {} readable frames after it, with {records} records", behind.len());
    damages.push(Damage { path, at, what, loses });
    cut.behind = behind.into_iter().map(|(file, at, _)| (file, at)).collect();
    Ok(cut)
}

fn records(frame: &Frame) -> u64 {
    let batches = frame.parts.iter().filter_map(|part| match part {
        FramePart::Batch { batch, .. } => millstream_types::RecordBatch::parse(batch.clone(), &Default::default()).ok(),
        _ => None,
    });
    batches.map(|batch| u64::from(batch.record_count())).sum()
}

/// Overwrites the start of each removed frame, so that no start finds it.
pub(super) fn apply(
    files: &dyn Files,
    cut: &Cut,
    aside: impl Fn(&std::path::Path) -> Result<(), Error>,
) -> Result<(), Error> {
    for (file, at) in &cut.behind {
        let zeros = [std::io::IoSlice::new(&[0; 4])];
        file.file.write_at(&zeros, *at).map_err(|e| Error::io("write", &file.path, e))?;
        file.file.sync().map_err(|e| Error::io("sync", &file.path, e))?;
    }
    cut.unreadable.iter().try_for_each(|path| aside(path))?;
    let dirs = cut.unreadable.first().and_then(|path| path.parent());
    dirs.map_or(Ok(()), |dir| files.sync_dir(dir).map_err(|e| Error::io("sync", dir, e)))
}
