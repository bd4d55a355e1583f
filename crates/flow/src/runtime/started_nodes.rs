//! The nodes of an instance whose `start` hooks were called.

use std::collections::BTreeMap;

use super::run::Run;
use crate::document::{HookPoint, NodeId};
use crate::expression::Params;
use crate::hook::HookAnswer;

/// Nodes that have started, with the parameters of their functions if hooks gave some.
#[derive(Default)]
pub(super) struct StartedNodes(BTreeMap<NodeId, Option<Params>>);

impl StartedNodes {
    /// The parameters that hooks gave for a node's function.
    pub(super) fn params(&self, node: NodeId) -> Option<&Params> {
        self.0.get(&node).and_then(Option::as_ref)
    }

    /// Calls the `ready?` and `start` hooks of nodes of a chain that have not started; `false` if one is not ready. None
    /// starts before the tables of the job are loaded, so that no record waits for them.
    pub(super) fn start(&mut self, run: &Run, chain: usize) -> bool {
        let mut all_ready = true;
        for id in &run.plan.chains[chain].nodes {
            if self.0.contains_key(id) {
                continue;
            }
            if !run.tables_are_loaded() {
                return false;
            }
            let planned = &run.plan.nodes[id.0];
            let answers = run.call_hooks(planned, HookPoint::Ready, None);
            if answers.contains(&HookAnswer::NotReady) {
                run.waits.set(&planned.node.name, Some("waits for its hook 'ready?'".to_owned()));
                all_ready = false;
                continue;
            }
            run.waits.set(&planned.node.name, None);
            let mut params: Option<Params> = None;
            for answer in run.call_hooks(planned, HookPoint::Start, None) {
                if let HookAnswer::Params(given) = answer {
                    let fixed = run.fixed_params.get(&planned.node.name);
                    let is_free = |name: &String| fixed.is_none_or(|fixed| !fixed.contains_key(name));
                    let params = params.get_or_insert_with(|| planned.node.params.clone());
                    params.extend(given.into_iter().filter(|(name, _)| is_free(name)));
                }
            }
            self.0.insert(*id, params);
        }
        all_ready
    }

    /// Calls the `stop` hooks of nodes that have started.
    pub(super) fn stop(&mut self, run: &Run) {
        for id in std::mem::take(&mut self.0).keys() {
            run.call_hooks(&run.plan.nodes[id.0], HookPoint::Stop, None);
        }
    }
}
