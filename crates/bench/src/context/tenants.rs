//! Cost of idle tenants for an update.

use std::io::Write as _;

use serde_json::json;

use super::aims::Findings;
use super::fixture::{ContextBench, EntityServer};

impl ContextBench {
    /// Measures updates of one tenant, alone and beside idle tenants with one entity each.
    pub(super) fn tenants(&self, findings: &mut Findings) -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let place = EntityServer::open(dir.path(), &self.cores)?;
        let mut made = 0;
        for tenants in [1, self.plan.tenants] {
            place.send_all(1, tenants - made, |number, _, request| {
                let entity = "{\"id\":\"E\",\"type\":\"T\",\"n\":{\"type\":\"Number\",\"value\":0}}";
                push("POST", "/v2/entities", made + number, entity, request);
            })?;
            made = tenants;
            let whose = match tenants {
                1 => "1 tenant: one attribute of it".to_owned(),
                many => format!("{many} tenants: one attribute of one of them"),
            };
            let name = format!("{whose} updated by PATCH, one client");
            eprintln!("{name}");
            let stretch = place.load(self.plan.times(), 1, None, |number, _, request| {
                let body = format!("{{\"n\":{{\"type\":\"Number\",\"value\":{number}}}}}");
                push("PATCH", "/v2/entities/E/attrs", 0, &body, request);
            })?;
            let own = json!({ "tenants": tenants, "connections": 1, "level": "synced" });
            findings.cases.push(self.case(name, &stretch, own));
        }
        Ok(())
    }
}

fn push(method: &str, target: &str, tenant: u64, body: &str, request: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(
        request,
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nFiware-Service: tenant{tenant}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
}
