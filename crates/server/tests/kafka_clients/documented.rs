//! The programs in the guide to the log run as they stand there, each against a log of its own.

use crate::broker::Broker;
use crate::guide::blocks;

const GUIDE: &str = "docs/log.md";

/// What a program says whose only dependency on where it runs is the broker's address.
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
    let said = printed(&broker, &first_program("java"), |program| broker.java_source("Orders.java", program));
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
