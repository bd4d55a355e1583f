//! Sets damaged derived topics aside at a start, so that their owners build them anew.
//!
//! Such a topic is dropped whole: what is left of its records would look like a complete state. Its owner finds no
//! topic and creates it. Every other topic stays as it is, damaged or not.
//!
//! The files move first; the first turn of the writeback thread then writes `meta` without the topic. A crash in
//! between leaves a topic with missing files, which the next start sets aside in the same way.

use crate::config::DerivedTopic;
use crate::frame::Frame;
use crate::layout::Layout;
use crate::meta::Meta;
use crate::repair::{Damage, damages_of, place_aside, set_topic_aside};
use crate::{Error, Files, Topic};

/// Checks the segments of the derived topics and takes damaged ones out of `meta` and `frames`.
///
/// # Errors
/// [`Error::Io`] if a segment cannot be read, [`Error::UnknownVersion`] if it has a later format.
pub(crate) fn set_damaged_aside(
    files: &dyn Files,
    layout: &Layout,
    derived: &[DerivedTopic],
    meta: &mut Meta,
    frames: &mut [Frame],
) -> Result<(), Error> {
    let mut damaged = Vec::new();
    for topic in derived {
        let stored = meta.topics.iter().find(|(stored, _)| stored.name == topic.name);
        let Some((stored, partitions)) = stored else { continue };
        let damages = damages_of(files, layout, stored, partitions)?;
        if damages.is_empty() {
            continue;
        }
        let is_rebuildable = match &topic.source {
            None => true,
            Some(source) => match meta.topics.iter().find(|(stored, _)| stored.name == *source) {
                Some((source, partitions)) => damages_of(files, layout, source, partitions)?.is_empty(),
                None => false,
            },
        };
        if is_rebuildable {
            report(layout, topic, &damages);
            damaged.push((stored.clone(), partitions.clone()));
        }
    }
    for (topic, partitions) in damaged {
        set_topic_aside(files, layout, &topic, &partitions)?;
        forget(&topic, meta, frames);
    }
    Ok(())
}

fn report(layout: &Layout, topic: &DerivedTopic, damages: &[(u32, Damage)]) {
    for (partition, damage) in damages {
        tracing::warn!(
            topic = %topic.name,
            partition,
            file = %damage.path.display(),
            at = damage.at,
            damage = damage.what,
            kept = %place_aside(layout, &damage.path).display(),
            loses = topic.loses,
            "a damaged topic is set aside and rebuilt"
        );
    }
}

fn forget(topic: &Topic, meta: &mut Meta, frames: &mut [Frame]) {
    meta.topics.retain(|(stored, _)| stored.id != topic.id);
    meta.positions.retain(|record| record.position.topic != topic.id);
    for frame in frames {
        frame.parts.retain(|part| part.topic() != topic.id);
    }
}
