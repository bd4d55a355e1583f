//! Publish and subscribe, and keyspace events.

use crate::client::Server;

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

#[test]
fn a_listener_that_never_reads_is_closed() {
    let server = Server::new();
    let (mut listener, mut publisher) = (server.client(), server.client());
    listener.ask("subscribe a");
    let message = "x".repeat(1 << 20);
    for _ in 0..40 {
        publisher.ask(&format!("publish a {}", &message[..60_000]));
    }
    listener.messages();
    assert!(!listener.is_closed, "2.4 MB may wait");
    let request = format!("*3\r\n$7\r\npublish\r\n$1\r\na\r\n${}\r\n{message}\r\n", message.len());
    for _ in 0..33 {
        publisher.send(request.as_bytes());
    }
    listener.messages();
    assert!(listener.is_closed);
}
