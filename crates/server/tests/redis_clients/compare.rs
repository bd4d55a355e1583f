//! The comparison of two servers' replies: byte for byte, with the exceptions of [`Rule`].

use millstream_testkit::resp::{self, Command, Reply};

/// Two servers that execute a command at other moments tell other times.
const TOLERANCE_MS: u64 = 10_000;

/// The rule by which the replies to a command are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Byte for byte.
    Exact,
    /// TTL, PTTL, EXPIRETIME, PEXPIRETIME: equal if negative, otherwise within the tolerance; a unit is so many ms.
    Time { unit_ms: u64 },
    /// KEYS: in any order.
    AnyOrder,
    /// OBJECT ENCODING: any of the encodings of a string; how a server keeps it is its own business.
    StringEncoding,
    /// RANDOMKEY: any key, or none on both.
    AnyKey,
}

impl Rule {
    fn of(command: &Command) -> Self {
        match command[0].to_ascii_uppercase().as_slice() {
            b"TTL" | b"EXPIRETIME" => Self::Time { unit_ms: 1000 },
            b"PTTL" | b"PEXPIRETIME" => Self::Time { unit_ms: 1 },
            b"KEYS" => Self::AnyOrder,
            b"RANDOMKEY" => Self::AnyKey,
            b"OBJECT" => Self::StringEncoding,
            _ => Self::Exact,
        }
    }

    fn holds(self, one: &Reply, other: &Reply) -> bool {
        if one == other {
            return true;
        }
        match self {
            Self::Exact => false,
            Self::Time { unit_ms } => match (one.integer(), other.integer()) {
                (Some(one), Some(other)) if one >= 0 && other >= 0 => one.abs_diff(other) * unit_ms <= TOLERANCE_MS,
                _ => false,
            },
            Self::AnyOrder => {
                let sorted = |reply: &Reply| {
                    let mut keys: Vec<_> = reply.elements.iter().map(|key| key.bulk.clone()).collect();
                    keys.sort_unstable();
                    keys
                };
                one.head == other.head && !one.is_error() && sorted(one) == sorted(other)
            }
            Self::StringEncoding => [one, other].into_iter().all(|reply| {
                reply.bulk.as_deref().is_some_and(|encoding| [&b"int"[..], b"embstr", b"raw"].contains(&encoding))
            }),
            Self::AnyKey => one.bulk.is_some() && other.bulk.is_some(),
        }
    }
}

fn is_named(command: &Command, name: &str) -> bool {
    command[0].eq_ignore_ascii_case(name.as_bytes())
}

/// Compares replies in the order of their commands; knows what was queued by MULTI.
#[derive(Default)]
pub(crate) struct Comparison {
    queued: Option<Vec<Rule>>,
}

impl Comparison {
    /// Compares the replies to the next command.
    pub(crate) fn same(&mut self, command: &Command, one: &Reply, other: &Reply) -> bool {
        let rule = Rule::of(command);
        let Some(queued) = &mut self.queued else {
            if is_named(command, "MULTI") && one.is("+OK") {
                self.queued = Some(Vec::new());
            }
            return rule.holds(one, other);
        };
        if one.is("+QUEUED") {
            queued.push(rule);
            return one == other;
        }
        let is_end = command.len() == 1 && (is_named(command, "EXEC") || is_named(command, "DISCARD"));
        // An EXEC with arguments ends the transaction, too.
        if !is_end && !one.head.starts_with(b"-EXECABORT") {
            return one == other;
        }
        let rules = self.queued.take().unwrap_or_default();
        let is_executed = one.head.starts_with(b"*") && one.elements.len() == rules.len();
        if !is_executed || one.head != other.head {
            return one == other;
        }
        let pairs = one.elements.iter().zip(&other.elements);
        rules.iter().zip(pairs).all(|(rule, (one, other))| rule.holds(one, other))
    }
}

#[test]
fn replies_are_the_same_byte_for_byte_or_by_a_rule() {
    let reply = |text: &str| match text.split_once(' ') {
        _ if text.starts_with(['-', '+', ':']) => {
            Reply { head: text.as_bytes().to_vec(), bulk: None, elements: Vec::new() }
        }
        None => Reply { head: text.as_bytes().to_vec(), bulk: None, elements: Vec::new() },
        Some((head, bulk)) if head.starts_with('$') => {
            Reply { head: head.as_bytes().to_vec(), bulk: Some(bulk.as_bytes().to_vec()), elements: Vec::new() }
        }
        Some((head, keys)) => {
            let key =
                |key: &str| Reply { head: b"$2".to_vec(), bulk: Some(key.as_bytes().to_vec()), elements: Vec::new() };
            Reply { head: head.as_bytes().to_vec(), bulk: None, elements: keys.split(' ').map(key).collect() }
        }
    };
    for (command, one, other, expected) in [
        ("GET", "$1 a", "$1 a", true),
        ("GET", "$1 a", "$1 b", false),
        ("GET", "$-1", "_", false),
        ("INCR", ":1", ":2", false),
        ("GET", "-ERR a", "-ERR b", false),
        ("TTL", ":100", ":101", true),
        ("TTL", ":100", ":111", false),
        ("TTL", ":-1", ":-2", false),
        ("TTL", ":0", ":-2", false),
        ("PTTL", ":100000", ":101000", true),
        ("PTTL", ":100", ":100000", false),
        ("KEYS", "*2 k1 k2", "*2 k2 k1", true),
        ("KEYS", "*2 k1 k2", "*2 k2 k3", false),
        ("MGET", "*2 k1 k2", "*2 k2 k1", false),
        ("OBJECT", "$3 raw", "$6 embstr", true),
        ("OBJECT", "$3 raw", "$-1", false),
        ("RANDOMKEY", "$2 k1", "$2 k2", true),
        ("RANDOMKEY", "$2 k1", "$-1", false),
    ] {
        let command = resp::command(&[command]);
        let is_same = Comparison::default().same(&command, &reply(one), &reply(other));
        assert_eq!(is_same, expected, "{} {one} {other}", resp::shown(&command));
    }
}

#[test]
fn the_rules_hold_for_queued_commands_too() {
    let reply = |head: &str, elements: Vec<Reply>| Reply { head: head.as_bytes().to_vec(), bulk: None, elements };
    let integer = |value: i64| reply(&format!(":{value}"), Vec::new());
    let mut comparison = Comparison::default();
    let mut same = |command: &str, one: &Reply, other: &Reply| {
        comparison.same(&resp::command(&[command, "k"][..if command == "TTL" { 2 } else { 1 }]), one, other)
    };
    for (of_one, of_other, expected) in [([5, 1], [6, 1], true), ([5, 1], [5, 2], false)] {
        assert!(same("MULTI", &reply("+OK", Vec::new()), &reply("+OK", Vec::new())));
        assert!(same("TTL", &reply("+QUEUED", Vec::new()), &reply("+QUEUED", Vec::new())));
        assert!(same("INCR", &reply("+QUEUED", Vec::new()), &reply("+QUEUED", Vec::new())));
        let [one, other] = [of_one, of_other].map(|values| reply("*2", values.map(integer).to_vec()));
        assert_eq!(same("EXEC", &one, &other), expected);
    }
}
