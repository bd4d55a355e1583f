//! Sampling rules, and the plan that they give for a file of a certain age.

use serde::{Deserialize, Serialize};

use crate::config::{ANY, HistoryRule, Sample, fits};

/// The sampling of the attributes that match. A file's record lists what was applied to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttributeSampling {
    pub(crate) attribute: String,
    pub(crate) sample: Sample,
    /// Length of a period, which divides a day; `None` if all points stay.
    pub(crate) period_ms: Option<i64>,
}

/// The first entry that matches an attribute applies; attributes without a match keep all points.
pub(crate) type SamplingPlan = Vec<AttributeSampling>;

impl AttributeSampling {
    pub(crate) fn fits(&self, attribute: &str) -> bool {
        fits(&self.attribute, attribute)
    }

    /// Tells if points sampled with `before` would not change: each longer period has one point left and contains
    /// whole periods of this entry.
    fn adds_nothing_to(&self, before: &Self) -> bool {
        self.attribute == before.attribute
            && match (self.period_ms, before.period_ms) {
                (None, _) => true,
                (Some(wanted), Some(before)) => before % wanted == 0,
                (Some(_), None) => false,
            }
    }
}

/// Tells if a file to which `applied` was applied needs no work.
pub(crate) fn is_covered(plan: &[AttributeSampling], applied: &[AttributeSampling]) -> bool {
    plan.is_empty()
        || (plan.len() == applied.len() && plan.iter().zip(applied).all(|(now, before)| now.adds_nothing_to(before)))
}

/// The sampling rules of one type of a tenant, by attribute pattern; the first match applies.
#[derive(Debug, Default)]
pub(crate) struct SamplingRules(Vec<AgeSteps>);

/// Rules of one list with the same patterns; each takes effect at an age.
#[derive(Debug)]
struct AgeSteps {
    tenant: String,
    kind: String,
    attribute: String,
    steps: Vec<(i64, Sample, Option<i64>)>,
}

impl SamplingRules {
    /// Appends a list of rules; earlier lists take precedence.
    pub(crate) fn add<'r>(&mut self, rules: impl Iterator<Item = &'r HistoryRule>) {
        let first = self.0.len();
        for rule in rules {
            let Some(step) = step(rule) else { continue };
            let is_same = |other: &&mut AgeSteps| {
                (&other.tenant, &other.kind, &other.attribute) == (&rule.tenant, &rule.kind, &rule.attribute)
            };
            match self.0[first..].iter_mut().find(is_same) {
                Some(same) => same.steps.push(step),
                None => self.0.push(AgeSteps {
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

    /// Returns the plan for points of the age `age_ms`. An attribute whose first rule is not in effect yet keeps all
    /// points, even if later rules match.
    pub(crate) fn plan(&self, age_ms: i64) -> SamplingPlan {
        let mut plan: SamplingPlan = self.0.iter().map(|steps| steps.at(age_ms)).collect();
        // Entries behind a `*` never match, and trailing entries without sampling have no effect.
        let first_for_all = plan.iter().position(|sampling| sampling.attribute == ANY);
        plan.truncate(first_for_all.map_or(plan.len(), |first| first + 1));
        let counting = plan.iter().rposition(|sampling| sampling.period_ms.is_some()).map_or(0, |last| last + 1);
        plan.truncate(counting);
        plan
    }
}

impl AgeSteps {
    fn at(&self, age_ms: i64) -> AttributeSampling {
        let begun = self.steps.iter().filter(|(after_ms, ..)| *after_ms < age_ms);
        let (sample, period_ms) = begun
            .max_by_key(|(after_ms, ..)| *after_ms)
            .map_or((Sample::All, None), |(_, sample, period_ms)| (*sample, *period_ms));
        AttributeSampling { attribute: self.attribute.clone(), sample, period_ms }
    }
}

/// Returns the age at which a rule takes effect, and its sampling; `None` for a rule without sampling.
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

    fn sampling(attribute: &str, period: i64) -> AttributeSampling {
        let (sample, period_ms) = if period == 0 { (Sample::All, None) } else { (Sample::Last, Some(period)) };
        AttributeSampling { attribute: attribute.into(), sample, period_ms }
    }

    #[test]
    fn an_attribute_follows_the_first_rule_that_fits_and_rules_for_the_same_are_steps() {
        let all = HistoryRule { attribute: "alarm".into(), sample: Some(Sample::All), ..HistoryRule::default() };
        let list = [all, rule("t", 70, 10), rule("*", 7, 20), rule("*", 700, 60), rule("t", 30, 5)];
        let mut rules = SamplingRules::default();
        rules.add(list.iter());
        rules.add([rule("*", 1, 1)].iter());
        for (age, expected) in [
            // The second list has a rule for this age, but the first list's `*` takes precedence.
            (5, vec![]),
            (8, vec![("alarm", 0), ("t", 0), ("*", 20)]),
            (31, vec![("alarm", 0), ("t", 5), ("*", 20)]),
            (71, vec![("alarm", 0), ("t", 10), ("*", 20)]),
            (i64::MAX, vec![("alarm", 0), ("t", 10), ("*", 60)]),
        ] {
            let expected: SamplingPlan =
                expected.into_iter().map(|(attribute, period)| sampling(attribute, period)).collect();
            assert_eq!(rules.plan(age), expected, "{age}");
        }
    }

    #[test]
    fn shorter_periods_within_longer_ones_bring_nothing_back_and_so_do_nothing() {
        let plan =
            |of: &[(&str, i64)]| -> SamplingPlan { of.iter().map(|(name, period)| sampling(name, *period)).collect() };
        let hour = plan(&[("*", 60)]);
        for (now, is_covered_now) in [
            (plan(&[]), true),
            (plan(&[("*", 60)]), true),
            (plan(&[("*", 20)]), true),
            (plan(&[("*", 0)]), true),
            (plan(&[("*", 120)]), false),
            // A period of 40 does not divide 60.
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
