//! Random queries and records from a printed seed.

pub(crate) mod fixture;
pub(crate) mod oracle;

/// A source of choices; its seed is printed, and taken from `MILLSTREAM_TEST_SEED` to repeat a run.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn from_seed() -> Self {
        let seed = std::env::var("MILLSTREAM_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        println!("MILLSTREAM_TEST_SEED={seed}");
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

/// Payload fields as queries write them, and as the pointers of serde_json.
pub(crate) const FIELDS: [(&str, &str); 9] = [
    ("a", "/a"),
    ("b", "/b"),
    ("c", "/c"),
    ("n.x", "/n/x"),
    ("n['y z']", "/n/y z"),
    ("n.l[1]", "/n/l/1"),
    ("l[0].x", "/l/0/x"),
    ("\"odd \"\"é\"", "/odd \"é"),
    ("\"$key\"", "/$key"),
];

/// Literals that meet the values of [`record`] often.
const LITERALS: [&str; 22] = [
    "1",
    "2",
    "0",
    "-1",
    "1.0",
    "1.5",
    "9007199254740993",
    "9007199254740992",
    "9007199254740992.0",
    "1e2",
    "9223372036854775807",
    "9223372036854775808",
    "'x'",
    "'y'",
    "'it''s'",
    "''",
    "'é😀'",
    "'1'",
    "TRUE",
    "FALSE",
    "NULL",
    "100L",
];

fn field(random: &mut Random) -> String {
    match random.below(14) {
        0 => "$key".to_owned(),
        1 => "$header['h']".to_owned(),
        _ => FIELDS[random.below(FIELDS.len())].0.to_owned(),
    }
}

fn payload_field(random: &mut Random) -> &'static str {
    FIELDS[random.below(FIELDS.len())].0
}

/// A condition of at most `depth` levels.
pub(crate) fn condition(random: &mut Random, depth: usize) -> String {
    if depth > 0 && random.below(3) > 0 {
        let left = condition(random, depth - 1);
        return match random.below(5) {
            0 => format!("NOT ({left})"),
            1 => format!("({left}) OR ({})", condition(random, depth - 1)),
            2 => format!("{left} OR {}", condition(random, depth - 1)),
            3 => format!("({left}) = {}", random.of(&["TRUE", "FALSE", "flag", "NULL"])),
            _ => format!("({left}) AND ({})", condition(random, depth - 1)),
        };
    }
    let comparison = random.of(&["=", "=", "=", "!=", "<", "<=", ">", ">=", "<>", "=="]);
    let (left, right) = (payload_field(random), random.of(&LITERALS));
    match random.below(14) {
        0 => format!("{left} {comparison} {}", field(random)),
        1 => format!("{} {comparison} '{}'", random.of(&["$key", "$header['h']"]), random.of(&["x", "y"])),
        2 => format!("{right} {comparison} {left}"),
        3 => format!("{left} IN ({right}, {}, {})", random.of(&LITERALS), random.of(&LITERALS)),
        4 => format!("{left} NOT IN ({right}, {})", random.of(&LITERALS)),
        5 => format!("{left} BETWEEN {} AND {}", random.of(&LITERALS), random.of(&LITERALS)),
        6 => format!("{left} NOT BETWEEN ({}, {})", random.of(&["0", "'a'"]), random.of(&["1.5", "'x'"])),
        7 => format!("{} IS NULL", field(random)),
        8 => format!("{} IS NOT NULL", field(random)),
        9 => format!(
            "{left} RLIKE '{}'",
            random.of(&["x|y", ".*", "[0-9]+", "é.", "it.*", ".*it''s.*", ".*(need|long).*", "(?i)X"])
        ),
        10 => left.to_owned(),
        _ => format!("{left} {comparison} {right}"),
    }
}

/// A value of at most `depth` levels; of its types nothing is known, so that it may be refused.
pub(crate) fn expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return match random.below(3) {
            0 => field(random),
            1 => random.of(&LITERALS).to_owned(),
            _ => format!("{}:{}", payload_field(random), random.of(&["LONG", "DOUBLE", "STRING", "MAP[STRING]"])),
        };
    }
    let mut part = || expression(random, depth - 1);
    let (a, b, c) = (part(), part(), part());
    match random.below(20) {
        16 => format!("CASE WHEN {a} THEN {b} ELSE {c} END"),
        17 => format!("{}({a}, {b})", random.of(&["COALESCE", "NULLIF", "CONCAT", "SPLIT"])),
        18 => format!("{}({a})", random.of(&["FLOOR", "CEIL"])),
        19 => format!("REPLACE({a}, {b}, {c}) LIKE '{}'", random.of(&["%x%", "_", "1%"])),
        0..4 => format!("{a} {} {b} {} {c}", random.of(&["+", "-", "*", "/", "%"]), random.of(&["+", "-", "*"])),
        4 => format!("({a}) {} {b}", random.of(&["*", "/", "-", "%", "="])),
        5 => format!("{a} - ({b})"),
        6 => format!("IF({a}, {b}, {c})"),
        7 => format!("CAST({a} AS {})", random.of(&["LONG", "DOUBLE", "STRING", "BOOLEAN"])),
        8 => format!("{}({a}, {b})", random.of(&["SIZEIS", "CONTAINSKEY", "CONTAINSVALUE", "FILTER", "SUBSTR"])),
        9 => format!("{}({a})", random.of(&["SIZEOF", "ABS", "TRIM", "LOWER", "UPPER", "HASH", "UNIXTIMESTAMP"])),
        10 => format!("[{a}, {b}]"),
        11 => format!("{}[{a}]", payload_field(random)),
        12 => format!("{}[{a}].x:LONG", payload_field(random)),
        13 => format!("({a}) {} {} {b}", random.of(&["=", "<", "!="]), random.of(&["ANY", "ALL", ""])),
        14 => format!("({a}) {} ({b}) {} ({c})", random.of(&["XOR", "AND", "OR"]), random.of(&["XOR", "AND", "OR"])),
        _ => format!("({a}) {} ({b}, {c})", random.of(&["IN", "NOT IN", "BETWEEN"])),
    }
}

/// A whole statement, which may be refused.
pub(crate) fn statement(random: &mut Random) -> String {
    let aggregate = match random.below(4) {
        0 => "COUNT(*)".to_owned(),
        1 => format!("COUNT(DISTINCT {})", expression(random, 1)),
        2 => format!("COUNT({})", expression(random, 1)),
        _ => format!("{}({})", random.of(&["SUM", "AVG", "MIN", "MAX"]), expression(random, 1)),
    };
    let (a, b) = (expression(random, 2), expression(random, 1));
    let window = random.of(&[
        "",
        " WINDOWING TUMBLING(5, TIME)",
        " WINDOWING EVERY(3, RECORD, ALL)",
        " WINDOWING EVERY(2, TIME, LAST, 6, TIME) ON a DELAY 3",
        " WINDOWING SESSION(9, TIME) ON n.x",
        " WINDOWING TUMBLING(1, DAY, 'Europe/Berlin')",
    ]);
    let end = random.of(&["", " LIMIT 7"]);
    match random.below(5) {
        0 => {
            format!("SELECT {a} AS a, {b} AS b FROM STREAM() WHERE {} ORDER BY a, {b} DESC{end}", condition(random, 2))
        }
        1 => format!("SELECT DISTINCT {a} AS b, {b} AS a FROM STREAM() ORDER BY b{window}{end}"),
        2 => format!("SELECT {a} AS a, {aggregate} AS c FROM STREAM() GROUP BY a HAVING c > 1 ORDER BY c{window}{end}"),
        3 => format!("SELECT {b}, {aggregate} FROM STREAM() GROUP BY {a}, {b} HAVING {aggregate} = {b}{window}"),
        _ => format!("SELECT {}({b}, LINEAR, 3) FROM STREAM(){window}", random.of(&["QUANTILE", "FREQ", "CUMFREQ"])),
    }
}

/// A whole query.
pub(crate) fn query(random: &mut Random) -> String {
    let select = random.of(&["*", "a", "a, n.x AS \"select\"", "$key AS k, c", "l[0].x, n"]);
    let source = random.of(&["STREAM()", "STREAM(1000, TIME)", "STREAM(MAX, TIME)", "\"telemetry.acme\""]);
    let filter = if random.one_in(5) { String::new() } else { format!(" WHERE {}", condition(random, 3)) };
    let limit = if random.one_in(2) { String::new() } else { format!(" LIMIT {}", 1 + random.below(100)) };
    format!("SELECT {select} FROM {source}{filter}{limit}")
}

fn value(random: &mut Random) -> &'static str {
    random.of(&[
        "1",
        "2",
        "0",
        "-0",
        "-1",
        "1.0",
        "1.5",
        "15e-1",
        "9007199254740993",
        "9007199254740992",
        "9007199254740992.0",
        "100",
        "1E+2",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "\"x\"",
        "\"\\u0078\"",
        "\"y\"",
        "\"it's\"",
        "\"a long needle\"",
        "\"\"",
        "\"é😀\"",
        "\"\\u00e9\\ud83d\\uDE00\"",
        "\"1\"",
        "true",
        "false",
        "null",
        "{}",
        "[]",
        "[1,\"x\"]",
        "{\"x\":1}",
    ])
}

fn member(random: &mut Random, name: &str, value: &str) -> Option<String> {
    let space = random.of(&["", "", " ", "\n\t"]);
    if random.one_in(4) { None } else { Some(format!("{space}{name}{space}:{space}{value}")) }
}

/// A payload: a JSON object without repeated names, with some of [`FIELDS`] in any order and form.
pub(crate) fn record(random: &mut Random) -> String {
    let array = format!("[{},{},[1,{{\"x\":2}}]]", value(random), value(random));
    let nested = {
        let mut members: Vec<String> = Vec::new();
        for name in ["\"x\"", "\"y z\"", "\"junk\""] {
            let value = value(random);
            members.extend(member(random, name, value));
        }
        members.extend(member(random, "\"l\"", &array));
        shuffled(random, members)
    };
    let list = format!("[{{\"x\":{}}},{}]", value(random), value(random));
    let mut members = Vec::new();
    let name_of_a = random.of(&["\"a\"", "\"\\u0061\""]);
    for name in [name_of_a, "\"b\"", "\"c\"", "\"odd \\\"é\"", "\"$key\"", "\"flag\"", "\"other\""] {
        let value = value(random);
        members.extend(member(random, name, value));
    }
    let n = if random.one_in(6) { value(random).to_owned() } else { nested };
    members.extend(member(random, "\"n\"", &n));
    let l = if random.one_in(6) { value(random).to_owned() } else { list };
    members.extend(member(random, "\"l\"", &l));
    shuffled(random, members)
}

/// As [`record`], but names may be repeated, at other places too, and it may be broken.
pub(crate) fn wild_record(random: &mut Random) -> String {
    let (first, second) = (record(random), record(random));
    let name = random.of(&["a", "x", "n", "l", "\\u0061", "odd"]);
    match random.below(6) {
        0 => format!("{},{}", &first[..first.len() - 1], &second[1..]),
        1 => format!("{{\"{name}\":{second},\"a\":{}}}", value(random)),
        2 => format!("{{\"{name}\":[{first}],{}", &second[1..]),
        3 => format!("{{\"{name}\" \n: \"a\",\"other\":\"\\\"a\\\":1\",{}", &second[1..]),
        4 => {
            let cut = random.below(first.len());
            first.chars().take(cut).collect()
        }
        _ => second,
    }
}

fn shuffled(random: &mut Random, mut members: Vec<String>) -> String {
    random.0.shuffle(&mut members);
    format!("{{{}}}", members.join(","))
}
