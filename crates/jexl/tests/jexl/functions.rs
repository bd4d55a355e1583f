//! All functions: what they return, and that they return null for what does not fit.

use serde_json::{Value, json};

use crate::{NOW_MS, check, value_of};

#[test]
fn functions_of_texts() {
    check(
        &json!({
            "s": "X1:X2", "u": "äöü", "l": ["Dolor", "    trimmed  "], "m": "aba1234aba782", "n": 5, "o": {"a": 1}
        }),
        &[
            ("'rice'|uppercase", json!("RICE")),
            ("u|uppercase", json!("ÄÖÜ")),
            ("'straße'|uppercase", json!("STRASSE")),
            ("n|uppercase", json!(null)),
            ("'RICE'|lowercase", json!("rice")),
            ("null|lowercase", json!(null)),
            ("l[1]|trim", json!("trimmed")),
            ("l|trim", json!(null)),
            ("s|len", json!(5)),
            ("u|len", json!(3)),
            ("''|len", json!(0)),
            ("l|len", json!(2)),
            ("o|len", json!(null)),
            ("n|len", json!(null)),
            ("'Lorem ipsum'|split(' ')", json!(["Lorem", "ipsum"])),
            ("',a,,b'|split(',')", json!(["", "a", "", "b"])),
            ("'abc'|split('x')", json!(["abc"])),
            ("u|split('')", json!(["ä", "ö", "ü"])),
            ("s|split", json!(null)),
            ("s|split(1)", json!(null)),
            ("n|split('5')", json!(null)),
            ("'Ipsum test'|indexOf('test')", json!(6)),
            ("'äb'|indexOf('b')", json!(1)),
            ("s|indexOf('')", json!(0)),
            ("s|indexOf('y')", json!(null)),
            ("l|indexOf('Dolor')", json!(null)),
            ("s|substring(0,2)", json!("X1")),
            ("s|substring(3,5)", json!("X2")),
            ("u|substring(1,3)", json!("öü")),
            ("s|substring(5,5)", json!("")),
            ("s|substring(3,50)", json!(null)),
            ("s|substring(3,6)", json!(null)),
            ("s|substring(5,3)", json!(null)),
            ("s|substring(0-1,3)", json!(null)),
            ("s|substring(0.5,3)", json!(null)),
            ("s|substring(2)", json!(null)),
            ("n|substring(0,1)", json!(null)),
            ("s|includes('1:')", json!(true)),
            ("s|includes('3')", json!(false)),
            ("s|includes", json!(null)),
            ("l|includes('Dolor')", json!(null)),
            ("'NANA'|replaceStr('A','B')", json!("NBNB")),
            ("'a.b'|replaceStr('.','')", json!("ab")),
            ("'ab'|replaceStr('','-')", json!("-a-b-")),
            ("s|replaceStr('X')", json!(null)),
            ("n|replaceStr('5','6')", json!(null)),
            ("m|replaceRegex('[0-9]+','x')", json!("abaxabax")),
            (r"m|replaceRegex('\d','')", json!("abaaba")),
            ("m|replaceRegex('([a-z])([a-z])','$2$1')", json!("baa1234baa782")),
            ("m|replaceRegex('b','[$0]')", json!("a[b]a1234a[b]a782")),
            ("m|replaceRegex('y','x')", json!("aba1234aba782")),
            ("m|replaceRegex('(','x')", json!(null)),
            ("m|replaceRegex('[0-9]+')", json!(null)),
            ("n|replaceRegex('5','x')", json!(null)),
            ("m|matchRegex('[0-9]+')", json!(["1234", "782"])),
            ("m|matchRegex('[xyz]')", json!([])),
            ("m|matchRegex('[')", json!(null)),
            ("m|matchRegex('a(?=b)')", json!(null)),
            ("m|matchRegex(1)", json!(null)),
            ("m|matchRegex", json!(null)),
            ("n|matchRegex('5')", json!(null)),
        ],
    );
}

#[test]
fn a_regular_expression_may_come_from_a_name() {
    check(
        &json!({"m": "a1b22", "p": "[0-9]+", "bad": "(", "long": "a".repeat(1_025)}),
        &[
            ("m|matchRegex(p)", json!(["1", "22"])),
            ("m|replaceRegex(p,'x')+(m|replaceRegex(p,'y'))", json!("axbxayby")),
            ("m|matchRegex(bad)", json!(null)),
            ("m|matchRegex(long)", json!(null)),
            ("[{k:'a'},{k:'1'}][.k|matchRegex(p)|len==1]", json!([{"k": "1"}])),
        ],
    );
    let many = (0..12).map(|i| format!("(m|matchRegex('{i}')|len)")).collect::<Vec<_>>().join("+");
    check(&json!({"m": "0123456789"}), &[(&many, json!(10))]);
}

#[test]
fn functions_of_kinds() {
    check(
        &json!({"n": 2.5, "s": "NA", "l": [1, {"a": 2.0}], "o": {"a": null}, "big": 12345678901234567_i64}),
        &[
            ("s|isNaN", json!(true)),
            ("n|isNaN", json!(false)),
            ("'12'|isNaN", json!(true)),
            ("null|isNaN", json!(true)),
            ("'-1'|parseInt", json!(-1)),
            ("'42'|parseInt", json!(42)),
            ("'10 m/s'|parseInt", json!(null)),
            ("'2.5'|parseInt", json!(null)),
            ("''|parseInt", json!(null)),
            ("n|parseInt", json!(2)),
            ("true|parseInt", json!(null)),
            ("'2.50'|parseFloat", json!(2.5)),
            ("'-3'|parseFloat", json!(-3)),
            ("'1e3'|parseFloat", json!(1000)),
            ("'inf'|parseFloat", json!(null)),
            ("'NaN'|parseFloat", json!(null)),
            ("'x'|parseFloat", json!(null)),
            ("n|parseFloat", json!(2.5)),
            ("l|parseFloat", json!(null)),
            ("s|typeOf", json!("String")),
            ("n|typeOf", json!("Number")),
            ("true|typeOf", json!("Boolean")),
            ("null|typeOf", json!("Null")),
            ("l|typeOf", json!("Array")),
            ("o|typeOf", json!("Object")),
            ("3|toString", json!("3")),
            ("n|toString", json!("2.5")),
            ("big|toString", json!("12345678901234567")),
            ("(1.5+1.5)|toString", json!("3")),
            ("true|toString", json!("true")),
            ("null|toString", json!("null")),
            ("s|toString", json!("NA")),
            ("o|toString", json!("{\"a\":null}")),
            ("'[1,2,3]'|toJson", json!([1, 2, 3])),
            ("'{\"a\":[null]}'|toJson", json!({"a": [null]})),
            ("'true'|toJson", json!(true)),
            ("'{a:1}'|toJson", json!(null)),
            ("''|toJson", json!(null)),
            ("n|toJson", json!(null)),
        ],
    );
}

#[test]
fn functions_of_numbers() {
    check(
        &json!({"s": "2.5"}),
        &[
            ("0.3|round", json!(0)),
            ("2.5|round", json!(3)),
            ("(0-2.5)|round", json!(-3)),
            ("2.4|floor", json!(2)),
            ("(0-2.4)|floor", json!(-3)),
            ("2.4|ceil", json!(3)),
            ("(0-0.5)|ceil", json!(0)),
            ("0.85|toFixed(1)", json!(0.8)),
            ("2.71428|toFixed(2)", json!(2.71)),
            ("3.999|toFixed(0)", json!(4)),
            ("3|toFixed(2)", json!(3)),
            ("3|toFixed(101)", json!(null)),
            ("3|toFixed(0-1)", json!(null)),
            ("3|toFixed('1')", json!(null)),
            ("3|toFixed", json!(null)),
            ("2.8|log", json!(1.029619417)),
            ("100|log10", json!(2)),
            ("32|log2", json!(5)),
            ("3|log2", json!(1.584962501)),
            ("25|sqrt", json!(5)),
            ("2|sqrt", json!(std::f64::consts::SQRT_2)),
            ("0|log", json!(null)),
            ("(0-1)|log10", json!(null)),
            ("(0-1)|sqrt", json!(null)),
        ],
    );
    for function in ["round", "floor", "ceil", "toFixed(1)", "log", "log10", "log2", "sqrt"] {
        check(&json!({"s": "2.5"}), &[(&format!("s|{function}"), json!(null))]);
    }
}

#[test]
fn functions_that_choose() {
    check(
        &json!({"es": "es", "n": 4}),
        &[
            ("'fr'|mapper(['es','fr'],['Spain','France'])", json!("France")),
            ("es|mapper(['es'],[{a:[1]}])", json!({"a": [1]})),
            ("'de'|mapper(['es','fr'],['Spain','France'])", json!(null)),
            ("es|mapper(['es','fr'],['Spain'])", json!(null)),
            ("es|mapper(['es',1],['Spain','One'])", json!(null)),
            ("n|mapper([3,4],['a','b'])", json!(null)),
            ("es|mapper('es',['Spain'])", json!(null)),
            ("es|mapper(['es'])", json!(null)),
            ("es|mapper", json!(null)),
            ("n|nMapper([0,1,2,3,4],['a','b','c','d','e'])", json!("e")),
            ("0|nMapper([0,1],['none','one'])", json!("none")),
            ("3.6|nMapper([3,4],['three','four'])", json!("four")),
            ("4|nMapper([3.1,3.9],['three','four'])", json!("four")),
            ("9|nMapper([3,4],['three','four'])", json!(null)),
            ("3|nMapper([3,4],['three'])", json!(null)),
            ("3|nMapper([3,'4'],['three','four'])", json!(null)),
            ("es|nMapper([3],['three'])", json!(null)),
            ("1.5|thMapper([1,2],['low','medium','high'])", json!("medium")),
            ("0|thMapper([1,2],['low','medium','high'])", json!("low")),
            ("1|thMapper([1,2],['low','medium','high'])", json!("medium")),
            ("2|thMapper([1,2],['low','medium','high'])", json!("high")),
            ("1|thMapper([],['any'])", json!("any")),
            ("1|thMapper([1,2],['low','medium'])", json!(null)),
            ("1|thMapper([1,'2'],['low','medium','high'])", json!(null)),
            ("es|thMapper([1],['low','high'])", json!(null)),
            ("1|thMapper(1,['low','high'])", json!(null)),
        ],
    );
}

#[test]
fn functions_of_arrays_and_objects() {
    check(
        &json!({
            "o": {"x": 1, "y": {"y1": 2, "y2": 3}}, "l": [3, 1, 2.5], "e": [], "m": [1, "2"],
            "slots": {"a": 0, "b": 1, "c": 1}
        }),
        &[
            ("o|values", json!([1, {"y1": 2, "y2": 3}])),
            ("o|keys", json!(["x", "y"])),
            ("{}|keys", json!([])),
            ("l|values", json!(null)),
            ("l|keys", json!(null)),
            ("l|arrSum", json!(6.5)),
            ("[1,2,3]|arrSum", json!(6)),
            ("[1,2,3]|arrAvg", json!(2)),
            ("l|arrMax", json!(3)),
            ("l|arrMin", json!(1)),
            ("l|arrMed", json!(2.5)),
            ("[4,1,3,2]|arrMed", json!(2.5)),
            ("[7]|arrMed", json!(7)),
            ("l|arrSort", json!([1, 2.5, 3])),
            ("m|arrSort", json!(null)),
            ("e|arrSort", json!([])),
            ("m|arrReverse", json!(["2", 1])),
            ("e|arrReverse", json!([])),
            ("o|arrReverse", json!(null)),
            ("o|arrSort", json!(null)),
            ("slots|values|arrSum", json!(2)),
            ("(slots|values|len)-(slots|values|arrSum)", json!(1)),
        ],
    );
    for function in ["arrSum", "arrAvg", "arrMax", "arrMin", "arrMed"] {
        for list in ["e", "m", "o", "1", "'1'", "null"] {
            check(&json!({"e": [], "m": [1, "2"], "o": {}}), &[(&format!("{list}|{function}"), json!(null))]);
        }
    }
}

#[test]
fn functions_of_time_count_seconds() {
    let seconds = NOW_MS / 1_000;
    check(
        &json!({"s": "x"}),
        &[
            ("0|now", json!(seconds)),
            ("3600|now", json!(seconds + 3_600)),
            ("(0-1)|now", json!(seconds - 1)),
            ("s|now", json!(null)),
            ("1722500129|toIsoString", json!("2024-08-01T08:15:29+00:00")),
            ("1722500129.9|toIsoString", json!("2024-08-01T08:15:29+00:00")),
            ("(0-1)|toIsoString", json!("1969-12-31T23:59:59+00:00")),
            ("253402207200|toIsoString", json!("9999-12-30T22:00:00+00:00")),
            ("(1000000*1000000)|toIsoString", json!(null)),
            ("(0-99999999999)|toIsoString", json!(null)),
            ("'0'|toIsoString", json!(null)),
            ("'1979-11-13T18:01:14+00:00'|getTime", json!(311364074)),
            ("'2024-08-01T08:15:29.750Z'|getTime", json!(1722500129)),
            ("'2024-08-01T10:15:29+02:00'|getTime", json!(1722500129)),
            ("'1969-12-31T23:59:59.5Z'|getTime", json!(-1)),
            ("'2060-02-04T23:28:10+00:00'|getTime|toIsoString", json!("2060-02-04T23:28:10+00:00")),
            ("122501038|toIsoString|getTime", json!(122501038)),
            ("'yesterday'|getTime", json!(null)),
            ("'2024-13-01T00:00:00Z'|getTime", json!(null)),
            ("0|getTime", json!(null)),
        ],
    );
}

#[test]
fn functions_do_not_change_what_they_read() {
    let names = json!({"l": [3, 1, 2]});
    assert_eq!(value_of("[l|arrSort, l|arrReverse, l]", &names), json!([[1, 2, 3], [2, 1, 3], [3, 1, 2]]));
    assert_eq!(value_of("l|arrSort", &names).as_array().map(Vec::len), Some(3));
    assert_eq!(names["l"], Value::from(vec![3, 1, 2]));
}
