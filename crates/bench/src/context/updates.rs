//! Updates and reads of single entities, among few and among many, and the memory of an entity.

use std::path::Path;

use millstream_load::report::BenchCase;
use serde_json::json;

use super::aims::{self, Findings};
use super::fixture::{ContextBench, EntityServer, MANY};
use super::population;
use crate::process;

const MIB: f64 = 1_048_576.0;

/// Data that the case leaves for later cases: the JSON bytes of all entities.
pub(super) struct FilledStore {
    pub(super) json_bytes: u64,
}

impl ContextBench {
    /// Leaves a data directory with many entities behind.
    pub(super) fn updates(&self, dir: &Path, findings: &mut Findings) -> anyhow::Result<FilledStore> {
        let place = EntityServer::open(dir, &self.cores)?;
        let pid = place.server.pid();
        process::rest(pid)?;
        let empty_mib = place.server.rss_mib()?;
        let mut json_bytes = place.create_entities(0, self.plan.few, self.plan.many)?;
        self.of_single_entities(&place, self.plan.few, findings)?;
        json_bytes += self.grow(&place, findings)?;
        process::rest(pid)?;
        let beyond = self.beyond_json(&place, empty_mib, json_bytes)?;
        findings.aim(aims::at_most("memory of an entity beyond its JSON, bytes", beyond, 1_024.0));
        self.of_single_entities(&place, self.plan.many, findings)?;
        Ok(FilledStore { json_bytes })
    }

    /// Returns the resident bytes of an entity beyond its JSON.
    pub(super) fn beyond_json(&self, place: &EntityServer, empty_mib: f64, json_bytes: u64) -> anyhow::Result<f64> {
        let entities = self.plan.many as f64;
        Ok((place.server.rss_mib()? - empty_mib) * MIB / entities - json_bytes as f64 / entities)
    }

    /// Creates entities up to the large count.
    fn grow(&self, place: &EntityServer, findings: &mut Findings) -> anyhow::Result<u64> {
        eprintln!("making {} entities", self.plan.many);
        let begin = std::time::Instant::now();
        let bytes = place.create_entities(self.plan.few, self.plan.many, self.plan.many)?;
        findings.notes.push(format!(
            "{:.0} entities/s were made in batches of 400.",
            (self.plan.many - self.plan.few) as f64 / begin.elapsed().as_secs_f64()
        ));
        Ok(bytes)
    }

    fn of_single_entities(&self, place: &EntityServer, entities: u64, findings: &mut Findings) -> anyhow::Result<()> {
        type Writes = fn(u64, u64, &mut Vec<u8>);
        let cases: [(&str, usize, Writes, Option<f64>); 4] = [
            ("one attribute updated by PATCH, many clients", MANY, population::update, Some(30_000.0)),
            ("one attribute updated by PATCH, one client", 1, population::update, None),
            ("a value set by PUT, many clients", MANY, population::set_value, None),
            ("read by id, many clients", MANY, population::read, Some(50_000.0)),
        ];
        for (what, connections, write, aim) in cases {
            let name = format!("{entities} entities: {what}");
            eprintln!("{name}");
            let stretch = place.load(self.plan.times(), connections, None, |number, _, request| {
                write(number, entities, request);
            })?;
            let own = json!({ "entities": entities, "connections": connections, "level": "synced" });
            let case: BenchCase = self.case(&*name, &stretch, own);
            if let Some(aim) = aim {
                findings.aim(aims::at_least(&format!("{name}, per core"), case.per_core_per_s.unwrap_or(0.0), aim));
            }
            findings.cases.push(case);
        }
        Ok(())
    }
}
