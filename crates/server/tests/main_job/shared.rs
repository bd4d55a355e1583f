//! The servers that the tests of this program share end with it.

use std::path::Path;
use std::process::{Command, Stdio};

use millstream_testkit::eventually;

/// A test that uses a shared server.
const USER: &str = "job_taps::the_schema_names_the_types_of_nodes";

/// The number of processes that name this path in their arguments.
fn processes_with(path: &Path) -> usize {
    let path = path.to_str().unwrap();
    let arguments = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read(entry.ok()?.path().join("cmdline")).ok();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(arguments);
    all.filter(|arguments| String::from_utf8_lossy(arguments).contains(path)).count()
}

#[test]
fn a_shared_server_and_its_data_end_with_the_test_program_even_if_that_is_killed() {
    for is_killed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", USER]).env("TMPDIR", dir.path()).stdout(Stdio::null());
        let mut program = program.spawn().unwrap();
        let entries = || std::fs::read_dir(dir.path()).unwrap().flatten();
        if is_killed {
            eventually("the server starts", || entries().any(|entry| entry.path().join("views").exists()));
            program.kill().unwrap();
        }
        let ended = program.wait().unwrap();
        assert!(is_killed || ended.success(), "{ended}");
        eventually("the server to end", || processes_with(dir.path()) == 0);
        eventually("its data to go", || entries().next().is_none());
    }
}
