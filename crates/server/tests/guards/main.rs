//! Guards that every listener and every kind of work has: one row for each, one test for each guard, against the real binary.
//!
//! A listener without a row fails [`every_listener_has_a_row`], a door by which work can be started
//! `every_door_by_which_work_can_be_started_has_a_kind_with_a_row`, a kind of work without an end `every_kind_of_work_has_an_end`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod amqp;
mod before_login;
mod door;
mod downlinks;
mod ends;
mod foreign_bytes;
mod logged_in;
mod memory;
mod providers;
mod shared_memory;
mod work;
mod working;

use std::collections::BTreeSet;
use std::process::Command;

use door::DOORS;

#[test]
fn every_listener_has_a_row() {
    let help = Command::new(env!("CARGO_BIN_EXE_millstream")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.split_whitespace().filter_map(|word| word.strip_prefix("--listen-"));
    let listeners: BTreeSet<&str> = options.map(|option| option.strip_suffix("-tls").unwrap_or(option)).collect();
    assert_eq!(listeners, DOORS.iter().map(|door| door.listener).collect(), "rows and listeners");
}
