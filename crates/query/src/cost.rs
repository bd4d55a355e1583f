//! The cost model: the time that each record of a stream costs for filters that no index finds.
//!
//! The costs of single conditions are estimates relative to each other, not measurements. Filters that
//! the index finds cost nothing.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use millstream_columns::{Expr, HashWriter, Operand, Predicate};
use millstream_types::TopicId;

use crate::access_path::{MILLION, cover};
use crate::index::FieldIndex;
use crate::{Compiled, Config, Error};

/// A comparison, a test for NULL, a truth.
const TEST_NS: u64 = 20;
/// A pattern on a text of some thirty bytes, or a list of the record.
const PATTERN_NS: u64 = 150;
/// One value of a list.
const VALUE_NS: u64 = 5;
/// The cost of a filter, by condition: equal conditions of several filters are evaluated once and count once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueryCost(Box<[ConditionCost]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConditionCost {
    /// The hash of its text.
    condition: u64,
    ns: u64,
}

impl QueryCost {
    /// The cost of a query with this filter; `None` if it costs nothing.
    pub(crate) fn of(query: &Compiled, filter: Option<&Expr>) -> Option<Self> {
        let nothing_known = FieldIndex::default();
        let cost = |place: &crate::access_path::IndexProbe| nothing_known.cost(&place.hold);
        let cover = cover(&query.conjuncts, &cost);
        if cover.is_rare(&cost) {
            return None;
        }
        let shown_to = cover.shown_to(&cost);
        let conditions = match filter? {
            Expr::And(parts) => &parts[..],
            only => std::slice::from_ref(only),
        };
        let mut prices: Vec<ConditionCost> = Vec::with_capacity(conditions.len());
        for (expr, test) in conditions.iter().zip(&query.conjuncts) {
            let (condition, ns) = (hash(expr), (test_ns(test) * shown_to).div_ceil(MILLION));
            if ns > 0 && prices.iter().all(|known| known.condition != condition) {
                prices.push(ConditionCost { condition, ns });
            }
        }
        (!prices.is_empty()).then(|| Self(prices.into()))
    }

    /// The cost if no other query shares a condition.
    pub(crate) fn ns(&self) -> u64 {
        self.0.iter().map(|part| part.ns).sum()
    }
}

fn hash(condition: &Expr) -> u64 {
    let mut writer = HashWriter::default();
    // Writing to a hasher cannot fail.
    let _ = write!(writer, "{condition}");
    writer.finish()
}

fn test_ns(test: &Predicate) -> u64 {
    let of = |operand: &Operand| match operand {
        Operand::Predicate(test) => test_ns(test),
        Operand::Formula(_) => TEST_NS,
        _ => 0,
    };
    match test {
        Predicate::Truth(operand) | Predicate::IsNull(operand) => TEST_NS + of(operand),
        Predicate::Compare(_, left, right) => TEST_NS + of(left) + of(right),
        Predicate::In(value, list) => TEST_NS + of(value) + list.iter().map(|item| VALUE_NS + of(item)).sum::<u64>(),
        Predicate::Quantified { value, list, .. } => PATTERN_NS + of(value) + of(list),
        Predicate::Xor(left, right) => test_ns(left) + test_ns(right),
        Predicate::Rlike(operand, _) => PATTERN_NS + of(operand),
        Predicate::Not(part) => test_ns(part),
        Predicate::And(parts) | Predicate::Or(parts) => parts.iter().map(test_ns).sum(),
    }
}

/// The costs of the live queries of each stream.
#[derive(Debug, Default)]
pub(crate) struct CostModel(HashMap<TopicId, StreamCosts>);

#[derive(Debug, Default)]
struct StreamCosts {
    ns: u64,
    conditions: HashMap<u64, Uses>,
}

/// The number of queries with a condition, by its cost for each of them. The highest cost counts.
#[derive(Debug, Default)]
struct Uses(BTreeMap<u64, usize>);

impl Uses {
    fn ns(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(ns, _)| *ns)
    }
}

impl StreamCosts {
    /// The additional cost of the stream's records for a query with this cost.
    fn more_ns(&self, price: &QueryCost) -> u64 {
        let known_ns = |part: &ConditionCost| self.conditions.get(&part.condition).map_or(0, Uses::ns);
        price.0.iter().map(|part| part.ns.saturating_sub(known_ns(part))).sum()
    }
}

impl CostModel {
    /// Takes on a query, if it is within the budget of its stream.
    pub(crate) fn add(
        &mut self,
        stream: TopicId,
        price: &QueryCost,
        filter: &str,
        config: &Config,
    ) -> Result<(), Error> {
        let taken = self.0.get(&stream);
        let (taken_ns, price_ns) = taken.map_or((0, price.ns()), |taken| (taken.ns, taken.more_ns(price)));
        let limit_ns = config.residual_ns_per_record_max;
        if price_ns > 0 && taken_ns + price_ns > limit_ns {
            return Err(Error::TooCostly { filter: filter.to_owned(), price_ns, taken_ns, limit_ns });
        }
        let of_stream = self.0.entry(stream).or_default();
        of_stream.ns += price_ns;
        for ConditionCost { condition, ns } in &price.0 {
            *of_stream.conditions.entry(*condition).or_default().0.entry(*ns).or_default() += 1;
        }
        Ok(())
    }

    /// Removes the cost of a query.
    pub(crate) fn remove(&mut self, stream: TopicId, price: &QueryCost) {
        let Some(of_stream) = self.0.get_mut(&stream) else { return };
        for ConditionCost { condition, ns } in &price.0 {
            let Some(uses) = of_stream.conditions.get_mut(condition) else { continue };
            let before_ns = uses.ns();
            if let Some(count) = uses.0.get_mut(ns) {
                *count -= 1;
                if *count == 0 {
                    uses.0.remove(ns);
                }
            }
            of_stream.ns -= before_ns - uses.ns();
            if uses.0.is_empty() {
                of_stream.conditions.remove(condition);
            }
        }
        if of_stream.conditions.is_empty() {
            self.0.remove(&stream);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::{ParserLimits, parse};

    fn price(filter: &str) -> Option<QueryCost> {
        let plan = parse(&format!("SELECT * FROM STREAM() WHERE {filter}"), &ParserLimits::default()).unwrap();
        QueryCost::of(&Compiled::new(&plan), plan.filter.as_ref())
    }

    #[test]
    fn indexed_conditions_are_free_and_others_cost_the_sum_of_their_parts() {
        for free in ["a = 1", "a IN (1, 2)", "a BETWEEN 1 AND 2", "a RLIKE 'abc.*'", "a = 1 AND b RLIKE '.*x'", "FALSE"]
        {
            assert_eq!(price(free), None, "{free}");
        }
        let ns = |filter| price(filter).map_or(0, |price| price.ns());
        assert_eq!(ns("a != 1"), TEST_NS);
        assert_eq!(ns("a = 1 OR b != 1"), 2 * TEST_NS);
        assert_eq!(ns("a != 1 AND b != 1 AND a != 1"), 2 * TEST_NS);
        assert_eq!(ns("a RLIKE '.*x'"), PATTERN_NS);
        assert!((1..TEST_NS).contains(&ns("a > 1")));
    }

    #[test]
    fn a_stream_has_a_budget_that_equal_filters_share() {
        let config = Config { residual_ns_per_record_max: 2 * TEST_NS, ..Config::default() };
        let mut prices = CostModel::default();
        let [a, b, c] = ["a", "b", "c"].map(|field| price(&format!("{field} != 1")).unwrap());
        let (stream, other) = (TopicId(1), TopicId(2));
        for taken in [&a, &b, &a] {
            prices.add(stream, taken, "", &config).unwrap();
        }
        let refused = prices.add(stream, &c, "c != 1", &config).unwrap_err().to_string();
        let limit = format!("query.residual_ns_per_record_max = {}", 2 * TEST_NS);
        assert!(refused.contains("'c != 1'") && refused.contains(&limit), "{refused}");
        prices.add(other, &c, "", &config).unwrap();
        prices.remove(stream, &a);
        assert!(prices.add(stream, &c, "", &config).is_err());
        prices.remove(stream, &a);
        prices.add(stream, &c, "", &config).unwrap();
        for gone in [&b, &c] {
            prices.remove(stream, gone);
        }
        prices.remove(other, &c);
        assert!(prices.0.is_empty());
    }

    #[test]
    fn a_condition_that_filters_share_is_charged_once_at_its_highest_cost() {
        let config = Config { residual_ns_per_record_max: PATTERN_NS + 2 * TEST_NS, ..Config::default() };
        let mut prices = CostModel::default();
        let stream = TopicId(1);
        let of = |filter: &str| price(filter).unwrap();
        // Shown to some records only.
        let few = of("a > 1 AND t RLIKE '.*x'");
        let [first, second, third] = ["b", "c", "d"].map(|field| of(&format!("t RLIKE '.*x' AND {field} != 1")));
        prices.add(stream, &few, "", &config).unwrap();
        assert_eq!(prices.0[&stream].ns, few.ns());
        prices.remove(stream, &few);
        for taken in [&first, &second, &of("t RLIKE '.*x'")] {
            prices.add(stream, taken, "", &config).unwrap();
        }
        assert_eq!(prices.0[&stream].ns, PATTERN_NS + 2 * TEST_NS);
        match prices.add(stream, &third, "", &config).unwrap_err() {
            Error::TooCostly { price_ns, .. } => assert_eq!(price_ns, TEST_NS, "the pattern is paid for"),
            other => panic!("{other}"),
        }
        prices.remove(stream, &first);
        prices.add(stream, &few, "", &config).unwrap();
        let bound_ns = of("a > 1").ns();
        assert_eq!(prices.0[&stream].ns, PATTERN_NS + TEST_NS + bound_ns);
        prices.remove(stream, &second);
        prices.remove(stream, &of("t RLIKE '.*x'"));
        assert_eq!(prices.0[&stream].ns, few.ns());
        prices.remove(stream, &few);
        assert!(prices.0.is_empty());
    }
}
