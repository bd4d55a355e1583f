//! The programs in the guide to the log run as they stand there, each against a log of its own.

use crate::broker::Broker;
use std::path::Path;
use std::process::Command;

use millstream_testkit::guide::{blocks, every_block};

const GUIDE: &str = "docs/log.md";

/// Returns the output of a program whose only dependency on its surroundings is the broker's address.
fn printed(broker: &Broker, program: &str, run: impl FnOnce(&str) -> String) -> Vec<String> {
    let program = program.replace("127.0.0.1:9092", &broker.address);
    run(&program).lines().filter(|line| line.starts_with("o-")).map(str::to_owned).collect()
}

/// The only block of the guide in that language that reads what it has written.
fn first_program(language: &str) -> String {
    let blocks = blocks(GUIDE, language);
    blocks.into_iter().find(|block| block.contains("billing")).unwrap()
}

#[test]
fn the_python_program_of_the_log_guide_runs() {
    let Some(broker) = Broker::configured("") else { return };
    let said = printed(&broker, &first_program("python"), |program| broker.python(program));
    assert_eq!(said, [r#"o-1 {"count": 1}"#, r#"o-1 {"count": 2}"#, r#"o-1 {"count": 3}"#]);
}

#[test]
fn the_java_program_of_the_log_guide_runs() {
    let Some(broker) = Broker::configured("") else { return };
    let said = printed(&broker, &first_program("java"), |program| broker.java_source("Counts.java", program));
    assert_eq!(said, [r#"o-1 {"count": 1}"#, r#"o-1 {"count": 2}"#, r#"o-1 {"count": 3}"#]);
}

#[test]
fn the_javascript_program_of_the_log_guide_runs() {
    let Some(broker) = Broker::configured("") else { return };
    let said = printed(&broker, &first_program("js"), |program| broker.javascript(program));
    assert_eq!(said, [r#"o-1 {"count":1}"#, r#"o-1 {"count":2}"#, r#"o-1 {"count":3}"#]);
}

#[test]
fn the_transaction_of_the_log_guide_runs() {
    let Some(broker) = Broker::configured("") else { return };
    let blocks = blocks(GUIDE, "python");
    let program = blocks.iter().find(|block| block.contains("transactional.id")).unwrap();
    broker.kcat(&["-P", "-t", "orders", "-K", ":"], "o-1:bolt\n");
    broker.python(&program.replace("127.0.0.1:9092", &broker.address));
    let committed = ["-C", "-t", "invoices", "-o", "beginning", "-e", "-f", "%k %s\n"];
    let read = broker.kcat(&[&committed[..], &["-X", "isolation.level=read_committed"]].concat(), "");
    assert_eq!(read, "o-1 invoice for bolt\n");
}

/// Runs commands as a stranger pastes them, with the broker's own binary at hand.
fn shell(broker: &Broker, block: &str, dir: &Path) {
    let process = broker.process().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_millstream")).parent().unwrap();
    let script = block
        .replace("127.0.0.1:8000", &process.applications.to_string())
        .replace("127.0.0.1:9092", &process.kafka.to_string());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("MILLSTREAM_SERVER", process.applications_url())
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_log_guide_is_true_when_all_of_it_is_followed_in_order() {
    let Some(broker) = Broker::configured("") else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut said = Vec::new();
    for (language, block) in every_block(GUIDE) {
        let program = block.replace("127.0.0.1:9092", &broker.address);
        match language.as_str() {
            "sh" => shell(&broker, &block, dir.path()),
            "python" => said.push(broker.python(&program)),
            "java" => said.push(broker.java_source("Counts.java", &program)),
            "js" => said.push(broker.javascript(&program)),
            _ => {}
        }
    }
    // Some clients say more than the program does.
    let records = |said: &String| -> Vec<String> {
        said.lines().filter(|line| line.starts_with("o-") || line.starts_with("none ")).map(str::to_owned).collect()
    };
    let counted = [1, 2, 3].map(|count| format!("o-1 {{\"count\": {count}}}"));
    let [invoicing, python, java, javascript] = &said.iter().map(records).collect::<Vec<_>>()[..] else {
        panic!("{} programs", said.len())
    };
    assert!(invoicing.is_empty(), "{invoicing:?}");
    assert_eq!((&python[..], &java[..]), (&counted[..], &counted[..]));
    assert_eq!(javascript[..], counted.map(|line| line.replace(": ", ":")));
    let read =
        ["-C", "-t", "invoices", "-o", "beginning", "-e", "-f", "%k %s\n", "-X", "isolation.level=read_committed"];
    let invoices = broker.kcat(&read, "");
    let of_bolts = |line: &&str| line.starts_with("o-1 invoice for {") && line.contains("bolt");
    assert_eq!(invoices.lines().filter(of_bolts).count(), 2, "written, and appended again from the export: {invoices}");
}
