//! What rules say of down-sampling, and what that comes to for a file of a certain age.

use serde::{Deserialize, Serialize};

use crate::config::{ANY, HistoryRule, Sample, fits};

/// What becomes of the points of the attributes that fit. A file's record has all that were applied to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thinning {
    pub(crate) attribute: String,
    pub(crate) sample: Sample,
    /// Length of the periods, a whole part of a day; `None` if all points stay.
    pub(crate) period_ms: Option<i64>,
}

/// For each attribute the first that fits counts; what none fits stays as it is. Empty: everything stays.
pub(crate) type Plan = Vec<Thinning>;

impl Thinning {
    pub(crate) fn fits(&self, attribute: &str) -> bool {
        fits(&self.attribute, attribute)
    }

    /// Whether points to which `before` was applied have nothing to lose: the periods lie within longer ones, of which each
    /// has one point left.
    fn adds_nothing_to(&self, before: &Self) -> bool {
        self.attribute == before.attribute
            && match (self.period_ms, before.period_ms) {
                (None, _) => true,
                (Some(wanted), Some(before)) => before % wanted == 0,
                (Some(_), None) => false,
            }
    }
}

/// Whether there is nothing to do for a file to which `applied` was applied.
pub(crate) fn is_covered(plan: &[Thinning], applied: &[Thinning]) -> bool {
    plan.is_empty()
        || (plan.len() == applied.len() && plan.iter().zip(applied).all(|(now, before)| now.adds_nothing_to(before)))
}

/// What the rules say of one type of a tenant, by the attributes that they name, the first one first.
#[derive(Debug, Default)]
pub(crate) struct SamplingRules(Vec<Steps>);

/// Rules of one list that are for the same: each begins to count at an age.
#[derive(Debug)]
struct Steps {
    tenant: String,
    kind: String,
    attribute: String,
    steps: Vec<(i64, Sample, Option<i64>)>,
}

impl SamplingRules {
    /// Adds a list of rules; those that were there before come first.
    pub(crate) fn add<'r>(&mut self, rules: impl Iterator<Item = &'r HistoryRule>) {
        let first = self.0.len();
        for rule in rules {
            let Some(step) = step(rule) else { continue };
            let is_same = |other: &&mut Steps| {
                (&other.tenant, &other.kind, &other.attribute) == (&rule.tenant, &rule.kind, &rule.attribute)
            };
            match self.0[first..].iter_mut().find(is_same) {
                Some(same) => same.steps.push(step),
                None => self.0.push(Steps {
                    tenant: rule.tenant.clone(),
                    kind: rule.kind.clone(),
                    attribute: rule.attribute.clone(),
                    steps: vec![step],
                }),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What becomes of points that were kept `age_ms` ago. Of an attribute whose rule does not count yet all points stay,
    /// whatever the rules behind it say.
    pub(crate) fn plan(&self, age_ms: i64) -> Plan {
        let mut plan: Plan = self.0.iter().map(|steps| steps.at(age_ms)).collect();
        // Nothing comes behind what fits everything, and what is left as it is need not be said at the end.
        let first_for_all = plan.iter().position(|thinning| thinning.attribute == ANY);
        plan.truncate(first_for_all.map_or(plan.len(), |first| first + 1));
        let counting = plan.iter().rposition(|thinning| thinning.period_ms.is_some()).map_or(0, |last| last + 1);
        plan.truncate(counting);
        plan
    }
}

impl Steps {
    fn at(&self, age_ms: i64) -> Thinning {
        let begun = self.steps.iter().filter(|(after_ms, ..)| *after_ms < age_ms);
        let (sample, period_ms) = begun
            .max_by_key(|(after_ms, ..)| *after_ms)
            .map_or((Sample::All, None), |(_, sample, period_ms)| (*sample, *period_ms));
        Thinning { attribute: self.attribute.clone(), sample, period_ms }
    }
}

/// When a rule begins to count, and what it says; `None` if it says nothing of sampling.
fn step(rule: &HistoryRule) -> Option<(i64, Sample, Option<i64>)> {
    let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    match (rule.sample, rule.sample_after_ms, rule.sample_period_ms) {
        (Some(Sample::All), ..) => Some((i64::MIN, Sample::All, None)),
        (sample, Some(after), Some(period)) => Some((ms(after), sample.unwrap_or_default(), Some(ms(period)))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(attribute: &str, after: u64, period: u64) -> HistoryRule {
        HistoryRule {
            attribute: attribute.into(),
            sample_after_ms: Some(after),
            sample_period_ms: Some(period),
            ..HistoryRule::default()
        }
    }

    fn thinning(attribute: &str, period: i64) -> Thinning {
        let (sample, period_ms) = if period == 0 { (Sample::All, None) } else { (Sample::Last, Some(period)) };
        Thinning { attribute: attribute.into(), sample, period_ms }
    }

    #[test]
    fn an_attribute_follows_the_first_rule_that_fits_and_rules_for_the_same_are_steps() {
        let all = HistoryRule { attribute: "alarm".into(), sample: Some(Sample::All), ..HistoryRule::default() };
        let list = [all, rule("t", 70, 10), rule("*", 7, 20), rule("*", 700, 60), rule("t", 30, 5)];
        let mut rules = SamplingRules::default();
        rules.add(list.iter());
        rules.add([rule("*", 1, 1)].iter());
        for (age, expected) in [
            // The second list would count, but the first one says that nothing becomes of anything yet.
            (5, vec![]),
            (8, vec![("alarm", 0), ("t", 0), ("*", 20)]),
            (31, vec![("alarm", 0), ("t", 5), ("*", 20)]),
            (71, vec![("alarm", 0), ("t", 10), ("*", 20)]),
            (i64::MAX, vec![("alarm", 0), ("t", 10), ("*", 60)]),
        ] {
            let expected: Plan = expected.into_iter().map(|(attribute, period)| thinning(attribute, period)).collect();
            assert_eq!(rules.plan(age), expected, "{age}");
        }
    }

    #[test]
    fn shorter_periods_within_longer_ones_bring_nothing_back_and_so_do_nothing() {
        let plan = |of: &[(&str, i64)]| -> Plan { of.iter().map(|(name, period)| thinning(name, *period)).collect() };
        let hour = plan(&[("*", 60)]);
        for (now, is_covered_now) in [
            (plan(&[]), true),
            (plan(&[("*", 60)]), true),
            (plan(&[("*", 20)]), true),
            (plan(&[("*", 0)]), true),
            (plan(&[("*", 120)]), false),
            // Its periods do not lie within those before.
            (plan(&[("*", 40)]), false),
            (plan(&[("t", 0), ("*", 60)]), false),
            (plan(&[("t", 60)]), false),
        ] {
            assert_eq!(is_covered(&now, &hour), is_covered_now, "{now:?}");
        }
        assert!(!is_covered(&hour, &[]));
        assert!(is_covered(&[], &[]));
    }
}
