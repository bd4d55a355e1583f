//! Units: pipelined commands, MULTI, and what limits refuse.

use std::sync::atomic::Ordering::Relaxed;

use super::client::Server;

#[test]
fn pipelined_commands_are_one_transaction() {
    let server = Server::new();
    let mut client = server.client();
    let replies = client.send(b"set a 1\r\nincr a\r\nget a\r\nincr b x\r\nget none\r\nping\r\nget a\r\n");
    let expected =
        "+OK\r\n:2\r\n$1\r\n2\r\n-ERR wrong number of arguments for 'incr' command\r\n$-1\r\n+PONG\r\n$1\r\n2\r\n";
    assert_eq!(String::from_utf8(replies).unwrap(), expected);
    // The wrong command and PING each end a unit.
    assert_eq!(server.bucket().commits.load(Relaxed), 3);
    assert!(server.bucket().runs.load(Relaxed) > 3, "values had to be loaded");
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    let server = Server::new();
    let mut client = server.client();
    let requests: String = (0..5_000).map(|_| "incr n\r\n").collect();
    let expected: String = (1..=5_000).map(|number| format!(":{number}\r\n")).collect();
    assert_eq!(String::from_utf8(client.send(requests.as_bytes())).unwrap(), expected);
    assert_eq!(server.bucket().commits.load(Relaxed), 5, "at most 1,024 commands are a unit");
}

#[test]
fn large_replies_are_gathered_up_to_a_bound() {
    let server = Server::new();
    let mut client = server.client();
    client.ask(&format!("set big {}", "x".repeat(50_000)));
    client.ask("append big 1");
    let before = server.bucket().commits.load(Relaxed);
    let replies = client.send("get big\r\n".repeat(100).as_bytes());
    assert_eq!(replies.len(), 100 * (50_001 + "$50001\r\n\r\n".len()));
    assert!(server.bucket().commits.load(Relaxed) - before >= 4, "the unit of 5 MB was cut");
}

#[test]
fn a_write_that_a_limit_refuses_changes_nothing_and_stops_nobody() {
    let server = Server::new();
    let mut client = server.client();
    server.bucket().max_keys.store(2, Relaxed);
    let replies = client.send(b"set a 1\r\nmset b 2 c 3\r\nget b\r\nset b 2\r\nget b\r\nset \"\" x\r\n");
    let oom = "-OOM command not allowed: the bucket holds 2 keys and may hold 2 (max_keys); deletes still work\r\n";
    let key = "-ERR a key has 1 to 1024 bytes and does not begin with a zero byte; this one has 0\r\n";
    assert_eq!(String::from_utf8(replies).unwrap(), format!("+OK\r\n{oom}$-1\r\n+OK\r\n$1\r\n2\r\n{key}"));
    client.check(&[("multi", "+OK"), ("mset c 1", "+QUEUED"), ("set a 9", "+QUEUED"), ("del b", "+QUEUED")]);
    assert_eq!(client.ask("exec"), format!("*3 {} +OK :1", oom.trim_end()));
}

#[test]
fn pipelined_writes_that_are_too_large_together_are_stored_by_several_transactions() {
    let server = Server::new();
    let mut client = server.client();
    server.bucket().transaction_max_bytes.store(1_000, Relaxed);
    let set = |number: usize| format!("set k{number} {}\r\n", "x".repeat(300));
    let pipeline: String = (0..10).map(set).chain(["del k3\r\nget k3\r\nstrlen k9\r\n".to_owned()]).collect();
    let expected = "+OK\r\n".repeat(10) + ":1\r\n$-1\r\n:300\r\n";
    assert_eq!(String::from_utf8(client.send(pipeline.as_bytes())).unwrap(), expected);
    assert_eq!(server.bucket().commits.load(Relaxed), 4, "three values fit");

    // A command that is too large by itself is refused, and those around it are not.
    let large = format!("mset a {0} b {0}\r\n", "x".repeat(501));
    let replies = String::from_utf8(client.send(format!("{}{large}{}", set(1), set(2)).as_bytes())).unwrap();
    let refusal = "-ERR the writes of one transaction have 1002 bytes and may have 1000; write less at once\r\n";
    assert_eq!(replies, format!("+OK\r\n{refusal}+OK\r\n"));
    client.check(&[("exists a b", ":0"), ("multi", "+OK"), ("incr n", "+QUEUED")]);
    client.send((20..30).map(set).collect::<String>().as_bytes());
    assert_eq!(client.ask("exec"), refusal.replace("1002", "1201").trim_end());
    client.check(&[("exists n k20 k29", ":0"), ("set n 1", "+OK"), ("get n", "$1 1")]);
}

#[test]
fn a_transaction_and_a_command_answer_a_bounded_number_of_bytes() {
    let server = Server::new();
    let mut client = server.client();
    client.ask(&format!("setrange big {} x", (1 << 20) - 1));
    client.check(&[("multi", "+OK"), ("incr n", "+QUEUED")]);
    client.send("get big\r\n".repeat(64).as_bytes());
    let refusal = "-ERR the replies of one transaction have more than 67108864 bytes; read less at once";
    client.check(&[("exec", refusal), ("exists n", ":0"), ("multi", "+OK"), ("incr n", "+QUEUED")]);
    client.send("get big\r\n".repeat(63).as_bytes());
    assert!(client.send(b"exec\r\n").len() > 63 << 20);
    let refusal = "-ERR the values have more than 67108864 bytes together; ask for fewer keys at once";
    client.check(&[("get n", "$1 1"), (&format!("mget{}", " big".repeat(64)), refusal), ("strlen big", ":1048576")]);
    assert!(client.send(format!("mget{}\r\n", " big".repeat(63)).as_bytes()).len() > 63 << 20);
}

#[test]
fn queued_commands_take_effect_together() {
    let server = Server::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.check(&[
        ("exec", "-ERR EXEC without MULTI"),
        ("exec now", "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"),
        ("discard", "-ERR DISCARD without MULTI"),
        ("multi", "+OK"),
        ("multi", "-ERR MULTI calls can not be nested"),
        ("watch a", "-ERR WATCH inside MULTI is not allowed"),
        ("set a 1", "+QUEUED"),
        ("incr a", "+QUEUED"),
        ("incr text", "+QUEUED"),
        ("set text x", "+QUEUED"),
        ("incr text", "+QUEUED"),
    ]);
    other.check(&[("get a", "$-1")]);
    let before = server.bucket().commits.load(Relaxed);
    client.check(&[("exec", "*5 +OK :2 :1 +OK -ERR value is not an integer or out of range"), ("get a", "$1 2")]);
    assert_eq!(server.bucket().commits.load(Relaxed) - before, 2, "EXEC is one transaction, GET the other");
    client.check(&[
        ("multi", "+OK"),
        ("set a 9", "+QUEUED"),
        ("discard", "+OK"),
        ("get a", "$1 2"),
        ("multi", "+OK"),
        ("set a 9", "+QUEUED"),
        ("nonsense", "-ERR unknown command 'nonsense', with args beginning with:"),
        ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ("get a", "$1 2"),
        ("multi", "+OK"),
        ("set a", "-ERR wrong number of arguments for 'set' command"),
        ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ("multi", "+OK"),
        ("exec", "*0"),
    ]);
}

#[test]
fn each_command_of_a_unit_that_fails_is_answered() {
    let server = Server::new();
    let mut client = server.client();
    server.bucket().is_broken.store(true, Relaxed);
    let replies =
        client.send(b"set a 1\r\nget a\r\nping\r\nget a\r\nwatch a\r\nmulti\r\nset a 1\r\nset b 1\r\nexec\r\n");
    let error = "-ERR the log is closed\r\n";
    let expected = format!("{error}{error}+PONG\r\n{error}{error}+OK\r\n+QUEUED\r\n+QUEUED\r\n{error}");
    assert_eq!(String::from_utf8(replies).unwrap(), expected);
    server.bucket().is_broken.store(false, Relaxed);
    client.check(&[("exec", "-ERR EXEC without MULTI"), ("get a", "$-1"), ("set a 1", "+OK")]);
}

#[test]
fn a_full_cache_refuses_commands_that_need_memory() {
    let server = Server::new();
    let (mut client, mut admin) = (server.client(), server.client());
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    client.check(&[("set a 1", "+OK"), ("multi", "+OK"), ("set a 2", "+QUEUED")]);
    admin.check(&[("config set maxmemory 1", "+OK")]);
    client.check(&[
        ("exec", &oom.replace("-OOM", "-EXECABORT Transaction discarded because of: OOM")),
        ("set a 2", oom),
        ("get a", "$1 1"),
        ("multi", "+OK"),
        ("set a 2", oom),
        ("discard", "+OK"),
        ("del a", ":1"),
    ]);
    client.check(&[
        ("multi", "+OK"),
        ("get a", oom),
        ("exec", "-EXECABORT Transaction discarded because of previous errors."),
    ]);
    admin.check(&[("multi", "+OK"), ("discard", "+OK"), ("config set maxmemory 0", "+OK")]);
    client.check(&[("set a 2", "+OK")]);
}

#[test]
fn commands_that_are_not_part_of_a_transaction_keep_their_place() {
    let mut client = Server::new().client();
    client.check(&[
        ("multi", "+OK"),
        ("set a 1", "+QUEUED"),
        ("ping", "+QUEUED"),
        ("dbsize", "+QUEUED"),
        ("set b 1", "+QUEUED"),
        ("dbsize", "+QUEUED"),
        ("flushdb", "+QUEUED"),
        ("set c 1", "+QUEUED"),
        ("keys *", "+QUEUED"),
        ("select 77", "+QUEUED"),
        ("exec", "*9 +OK +PONG :1 +OK :2 +OK +OK *1 $1 c -ERR DB index is out of range"),
    ]);
}

#[test]
fn exec_depends_on_watched_keys() {
    let server = Server::new();
    let (mut client, mut other) = (server.client(), server.client());
    let cases: &[(&str, &str, bool)] = &[
        ("set a 1", "get a", true),
        ("set a 1", "set a 1", false),
        ("set a 1", "set b 1", true),
        ("set a 1", "del a", false),
        ("del a", "set a 1", false),
        ("del a", "del a", true),
        ("set a 1", "expire a 100", false),
        ("set a 1", "flushdb", false),
        ("set a 1", "rename a b", false),
        ("set a 1", "append a \"\"", false),
    ];
    for (before, meanwhile, succeeds) in cases {
        client.check(&[("flushall", "+OK")]);
        client.ask(before);
        client.check(&[("watch x a", "+OK"), ("multi", "+OK"), ("ping", "+QUEUED")]);
        other.ask(meanwhile);
        assert_eq!(client.ask("exec"), if *succeeds { "*1 +PONG" } else { "*-1" }, "{before}, {meanwhile}");
        client.check(&[("multi", "+OK"), ("ping", "+QUEUED"), ("exec", "*1 +PONG")]);
    }
    client.check(&[("set a 1 px 1000", "+OK"), ("watch a", "+OK")]);
    server.host.clock.advance(1_000);
    client.check(&[("multi", "+OK"), ("ping", "+QUEUED"), ("exec", "*-1")]);
    client.check(&[("watch a", "+OK"), ("unwatch", "+OK")]);
    other.ask("set a 2");
    client.check(&[("multi", "+OK"), ("ping", "+QUEUED"), ("exec", "*1 +PONG")]);
    client.check(&[("watch a", "+OK"), ("multi", "+OK"), ("discard", "+OK"), ("hello 3", client_hello(3).as_str())]);
    client.ask("watch a");
    other.ask("set a 3");
    client.check(&[("multi", "+OK"), ("get a", "+QUEUED"), ("exec", "_")]);
}

fn client_hello(protocol: u8) -> String {
    format!(
        "%7 $6 server $5 redis $7 version $6 7.0.15 $5 proto :{protocol} $2 id :1 $4 mode $10 standalone $4 role $6 master \
         $7 modules *0"
    )
}
