//! The table of functions: its examples, the reference page and the completion of the console that come from it.
//! `UPDATE_DOCS=1 cargo test -p millstream-columns --test functions` writes both files anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::path::Path;

use millstream_columns::{
    AggregateShape, AggregateState, Columns, ColumnsScratch, EXAMPLE_RECORD, Expr, FigureOf, FunctionGroup,
    FunctionRow, HistoryState, InputRecord, Metadata, Parameters, ParserLimits, SketchSizes, functions, parser,
};

const HEAD: &str = "\
# Functions of queries and jobs

This page is made from the table in `crates/columns/src/function/table.rs`; a test runs its examples.

- A function of NULL or of a missing field is NULL, unless its row says otherwise; so is one of a value of another type. AND, OR
  and NOT know three values, as in SQL, and only TRUE passes a condition.
- An expression that fails for a record (a division by zero, a bad cast, a text that is no time) is NULL and counted in a query; in a
  job it is an error of that record.
- `a || b` is `CONCAT(a, b)`. `a LIKE 'x%_' ESCAPE '!'` matches the whole text: `%` is any text, `_` one character. `-- …` to the
  end of the line and `/* … */` are comments. `SPLIT(name, ' ')[0]` is the first part.
- A time is a number of milliseconds since 1970-01-01T00:00:00Z, as `NOW` and `$timestamp` are, or a text as in RFC 3339. All are in
  UTC. In a pattern letters stand for digits: `y` year, `M` month, `d` day, `H` hour, `m` minute, `s` second, `S` fraction
  of a second; letters in single quotes, which a text in a query doubles, and all other characters stand for themselves.

The examples are over the record `";

const TAIL: &str = "`, those of
aggregates over the three records `{\"n\":1,\"t\":\"a\"}`, `{\"n\":4,\"t\":\"b\"}` and `{\"n\":8,\"t\":\"b\"}`, those of history on
the last of these, which are one second apart, those of windows in `TUMBLING(5, TIME) ON n` over them.

The aggregates of jobs stand in the `aggregates` of an `aggregate` ([Windows](flow.md#windows)), and not in queries.
The functions of history look back at the earlier records of a key. They stand in the select list of a `map` with `key_by`
([Looking back](flow.md#looking-back)), and not in queries.
";

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn page() -> String {
    let mut page = format!("{HEAD}{EXAMPLE_RECORD}{TAIL}");
    for group in FunctionGroup::ALL {
        let _ = write!(page, "\n## {}\n\n| function | gives | example |\n| --- | --- | --- |\n", group.title());
        for FunctionRow { names, arguments, sentence, example, result, .. } in rows(group) {
            let name = names[0];
            let others = match &names[1..] {
                [] => String::new(),
                others => format!(" Also `{}`.", others.join("`, `")),
            };
            let (arguments, example, result) = (cell(arguments), cell(example), cell(result));
            let _ = writeln!(page, "| `{name}{arguments}` | {sentence}{others} | `{example}` is `{result}` |");
        }
    }
    page
}

fn rows(group: FunctionGroup) -> impl Iterator<Item = &'static FunctionRow> {
    functions().iter().filter(move |row| row.group == group)
}

/// A list of texts as prettier writes it at `indent`.
fn list(indent: &str, before: &str, texts: &[String], after: &str) -> String {
    let line = format!("{indent}{before}[{}]{after}\n", texts.join(", "));
    if line.trim_end().chars().count() <= 120 {
        return line;
    }
    let broken: String = texts.iter().map(|text| format!("{indent}  {text},\n")).collect();
    format!("{indent}{before}[\n{broken}{indent}]{after}\n")
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn completion() -> String {
    let mut out = "\
/** The functions of the query language, from the table of crates/columns: UPDATE_DOCS=1 cargo test -p millstream-columns. */

/** Name → what it takes and gives, as the completion shows it. */
export const FUNCTIONS: ReadonlyMap<string, string> = new Map([
"
    .to_owned();
    // CASE is a keyword, and queries do not look back.
    let is_of_jobs = |group| matches!(group, FunctionGroup::History | FunctionGroup::JobAggregates);
    let is_proposed = |row: &&FunctionRow| row.names[0] != "CASE" && !is_of_jobs(row.group);
    for FunctionRow { names, arguments, sentence, .. } in functions().iter().filter(is_proposed) {
        let detail = format!("{arguments}: {}", sentence.trim_end_matches('.'));
        out.push_str(&list("  ", "", &[quoted(names[0]), quoted(&detail)], ","));
    }
    out.push_str("]);\n\n/** Other names of functions: coloured, not proposed. */\n");
    let names = |names: Vec<&str>| names.into_iter().map(quoted).collect::<Vec<_>>();
    let aliases = functions().iter().flat_map(|row| &row.names[1..]).copied().collect();
    out.push_str(&list("", "export const ALIASES: readonly string[] = ", &names(aliases), ";"));
    out.push_str("\n/** Functions of many records. */\n");
    let aggregates = [FunctionGroup::Aggregates, FunctionGroup::Windows].into_iter().flat_map(rows);
    let aggregates = aggregates.map(|row| row.names[0]).collect();
    out.push_str(&list("", "export const AGGREGATES: readonly string[] = ", &names(aggregates), ";"));
    out
}

fn check(path: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let path = path.display();
    assert!(found == expected, "{path} is not as the table of functions says; UPDATE_DOCS=1 writes it anew");
}

#[test]
fn the_reference_page_is_as_the_table_says() {
    check("docs/functions.md", &page());
}

#[test]
fn the_completion_of_the_console_is_as_the_table_says() {
    check("console/src/query/functions.ts", &completion());
}

#[test]
fn each_example_gives_the_result_beside_it() {
    let is_of_one_record = |group: &FunctionGroup| {
        use FunctionGroup::{Aggregates, History, JobAggregates, Windows};
        !matches!(group, History | Aggregates | Windows | JobAggregates)
    };
    for group in FunctionGroup::ALL.into_iter().filter(is_of_one_record) {
        for FunctionRow { example, result, names, .. } in rows(group) {
            assert!(example.contains(names[0]), "{example}");
            let expr = parser::expression(example, &ParserLimits::default())
                .unwrap_or_else(|wrong| panic!("{example}: {}", wrong[0]));
            let again = parser::expression(&expr.to_string(), &ParserLimits::default());
            assert_eq!(again.as_ref(), Ok(&expr), "{example}: {expr}");
            let columns = Columns::new([&expr]);
            let record = InputRecord { payload: Some(EXAMPLE_RECORD.as_bytes()), metadata: Metadata::default() };
            let of = columns.of_input(record, 0, ColumnsScratch::default()).unwrap();
            let mut out = Vec::new();
            of.write_json(0, &mut out).unwrap_or_else(|error| panic!("{example}: {error}"));
            assert_eq!(String::from_utf8(out).unwrap(), *result, "{example}");
        }
    }
}

#[test]
fn each_example_of_history_gives_the_result_beside_it() {
    let records = [r#"{"n":1,"t":"a"}"#, r#"{"n":4,"t":"b"}"#, r#"{"n":8,"t":"b"}"#];
    for FunctionRow { example, result, names, .. } in rows(FunctionGroup::History) {
        assert!(example.starts_with(names[0]), "{example}");
        let list = parser::keyed_select_list(example, &Parameters::default(), &ParserLimits::default());
        let list = list.unwrap_or_else(|wrong| panic!("{example}: {}", wrong[0])).parsed;
        let [call] = list.history_calls()[..] else { panic!("{example} is one call") };
        let (columns, mut state, mut out) = (Columns::new([&call.value]), HistoryState::new(call), Vec::new());
        for (second, payload) in (0..).zip(records) {
            let record = InputRecord { payload: Some(payload.as_bytes()), metadata: Metadata::default() };
            let of = columns.of_input(record, 0, ColumnsScratch::default()).unwrap();
            out.clear();
            state.see(&of.value(0).unwrap(), second * 1_000, |given| given.write_json(&mut out));
        }
        assert_eq!(String::from_utf8(out).unwrap(), *result, "{example}");
    }
}

#[test]
fn each_example_of_an_aggregate_of_jobs_gives_the_result_beside_it() {
    let records = [r#"{"n":1,"t":"a"}"#, r#"{"n":4,"t":"b"}"#, r#"{"n":8,"t":"b"}"#];
    for FunctionRow { example, result, names, .. } in rows(FunctionGroup::JobAggregates) {
        assert!(example.starts_with(names[0]), "{example}");
        let list = |text: &str| parser::aggregate_list(text, &Parameters::default(), &ParserLimits::default());
        let items = list(example).unwrap_or_else(|wrong| panic!("{example}: {}", wrong[0])).parsed;
        assert_eq!(list(&items[0].to_string()).unwrap().parsed, items, "{example}");
        let Expr::Aggregate(aggregate) = &items[0].value else { panic!("{example} is an aggregate") };
        let columns = Columns::new(aggregate.arguments());
        let count = aggregate.arguments().len();
        let figures = [FigureOf { name: String::new(), kind: aggregate.figure().unwrap(), inputs: 0..count }];
        let shape = AggregateShape::Groups { keys: 0, figures: figures.into() };
        let mut state = AggregateState::new(&shape, SketchSizes::default());
        for payload in records {
            let record = InputRecord { payload: Some(payload.as_bytes()), metadata: Metadata::default() };
            let of = columns.of_input(record, 0, ColumnsScratch::default()).unwrap();
            let inputs: Vec<_> = (0..count).map(|number| of.value(number).unwrap()).collect();
            state.add(&inputs).unwrap();
        }
        let mut out = Vec::new();
        state.rows()[0][0].write_json(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), *result, "{example}");
        let refused = parser::expression(example, &ParserLimits::default());
        assert!(refused.is_err(), "{example} is not of one record");
    }
}
