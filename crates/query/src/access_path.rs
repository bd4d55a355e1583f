//! The access path of a filter: a few probes of the index such that every record that satisfies the filter is found by one.
//!
//! A conjunction needs only its best part, a disjunction all of its parts. NOT is pushed down to the comparisons on the way,
//! so the same holds below it. That is exact in three-valued logic, where NOT (a AND b) is TRUE if one of them is FALSE. A
//! filter without an access path is evaluated for every record.
use millstream_columns::{Comparison, Operand, Pattern, Predicate, Value};

use crate::index::{GRAM_BYTES, Hold, Interval, ValueKey, sortable};
use crate::literals::{RequiredLiteral, required};

/// Most places of one filter.
const PLACES_MAX: usize = 32;

/// A probe of the index of one field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexProbe {
    pub(crate) field: usize,
    pub(crate) hold: Hold,
}

/// The access path of a condition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AccessPath {
    /// Each is found at one of these places; none satisfies it if there are none.
    Probes(Vec<IndexProbe>),
    /// No probe finds all records; every record is a candidate.
    Anything,
}

/// A filter that fewer of a million records have to be shown to counts as found by the index.
const FOUND_BELOW: u64 = 100_000;
/// The scale of estimates: a filter that is shown all records counts as a million.
pub(crate) const MILLION: u64 = 1_000_000;

impl AccessPath {
    /// The number of records in a million that the filter has to be shown; `cost` tells how many a probe finds.
    pub(crate) fn shown_to(&self, cost: &impl Fn(&IndexProbe) -> u64) -> u64 {
        match self {
            Self::Anything => MILLION,
            Self::Probes(places) => places.iter().map(cost).sum::<u64>().min(MILLION),
        }
    }

    /// True if so few records are candidates that evaluating the filter for them costs next to nothing.
    pub(crate) fn is_rare(&self, cost: &impl Fn(&IndexProbe) -> u64) -> bool {
        self.shown_to(cost) < FOUND_BELOW
    }
}

/// The cover of a conjunction. `cost` tells how many records a place finds.
pub(crate) fn cover(conjuncts: &[Predicate], cost: &impl Fn(&IndexProbe) -> u64) -> AccessPath {
    AccessPathPlanner { cost }.all(conjuncts, true)
}

struct AccessPathPlanner<'c, C> {
    cost: &'c C,
}

impl<C: Fn(&IndexProbe) -> u64> AccessPathPlanner<'_, C> {
    /// The access path for records on which `test` is `truth`.
    fn test(&self, test: &Predicate, truth: bool) -> AccessPath {
        match test {
            Predicate::Not(part) => self.test(part, !truth),
            Predicate::And(parts) if truth => self.all(parts, true),
            Predicate::And(parts) => self.any(parts, false),
            Predicate::Or(parts) if truth => self.any(parts, true),
            Predicate::Or(parts) => self.all(parts, false),
            Predicate::Truth(Operand::Constant(Value::Boolean(value))) if *value == truth => AccessPath::Anything,
            Predicate::Truth(Operand::Constant(_)) => NEVER,
            Predicate::Truth(Operand::Predicate(test)) => self.test(test, truth),
            Predicate::Truth(Operand::Field(field)) => at(*field, keys([&Value::Boolean(truth)])),
            Predicate::IsNull(Operand::Field(field)) => at(*field, if truth { Hold::Null } else { Hold::Present }),
            Predicate::Compare(comparison, left, right) => compare(*comparison, left, right, truth),
            Predicate::In(Operand::Field(field), list) => within(*field, list, truth),
            Predicate::Rlike(Operand::Field(field), pattern) if truth => self.best(rlike(*field, pattern)),
            Predicate::Rlike(Operand::Field(field), _) => at(*field, Hold::Present),
            _ => AccessPath::Anything,
        }
    }

    /// All of `parts`: the cheapest of their covers. Bounds of one field are one interval.
    fn all(&self, parts: &[Predicate], truth: bool) -> AccessPath {
        let mut covers: Vec<AccessPath> = Vec::new();
        for part in parts {
            let cover = self.test(part, truth);
            if cover == NEVER {
                return NEVER;
            }
            if !covers.iter_mut().any(|known| narrow(known, &cover)) {
                covers.push(cover);
            }
        }
        self.best(covers)
    }

    /// One of `parts`: all of their covers.
    fn any(&self, parts: &[Predicate], truth: bool) -> AccessPath {
        let mut all = Vec::new();
        for part in parts {
            let AccessPath::Probes(places) = self.test(part, truth) else {
                return AccessPath::Anything;
            };
            all.extend(places);
        }
        if all.len() > PLACES_MAX { AccessPath::Anything } else { AccessPath::Probes(all) }
    }

    fn best(&self, covers: Vec<AccessPath>) -> AccessPath {
        let price = |cover: &AccessPath| match cover {
            AccessPath::Probes(places) => places.iter().map(self.cost).sum(),
            AccessPath::Anything => u64::MAX,
        };
        covers.into_iter().min_by_key(price).unwrap_or(AccessPath::Anything)
    }
}

/// The access path of a condition that no record satisfies.
const NEVER: AccessPath = AccessPath::Probes(Vec::new());

fn at(field: usize, hold: Hold) -> AccessPath {
    AccessPath::Probes(vec![IndexProbe { field, hold }])
}

fn keys<'v>(values: impl IntoIterator<Item = &'v Value<'v>>) -> Hold {
    let mut keys: Vec<ValueKey> = Vec::new();
    for key in values.into_iter().filter_map(ValueKey::of) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Hold::Keys(keys.into())
}

/// Narrows `known` to the records that satisfy `more` too, if both are intervals of one field.
fn narrow(known: &mut AccessPath, more: &AccessPath) -> bool {
    let (AccessPath::Probes(known), AccessPath::Probes(more)) = (known, more) else {
        return false;
    };
    let ([known], [more]) = (&mut known[..], &more[..]) else {
        return false;
    };
    if known.field != more.field {
        return false;
    }
    match (&mut known.hold, &more.hold) {
        (Hold::Numbers(known), Hold::Numbers(more)) => known.narrow(more),
        (Hold::Texts(known), Hold::Texts(more)) => known.narrow(more),
        _ => return false,
    }
    true
}

impl<K: Ord + Clone> Interval<K> {
    fn narrow(&mut self, more: &Self) {
        if more.low > self.low {
            self.low = more.low.clone();
        }
        if let Some(high) = &more.high
            && self.high.as_ref().is_none_or(|known| known > high)
        {
            self.high = Some(high.clone());
        }
    }
}

fn compare(comparison: Comparison, left: &Operand, right: &Operand, truth: bool) -> AccessPath {
    let comparison = if truth { comparison } else { comparison.negated() };
    match (left, right) {
        (Operand::Field(field), Operand::Constant(value)) => bounded(*field, comparison, value),
        (Operand::Constant(value), Operand::Field(field)) => bounded(*field, comparison.mirrored(), value),
        // Two truths compared: TRUE = condition.
        (Operand::Field(field), _) | (_, Operand::Field(field)) => at(*field, Hold::Present),
        _ => AccessPath::Anything,
    }
}

/// `field comparison value`.
fn bounded(field: usize, comparison: Comparison, value: &Value<'_>) -> AccessPath {
    let hold = match (comparison, value) {
        (_, Value::Null) => return NEVER,
        (Comparison::Equal, _) => keys([value]),
        (Comparison::NotEqual, _) => Hold::Present,
        (_, Value::Integer(bound)) => Hold::Numbers(interval(comparison, sortable(*bound as f64), i64::MIN)),
        (_, Value::Double(bound)) => Hold::Numbers(interval(comparison, sortable(*bound), i64::MIN)),
        (_, Value::Text(bound)) => Hold::Texts(interval(comparison, bound.as_bytes().into(), Box::default())),
        _ => Hold::Present,
    };
    at(field, hold)
}

fn interval<K>(comparison: Comparison, bound: K, least: K) -> Interval<K> {
    match comparison {
        Comparison::Less | Comparison::LessOrEqual => Interval { low: least, high: Some(bound) },
        _ => Interval { low: bound, high: None },
    }
}

/// `field IN (list)`, or NOT IN.
fn within(field: usize, list: &[Operand], truth: bool) -> AccessPath {
    if !truth {
        return at(field, Hold::Present);
    }
    let constants: Option<Vec<&Value<'_>>> = list.iter().map(Operand::constant).collect();
    at(field, constants.map_or(Hold::Present, keys))
}

/// The possible access paths for a field that matches `pattern`.
fn rlike(field: usize, pattern: &Pattern) -> Vec<AccessPath> {
    let holds = required(pattern).into_iter().filter_map(|required| match required {
        RequiredLiteral::Whole(texts) => {
            let texts: Option<Vec<Value<'_>>> = texts
                .into_iter()
                .map(|text| String::from_utf8(text).ok().map(|text| Value::Text(text.into())))
                .collect();
            texts.map(|texts| keys(&texts))
        }
        RequiredLiteral::Prefix(prefix) => {
            let high = after(&prefix).map(Into::into);
            Some(Hold::Texts(Interval { low: prefix.into(), high }))
        }
        RequiredLiteral::Anywhere(literals) => {
            let grams: Option<Vec<[u8; GRAM_BYTES]>> = literals.iter().map(|literal| gram(literal)).collect();
            grams.map(|grams| Hold::Grams(grams.into()))
        }
    });
    holds.chain([Hold::Present]).map(|hold| at(field, hold)).collect()
}

/// The first text that does not begin with `prefix` and comes after those that do.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let (last, before) = prefix.split_last()?;
    match last.checked_add(1) {
        Some(next) => Some([before, &[next]].concat()),
        None => after(before),
    }
}

/// The piece of a literal for the index: one that is likely to be rare. Letters and digits at the end differ most among
/// literals of the same form.
fn gram(literal: &[u8]) -> Option<[u8; GRAM_BYTES]> {
    literal.last_chunk().copied()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::{Compiled, ParserLimits, parse};

    /// The probes of a filter, as text.
    fn places(filter: &str) -> String {
        let plan = parse(&format!("SELECT * FROM STREAM() WHERE {filter}"), &ParserLimits::default()).unwrap();
        let compiled = Compiled::new(&plan);
        let index = crate::index::FieldIndex::default();
        match cover(&compiled.conjuncts, &|place| index.cost(&place.hold)) {
            AccessPath::Anything => "anything".to_owned(),
            AccessPath::Probes(places) => {
                let described = places.iter().map(|place| {
                    let what = match &place.hold {
                        Hold::Keys(keys) => format!("{} keys", keys.len()),
                        Hold::Numbers(Interval { low, high }) => match (*low > i64::MIN, high) {
                            (true, Some(_)) => "numbers between".to_owned(),
                            (true, None) => "numbers from".to_owned(),
                            (false, _) => "numbers to".to_owned(),
                        },
                        Hold::Texts(Interval { low, high }) => format!(
                            "texts {}..{}",
                            String::from_utf8_lossy(low),
                            high.as_deref().map_or_else(Default::default, String::from_utf8_lossy)
                        ),
                        Hold::Grams(grams) => format!("{} grams", grams.len()),
                        Hold::Present => "present".to_owned(),
                        Hold::Null => "null".to_owned(),
                    };
                    format!("{} {what}", compiled.fields[place.field])
                });
                described.collect::<Vec<_>>().join(" or ")
            }
        }
    }

    #[test]
    fn a_filter_is_indexed_by_its_most_selective_condition() {
        for (filter, expected) in [
            ("a = 1", "a 1 keys"),
            ("a = 1 AND b IS NOT NULL", "a 1 keys"),
            ("a > 1 AND b = 2", "b 1 keys"),
            ("a > 1 AND a < 5", "a numbers between"),
            ("b IS NOT NULL AND 3 >= a", "a numbers to"),
            ("a BETWEEN 1 AND 5 OR b IN (1, 2, 1.0)", "a numbers between or b 2 keys"),
            ("NOT (a != 1 OR b = 2)", "a 1 keys"),
            ("NOT (a = 1 AND b != 2)", "a present or b 1 keys"),
            ("NOT a", "a 1 keys"),
            ("NOT a > 5", "a numbers to"),
            ("a IS NULL", "a null"),
            ("NOT a IS NULL", "a present"),
            ("a = 1 AND b = NULL", ""),
            ("a = 1 OR FALSE", "a 1 keys"),
            ("a = 1 OR $offset > NOW", "a 1 keys or $offset present"),
            ("TRUE", "anything"),
            ("(a = 1) IS NULL", "anything"),
            ("a RLIKE 'x|y'", "a 2 keys"),
            ("a RLIKE 'abc.*'", "a texts abc..abd"),
            ("a RLIKE '.*error 17.*'", "a 1 grams"),
            ("a RLIKE '.*err.*'", "a present"),
            ("a >= 'abc' AND a < 'b'", "a texts abc..b"),
        ] {
            assert_eq!(places(filter), expected, "{filter}");
        }
    }
}
