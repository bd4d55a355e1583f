//! The requests of `docs/context.md`, sent in their order; what it shows as answers is what comes back.

use serde_json::Value;

use crate::world::World;

/// The blocks of the guide: what they are, and what stands in them.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inner: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language, inner.join("\n")));
        }
    }
    blocks
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_the_guide_has_the_answer_that_it_shows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/context.md");
    let text = std::fs::read_to_string(path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let (mut last, mut requests, mut compared) = (None, 0, 0);
    for (language, block) in blocks(&text) {
        match language {
            "http" => {
                let (head, body) = block.split_once("\n\n").map_or((&*block, None), |(head, body)| (head, Some(body)));
                let answer = served.ask(&head.replace('>', "%3E").replace('<', "%3C"), body).await;
                assert!(answer.status < 300, "{block}: {answer:?}");
                last = Some(answer);
                requests += 1;
            }
            "json" => {
                let mut expected: Value = serde_json::from_str(&block).unwrap();
                let mut answer = last.take().expect("a request stands before its answer").json();
                // An index of values is built in the background: it may be there already.
                for plan in [&mut expected, &mut answer].into_iter().filter_map(Value::as_object_mut) {
                    plan.remove("building");
                }
                assert_eq!(answer, expected, "{block}");
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(requests >= 11 && compared >= 8, "{requests} requests, {compared} answers");
    served.stop().await;
    world.close();
}
