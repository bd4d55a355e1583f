//! The expressions of one mapping and the members that they read.

use millstream_columns::{Columns, Diagnostic, Expr, Field, ParserLimits, PathStep, parser};

/// Collects expressions. An index refers to [`Columns`].
pub(super) struct Expressions<'a> {
    limits: &'a ParserLimits,
    read: Vec<Expr>,
}

impl<'a> Expressions<'a> {
    pub(super) fn new(limits: &'a ParserLimits) -> Self {
        Self { limits, read: Vec::new() }
    }

    /// Adds an expression and returns its index. `within` is the mapping's member and the number of characters
    /// before the expression, for errors.
    pub(super) fn add(&mut self, within: (&str, usize), text: &str) -> Result<usize, String> {
        let (member, before) = within;
        let expr = parser::expression(text, self.limits).map_err(|wrong| told(member, before, &wrong))?;
        let mut asks_for_partition = false;
        expr.each(&mut |part| asks_for_partition |= *part == Expr::Field(Field::Partition));
        if asks_for_partition {
            return Err(format!(
                "{member}: $partition is not known to a mapping; use $key, $timestamp, $offset or $header"
            ));
        }
        self.read.push(expr);
        Ok(self.read.len() - 1)
    }

    /// Compiles all expressions; returns them and the members of a payload that they read.
    pub(super) fn finish(self) -> (Columns, Vec<String>) {
        let mut members = Vec::new();
        for expr in &self.read {
            expr.each(&mut |part| {
                if let Expr::Field(Field::Payload(steps)) = part
                    && let Some(PathStep::Key(name)) = steps.first()
                {
                    members.push(name.clone());
                }
            });
        }
        (Columns::new(&self.read), members)
    }
}

/// The error text, with the position in the mapping.
fn told(member: &str, before: usize, wrong: &[Diagnostic]) -> String {
    let told = wrong.iter().map(|diagnostic| {
        let mut diagnostic = diagnostic.clone();
        if diagnostic.place.line == 1 {
            diagnostic.place.column += before;
        }
        format!("{member}: {diagnostic}")
    });
    told.collect::<Vec<_>>().join("; ")
}
