//! The expressions of one mapping, and which members they read.

use millstream_columns::{Columns, Diagnostic, Expr, Field, Limits, Step, parser};

/// Expressions as they are read; a place is theirs in [`Columns`].
pub(super) struct Expressions<'a> {
    limits: &'a Limits,
    read: Vec<Expr>,
}

impl<'a> Expressions<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        Self { limits, read: Vec::new() }
    }

    /// Reads one more: its place. `within` tells where the text stands: the mapping's member, and how many characters of
    /// it come before.
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

    /// All of them made ready, and the members of a payload that they read.
    pub(super) fn finish(self) -> (Columns, Vec<String>) {
        let mut members = Vec::new();
        for expr in &self.read {
            expr.each(&mut |part| {
                if let Expr::Field(Field::Payload(steps)) = part
                    && let Some(Step::Key(name)) = steps.first()
                {
                    members.push(name.clone());
                }
            });
        }
        (Columns::new(&self.read), members)
    }
}

/// What is wrong, in the place of the mapping.
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
