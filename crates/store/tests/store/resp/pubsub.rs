//! Publish and subscribe, and keyspace events.

use millstream_types::MemoryBudget;

use super::client::Server;
use super::memory::MemoryHost;

#[test]
fn messages_reach_the_subscribers_of_channels_and_patterns() {
    let server = Server::new();
    let (mut listener, mut other, mut publisher) = (server.client(), server.client(), server.client());
    listener.check(&[
        ("subscribe a b", "*3 $9 subscribe $1 a :1 *3 $9 subscribe $1 b :2"),
        ("psubscribe a*", "*3 $10 psubscribe $2 a* :3"),
        ("get a", "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"),
        ("ping", "*2 $4 pong $0"),
        ("ping x", "*2 $4 pong $1 x"),
    ]);
    other.ask("hello 3");
    other.check(&[("subscribe a", ">3 $9 subscribe $1 a :1"), ("ping", "+PONG"), ("get a", "_")]);
    publisher.check(&[
        ("publish a hi", ":3"),
        ("publish none hi", ":0"),
        ("pubsub numsub a b none", "*6 $1 a :2 $1 b :1 $4 none :0"),
        ("pubsub numpat", ":1"),
        ("pubsub channels b*", "*1 $1 b"),
        ("pubsub nonsense", "-ERR unknown subcommand 'nonsense'. Try PUBSUB HELP."),
    ]);
    assert_eq!(listener.messages(), "*3 $7 message $1 a $2 hi *4 $8 pmessage $2 a* $1 a $2 hi");
    assert_eq!(other.messages(), ">3 $7 message $1 a $2 hi");
    listener.check(&[
        ("unsubscribe a", "*3 $11 unsubscribe $1 a :2"),
        ("punsubscribe", "*3 $12 punsubscribe $2 a* :1"),
        ("unsubscribe", "*3 $11 unsubscribe $1 b :0"),
        ("unsubscribe", "*3 $11 unsubscribe $-1 :0"),
        ("get a", "$-1"),
    ]);
    publisher.check(&[("publish a hi", ":1"), ("subscribe x", "*3 $9 subscribe $1 x :1")]);
    drop(other);
    let mut last = server.client();
    last.check(&[("publish a hi", ":0"), ("pubsub channels", "*1 $1 x")]);
}

#[test]
fn a_client_gets_its_own_message_before_the_reply_and_after_exec() {
    let mut client = Server::new().client();
    client.ask("hello 3");
    client.ask("subscribe foo");
    client.check(&[
        ("publish foo bar", ">3 $7 message $3 foo $3 bar :1"),
        ("multi", "+OK"),
        ("ping abc", "+QUEUED"),
        ("publish foo bar", "+QUEUED"),
        ("ping def", "+QUEUED"),
        ("exec", "*3 $3 abc :1 $3 def >3 $7 message $3 foo $3 bar"),
    ]);
}

#[test]
fn changes_of_keys_are_published_if_they_are_chosen() {
    let server = Server::new();
    let (mut client, mut listener) = (server.client(), server.client());
    listener.ask("psubscribe __key*");
    client.check(&[
        ("set a 1", "+OK"),
        ("config set notify-keyspace-events KEA", "+OK"),
        ("config get notify-keyspace-events", "*2 $22 notify-keyspace-events $3 AKE"),
    ]);
    assert_eq!(listener.messages(), "");
    client.ask("set a 1");
    let message = |channel: &str, text: &str| {
        format!("*4 $8 pmessage $6 __key* ${} {channel} ${} {text}", channel.len(), text.len())
    };
    let expected = [message("__keyspace@0__:a", "set"), message("__keyevent@0__:set", "a")].join(" ");
    assert_eq!(listener.messages(), expected);
    client.ask("config set notify-keyspace-events Eg$n");
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("set n 1 ex 100", &[("new", "n"), ("set", "n"), ("expire", "n")]),
        ("incr n", &[("incrby", "n")]),
        ("incr n x", &[]),
        ("append n x", &[("append", "n")]),
        ("incr n", &[]),
        ("persist n", &[("persist", "n")]),
        ("rename n m", &[("new", "m"), ("rename_from", "n"), ("rename_to", "m")]),
        ("expire m -1", &[("del", "m")]),
        ("del m", &[]),
        ("mset a 1 b 2", &[("set", "a"), ("new", "b"), ("set", "b")]),
        ("setbit a 1 1", &[("setbit", "a")]),
        ("del a b", &[("del", "a"), ("del", "b")]),
    ];
    for (line, events) in cases {
        client.ask(line);
        let expected: Vec<String> =
            events.iter().map(|(event, key)| message(&format!("__keyevent@0__:{event}"), key)).collect();
        assert_eq!(listener.messages(), expected.join(" "), "{line}");
    }
}

/// A PUBLISH of `bytes` to channel `a`.
fn publish(bytes: usize) -> Vec<u8> {
    let message = "x".repeat(bytes);
    format!("*3\r\n$7\r\npublish\r\n$1\r\na\r\n${bytes}\r\n{message}\r\n").into_bytes()
}

#[test]
fn a_listener_that_never_reads_is_closed() {
    let server = Server::new();
    let (mut listener, mut publisher) = (server.client(), server.client());
    listener.ask("subscribe a");
    for _ in 0..40 {
        assert_eq!(publisher.send(&publish(60_000)), b":1\r\n");
    }
    let waiting = listener.messages();
    assert!(!listener.is_closed, "2.4 MB may wait");
    assert_eq!(waiting.matches(&"x".repeat(60_000)).count(), 40);
    let taken = (0..40).take_while(|_| publisher.send(&publish(1 << 20)) == b":1\r\n").count();
    assert_eq!(taken, 31, "32 MiB may wait");
    assert!(listener.look_closed());
    assert_eq!(publisher.send(&publish(1)), b":0\r\n");
}

#[test]
fn a_listener_for_which_much_waits_for_a_minute_is_closed() {
    let server = Server::new();
    let (mut slow, mut late, mut publisher) = (server.client(), server.client(), server.client());
    for listener in [&mut slow, &mut late] {
        listener.ask("subscribe a");
    }
    let publish = publish(1 << 20);
    let mut send = |count| (0..count).for_each(|_| assert!(publisher.send(&publish).starts_with(b":")));
    send(9);
    server.shared.close_idle_and_slow();
    server.host.clock.advance(59_999);
    late.messages();
    send(9);
    server.shared.close_idle_and_slow();
    assert!(!slow.look_closed());
    server.host.clock.advance(1);
    server.shared.close_idle_and_slow();
    assert!(slow.look_closed() && !late.look_closed(), "the minute of the other began later");
}

#[test]
fn subscribers_share_a_message_and_those_that_do_not_read_make_room_for_others() {
    const SLOW: usize = 100;
    const MESSAGE_BYTES: usize = 500_000;
    const MEMORY_BYTES: u64 = 4 << 20;
    let memory = MemoryBudget::new("memory.budget_bytes", MEMORY_BYTES);
    let server = Server::with_memory(MemoryHost::stopped(false), memory.clone());
    let mut slow: Vec<_> = (0..SLOW).map(|_| server.client()).collect();
    let (mut reader, mut publisher) = (server.client(), server.client());
    for (number, client) in slow.iter_mut().enumerate() {
        client.ask(if number % 2 == 0 { "subscribe a" } else { "psubscribe a*" });
    }
    reader.ask("hello 3");
    reader.ask("subscribe a");
    let publish = publish(MESSAGE_BYTES);
    let replies: Vec<_> = (0..44)
        .map(|_| {
            let reply = String::from_utf8(publisher.send(&publish)).unwrap();
            let message = reader.messages();
            assert!(message.starts_with(">3 $7 message $1 a $500000 xxx") && message.len() > MESSAGE_BYTES);
            reply
        })
        .collect();
    let all = format!(":{}\r\n", SLOW + 1);
    let shared = replies.iter().take_while(|reply| **reply == all).count();
    assert!(shared >= 3, "{shared} messages fit into what a tenant may take, each once");
    assert!(replies[shared..].iter().all(|reply| reply == ":1\r\n"), "{replies:?}");
    assert!(slow.iter_mut().all(|client| client.look_closed()));
    assert!(!reader.is_closed);
    drop(slow);
    assert_eq!(memory.used_bytes(), 0, "all is given back");
}

#[test]
fn messages_that_one_tenant_does_not_read_leave_memory_for_those_of_another() {
    const CLIENTS: usize = 40;
    // Each is too little to make its client slow.
    const MESSAGE_BYTES: usize = 200_000;
    let memory = MemoryBudget::new("memory.budget_bytes", 4 << 20);
    let server = Server::with_memory(MemoryHost::stopped(true), memory);
    let payload = "x".repeat(MESSAGE_BYTES);
    let publish_to = |channel: &str| {
        format!("*3\r\n$7\r\nPUBLISH\r\n$2\r\n{channel}\r\n${MESSAGE_BYTES}\r\n{payload}\r\n").into_bytes()
    };
    let client = |user: &str| {
        let mut client = server.client();
        assert_eq!(client.ask(&format!("auth {user} secret")), "+OK");
        client
    };
    let (mut publisher, mut silent) = (client("writer"), Vec::new());
    let mut refused = 0;
    for number in 0..CLIENTS {
        let mut listener = client("reader");
        listener.ask(&format!("subscribe {number:02}"));
        silent.push(listener);
        refused += usize::from(publisher.send(&publish_to(&format!("{number:02}"))).starts_with(b"-OOM"));
    }
    assert!((1..CLIENTS - 5).contains(&refused), "{refused} messages were refused");
    let mut reader = client("other");
    reader.ask("subscribe aa");
    assert_eq!(client("other").send(&publish_to("aa")), b":1\r\n");
    assert!(reader.messages().len() > MESSAGE_BYTES);
}

#[test]
fn a_message_without_room_is_refused_and_an_event_without_room_ends_the_subscription() {
    let memory = MemoryBudget::new("memory.budget_bytes", 4_000);
    let server = Server::with_memory(MemoryHost::stopped(false), memory.clone());
    let (mut listener, mut client) = (server.client(), server.client());
    client.ask("config set notify-keyspace-events KEA");
    listener.ask("psubscribe *");
    client.check(&[("publish a hi", ":1"), ("set a 1", "+OK")]);
    listener.messages();
    let refused = "-OOM memory.budget_bytes has no room for a message of 3000 bytes; nobody got it, try again later";
    assert_eq!(String::from_utf8(client.send(&publish(3_000))).unwrap().trim_end(), refused);
    assert!(!listener.look_closed());
    let others = memory.take(3_900).unwrap();
    client.check(&[("set a 2", "+OK")]);
    assert!(listener.look_closed(), "it must learn that it has missed something");
    drop(others);
    client.check(&[("publish a hi", ":0")]);
}
