//! Random commands over a few keys, the same for the same seed. Times to live differ by so much that servers which
//! execute a command some seconds apart still agree which of two keys expires first.

use fastrand::Rng;
use millstream_testkit::resp::{Command, command};

/// One step of the sequence that both servers execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A command on the connection that the replies are compared of.
    Send(Command),
    /// A command on another connection, once all replies before it are there.
    Elsewhere(Command),
    /// Commands that have a key expire at once, each with its reply; then waits until it is gone.
    Expire { commands: Vec<Command>, key: Vec<u8> },
    /// Asks for all keys with SCAN and these options.
    Scan(Vec<Vec<u8>>),
}

/// Keys are few, so that commands meet values of others.
const KEYS: usize = 24;
/// Nothing expires within a run but what is told to expire at once.
const TTL_UNIT_S: u64 = 1000;
const TTL_UNITS: u64 = 1_000_000;
/// A time of expiry far ahead, in seconds.
const FAR_S: u64 = 33_177_117_420;

/// The commands of a seed.
pub(crate) struct Generator {
    random: Rng,
    /// A time in seconds, from which absolute times of expiry are counted.
    now_s: u64,
    /// Commands left of an open MULTI.
    queueing: Option<usize>,
}

impl Generator {
    pub(crate) fn new(seed: u64, now_s: u64) -> Self {
        Self { random: Rng::with_seed(seed), now_s, queueing: None }
    }

    /// A number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.random.usize(..count)
    }

    /// The next steps: mostly one, more where they belong together.
    pub(crate) fn next(&mut self) -> Vec<Step> {
        if let Some(left) = self.queueing {
            self.queueing = left.checked_sub(1);
            if left == 0 {
                return vec![Step::Send(command(&[if self.below(8) == 0 { "DISCARD" } else { "EXEC" }]))];
            }
            // An error among queued commands has the transaction refused; few of them, so that most take effect.
            return vec![Step::Send(if self.below(100) == 0 { self.refused() } else { self.plain() })];
        }
        match self.below(200) {
            0..=3 => self.transaction(),
            4 => self.expiring_at_once(),
            5 => vec![Step::Scan(self.scan_options())],
            6 => vec![Step::Send(self.whole_database())],
            7..=10 => vec![Step::Send(self.refused())],
            11 => self.longest_common_subsequence(),
            _ => vec![Step::Send(self.plain())],
        }
    }

    /// MULTI, maybe after a WATCH whose keys another connection changes; the commands follow.
    fn transaction(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.below(2) == 0 {
            let watched = self.key();
            steps.push(Step::Send(words("WATCH", [watched.clone(), self.key()])));
            if self.below(2) == 0 {
                let key = if self.below(2) == 0 { watched } else { self.key() };
                steps.push(Step::Elsewhere(words("SET", [key, self.value()])));
            }
            if self.below(8) == 0 {
                steps.push(Step::Send(command(&["UNWATCH"])));
            }
        }
        steps.push(Step::Send(command(&["MULTI"])));
        self.queueing = Some(self.below(8));
        steps
    }

    fn expiring_at_once(&mut self) -> Vec<Step> {
        let (key, value, ms) = (self.key(), self.value(), (1 + self.below(20)).to_string());
        let commands = match self.below(5) {
            0 => vec![words("PSETEX", [key.clone(), bytes(&ms), value])],
            1 => vec![words("SET", [key.clone(), value, bytes("PX"), bytes(&ms)])],
            2 => vec![words("SET", [key.clone(), value, bytes("EXAT"), bytes("1")])],
            3 => vec![words("SET", [key.clone(), value]), words("GETEX", [key.clone(), bytes("PX"), bytes(&ms)])],
            _ => vec![words("SET", [key.clone(), value]), words("PEXPIRE", [key.clone(), bytes(&ms)])],
        };
        vec![Step::Expire { commands, key }]
    }

    fn scan_options(&mut self) -> Vec<Vec<u8>> {
        let options =
            ["", "MATCH k*", "MATCH k?", "COUNT 1", "COUNT 1000", "MATCH *1* COUNT 3", "TYPE string", "TYPE list"];
        self.pick(&options).split_whitespace().map(bytes).collect()
    }

    fn whole_database(&mut self) -> Command {
        let commands = ["FLUSHDB", "FLUSHALL", "SELECT 1", "SELECT 0", "SELECT 0", "RANDOMKEY", "KEYS *", "DBSIZE"];
        split(self.pick(&commands))
    }

    /// Its time grows with the product of both lengths, so the values are short and set just before.
    fn longest_common_subsequence(&mut self) -> Vec<Step> {
        let letters = |random: &mut Rng| (0..random.usize(..60)).map(|_| b"abcd"[random.usize(..4)]).collect();
        let (one, other): (Vec<u8>, Vec<u8>) = (letters(&mut self.random), letters(&mut self.random));
        let options =
            ["", "LEN", "IDX", "IDX WITHMATCHLEN", "IDX MINMATCHLEN 3 WITHMATCHLEN", "LEN IDX", "MINMATCHLEN"];
        let mut lcs = words("LCS", [bytes("k1"), bytes("k2")]);
        lcs.extend(self.pick(&options).split_whitespace().map(bytes));
        let set = words("MSET", [bytes("k1"), one, bytes("k2"), other]);
        vec![Step::Send(set), Step::Send(lcs)]
    }

    /// A command that takes effect or fails for the value that it meets.
    fn plain(&mut self) -> Command {
        match self.below(10) {
            0..=3 => self.of_strings(),
            4 => self.of_numbers(),
            5..=6 => self.of_keys(),
            7..=8 => self.of_expiry(),
            _ => self.of_bits(),
        }
    }

    fn of_strings(&mut self) -> Command {
        let (key, other, value) = (self.key(), self.key(), self.value());
        match self.below(24) {
            0..=3 => words("GET", [key]),
            4..=6 => words("SET", [key, value]),
            7..=9 => self.set_with_options(),
            10 => words("SETNX", [key, value]),
            11 => words("SETEX", [key, self.ttl_s(), value]),
            12 => words("PSETEX", [key, self.ttl_ms(), value]),
            13 => words("GETSET", [key, value]),
            14 => words("GETDEL", [key]),
            15 => words("APPEND", [key, value]),
            16 => words("STRLEN", [key]),
            17 => words("GETRANGE", [key, self.place(), self.place()]),
            18 => words("SUBSTR", [key, self.place(), self.place()]),
            19 => words("SETRANGE", [key, bytes(self.below(300)), value]),
            20 => words("MGET", [key, other, bytes("never")]),
            21 => words("MSET", [key, value, other, self.value()]),
            22 => words("MSETNX", [key, value, other, self.value()]),
            _ => self.getex(),
        }
    }

    fn set_with_options(&mut self) -> Command {
        let mut set = words("SET", [self.key(), self.value()]);
        for _ in 0..1 + self.below(3) {
            match self.below(10) {
                0..=1 => set.push(bytes("NX")),
                2..=3 => set.push(bytes("xx")),
                4..=5 => set.push(bytes("GET")),
                6 => set.push(bytes("KEEPTTL")),
                _ => set.extend(self.expiry_option()),
            }
        }
        set
    }

    fn getex(&mut self) -> Command {
        let mut getex = words("GETEX", [self.key()]);
        match self.below(5) {
            0 => {}
            1 => getex.push(bytes("PERSIST")),
            2 => getex.extend([bytes("PXAT"), self.over()]),
            _ => getex.extend(self.expiry_option()),
        }
        getex
    }

    /// An option of SET or GETEX that sets a time to live, or none. The time is never over: Redis counts such a key until it
    /// is met.
    fn expiry_option(&mut self) -> [Vec<u8>; 2] {
        let (name, time) = match self.below(5) {
            0 => ("EX", self.ttl_s()),
            1 => ("PX", self.ttl_ms()),
            2 => ("EXAT", self.at_s()),
            3 => ("PXAT", self.at_ms()),
            _ => ("EX", bytes(self.pick(&["0", "-1", "x", "9223372036854775807"]))),
        };
        [bytes(name), time]
    }

    fn of_numbers(&mut self) -> Command {
        let key = self.key();
        match self.below(6) {
            0 => words("INCR", [key]),
            1 => words("DECR", [key]),
            2 => words("INCRBY", [key, self.integer()]),
            3 => words("DECRBY", [key, self.integer()]),
            _ => {
                let by = [
                    "1",
                    "0.1",
                    "-2.5",
                    "1e3",
                    "3.0e-2",
                    "1.7976931348623157e308",
                    "nan",
                    "inf",
                    " 1",
                    "x",
                    "100000000000000000",
                ];
                words("INCRBYFLOAT", [key, bytes(self.pick(&by))])
            }
        }
    }

    fn of_keys(&mut self) -> Command {
        let (key, other) = (self.key(), self.key());
        match self.below(16) {
            0 => words("DEL", [key]),
            1 => words("UNLINK", [key, other, self.key()]),
            2 => words("EXISTS", [key, other, self.key()]),
            3 => words("TYPE", [key]),
            4 => words("TOUCH", [key, other]),
            5 => words("RENAME", [key, other]),
            6 => words("RENAMENX", [key, other]),
            7 => words("COPY", [key, other]),
            8 => words("COPY", [key, other, bytes("REPLACE")]),
            9 => words("KEYS", [bytes(self.pick(&["*", "k1?", "k[0-3]", "k[^1]*", "\\k1", "none", "k?"]))]),
            10 => command(&["DBSIZE"]),
            11 => words("OBJECT", [bytes("ENCODING"), key]),
            12 => words("ECHO", [self.value()]),
            13 => words("COPY", [key, other, bytes("DB"), bytes(self.below(2))]),
            14 => words("COPY", [key, other, bytes("REPLACE"), bytes("DB"), bytes(self.below(2))]),
            _ => command(&["PING"]),
        }
    }

    fn of_expiry(&mut self) -> Command {
        let key = self.key();
        match self.below(12) {
            0 => words("TTL", [key]),
            1 => words("PTTL", [key]),
            2 => words("EXPIRETIME", [key]),
            3 => words("PEXPIRETIME", [key]),
            4 => words("PERSIST", [key]),
            kind => {
                let (name, time) = match kind {
                    5..=6 => ("EXPIRE", self.ttl_s()),
                    7..=8 => ("PEXPIRE", self.ttl_ms()),
                    9 => ("EXPIREAT", if self.below(6) == 0 { self.over() } else { self.at_s() }),
                    10 => ("PEXPIREAT", if self.below(6) == 0 { self.over() } else { self.at_ms() }),
                    _ => ("EXPIRE", bytes(self.pick(&["0", "-1", "-9223372036854775808", "9223372036854775807", "x"]))),
                };
                let mut expire = words(name, [key, time]);
                match self.below(8) {
                    0 => expire.push(bytes("NX")),
                    1 => expire.push(bytes("XX")),
                    2 => expire.push(bytes("GT")),
                    3 => expire.push(bytes("lt")),
                    4 => expire.extend([bytes("XX"), bytes(self.pick(&["GT", "LT", "NX"]))]),
                    _ => {}
                }
                expire
            }
        }
    }

    fn of_bits(&mut self) -> Command {
        let (key, other) = (self.key(), self.key());
        match self.below(10) {
            0 => words("SETBIT", [key, bytes(self.below(3000)), bytes(self.below(2))]),
            1 => words("GETBIT", [key, bytes(self.below(3000))]),
            2 => words("BITCOUNT", [key]),
            3 => words("BITCOUNT", [key, self.place(), self.place(), bytes(self.pick(&["BYTE", "BIT"]))]),
            4 => words("BITPOS", [key, bytes(self.below(2))]),
            5 => words("BITPOS", [key, bytes(self.below(2)), self.place(), self.place()]),
            6 => words("BITPOS", [key, bytes(self.below(2)), self.place(), self.place(), bytes("BIT")]),
            7 => {
                let operation = bytes(self.pick(&["AND", "OR", "XOR"]));
                words("BITOP", [operation, key, other, self.key()])
            }
            8 => words("BITOP", [bytes("NOT"), key, other]),
            _ => self.bitfield(),
        }
    }

    fn bitfield(&mut self) -> Command {
        let is_read_only = self.below(4) == 0;
        let mut bitfield = words(if is_read_only { "BITFIELD_RO" } else { "BITFIELD" }, [self.key()]);
        for _ in 0..self.below(4) {
            if self.below(3) == 0 {
                bitfield.extend([bytes("OVERFLOW"), bytes(self.pick(&["WRAP", "SAT", "FAIL"]))]);
            }
            let kind = self.pick(&["u1", "u8", "i8", "u16", "i32", "u63", "i64", "i5"]);
            let place = if self.below(2) == 0 { self.below(500).to_string() } else { format!("#{}", self.below(20)) };
            let field = [bytes(kind), bytes(&place)];
            match if is_read_only { 0 } else { self.below(3) } {
                0 => bitfield.extend([&[bytes("GET")], &field[..]].concat()),
                1 => bitfield.extend([&[bytes("SET")], &field[..], &[self.integer_to_set()]].concat()),
                _ => bitfield.extend([&[bytes("INCRBY")], &field[..], &[self.integer()]].concat()),
            }
        }
        bitfield
    }

    /// A command that is refused whatever the keys hold.
    fn refused(&mut self) -> Command {
        let commands = [
            "GET",
            "SET k1",
            "SET k1 v EX",
            "SET k1 v NX XX",
            "SET k1 v EX 1000 PX 1000",
            "SET k1 v KEEPTTL EX 1000",
            "SET k1 v EX 1000 WRONG",
            "SETEX k1 0 v",
            "SETEX k1 x v",
            "PSETEX k1 -1 v",
            "MSET k1 v k2",
            "MSET",
            "MGET",
            "GETRANGE k1 a b",
            "SETRANGE k1 -1 v",
            "SETRANGE k1 536870912 v",
            "INCRBY k1 x",
            "DECRBY k1 -9223372036854775808",
            "INCRBYFLOAT k1 x",
            "EXPIRE k1 100000 GT LT",
            "EXPIRE k1 100000 NX GT",
            "EXPIRE k1 100000 WRONG",
            "EXPIRE k1",
            "GETEX k1 WRONG",
            "GETEX k1 EX 1000 PERSIST",
            "COPY k1 k1",
            "COPY k1 k2 WRONG",
            "COPY k1 k2 DB",
            "COPY k1 k2 DB 99",
            "COPY k1 k2 DB x",
            "RENAME never k1",
            "SCAN x",
            "SCAN 0 COUNT 0",
            "SCAN 0 WRONG",
            "SETBIT k1 4294967296 1",
            "SETBIT k1 -1 1",
            "SETBIT k1 1 2",
            "GETBIT k1 x",
            "BITCOUNT k1 0",
            "BITCOUNT k1 0 1 WRONG",
            "BITPOS k1 2",
            "BITPOS k1 x",
            "BITOP WRONG k1 k2",
            "BITOP NOT k1 k2 k3",
            "BITFIELD k1 GET u64 0",
            "BITFIELD k1 SET u8",
            "BITFIELD k1 OVERFLOW WRONG",
            "BITFIELD_RO k1 SET u8 0 1",
            "BITFIELD k1 GET u8 -1",
            "OBJECT WRONG k1",
            "OBJECT ENCODING",
            "SELECT 99",
            "SELECT x",
            "NOSUCH",
            "NOSUCH a b c",
            "PING a b",
            "ECHO",
            "LCS k1",
            "EXEC now",
            "DISCARD now",
            "MULTI now",
            "WATCH",
            "TTL",
            "DBSIZE now",
            "FLUSHDB NOW",
        ];
        split(self.pick(&commands))
    }

    fn key(&mut self) -> Vec<u8> {
        // Some keys are met more often than others.
        let few = if self.below(2) == 0 { 6 } else { KEYS };
        format!("k{}", self.below(few)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => Vec::new(),
            1..=6 => self.integer(),
            7..=8 => {
                bytes(self.pick(&["0.1", "3.0e3", "-0", "1.", "+1", " 1", "0x10", "007", "3.14159265358979", "inf"]))
            }
            9..=14 => (0..self.below(40)).map(|_| self.random.u8(b'a'..=b'z')).collect(),
            15..=18 => (0..self.below(120)).map(|_| self.random.u8(..)).collect(),
            _ => vec![self.random.u8(..); self.below(4000)],
        }
    }

    fn integer(&mut self) -> Vec<u8> {
        let edges =
            ["0", "-1", "9223372036854775807", "-9223372036854775808", "9223372036854775806", "255", "4294967296"];
        if self.below(4) == 0 { bytes(self.pick(&edges)) } else { bytes(self.random.i32(-1000..1000)) }
    }

    /// An integer for SET of BITFIELD. Redis 7.0 takes the least of all for larger than a narrow field holds, and saturates
    /// it to the largest that it does hold; here it becomes the least.
    fn integer_to_set(&mut self) -> Vec<u8> {
        match self.integer() {
            least if least == i64::MIN.to_string().as_bytes() => bytes(i64::MIN / 2),
            integer => integer,
        }
    }

    /// The index of a byte or bit, from the start or from the end.
    fn place(&mut self) -> Vec<u8> {
        let edges = ["0", "-1", "1000000", "-1000000", "9223372036854775807"];
        if self.below(3) == 0 { bytes(self.pick(&edges)) } else { bytes(self.random.i32(-150..150)) }
    }

    fn ttl_units(&mut self) -> u64 {
        TTL_UNIT_S * self.random.u64(1..TTL_UNITS)
    }

    fn ttl_s(&mut self) -> Vec<u8> {
        bytes(self.ttl_units())
    }

    fn ttl_ms(&mut self) -> Vec<u8> {
        bytes(self.ttl_units() * 1000)
    }

    fn at_s(&mut self) -> Vec<u8> {
        bytes(self.at())
    }

    fn at_ms(&mut self) -> Vec<u8> {
        bytes(self.at() * 1000)
    }

    /// A time to come in seconds, one in ten of them in the year 3021.
    fn at(&mut self) -> u64 {
        if self.below(10) == 0 { FAR_S } else { self.now_s + self.ttl_units() }
    }

    /// A time that is over, in any unit.
    fn over(&mut self) -> Vec<u8> {
        bytes(1 + self.below(1000))
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }
}

fn bytes(text: impl ToString) -> Vec<u8> {
    text.to_string().into_bytes()
}

fn split(text: &str) -> Command {
    text.split(' ').map(bytes).collect()
}

fn words<const COUNT: usize>(name: &str, arguments: [Vec<u8>; COUNT]) -> Command {
    [bytes(name)].into_iter().chain(arguments).collect()
}
