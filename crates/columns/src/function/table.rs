//! The table of all functions and aggregates: names, arguments, a sentence and an example of each. `docs/functions.md` and
//! the completion of the console come from it, and a test runs the examples.

use super::{Function, Signature};
use crate::Type;

/// The kind of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionGroup {
    /// Values that depend on conditions.
    Conditions,
    /// Functions that compute with numbers.
    Numbers,
    /// Functions that take texts apart or make them.
    Texts,
    /// Functions that take times apart or make them.
    Times,
    /// Functions of lists and maps.
    Containers,
    /// Functions that take a value of any type.
    Types,
    /// Functions that look back at the earlier records of a key.
    History,
    /// Aggregates, which compute one value of many records.
    Aggregates,
    /// The window of a query's result.
    Windows,
    /// Aggregates of jobs, and not of queries.
    JobAggregates,
}

impl FunctionGroup {
    /// All groups, in the order of the table.
    pub const ALL: [Self; 10] = [
        Self::Conditions,
        Self::Numbers,
        Self::Texts,
        Self::Times,
        Self::Containers,
        Self::Types,
        Self::History,
        Self::Aggregates,
        Self::Windows,
        Self::JobAggregates,
    ];

    /// The heading of the group.
    pub fn title(self) -> &'static str {
        match self {
            Self::Conditions => "Conditions",
            Self::Numbers => "Numbers",
            Self::Texts => "Texts",
            Self::Times => "Times",
            Self::Containers => "Lists and maps",
            Self::Types => "Types",
            Self::History => "History",
            Self::Aggregates => "Aggregates",
            Self::Windows => "Windows of queries",
            Self::JobAggregates => "Aggregates of jobs",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct FunctionRow {
    /// The kind of the function.
    pub group: FunctionGroup,
    /// The name, and then its other names.
    pub names: &'static [&'static str],
    /// The text after the name: its arguments.
    pub arguments: &'static str,
    /// The result, in one sentence.
    pub sentence: &'static str,
    /// A call, over [`EXAMPLE_RECORD`]; of an aggregate over three records, of a function that looks back on the last of them.
    pub example: &'static str,
    /// The result of the call, as JSON; of a summary its rows.
    pub result: &'static str,
    /// Not for aggregates, functions that look back, and CAST.
    pub(crate) signature: Option<Signature>,
}

/// The payload of the record that the examples read.
pub const EXAMPLE_RECORD: &str =
    r#"{"n":7,"d":21.456,"name":"Ann Lee","tags":["x","y"],"size":{"mm":8},"t":1709202030500}"#;

/// All functions and aggregates, in the order of [`FunctionGroup::ALL`].
pub fn functions() -> &'static [FunctionRow] {
    &ROWS
}

const fn row(
    group: FunctionGroup,
    names: &'static [&'static str],
    arguments: &'static str,
    sentence: &'static str,
    example: &'static str,
    result: &'static str,
) -> FunctionRow {
    FunctionRow { group, names, arguments, sentence, example, result, signature: None }
}

impl FunctionRow {
    const fn of(mut self, function: Function, takes: &'static [Type], required: usize, gives: Type) -> Self {
        self.signature = Some(Signature { function, takes, required, repeats: false, gives });
        self
    }

    /// Has the last argument repeated.
    const fn repeats(mut self) -> Self {
        if let Some(signature) = &mut self.signature {
            signature.repeats = true;
        }
        self
    }
}

const ANY: Type = Type::Any;
const NUMBER: Type = Type::Number;
const TEXT: Type = Type::Text;

use FunctionGroup::{
    Aggregates, Conditions, Containers, History, JobAggregates, Numbers, Texts, Times, Types, Windows,
};

static ROWS: [FunctionRow; 51] = [
    row(
        Conditions,
        &["CASE"],
        " WHEN condition THEN a … [ELSE b] END, CASE value WHEN x THEN a … [ELSE b] END",
        "The value of the first condition that is TRUE, or of the first x that equals the value; else b or NULL.",
        "CASE WHEN n > 9 THEN 'many' WHEN n > 5 THEN 'some' ELSE 'few' END",
        "\"some\"",
    )
    .of(Function::Case, &[Type::Boolean, ANY, ANY], 3, ANY)
    .repeats(),
    row(
        Conditions,
        &["IF"],
        "(condition, a, b)",
        "a if the condition is TRUE, else b.",
        "IF(n > 5, 'many', 'few')",
        "\"many\"",
    )
    .of(Function::If, &[Type::Boolean, ANY, ANY], 3, ANY),
    row(
        Conditions,
        &["COALESCE"],
        "(a, b, …)",
        "The first value that is not NULL.",
        "COALESCE(nickname, name, '?')",
        "\"Ann Lee\"",
    )
    .of(Function::Coalesce, &[ANY], 1, ANY)
    .repeats(),
    row(Conditions, &["NULLIF"], "(a, b)", "NULL if a equals b, else a.", "NULLIF(n, 7)", "null").of(
        Function::NullIf,
        &[ANY, ANY],
        2,
        ANY,
    ),
    row(Numbers, &["ABS"], "(number)", "The number without its sign.", "ABS(0 - n)", "7").of(
        Function::Abs,
        &[NUMBER],
        1,
        NUMBER,
    ),
    row(
        Numbers,
        &["ROUND"],
        "(number[, digits])",
        "The nearest number with that many digits after the point (default none; -2 rounds to hundreds); a half rounds away \
         from zero.",
        "ROUND(d, 1)",
        "21.5",
    )
    .of(Function::Round, &[NUMBER, NUMBER], 1, NUMBER),
    row(Numbers, &["FLOOR"], "(number)", "The greatest whole number that is not above it.", "FLOOR(d)", "21.0").of(
        Function::Floor,
        &[NUMBER],
        1,
        NUMBER,
    ),
    row(Numbers, &["CEIL", "CEILING"], "(number)", "The least whole number that is not below it.", "CEIL(d)", "22.0")
        .of(Function::Ceil, &[NUMBER], 1, NUMBER),
    row(
        Texts,
        &["CONCAT"],
        "(a, b, …), a || b || …",
        "The values as one text; numbers and booleans are written as CAST writes them, and NULL gives NULL.",
        "CONCAT(name, ': ', n)",
        "\"Ann Lee: 7\"",
    )
    .of(Function::Concat, &[ANY], 1, TEXT)
    .repeats(),
    row(
        Texts,
        &["SUBSTRING", "SUBSTR"],
        "(text, from[, length])",
        "The characters from a place on, which counts from 1, or from the end if negative.",
        "SUBSTRING(name, 5, 2)",
        "\"Le\"",
    )
    .of(Function::Substring, &[TEXT, NUMBER, NUMBER], 2, TEXT),
    row(
        Texts,
        &["SPLIT"],
        "(text, separator)",
        "The list of the parts between the separators; with an empty separator the whole text is the only part.",
        "SPLIT(name, ' ')[1]",
        "\"Lee\"",
    )
    .of(Function::Split, &[TEXT, TEXT], 2, Type::List),
    row(
        Texts,
        &["REPLACE"],
        "(text, from, to)",
        "The text with each occurrence of one text replaced by another.",
        "REPLACE(name, ' ', '_')",
        "\"Ann_Lee\"",
    )
    .of(Function::Replace, &[TEXT, TEXT, TEXT], 3, TEXT),
    row(Texts, &["TRIM"], "(text)", "The text without white space at both ends.", "TRIM('  a b ')", "\"a b\"").of(
        Function::Trim,
        &[TEXT],
        1,
        TEXT,
    ),
    row(Texts, &["LOWER"], "(text)", "The text in lower case.", "LOWER(name)", "\"ann lee\"").of(
        Function::Lower,
        &[TEXT],
        1,
        TEXT,
    ),
    row(Texts, &["UPPER"], "(text)", "The text in upper case.", "UPPER(name)", "\"ANN LEE\"").of(
        Function::Upper,
        &[TEXT],
        1,
        TEXT,
    ),
    row(
        Times,
        &["EXTRACT"],
        "(part FROM time)",
        "One part of a time, an integer: YEAR, QUARTER, MONTH, WEEK (of ISO 8601), DAY, DAY_OF_WEEK (1 is Monday), \
         DAY_OF_YEAR, HOUR, MINUTE, SECOND, MILLISECOND, EPOCH (seconds since 1970).",
        "EXTRACT(HOUR FROM t)",
        "10",
    )
    .of(Function::Extract, &[TEXT, ANY], 2, Type::Integer),
    row(
        Times,
        &["DATE_TRUNC"],
        "('part', time)",
        "The start of the year, quarter, month, week (Monday), day, hour, minute, second or millisecond, in milliseconds.",
        "DATE_TRUNC('hour', t)",
        "1709200800000",
    )
    .of(Function::DateTrunc, &[TEXT, ANY], 2, Type::Integer),
    row(
        Times,
        &["FORMAT_TIME"],
        "(time[, pattern])",
        "The time as a text; without a pattern as in RFC 3339.",
        "FORMAT_TIME(t, 'dd.MM.yyyy HH:mm')",
        "\"29.02.2024 10:20\"",
    )
    .of(Function::FormatTime, &[ANY, TEXT], 1, TEXT),
    row(
        Times,
        &["PARSE_TIME"],
        "(text[, pattern])",
        "The time in milliseconds since 1970-01-01T00:00:00Z; without a pattern the text is as in RFC 3339.",
        "PARSE_TIME('2024-02-29T11:20:30.5+01:00')",
        "1709202030500",
    )
    .of(Function::ParseTime, &[TEXT, TEXT], 1, Type::Integer),
    row(
        Times,
        &["UNIXTIMESTAMP"],
        "([text[, pattern]])",
        "Seconds since 1970-01-01T00:00:00Z; the default pattern is yyyy-MM-dd HH:mm:ss; without arguments it is now.",
        "UNIXTIMESTAMP('2013-01-01 00:00:01')",
        "1356998401",
    )
    .of(Function::UnixTimestamp, &[ANY, TEXT], 0, Type::Integer),
    row(
        Containers,
        &["SIZEOF"],
        "(value)",
        "The number of elements of a list, members of a map or characters of a text.",
        "SIZEOF(tags)",
        "2",
    )
    .of(Function::SizeOf, &[ANY], 1, Type::Integer),
    row(Containers, &["SIZEIS"], "(value, n)", "TRUE if SIZEOF is n.", "SIZEIS(name, 7)", "true").of(
        Function::SizeIs,
        &[ANY, NUMBER],
        2,
        Type::Boolean,
    ),
    row(
        Containers,
        &["CONTAINSKEY"],
        "(map, 'key')",
        "TRUE if a map, or a map in a list, has the member.",
        "CONTAINSKEY(size, 'mm')",
        "true",
    )
    .of(Function::ContainsKey, &[ANY, TEXT], 2, Type::Boolean),
    row(
        Containers,
        &["CONTAINSVALUE"],
        "(list, value)",
        "TRUE if an element of a list, a member of a map, or a member of a map in a list equals the value.",
        "CONTAINSVALUE(tags, 'y')",
        "true",
    )
    .of(Function::ContainsValue, &[ANY, ANY], 2, Type::Boolean),
    row(
        Containers,
        &["FILTER"],
        "(list, booleans)",
        "The elements whose boolean at the same place is TRUE.",
        "FILTER(tags, [FALSE, n > 5])",
        "[\"y\"]",
    )
    .of(Function::Filter, &[Type::List, Type::List], 2, Type::List),
    row(
        Types,
        &["CAST"],
        "(value AS type)",
        "The value as BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE or STRING; it fails if it cannot be converted.",
        "CAST('8.5' AS LONG)",
        "8",
    ),
    row(Types, &["TYPEOF"], "(value)", "LONG, DOUBLE, STRING, BOOLEAN, LIST or MAP.", "TYPEOF(tags)", "\"LIST\"").of(
        Function::TypeOf,
        &[ANY],
        1,
        TEXT,
    ),
    row(Types, &["HASH"], "(value)", "A hash of 32 bits of the value, as in Java.", "HASH('abc')", "96354").of(
        Function::Hash,
        &[ANY],
        1,
        Type::Integer,
    ),
    row(
        History,
        &["LAG"],
        "(value[, n])",
        "The value of the record that is n records before this one (1 to 100, default 1); NULL if there is none.",
        "LAG(n)",
        "4",
    ),
    row(
        History,
        &["CHANGED"],
        "(value)",
        "TRUE if the value differs from that of the record before, and on the first record; NULL differs from all but NULL.",
        "CHANGED(t)",
        "false",
    ),
    row(
        History,
        &["SINCE_CHANGE"],
        "(value)",
        "The milliseconds of event time since the value has been what it is; 0 on the record that changes it.",
        "SINCE_CHANGE(t)",
        "1000",
    ),
    row(
        History,
        &["RUNNING_COUNT"],
        "(value)",
        "The number of values so far that are not NULL.",
        "RUNNING_COUNT(n)",
        "3",
    ),
    row(
        History,
        &["RUNNING_SUM"],
        "(number)",
        "The sum of the numbers so far; NULL without numbers.",
        "RUNNING_SUM(n)",
        "13",
    ),
    row(
        History,
        &["RUNNING_AVG"],
        "(number)",
        "The mean of the numbers so far, a double; NULL without numbers.",
        "RUNNING_AVG(n)",
        "4.333333333333333",
    ),
    row(
        History,
        &["RUNNING_MIN"],
        "(value)",
        "The least number so far, or without numbers the least text.",
        "RUNNING_MIN(n)",
        "1",
    ),
    row(
        History,
        &["RUNNING_MAX"],
        "(value)",
        "The greatest number so far, or without numbers the greatest text.",
        "RUNNING_MAX(t)",
        "\"b\"",
    ),
    row(
        Aggregates,
        &["COUNT"],
        "(*), (value), (DISTINCT a, …)",
        "The number of records, of values that are not NULL, or of different values.",
        "COUNT(DISTINCT t)",
        "2",
    ),
    row(Aggregates, &["SUM"], "(number)", "The sum of the numbers; NULL without numbers.", "SUM(n)", "13"),
    row(
        Aggregates,
        &["AVG"],
        "(number)",
        "The mean of the numbers, a double; NULL without numbers.",
        "AVG(n)",
        "4.333333333333333",
    ),
    row(
        Aggregates,
        &["MIN"],
        "(value)",
        "The least number, or without numbers the least text.",
        "MIN(t)",
        "\"a\"",
    ),
    row(
        Aggregates,
        &["MAX"],
        "(value)",
        "The greatest number, or without numbers the greatest text.",
        "MAX(n)",
        "8",
    ),
    row(
        Aggregates,
        &["STDDEV"],
        "(number)",
        "The standard deviation of the numbers as a sample, a double; NULL of fewer than two.",
        "STDDEV(n)",
        "3.5118845842842465",
    ),
    row(
        Aggregates,
        &["FIRST"],
        "(value)",
        "The first value by event time that is a number, text or boolean; of equal times by partition and offset.",
        "FIRST(t)",
        "\"a\"",
    ),
    row(
        Aggregates,
        &["LAST"],
        "(value)",
        "The last value by event time that is a number, text or boolean; of equal times by partition and offset.",
        "LAST(n)",
        "8",
    ),
    row(
        Aggregates,
        &["QUANTILE"],
        "(number, 0.95), (number, LINEAR, n), (number, REGION, start, end, step), (number, MANUAL, p, …)",
        "The least number that the share of all numbers does not exceed; with points a row for each.",
        "QUANTILE(n, 0.5)",
        "4.0",
    ),
    row(
        Aggregates,
        &["FREQ"],
        "(number, LINEAR, n), (number, REGION, start, end, step), (number, MANUAL, p, …)",
        "A row for each range between the points: how many numbers are in it.",
        "FREQ(n, MANUAL, 4)",
        r#"[{"Range":"(-∞ to 4.0)","Count":1,"Probability":0.3333333333333333},{"Range":"[4.0 to +∞)","Count":2,"Probability":0.6666666666666666}]"#,
    ),
    row(
        Aggregates,
        &["CUMFREQ"],
        "(number, LINEAR, n), (number, REGION, start, end, step), (number, MANUAL, p, …)",
        "A row for each point: how many numbers are below it.",
        "CUMFREQ(n, MANUAL, 4)",
        r#"[{"Range":"(-∞ to 4.0)","Count":1,"Probability":0.3333333333333333},{"Range":"(-∞ to +∞)","Count":3,"Probability":1.0}]"#,
    ),
    row(
        Aggregates,
        &["TOP"],
        "(k[, least count], value, …)",
        "A row for each of the k most frequent values, and its count.",
        "TOP(1, t)",
        r#"[{"t":"b","Count":2}]"#,
    ),
    row(
        Windows,
        &["WINDOW_START"],
        "()",
        "The beginning of the window, in milliseconds; of a session the time of its first record. NULL in windows by RECORD.",
        "WINDOW_START()",
        "0",
    ),
    row(
        Windows,
        &["WINDOW_END"],
        "()",
        "The end of the window, which is no part of it; of a session the time of its last record, which is.",
        "WINDOW_END()",
        "5",
    ),
    row(
        JobAggregates,
        &["ARRAY_AGG"],
        "([DISTINCT] value [ORDER BY key [DESC], …] [LIMIT n]), (* …)",
        "A list of the values, or of the whole records: as they come or by keys, all or the first n.",
        "ARRAY_AGG(t ORDER BY n DESC LIMIT 2)",
        r#"["b","b"]"#,
    ),
];
