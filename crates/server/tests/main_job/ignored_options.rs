//! The log warns of options of URLs that clients of other versions of NGSI send and that have no effect.

use std::fs::{self, File};

use millstream_testkit::{Process, ask, millstream};

#[test]
fn options_of_other_versions_are_taken_and_the_log_warns_of_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let (data_dir, log) = (dir.path().join("data"), dir.path().join("log"));
    fs::create_dir(&data_dir).unwrap();
    let mut program = millstream();
    program.stderr(File::create(&log).unwrap());
    let process = Process::start_by(program, &data_dir, &[]);
    let post = |path: &str, body: &str| {
        let json = [("Content-Type", "application/json")];
        ask(process.applications, "POST", path, &json, body.as_bytes()).status
    };
    assert_eq!(post("/v2/entities?options=keyValues", r#"{"id": "e", "level": 5}"#), 201);
    for _ in 0..3 {
        let subscription =
            r#"{"subject": {"entities": [{"id": "other"}]}, "notification": {"http": {"url": "http://127.0.0.1:1/"}}}"#;
        assert_eq!(post("/v2/subscriptions?options=skipInitialNotification", subscription), 201);
        assert_eq!(process.get("/v2/entities/e?options=keyValues,libVersions").json()["level"], 5);
        assert_eq!(process.get("/version?options=libVersions").status, 200);
    }
    process.stop();

    let log = fs::read_to_string(&log).unwrap();
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).collect::<Vec<_>>();
    for option in ["skipInitialNotification", "libVersions"] {
        let [line] = lines(option)[..] else { panic!("not one line of {option}:\n{log}") };
        let parts = [" WARN ", "it is ignored, and not logged again", r#"what="option of a URL""#];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    assert_eq!(lines("option of a URL").len(), 2, "{log}");
}
