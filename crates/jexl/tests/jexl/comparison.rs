//! Random expressions of a grammar that both libraries read, here and in the JEXL of JavaScript. `compare.mjs` has all
//! rules in which Orion differs from it. What JavaScript's grammar refuses is not made:
//! - Only names, members and calls are followed by `[…]`; keys of objects are names.
//! - A condition that ends with a call is in brackets.
//! - Fractions have a digit before the point; `toString`, which is a member of every object there, is called `toText`.
//! - `toFixed` gets so many places that no number lies in the middle of two: JavaScript rounds that up, ours to the even
//!   one.
//! - Members are asked of objects only, as JavaScript's library looks into the first item of an array, and items of
//!   arrays that are there, as it throws for null.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use fastrand::Rng;
use serde_json::{Value, json};

use crate::value_of;

const EXPRESSIONS: usize = 1_000;
const SEED: u64 = 20_240_801;
/// Says the seed in place of [`SEED`].
const SEED_VARIABLE: &str = "MILLSTREAM_JEXL_SEED";
/// Powers may differ in the last digits, so they are whole and small here.
const RELATIVE_DIFFERENCE_MAX: f64 = 1e-12;

fn names() -> Value {
    json!({
        "a": 7, "b": 2.5, "z": 0, "s": "a given text", "t": "X1:X2", "e": "", "d": "-12.5", "f": false, "y": true,
        "n": null,
        "l": [3, 1, 2], "m": [1, "x", null], "o": {"k": 1, "p": {"q": "x"}, "list": [1, 2]},
        "r": [{"k": 1}, {"k": 5, "m": "x"}, {"m": "y"}, {"k": "text"}]
    })
}

/// How tightly a piece of an expression binds, from 0 for a conditional to this for a value.
const VALUE_LEVEL: usize = 6;

struct Piece {
    text: String,
    level: usize,
    ends_with_call: bool,
}

fn value(text: impl Into<String>) -> Piece {
    Piece { text: text.into(), level: VALUE_LEVEL, ends_with_call: false }
}

impl Piece {
    /// The piece, in brackets unless it binds at least so tightly.
    fn at(self, least: usize) -> Piece {
        if self.level < least { value(format!("({})", self.text)) } else { self }
    }

    fn call(self, call: &str) -> Piece {
        Piece { text: format!("{}|{call}", self.at(VALUE_LEVEL).text), level: VALUE_LEVEL, ends_with_call: true }
    }
}

/// Makes pieces that mostly have a value of the kind that is asked for.
struct Generator {
    rng: Rng,
}

impl Generator {
    fn one_of(&mut self, texts: &[&str]) -> String {
        texts[self.rng.usize(..texts.len())].to_owned()
    }

    fn binary(&mut self, operators: &[&str], level: usize, left: Piece, right: Piece) -> Piece {
        let operator = self.one_of(operators);
        let (left, right) = (left.at(level), right.at(level + 1));
        Piece { text: format!("{} {operator} {}", left.text, right.text), level, ends_with_call: right.ends_with_call }
    }

    fn conditional(&mut self, depth: usize, kind: fn(&mut Self, usize) -> Piece) -> Piece {
        let condition = self.truth(depth);
        let condition = if condition.ends_with_call { condition.at(VALUE_LEVEL + 1) } else { condition.at(1) };
        let (yes, no) = (kind(self, depth), kind(self, depth));
        Piece { text: format!("{} ? {} : {}", condition.text, yes.text, no.text), level: 0, ends_with_call: true }
    }

    fn logic(&mut self, depth: usize, kind: fn(&mut Self, usize) -> Piece) -> Piece {
        let (left, right) = (kind(self, depth), kind(self, depth));
        self.binary(&["&&", "||", "||"], 1, left, right)
    }

    fn any(&mut self, depth: usize) -> Piece {
        match self.rng.u8(..12) {
            0..4 => self.number(depth),
            4..7 => self.text(depth),
            7..9 => self.truth(depth),
            9 => self.list(depth),
            10 if depth > 0 => {
                let (first, second) = (self.any(depth - 1), self.any(depth - 1));
                value(format!("{{k: {}, j: {}}}", first.text, second.text))
            }
            _ => value(self.one_of(&["none", "null", "n", "o", "r", "o.p", "o.none"])),
        }
    }

    /// Sometimes a value of whatever kind.
    fn strays(&mut self) -> bool {
        self.rng.u8(..25) == 0
    }

    fn number(&mut self, depth: usize) -> Piece {
        if depth == 0 {
            return value(self.one_of(&[
                "a",
                "b",
                "z",
                "0",
                "1",
                "2",
                "3.25",
                "0.5",
                "10",
                "o.k",
                "l[1]",
                "o.list[0]",
            ]));
        }
        let depth = depth - 1;
        match self.rng.u8(..16) {
            _ if self.strays() => self.any(depth),
            0..3 => {
                let (left, right) = (self.number(depth), self.number(depth));
                self.binary(&["+", "-"], 3, left, right)
            }
            3..5 => {
                let (left, right) = (self.number(depth), self.number(depth));
                self.binary(&["*", "/", "//"], 4, left, right)
            }
            5..7 => {
                let (left, right) = (self.number(depth), self.number(depth));
                let left = self.binary(&["%"], 5, left, right);
                let power = value(self.one_of(&["0", "1", "2", "3"]));
                if self.rng.bool() { self.binary(&["^"], 5, left, power) } else { left }
            }
            7 => self.conditional(depth, Self::number),
            8 => self.logic(depth, Self::number),
            9..11 => {
                let call = self.one_of(&["round", "floor", "ceil", "toFixed(7)", "log", "log10", "log2", "sqrt"]);
                self.number(depth).call(&call)
            }
            11 => {
                let call = self.one_of(&["len", "indexOf('e')", "indexOf(t)", "parseFloat", "getTime"]);
                self.text(depth).call(&call)
            }
            12..14 => {
                let call = self.one_of(&["len", "arrSum", "arrAvg", "arrMax", "arrMin"]);
                self.list(depth).call(&call)
            }
            _ => self.number(0),
        }
    }

    fn text(&mut self, depth: usize) -> Piece {
        if depth == 0 {
            let texts = [
                "s",
                "t",
                "e",
                "d",
                "'x'",
                "\"it's\"",
                "'  b '",
                "'12'",
                "o.p.q",
                "m[1]",
                "r[1].m",
                "'2024-08-01T08:15:29Z'",
            ];
            return value(self.one_of(&texts));
        }
        let depth = depth - 1;
        match self.rng.u8(..13) {
            _ if self.strays() => self.any(depth),
            0..3 => {
                let (left, right) = (self.text(depth), self.text(depth));
                self.binary(&["+"], 3, left, right)
            }
            3 => self.conditional(depth, Self::text),
            4 => self.logic(depth, Self::text),
            5..9 => {
                let call = self.one_of(&[
                    "uppercase",
                    "lowercase",
                    "trim",
                    "substring(0, 2)",
                    "substring(1, 9)",
                    "replaceStr('e', 'EE')",
                    "replaceStr(t, s)",
                    "replaceRegex('[a-e]+', '-')",
                    "toString",
                ]);
                self.text(depth).call(&call)
            }
            9 => self.any(depth).call("toString"),
            10 => self.number(depth).call("toIsoString"),
            11 => value(self.one_of(&["s", "t", "d", "' a b'"])).call("split(' ')[0]"),
            _ => self.text(0),
        }
    }

    fn truth(&mut self, depth: usize) -> Piece {
        if depth == 0 {
            return value(self.one_of(&["true", "false", "f", "y", "none", "null"]));
        }
        let depth = depth - 1;
        match self.rng.u8(..10) {
            _ if self.strays() => self.any(depth),
            0..3 => {
                let (left, right) = (self.number(depth), self.number(depth));
                self.binary(&["<", "<=", ">", ">=", "==", "!="], 2, left, right)
            }
            3..5 => {
                let (left, right) = (self.text(depth), self.text(depth));
                self.binary(&["<", "<=", ">", ">=", "==", "!=", "in"], 2, left, right)
            }
            5 => {
                let (left, right) = (self.any(depth), self.any(depth));
                self.binary(&["==", "!=", "in"], 2, left, right)
            }
            6 => self.logic(depth, Self::truth),
            7 => {
                let call = self.one_of(&["includes('e')", "includes(t)", "isNaN"]);
                self.text(depth).call(&call)
            }
            8 => self.any(depth).call("isNaN"),
            _ => self.truth(0),
        }
    }

    fn list(&mut self, depth: usize) -> Piece {
        if depth == 0 {
            return value(self.one_of(&[
                "l",
                "m",
                "[]",
                "[4, 2]",
                "r[.k < 5]",
                "r[.m == 'x']",
                "r[.k == null]",
                "o.list",
            ]));
        }
        let depth = depth - 1;
        match self.rng.u8(..8) {
            0..2 => {
                let items: Vec<String> = (0..self.rng.usize(1..4)).map(|_| self.number(depth).text).collect();
                value(format!("[{}]", items.join(", ")))
            }
            2 => value(format!("[{}, {}]", self.any(depth).text, self.any(depth).text)),
            3 => {
                let call = self.one_of(&["split(' ')", "split('1')", "matchRegex('[a-e]')"]);
                self.text(depth).call(&call)
            }
            4..6 => {
                let call = self.one_of(&["arrSort", "arrReverse"]);
                self.list(depth).call(&call)
            }
            6 => {
                let call = self.one_of(&["keys", "values"]);
                value(self.one_of(&["o", "o.p", "{k: 1, j: a}"])).call(&call)
            }
            _ => self.list(0),
        }
    }
}

fn are_alike(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(ours), Value::Number(theirs)) => {
            let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
            (ours - theirs).abs() <= RELATIVE_DIFFERENCE_MAX * ours.abs().max(1.0)
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| are_alike(ours, theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().all(|(name, ours)| theirs.get(name).is_some_and(|theirs| are_alike(ours, theirs)))
        }
        (ours, theirs) => ours == theirs,
    }
}

/// The values in the JEXL of JavaScript, which scripts/setup-clients installs.
fn in_javascript(expressions: &[String]) -> Vec<Value> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("jexl").join("js");
    assert!(home.join("node_modules").exists(), "{} is missing: run scripts/setup-clients", home.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compare.mjs");
    let mut node = Command::new("node");
    node.arg(script).env("JEXL_HOME", home).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.spawn().unwrap();
    let expressions: Vec<String> = expressions.iter().map(|text| text.replace("|toString", "|toText")).collect();
    let given = json!({"names": names(), "expressions": expressions}).to_string();
    node.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
    let said = node.wait_with_output().unwrap();
    assert!(said.status.success());
    serde_json::from_slice(&said.stdout).unwrap()
}

#[test]
#[ignore = "takes long"]
fn random_expressions_have_the_values_that_javascript_gives() {
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let (mut generator, names) = (Generator { rng: Rng::with_seed(seed) }, names());
    let expressions: Vec<String> = (0..EXPRESSIONS).map(|at| generator.any(at % 6).text).collect();
    let (mut unlike, mut values) = (Vec::new(), 0);
    for (expression, theirs) in expressions.iter().zip(in_javascript(&expressions)) {
        let ours = value_of(expression, &names);
        values += usize::from(!ours.is_null());
        if !are_alike(&ours, &theirs) {
            unlike.push(format!("{expression}\n  ours: {ours}\n  theirs: {theirs}"));
        }
    }
    assert!(unlike.is_empty(), "seed {seed}: {} of {EXPRESSIONS} differ:\n{}", unlike.len(), unlike.join("\n"));
    assert!(values > EXPRESSIONS / 2, "only {values} are not null: the generator makes too much that fails");
}
