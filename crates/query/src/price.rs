//! What a query costs each record of its stream because no index finds it.
//!
//! The prices of single tests are set and not measured: what they cost beside each other, about. What the index finds is
//! free.

use std::collections::HashMap;

use millstream_columns::{Operand, Test};
use millstream_types::TopicId;

use crate::cover::{Cover, cover};
use crate::index::FieldIndex;
use crate::{Compiled, Config, Error};

/// A comparison, a test for NULL, a truth.
const TEST_NS: u64 = 20;
/// A pattern on a text of some thirty bytes, or a list of the record.
const PATTERN_NS: u64 = 150;
/// One value of a list.
const VALUE_NS: u64 = 5;
/// A filter that fewer of a million records have to be shown to counts as found by the index.
const FOUND_BELOW: u64 = 100_000;
const MILLION: u64 = 1_000_000;

/// The price of a filter; equal filters are evaluated once and paid once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Price {
    filter: u64,
    pub(crate) ns: u64,
}

impl Price {
    /// `None` if it costs nothing.
    pub(crate) fn of(query: &Compiled) -> Option<Self> {
        let nothing_known = FieldIndex::default();
        let shown_to = match cover(&query.conjuncts, &|place| nothing_known.cost(&place.hold)) {
            Cover::Anything => MILLION,
            Cover::Places(places) => places.iter().map(|place| nothing_known.cost(&place.hold)).sum(),
        };
        let shown_to = if shown_to < FOUND_BELOW { 0 } else { shown_to.min(MILLION) };
        let all_ns: u64 = query.conjuncts.iter().map(test_ns).sum();
        let ns = (all_ns * shown_to).div_ceil(MILLION);
        (ns > 0).then(|| Self { filter: query.filter_hash(), ns })
    }
}

fn test_ns(test: &Test) -> u64 {
    let of = |operand: &Operand| match operand {
        Operand::Test(test) => test_ns(test),
        Operand::Formula(_) => TEST_NS,
        _ => 0,
    };
    match test {
        Test::Truth(operand) | Test::IsNull(operand) => TEST_NS + of(operand),
        Test::Compare(_, left, right) => TEST_NS + of(left) + of(right),
        Test::In(value, list) => TEST_NS + of(value) + list.iter().map(|item| VALUE_NS + of(item)).sum::<u64>(),
        Test::Quantified { value, list, .. } => PATTERN_NS + of(value) + of(list),
        Test::Xor(left, right) => test_ns(left) + test_ns(right),
        Test::Rlike(operand, _) => PATTERN_NS + of(operand),
        Test::Not(part) => test_ns(part),
        Test::And(parts) | Test::Or(parts) => parts.iter().map(test_ns).sum(),
    }
}

/// What the live queries of each stream cost its records.
#[derive(Debug, Default)]
pub(crate) struct Prices(HashMap<TopicId, OfStream>);

#[derive(Debug, Default)]
struct OfStream {
    ns: u64,
    /// How many queries have each filter that costs something.
    filters: HashMap<u64, usize>,
}

impl Prices {
    /// Takes on a query, if it is within the budget of its stream.
    pub(crate) fn add(&mut self, stream: TopicId, price: Price, filter: &str, config: &Config) -> Result<(), Error> {
        let taken = self.0.get(&stream);
        let is_known = taken.is_some_and(|of_stream| of_stream.filters.contains_key(&price.filter));
        let taken_ns = taken.map_or(0, |of_stream| of_stream.ns);
        let limit_ns = config.residual_ns_per_record_max;
        if !is_known && taken_ns + price.ns > limit_ns {
            return Err(Error::TooCostly { filter: filter.to_owned(), price_ns: price.ns, taken_ns, limit_ns });
        }
        let of_stream = self.0.entry(stream).or_default();
        let uses = of_stream.filters.entry(price.filter).or_default();
        of_stream.ns += if *uses == 0 { price.ns } else { 0 };
        *uses += 1;
        Ok(())
    }

    /// Lets go of a query that was taken on.
    pub(crate) fn remove(&mut self, stream: TopicId, price: Price) {
        let Some(of_stream) = self.0.get_mut(&stream) else { return };
        let Some(uses) = of_stream.filters.get_mut(&price.filter) else { return };
        *uses -= 1;
        if *uses == 0 {
            of_stream.filters.remove(&price.filter);
            of_stream.ns -= price.ns;
        }
        if of_stream.filters.is_empty() {
            self.0.remove(&stream);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::{Limits, parse};

    fn price(filter: &str) -> Option<Price> {
        Price::of(&Compiled::new(
            &parse(&format!("SELECT * FROM STREAM() WHERE {filter}"), &Limits::default()).unwrap(),
        ))
    }

    #[test]
    fn what_the_index_finds_is_free_and_the_rest_costs_by_its_parts() {
        for free in ["a = 1", "a IN (1, 2)", "a BETWEEN 1 AND 2", "a RLIKE 'abc.*'", "a = 1 AND b RLIKE '.*x'", "FALSE"]
        {
            assert_eq!(price(free), None, "{free}");
        }
        let ns = |filter| price(filter).map_or(0, |price| price.ns);
        assert_eq!(ns("a != 1"), TEST_NS);
        assert_eq!(ns("a = 1 OR b != 1"), 2 * TEST_NS);
        assert_eq!(ns("a RLIKE '.*x'"), PATTERN_NS);
        assert!((1..TEST_NS).contains(&ns("a > 1")));
    }

    #[test]
    fn a_stream_has_a_budget_that_equal_filters_share() {
        let config = Config { residual_ns_per_record_max: 2 * TEST_NS, ..Config::default() };
        let mut prices = Prices::default();
        let [a, b, c] = ["a", "b", "c"].map(|field| price(&format!("{field} != 1")).unwrap());
        let (stream, other) = (TopicId(1), TopicId(2));
        for taken in [a, b, a] {
            prices.add(stream, taken, "", &config).unwrap();
        }
        let refused = prices.add(stream, c, "c != 1", &config).unwrap_err().to_string();
        assert!(refused.contains("'c != 1'") && refused.contains("query.residual_ns_per_record_max = 40"), "{refused}");
        prices.add(other, c, "", &config).unwrap();
        prices.remove(stream, a);
        assert!(prices.add(stream, c, "", &config).is_err());
        prices.remove(stream, a);
        prices.add(stream, c, "", &config).unwrap();
        for gone in [b, c] {
            prices.remove(stream, gone);
        }
        prices.remove(other, c);
        assert!(prices.0.is_empty());
    }
}
