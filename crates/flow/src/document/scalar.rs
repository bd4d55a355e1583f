//! The core schema of YAML 1.2: which plain words are null, booleans and numbers. All others are texts, also `on` and `yes`.

use serde_json::Number;

use super::tree::TreeContent;

/// A plain word that is a number which JSON does not have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoSuchNumber;

/// The value of a plain word. Whole numbers stay whole, others stay fractions.
pub(super) fn plain(word: &str) -> Result<TreeContent, NoSuchNumber> {
    Ok(match word {
        "" | "~" | "null" | "Null" | "NULL" => TreeContent::Null,
        "true" | "True" | "TRUE" => TreeContent::Bool(true),
        "false" | "False" | "FALSE" => TreeContent::Bool(false),
        _ if is_special(word) => return Err(NoSuchNumber),
        _ if word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) => match number(word) {
            Some(Some(number)) => TreeContent::Number(number),
            Some(None) => return Err(NoSuchNumber),
            None => TreeContent::Text(word.to_owned()),
        },
        _ => TreeContent::Text(word.to_owned()),
    })
}

fn is_special(word: &str) -> bool {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(word, ".nan" | ".NaN" | ".NAN")
}

/// `None` if the word is no number, `Some(None)` if it is one out of range.
fn number(word: &str) -> Option<Option<Number>> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = word.strip_prefix(prefix) {
            let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
            return is_number.then(|| u64::from_str_radix(digits, radix).ok().map(Number::from));
        }
    }
    let (negative, unsigned) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    if !unsigned.is_empty() && unsigned.bytes().all(|c| c.is_ascii_digit()) {
        return Some(match negative {
            true => word.parse::<i64>().ok().map(Number::from),
            false => unsigned.parse::<u64>().ok().map(Number::from),
        });
    }
    is_fraction(unsigned).then(|| word.parse::<f64>().ok().and_then(Number::from_f64))
}

/// `digits.digits`, of which one may be missing, and an exponent; at least a point or an exponent.
fn is_fraction(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    digits(whole)
        && digits(part)
        && !(whole.is_empty() && part.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_have_the_values_of_the_core_schema() {
        let rows: [(&str, &str); 28] = [
            ("on", "\"on\""),
            ("off", "\"off\""),
            ("yes", "\"yes\""),
            ("no", "\"no\""),
            ("y", "\"y\""),
            ("~", "null"),
            ("", "null"),
            ("Null", "null"),
            ("true", "true"),
            ("FALSE", "false"),
            ("tRue", "\"tRue\""),
            ("12", "12"),
            ("-12", "-12"),
            ("+12", "12"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("0x", "\"0x\""),
            ("1.0", "1.0"),
            ("1.50", "1.5"),
            (".5", "0.5"),
            ("1.", "1.0"),
            ("1e3", "1000.0"),
            ("-2.5E-1", "-0.25"),
            ("1e", "\"1e\""),
            (".", "\".\""),
            ("-", "\"-\""),
            ("10s", "\"10s\""),
            ("18446744073709551615", "18446744073709551615"),
        ];
        for (word, json) in rows {
            let place = super::super::tree::TextPosition { source: 0, line: 1, column: 1 };
            let tree = super::super::tree::Tree { place, content: plain(word).unwrap() };
            assert_eq!(tree.to_json().to_string(), json, "{word}");
        }
        for word in [".inf", "-.INF", ".nan", "18446744073709551616", "-9223372036854775809", "1e999"] {
            assert_eq!(plain(word), Err(NoSuchNumber), "{word}");
        }
    }
}
