//! `millstream job graph`: the nodes and edges of a job as an indented tree.

use serde_json::Value;

use crate::job_client::{count, rate};
use crate::terminal::{aligned, cell};

const HEAD: [&str; 10] = ["NODE", "TYPE", "EDGE", "IN", "OUT", "RATE", "QUEUE", "LAG", "ERRORS", "P99"];

/// The graph as text: each node below the one that it gets records from. A node with several inputs stands below each of
/// them; what follows it is shown once.
pub(crate) fn described(graph: &Value) -> String {
    let mut tree = Tree { graph, rows: vec![HEAD.map(str::to_owned)], shown: Vec::new() };
    for node in tree.nodes().iter().filter(|node| node["role"] == "source") {
        tree.push(node, None, &Branch { first: String::new(), next: String::new() });
    }
    let [name, id, state, at] = ["name", "id", "state", "at"].map(|key| cell(&graph[key]));
    format!("{name} ({id}) is {state} at {at}\n\n{}", aligned(&tree.rows))
}

struct Tree<'a> {
    graph: &'a Value,
    rows: Vec<[String; HEAD.len()]>,
    /// The names of nodes whose figures were shown.
    shown: Vec<&'a str>,
}

/// The text in front of a node's name, and in front of the nodes below it.
struct Branch {
    first: String,
    next: String,
}

impl<'a> Tree<'a> {
    fn nodes(&self) -> &'a [Value] {
        list(&self.graph["nodes"])
    }

    fn push(&mut self, node: &'a Value, edge: Option<&Value>, branch: &Branch) {
        let name = node["name"].as_str().unwrap_or_default();
        let records =
            edge.map_or_else(String::new, |edge| format!("{} {}", count(&edge["records"]), cell(&edge["exchange"])));
        let shown_name = format!("{}{}", branch.first, cell(&node["name"]));
        if self.shown.contains(&name) {
            let again = std::array::from_fn(|column| match column {
                0 => format!("{shown_name} (see above)"),
                2 => records.clone(),
                _ => String::new(),
            });
            return self.rows.push(again);
        }
        self.shown.push(name);
        let queue = match &node["queue"] {
            Value::Object(queue) => format!("{}/{}", count(&queue["used"]), count(&queue["bound"])),
            _ => "-".to_owned(),
        };
        let p99 = node["latency_ms"]["p99"].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3} ms"));
        // A sink's rate is that of the records that it writes.
        let made = if node["role"] == "source" { &node["rate_in_1m"] } else { &node["rate_out_1m"] };
        let [read, written, lag, errors] = ["records_in", "records_out", "lag", "errors"].map(|key| count(&node[key]));
        let kind = cell(&node["type"]);
        self.rows.push([shown_name, kind, records, read, written, rate(made), queue, lag, errors, p99]);
        let graph = self.graph;
        let below: Vec<&Value> = list(&graph["edges"]).iter().filter(|edge| edge["from"] == name).collect();
        for (number, edge) in below.iter().enumerate() {
            let is_last = number + 1 == below.len();
            let (corner, line) = if is_last { ("└ ", "  ") } else { ("├ ", "│ ") };
            let branch = Branch { first: format!("{}{corner}", branch.next), next: format!("{}{line}", branch.next) };
            if let Some(node) = self.nodes().iter().find(|node| node["name"] == edge["to"]) {
                self.push(node, Some(edge), &branch);
            }
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_with_two_inputs_is_shown_once_with_its_figures() {
        let node =
            |name: &str, role: &str| json!({"name": name, "type": "t", "role": role, "records_in": 4, "queue": null});
        let edge = |from: &str, to: &str| json!({"from": from, "to": to, "exchange": "fused", "records": 2});
        let graph = json!({
            "at": "now", "id": "1", "name": "job", "state": "running",
            "nodes": [node("a", "source"), node("b", "source"), node("c", "transform"), node("d", "sink")],
            "edges": [edge("a", "c"), edge("a", "d"), edge("b", "c"), edge("c", "d")],
        });
        let text = described(&graph);
        let width = text.lines().nth(2).and_then(|head| head.find("TYPE")).unwrap();
        let name = |line: &str| line.chars().take(width).collect::<String>().trim_end().to_owned();
        let names: Vec<String> = text.lines().skip(3).map(name).collect();
        assert_eq!(text.lines().next(), Some("job (1) is running at now"));
        assert_eq!(names, ["a", "├ c", "│ └ d", "└ d (see above)", "b", "└ c (see above)"], "{text}");
    }
}
