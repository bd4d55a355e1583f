//! The work of the expressions of a change.

use std::cell::{Cell, RefCell};

use millstream_jexl::{Budget, Expression, Names};
use serde_json::Value;

/// Budgets that the subscriptions of one change may use together, so that nobody's expressions hold up the changes behind.
const BUDGETS_MAX: f64 = 10.0;

/// The expressions of one subscription, in its condition and its notification, share a budget.
#[derive(Default)]
pub(crate) struct ExpressionWork {
    budget: RefCell<Budget>,
    /// Budgets that the subscriptions so far have used.
    used: Cell<f64>,
    /// An expression of the last subscription was cut short.
    is_cut: Cell<bool>,
}

impl ExpressionWork {
    /// Begins another subscription.
    pub(crate) fn begin(&self) {
        self.used.set(self.used.get() + self.budget.borrow().used());
        self.is_cut.set(false);
        *self.budget.borrow_mut() = if self.used.get() < BUDGETS_MAX { Budget::default() } else { Budget::spent() };
    }

    pub(crate) fn evaluate(&self, expression: &Expression, names: &dyn Names, now_ms: i64) -> Value {
        let mut budget = self.budget.borrow_mut();
        let value = expression.evaluate_within(names, now_ms, &mut budget);
        self.is_cut.set(budget.is_spent());
        value
    }

    /// An expression of the last subscription was null because it would have taken too long.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }
}
