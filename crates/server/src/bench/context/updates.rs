//! Updates and reads of single entities, among few and among many, and what an entity takes.

use std::path::Path;

use millstream_load::report::BenchCase;
use serde_json::json;

use super::aims::{self, Judged};
use super::ground::{Ground, MANY, Place};
use super::population;
use crate::bench::process;

const MIB: f64 = 1_048_576.0;

/// What is left for other cases: how many bytes of JSON all entities are.
pub(super) struct Filled {
    pub(super) json_bytes: u64,
}

impl Ground {
    /// Leaves a data directory with many entities behind.
    pub(super) fn updates(&self, dir: &Path, told: &mut Judged) -> anyhow::Result<Filled> {
        let place = Place::open(dir, &self.cores)?;
        let pid = place.server.pid();
        process::rest(pid)?;
        let empty_mib = place.server.rss_mib()?;
        let mut json_bytes = population::make(&place, 0, self.plan.few, self.plan.many)?;
        self.of_single_entities(&place, self.plan.few, told)?;
        json_bytes += self.grow(&place, told)?;
        process::rest(pid)?;
        let beyond = self.beyond_json(&place, empty_mib, json_bytes)?;
        told.aim(aims::at_most("memory of an entity beyond its JSON, bytes", beyond, 1_024.0));
        self.of_single_entities(&place, self.plan.many, told)?;
        Ok(Filled { json_bytes })
    }

    /// Resident bytes of an entity beyond its JSON.
    pub(super) fn beyond_json(&self, place: &Place, empty_mib: f64, json_bytes: u64) -> anyhow::Result<f64> {
        let entities = self.plan.many as f64;
        Ok((place.server.rss_mib()? - empty_mib) * MIB / entities - json_bytes as f64 / entities)
    }

    /// Makes the entities up to the many.
    fn grow(&self, place: &Place, told: &mut Judged) -> anyhow::Result<u64> {
        eprintln!("making {} entities", self.plan.many);
        let begin = std::time::Instant::now();
        let bytes = population::make(place, self.plan.few, self.plan.many, self.plan.many)?;
        told.notes.push(format!(
            "{:.0} entities/s were made in batches of 400.",
            (self.plan.many - self.plan.few) as f64 / begin.elapsed().as_secs_f64()
        ));
        Ok(bytes)
    }

    fn of_single_entities(&self, place: &Place, entities: u64, told: &mut Judged) -> anyhow::Result<()> {
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
            let stretch = place.load(self.plan, (connections, None), |number, _, request| {
                write(number, entities, request);
            })?;
            let own = json!({ "entities": entities, "connections": connections, "level": "synced" });
            let case: BenchCase = self.case(&*name, &stretch, own);
            if let Some(aim) = aim {
                told.aim(aims::at_least(&format!("{name}, per core"), case.per_core_per_s.unwrap_or(0.0), aim));
            }
            told.cases.push(case);
        }
        Ok(())
    }
}
