//! A condition has the same truth for a record whether it is evaluated alone or in columns with others, errors and NULLs
//! included.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millstream_columns::{
    Chunk, Columns, ColumnsScratch, Compiler, ConditionResults, Expr, FieldTable, InputRecord, ParserLimits, Selection,
    Truth, parser,
};
use millstream_types::{BatchBuilder, Compression, Epoch, Offset, PartitionId, Record, RecordView};
use proptest::prelude::*;
use proptest::sample::select;

const NOW_MS: i64 = 1_700_000_000_500;
const PARTITION: PartitionId = PartitionId(3);

const OPERANDS: [&str; 24] = [
    "a",
    "a",
    "b",
    "b",
    "c",
    "c",
    "d.x",
    "d.l[0]",
    "$key",
    "$offset",
    "NOW",
    "0",
    "1",
    "-1",
    "2.5",
    "1e308",
    "9223372036854775807",
    "9007199254740993",
    "'x'",
    "''",
    "'1'",
    "'2024-02-29T10:20:30Z'",
    "TRUE",
    "NULL",
];

const VALUES: [&str; 20] = [
    "null",
    "0",
    "1",
    "-1",
    "2.5",
    "2.0",
    "1e308",
    "1e999",
    "9223372036854775807",
    "9007199254740993",
    "true",
    "false",
    "\"x\"",
    "\"\"",
    "\"1\"",
    "\"\\ud800\"",
    "\"2024-02-29T10:20:30Z\"",
    "{}",
    "[1,\"x\"]",
    "{\"x\":1}",
];

/// A text that may be an expression of any type.
fn expression() -> impl Strategy<Value = String> {
    select(&OPERANDS[..]).prop_map(str::to_owned).prop_recursive(4, 24, 3, |part| {
        let two = (part.clone(), part.clone());
        let three = (part.clone(), part.clone(), part.clone());
        prop_oneof![
            4 => (two.clone(), select(&["+", "-", "*", "/", "%", "||"][..])).prop_map(|((a, b), o)| format!("({a} {o} {b})")),
            6 => (two.clone(), select(&["=", "!=", "<", "<=", ">", ">="][..])).prop_map(|((a, b), o)| format!("({a} {o} {b})")),
            3 => (two.clone(), select(&["AND", "OR", "XOR"][..])).prop_map(|((a, b), o)| format!("({a} {o} {b})")),
            1 => part.clone().prop_map(|a| format!("(NOT {a})")),
            1 => part.clone().prop_map(|a| format!("({a} IS NULL)")),
            1 => three.clone().prop_map(|(a, b, c)| format!("({a} IN ({b}, {c}))")),
            1 => three.clone().prop_map(|(a, b, c)| format!("({a} BETWEEN {b} AND {c})")),
            1 => three.clone().prop_map(|(a, b, c)| format!("CASE WHEN {a} THEN {b} ELSE {c} END")),
            1 => three.prop_map(|(a, b, c)| format!("({a} > ALL [{b}, {c}])")),
            1 => (part.clone(), select(&["LIKE '%1%'", "LIKE '_'", "RLIKE '[0-9x]'"][..])).prop_map(|(a, p)| format!("({a} {p})")),
            1 => (part.clone(), select(&["LONG", "DOUBLE", "STRING", "BOOLEAN"][..])).prop_map(|(a, t)| format!("CAST({a} AS {t})")),
            1 => (part.clone(), select(&["ABS", "FLOOR", "CEIL", "LOWER", "SIZEOF", "PARSE_TIME", "FORMAT_TIME"][..]))
                .prop_map(|(a, f)| format!("{f}({a})")),
            1 => (two, select(&["COALESCE", "NULLIF", "CONCAT", "SPLIT"][..])).prop_map(|((a, b), f)| format!("{f}({a}, {b})")),
            1 => part.prop_map(|a| format!("EXTRACT(HOUR FROM {a})")),
        ]
    })
}

/// A condition, as far as the types of its parts allow it.
fn condition() -> impl Strategy<Value = Expr> {
    expression().prop_filter_map("is refused", |text| {
        let expr = parser::expression(&text, &ParserLimits::default()).ok()?;
        expr.kind().may_be(millstream_columns::Type::Boolean).then_some(expr)
    })
}

fn payload() -> impl Strategy<Value = Option<String>> {
    let member = || prop_oneof![1 => Just(None), 5 => select(&VALUES[..]).prop_map(Some)];
    let members = [("a", member()), ("b", member()), ("c", member()), ("x", member()), ("l", member())];
    let [a, b, c, x, l] = members.map(|(name, value)| value.prop_map(move |v| v.map(|v| format!("\"{name}\":{v}"))));
    let object = (a, b, c, x, l).prop_map(|(a, b, c, x, l)| {
        let l = l.map(|l| l.replacen(':', ":[", 1) + "]");
        let nested: Vec<String> = [x, l].into_iter().flatten().collect();
        let nested = format!("\"d\":{{{}}}", nested.join(","));
        let members: Vec<String> = [a, b, c, Some(nested)].into_iter().flatten().collect();
        format!("{{{}}}", members.join(","))
    });
    prop_oneof![1 => Just(None), 20 => object.prop_map(Some)]
}

/// The truth for a record, evaluated alone.
fn of_row(columns: &Columns, record: &RecordView<'_>) -> Truth {
    let record = InputRecord::stored(record, None, Some(PARTITION));
    let of = columns.of_input(record, NOW_MS, ColumnsScratch::default()).unwrap();
    let (mut truth, one) = (Truth::default(), Selection::one(0));
    match of.truth(0) {
        Ok(Some(true)) => truth.yes = one,
        Ok(Some(false)) => truth.no = one,
        Ok(None) => {}
        Err(_) => truth.failed = one,
    }
    truth
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_global_rejects: 1 << 20, ..ProptestConfig::default() })]

    #[test]
    fn rows_and_columns_agree(
        condition in condition(),
        payloads in prop::collection::vec(payload(), 1..100),
        every in 1_usize..4,
    ) {
        let mut batch = BatchBuilder::default();
        for payload in &payloads {
            let value = payload.as_deref().map(str::as_bytes);
            batch.push(&Record { timestamp_ms: 5, key: Some(b"x"), value, headers: &[] });
        }
        let batch = batch.seal(Offset(0), Epoch(0), Compression::None);
        let views: Vec<RecordView<'_>> = batch.records().map(Result::unwrap).collect();

        let mut compiler = Compiler::default();
        let test = compiler.test(&condition);
        let mut table = FieldTable::default();
        let list = table.acquire_all(&compiler.into_fields());
        table.refresh();
        let mut known = ConditionResults::default();
        let mut chunk = Chunk::new(&views, PARTITION, NOW_MS, &table, &mut known);
        let some = chunk.all().filter(|record| record % every == 0);
        let found = chunk.truth(&test, table.list(list), some);

        let columns = Columns::new([&condition]);
        for record in some.records() {
            let alone = of_row(&columns, &views[record]);
            let together = Truth {
                yes: if found.yes.contains(record) { Selection::one(0) } else { Selection::NONE },
                no: if found.no.contains(record) { Selection::one(0) } else { Selection::NONE },
                failed: if found.failed.contains(record) { Selection::one(0) } else { Selection::NONE },
            };
            prop_assert_eq!(alone, together, "{} for {:?}", condition, payloads[record]);
        }
        prop_assert!(((found.yes | found.no | found.failed) - some).is_empty());
    }
}
