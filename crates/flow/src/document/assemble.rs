//! Makes the typed [`Document`] of a draft without findings. Defaults come from the model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::aggregates;
use super::canonical::hash;
use super::catalogue::{Key, KeyType};
use super::draft::{DocumentDraft, DraftNode, DraftRoute, EdgeEnd, RouteTargetDraft};
use super::keys::{BATCH, CHECKPOINT, EVENT_TIME, HOOK_POINTS, JOB, PARALLELISM, RESOURCES, RESTART, ROUTE, SOURCE};
use super::model::{
    Action, BatchSettings, Checkpoint, Delivery, Document, ErrorAnswer, EventTime, Exchange, Hook, HookPoint,
    JoinInput, JoinSetting, Mode, Node, NodeId, Parallelism, RestartPolicy, ResumeFrom, Role, Route, RouteTarget,
    Scheduler, TestCase,
};
use super::quantity::{duration_ms, duration_range_ms};
use super::rules::{earlier_job, is_join, join_bounds_ms, keeps_state, member_of, node_map};
use super::scalar::plain;
use super::settings::Settings;
use super::tree::{Tree, TreeContent};
use super::windows::{triggers, window};

/// The document of a draft that keeps every rule.
pub(super) fn assemble(draft: &DocumentDraft<'_>) -> Document {
    let tree = draft.tree;
    let json = tree.to_json();
    let job = Settings { tree: Some(tree), section: &JOB };
    Document {
        id: tree.text_of("id").map(str::to_owned),
        name: job.text("name"),
        doc: tree.text_of("doc").map(str::to_owned),
        labels: texts(tree.get("labels")),
        mode: if job.text("mode") == "batch" { Mode::Batch } else { Mode::Streaming },
        delivery: match job.text("delivery").as_str() {
            "at_most_once" => Delivery::AtMostOnce,
            "exactly_once" => Delivery::ExactlyOnce,
            _ => Delivery::AtLeastOnce,
        },
        checkpoint: checkpoint(tree.get("checkpoint")),
        resume_from: resume_from(draft),
        restart: restart(tree.get("restart")),
        exchange: if job.text("exchange") == "queue" { Exchange::Queue } else { Exchange::Fused },
        scheduler: scheduler(tree.get("resources")),
        nodes: draft
            .nodes
            .iter()
            .enumerate()
            .map(|(index, draft_node)| node(draft, NodeId(index), draft_node))
            .collect(),
        routes: draft.routes.iter().map(route).collect(),
        hooks: elements(tree.get("hooks")).iter().map(|tree| hook(draft, tree)).collect(),
        tests: elements(tree.get("tests")).iter().map(test).collect(),
        hash: hash(&json),
        json,
    }
}

/// The inputs of a join; `None` for one that a rule refuses.
fn join(draft: &DocumentDraft<'_>, node: &DraftNode<'_>) -> Option<JoinSetting> {
    let config = node.tree.get("config")?;
    let kind = config.text_of("kind").unwrap_or("inner");
    let input = |side: &str| {
        let name = config.text_of(side)?;
        let on = config.get("on")?;
        Some(JoinInput {
            node: *draft.by_name.get(name)?,
            key: text_or_texts(if on.members().is_empty() { on } else { on.get(name)? }),
            member: member_of(config, name).to_owned(),
            gives_unmatched: kind == side || kind == "full",
        })
    };
    let (before_ms, after_ms) = join_bounds_ms(config.get("within")?)?;
    Some(JoinSetting { left: input("left")?, right: input("right")?, before_ms, after_ms })
}

fn event_time(tree: Option<&Tree>) -> EventTime {
    let event_time = Settings { tree, section: &EVENT_TIME };
    EventTime {
        field: tree.and_then(|tree| tree.text_of("field")).map(str::to_owned),
        max_out_of_orderness_ms: i64::try_from(event_time.duration_ms("max_out_of_orderness")).unwrap_or(i64::MAX),
        idle_timeout: Duration::from_millis(event_time.duration_ms("idle_timeout")),
    }
}

fn scheduler(tree: Option<&Tree>) -> Scheduler {
    let resources = Settings { tree, section: &RESOURCES };
    if resources.text("scheduler") == "greedy" { Scheduler::Greedy } else { Scheduler::Balanced }
}

fn checkpoint(tree: Option<&Tree>) -> Checkpoint {
    let checkpoint = Settings { tree, section: &CHECKPOINT };
    let time = |key: &str| Duration::from_millis(duration_ms(&checkpoint.text(key)).unwrap_or_default());
    Checkpoint { interval: time("interval"), timeout: time("timeout") }
}

fn resume_from(draft: &DocumentDraft<'_>) -> Option<ResumeFrom> {
    let earlier = earlier_job(draft).map(|earlier| earlier.id);
    let is_resumed = earlier.is_some() || draft.tree.get("resume_from").is_some();
    is_resumed.then(|| ResumeFrom { earlier, map: node_map(draft.tree) })
}

fn restart(tree: Option<&Tree>) -> RestartPolicy {
    let restart = Settings { tree, section: &RESTART };
    let (backoff_min_ms, backoff_max_ms) = duration_range_ms(&restart.text("backoff")).unwrap_or_default();
    let max_attempts = if restart.text("policy") == "never" { 0 } else { restart.whole("max_attempts") };
    RestartPolicy { max_attempts, backoff_min_ms, backoff_max_ms }
}

fn node(draft: &DocumentDraft<'_>, id: NodeId, node: &DraftNode<'_>) -> Node {
    let tree = node.tree;
    let batch = Settings { tree: tree.get("batch"), section: &BATCH };
    let takes_what_comes = node.role != Role::Source && batch.tree.is_none_or(|batch| batch.get("size").is_none());
    let source = Settings { tree: Some(tree), section: &SOURCE };
    let mut params = values(draft.tree.get("params"));
    params.extend(values(tree.get("params")));
    params.extend(draft.context.params.get(node.name).cloned().unwrap_or_default());
    let join = is_join(node).then(|| join(draft, node)).flatten();
    Node {
        name: node.name.to_owned(),
        role: node.role,
        kind: tree.text_of("type").unwrap_or_default().to_owned(),
        keeps_state: keeps_state(draft, node),
        doc: tree.text_of("doc").map(str::to_owned),
        labels: texts(tree.get("labels")),
        inputs: draft.edges.iter().filter(|(_, to)| *to == id).map(|(from, _)| *from).collect(),
        config: config(node),
        filter: tree.text_of("where").map(str::to_owned),
        select: tree.text_of("select").map(str::to_owned),
        function: tree.text_of("fn").map(str::to_owned),
        is_batch_function: source.is_true("batch_fn"),
        params,
        key_by: match &join {
            Some(join) => join.left.key.clone(),
            None => tree.get("key_by").map_or_else(Vec::new, text_or_texts),
        },
        join,
        window: tree.get("window").map(|tree| window(draft, tree)),
        aggregates: tree.get("aggregates").and_then(aggregates::text).map(Cow::into_owned),
        triggers: triggers(tree),
        parallelism: parallelism(tree.get("parallelism")),
        batch: BatchSettings {
            size: if takes_what_comes { u32::MAX } else { batch.whole("size") },
            timeout_ms: batch.duration_ms("timeout"),
        },
        max_in_flight: source.whole("max_in_flight"),
        ack_timeout_ms: source.duration_ms("ack_timeout"),
        event_time: event_time(tree.get("event_time")),
    }
}

/// The keys as written, and the defaults of those that are missing.
fn config(node: &DraftNode<'_>) -> Map<String, Value> {
    let written = node.tree.get("config").map_or(&[][..], Tree::members);
    let mut config: Map<String, Value> =
        written.iter().map(|member| (member.key.clone(), member.value.to_json())).collect();
    for key in node.node_type.map_or(&[][..], |kind| kind.keys) {
        if let Some(default) = default_of(key).filter(|_| !config.contains_key(key.name)) {
            config.insert(key.name.to_owned(), default);
        }
    }
    config
}

/// The default of a key as JSON.
pub(super) fn default_of(key: &Key) -> Option<Value> {
    let default = key.default?;
    Some(match key.value {
        KeyType::Whole(..) | KeyType::Bool | KeyType::Checked(_) | KeyType::Any | KeyType::Parallelism => {
            let content = plain(default).unwrap_or_else(|_| TreeContent::Text(default.to_owned()));
            match content {
                TreeContent::Number(number) => Value::Number(number),
                TreeContent::Bool(value) => Value::Bool(value),
                _ => Value::from(default),
            }
        }
        _ => Value::from(default),
    })
}

fn parallelism(tree: Option<&Tree>) -> Parallelism {
    match tree {
        Some(Tree { content: TreeContent::Object(_), .. }) => {
            let bounds = Settings { tree, section: &PARALLELISM };
            Parallelism { min: bounds.whole("min").min(bounds.whole("max")), max: bounds.whole("max") }
        }
        _ => {
            let node = tree.and_then(Tree::whole).and_then(|number| u32::try_from(number).ok()).unwrap_or(1);
            Parallelism { min: node, max: node }
        }
    }
}

fn route(route: &DraftRoute<'_>) -> Route {
    let tree = route.tree;
    let settings = Settings { tree: Some(tree), section: &ROUTE };
    Route {
        from: route.from.as_ref().and_then(|from| from.node),
        to: match &route.to {
            RouteTargetDraft::All => RouteTarget::All,
            RouteTargetDraft::None => RouteTarget::None,
            RouteTargetDraft::Nodes(ends) => RouteTarget::Nodes(nodes(ends)),
        },
        when: tree.text_of("when").map(str::to_owned),
        stop: route.is_stop,
        on_error: route.is_on_error,
        drop_fields: tree.get("drop_fields").map_or_else(Vec::new, text_or_texts),
        select: tree.text_of("select").map(str::to_owned),
        predicate_errors_to: route.predicate_errors_to.as_ref().and_then(|to| to.node),
        action: match tree.text_of("action") {
            Some("retry") => Some(Action::Retry { max_attempts: settings.whole("max_attempts") }),
            Some("drop") => Some(Action::Drop),
            Some("dead_letter") => Some(Action::DeadLetter),
            _ => None,
        },
    }
}

/// The nodes without duplicates, in their order.
fn nodes(ends: &[EdgeEnd<'_>]) -> Vec<NodeId> {
    let mut nodes = Vec::new();
    for node in ends.iter().filter_map(|end| end.node) {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes
}

fn hook(draft: &DocumentDraft<'_>, tree: &Tree) -> Hook {
    const POINTS: [HookPoint; 8] = [
        HookPoint::Ready,
        HookPoint::Start,
        HookPoint::BeforeBatch,
        HookPoint::AfterRead,
        HookPoint::AfterFunction,
        HookPoint::AfterBatch,
        HookPoint::Stop,
        HookPoint::Error,
    ];
    let point = HOOK_POINTS.iter().position(|word| tree.text_of("on") == Some(word));
    Hook {
        task: tree.text_of("task").and_then(|task| draft.by_name.get(task)).copied(),
        on: point.map_or(HookPoint::Error, |index| POINTS[index]),
        call: tree.text_of("call").unwrap_or_default().to_owned(),
        params: values(tree.get("params")),
        answer: match tree.text_of("answer") {
            Some("restart") => Some(ErrorAnswer::Restart),
            Some("kill") => Some(ErrorAnswer::Kill),
            Some("defer") => Some(ErrorAnswer::Defer),
            _ => None,
        },
    }
}

fn test(tree: &Tree) -> TestCase {
    let records = |key| -> BTreeMap<String, Vec<Value>> {
        let nodes = tree.get(key).map_or(&[][..], Tree::members).iter();
        nodes.map(|member| (member.key.clone(), member.value.elements().iter().map(Tree::to_json).collect())).collect()
    };
    let members = |key| tree.get(key).map_or(&[][..], Tree::members).iter();
    TestCase {
        name: tree.text_of("name").unwrap_or_default().to_owned(),
        line: tree.place.line,
        inject: records("inject"),
        tick: Duration::from_millis(tree.text_of("tick").and_then(duration_ms).unwrap_or_default()),
        expect: records("expect"),
        tables: records("tables"),
        params: members("params").map(|member| (member.key.clone(), values(Some(&member.value)))).collect(),
        trace: members("trace").map(|member| (member.key.clone(), text_or_texts(&member.value))).collect(),
    }
}

fn elements(tree: Option<&Tree>) -> &[Tree] {
    tree.map_or(&[], Tree::elements)
}

fn values(tree: Option<&Tree>) -> BTreeMap<String, Value> {
    let members = tree.map_or(&[][..], Tree::members).iter();
    members.map(|member| (member.key.clone(), member.value.to_json())).collect()
}

fn texts(tree: Option<&Tree>) -> BTreeMap<String, String> {
    let members = tree.map_or(&[][..], Tree::members).iter();
    members.filter_map(|member| Some((member.key.clone(), member.value.text()?.to_owned()))).collect()
}

fn text_or_texts(tree: &Tree) -> Vec<String> {
    let one = tree.text().into_iter();
    one.chain(tree.elements().iter().filter_map(Tree::text)).map(str::to_owned).collect()
}
