//! Compressible values of 1 KiB under random keys: inserted, then updated for long, so that compaction has work. The
//! last part of the updates is compared with the first.

use std::cell::{Cell, RefCell};
use std::path::Path;

use anyhow::Context as _;
use millstream_load::StopCondition;
use serde_json::json;

use super::StoreBench;
use super::server::{HttpRun, StoreServer};
use super::values::{Values, key, push_put};
use super::workload::StoreWorkload;
use crate::cores::Cores;
use crate::findings::{Findings, at_least};

const BUCKET: &str = "updates";
/// Ack level and number of writers of each case.
const CASES: [(&str, usize); 2] = [("synced", 16), ("written", 8)];
/// Connections that insert the keys.
const INSERTERS: usize = 64;
/// Aim for the last part, as a share of the first part's rate.
const LAST_PART_AIM: f64 = 0.7;
/// Published: writes a second of the older system's engine, and of LevelDB on the same machine.
const PUBLISHED_PER_S: f64 = 20_000.0;
const PUBLISHED_LEVELDB_PER_S: &str = "6,000 to 7,000";

impl StoreBench {
    pub(super) fn measure_updates(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let values = Values::text();
        CASES.into_iter().try_for_each(|(ack, writers)| self.update(&values, ack, writers, findings))
    }

    fn update(&self, values: &Values, ack: &str, writers: usize, findings: &mut Findings) -> anyhow::Result<()> {
        eprintln!("updates, {ack}, {writers} writers");
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let server = StoreServer::open(dir.path(), &Cores::shared())?;
        server.put_bucket(BUCKET, &json!({}))?;
        let keys = self.plan.update_keys;
        let inserted = server.load(INSERTERS, None, StopCondition::Count(keys), |number, _, request| {
            push_put(BUCKET, &key(number), "written", values.get(number), request);
        })?;
        let (next, random) = (Cell::new(keys), RefCell::new(fastrand::Rng::with_seed(3)));
        let mut parts = Vec::new();
        for _ in 0..StoreWorkload::SLICES {
            let time = self.plan.update_time / StoreWorkload::SLICES;
            parts.push(server.load_for(writers, time, |_, _, request| {
                let number = next.replace(next.get() + 1);
                let key = key(random.borrow_mut().u64(..keys));
                push_put(BUCKET, &key, ack, values.get(number), request);
            })?);
        }
        let rates: Vec<f64> = parts.iter().map(|part| part.requested.rate_per_s()).collect();
        let total = HttpRun::sum(parts).context("there is at least one part")?;
        let updates = total.requested.answered;
        let value_bytes = values.get(0).len() as u64;
        let disk_bytes = bytes_under(dir.path())?;
        let own = json!({
            "server": "millstream serve, a process of its own, default configuration",
            "cores_of": Cores::shared().to_string(),
            "connections": writers, "loop": "closed", "value_bytes": value_bytes, "values": "printable, compressible",
            "ack": ack, "keys": keys, "inserts_per_s": inserted.requested.rate_per_s(),
            "rates_of_parts": rates, "took_s": total.requested.took.as_secs_f64(),
            "live_value_bytes": keys * value_bytes, "sent_value_bytes": (keys + updates) * value_bytes,
            "bytes_of_all_files_at_the_end": disk_bytes,
        });
        let case = total.fill(self.case(format!("update 1 KiB text, {ack}, {writers} writers"), own));
        let last_part = rates.last().copied().unwrap_or_default() / rates.first().copied().unwrap_or(f64::INFINITY);
        let what = format!("updates at {ack}, {writers} writers, the last part's rate by that of the first");
        findings.aim(at_least(&what, last_part, LAST_PART_AIM));
        let mib = |bytes: u64| bytes >> 20;
        findings.notes.push(format!(
            "Updates at {ack}: {} MiB of values were sent, {} MiB are live, all files hold {} MiB at the end. Published for the \
             older system's engine: {PUBLISHED_PER_S:.0} writes/s, where LevelDB gave {PUBLISHED_LEVELDB_PER_S}; here {:.0}, median \
             {:.2} ms.",
            mib((keys + updates) * value_bytes),
            mib(keys * value_bytes),
            mib(disk_bytes),
            case.rate_per_s,
            case.latency_ms.map_or(0.0, |latency| latency.p50),
        ));
        findings.cases.push(case);
        Ok(())
    }
}

/// Bytes of all files under a directory.
fn bytes_under(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        // A file may have been removed since it was listed.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { bytes_under(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_all_directories_count() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("inner")).unwrap();
        std::fs::write(dir.path().join("one"), [0; 10]).unwrap();
        std::fs::write(dir.path().join("inner/two"), [0; 7]).unwrap();
        assert_eq!(bytes_under(dir.path()).unwrap(), 17);
    }
}
