//! A batch whose members are columns and a batch of the same records as bytes are the same to expressions and to sinks.

use proptest::prelude::*;

use super::{Condition, EvalFailure, FieldScope, Params, RecordProjection, RowFrame};
use crate::batch::{Batch, SourceBatch};

const CONDITIONS: [&str; 8] = [
    "a > 3",
    "b IS NULL",
    "a = b OR c.d = 'x'",
    "NOT (c.e[1] >= 0)",
    "$offset % 3 <> 0",
    "a / b > 0.5",
    "c IN ('x', 'y\"z')",
    "d",
];
const SELECTS: [&str; 12] = [
    "*",
    "*, a * 2 AS b, b + 1 AS d",
    "* EXCEPT (a, c)",
    "* EXCEPT (b), a AS a",
    "a, c.d AS d, c",
    "c AS b, a > b AS d",
    "*, CONCAT('<', c, '>') AS c",
    "*, [a, b] AS c, c AS a",
    "*, c.e[0] AS a, NULL AS b",
    "*, CAST(a AS STRING) AS \"q\"\"r\"",
    "a / b AS a, b / a AS b",
    "*, CASE WHEN a > 2 THEN a ELSE c END AS a",
];

fn frame(batch: &Batch) -> RowFrame<'_> {
    RowFrame { batch, input: None, errors: None, now_ms: 7 }
}

/// The payloads without white space, which passes or not with the members around it. There is none in texts.
fn payloads(batch: &Batch) -> Vec<Option<String>> {
    let text = |row| batch.payload(row).map(|payload| String::from_utf8_lossy(payload).replace(' ', ""));
    (0..batch.len()).map(text).collect()
}

/// The same records as bytes.
fn as_bytes(batch: &Batch) -> Batch {
    let mut writer = batch.rewrite();
    for row in 0..batch.len() {
        let payload = batch.payload(row).expect("every record has a payload");
        let Ok(()) = writer.push(row, |out| {
            out.extend_from_slice(payload);
            Ok::<(), std::convert::Infallible>(())
        });
    }
    writer.finish()
}

type Step = (Batch, Vec<(usize, EvalFailure)>);

fn filtered(condition: &str, batch: &Batch) -> Step {
    let condition = Condition::parse(condition, FieldScope::Record, &Params::new()).expect(condition);
    let (mut kept, mut failed) = (Vec::new(), Vec::new());
    condition.each(frame(batch), |row, truth| match truth {
        Ok(true) => kept.push(row as u32),
        Ok(false) => {}
        Err(failure) => failed.push((row, failure)),
    });
    (batch.select(kept), failed)
}

fn projected(select: &str, batch: &Batch) -> Step {
    let projection = RecordProjection::parse(select, FieldScope::Record, &Params::new()).expect(select);
    let mut failed = Vec::new();
    let made = projection.apply(frame(batch), |_| {}, |row, failure| failed.push((row, failure)));
    (made, failed)
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (-3_i64..9).prop_map(|number| number.to_string()),
        1 => Just("9223372036854775807".to_owned()),
        1 => (-20_i32..20).prop_map(|number| format!("{:?}", f64::from(number) / 8.0)),
        1 => prop_oneof!["null", "true", "false", "1e40", r"-0\.0", "1E2"],
        2 => prop_oneof![r#""x""#, r#""y\\"z""#, r#""\\u00e9""#, r#""""#],
        1 => prop_oneof![r#"\{"d":"x","e":\[1, -2\]\}"#, r#"\{ "e" : \[\] \}"#, r#"\[1,"a"\]"#],
    ]
}

fn object() -> impl Strategy<Value = String> {
    let name = prop_oneof!["a", "b", "c", "d", r"\\u0061", r#"q\\"r"#];
    let space = prop_oneof![3 => Just(""), 1 => Just(" ")];
    prop::collection::vec((name, space, value()), 0..6).prop_map(|members| {
        let members = members.iter().map(|(name, space, value)| format!("\"{name}\"{space}:{space}{value}{space}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn steps_over_columns_do_what_they_do_over_bytes(
        objects in prop::collection::vec(object(), 0..9),
        steps in prop::collection::vec((any::<bool>(), 0..CONDITIONS.len(), 0..SELECTS.len()), 1..6),
        are_checked in any::<bool>(),
    ) {
        let mut source = SourceBatch::default();
        for (number, object) in objects.iter().enumerate() {
            source.push(number as u64, None, 0, |out| out.extend_from_slice(object.as_bytes()));
        }
        let mut columns = if are_checked { source.finish() } else { source.finish_unchecked() };
        let mut bytes = as_bytes(&columns);
        for (is_filter, condition, select) in steps {
            let run = |batch: &Batch| match is_filter {
                true => filtered(CONDITIONS[condition], batch),
                false => projected(SELECTS[select], batch),
            };
            let ((of_columns, failed), (of_bytes, expected)) = (run(&columns), run(&bytes));
            prop_assert_eq!(failed, expected);
            (columns, bytes) = (of_columns, if is_filter { of_bytes } else { as_bytes(&of_bytes) });
            let offsets = |batch: &Batch| (0..batch.len()).map(|row| batch.offset(row)).collect::<Vec<_>>();
            prop_assert_eq!(offsets(&columns), offsets(&bytes));
        }
        prop_assert_eq!(payloads(&columns), payloads(&bytes));
    }
}
