//! Any bytes at all: up to the first zero byte an expression, behind it the JSON object with its names. What is an
//! expression has a value, the same each time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millstream_jexl::Expression;
use serde_json::{Map, Value, json};

const NOW_MS: i64 = 1_722_500_129_750;

fn usual_names() -> Map<String, Value> {
    let names = json!({
        "A": 3, "L": [{"b": 1}, {"b": "x"}, 2, [3]], "O": {"k": {"k": 2}}, "S": "a1b22 \u{e4}", "N": null
    });
    names.as_object().cloned().unwrap_or_default()
}

fuzz_target!(|data: &[u8]| {
    let Ok(data) = str::from_utf8(data) else { return };
    let (text, names) = data.split_once('\0').unwrap_or((data, ""));
    let Ok(expression) = Expression::parse(text) else { return };
    let names = serde_json::from_str(names).unwrap_or_else(|_| usual_names());
    let value = expression.evaluate(&names, NOW_MS);
    assert_eq!(expression.evaluate(&names, NOW_MS), value);
});
