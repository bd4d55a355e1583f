//! Text tables for terminals: a column is as wide as its widest cell; texts to the left, numbers to the right.

use std::fmt;

/// A text table with a head line.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates an empty table with these column names.
    pub fn with_head<const N: usize>(names: [&str; N]) -> Self {
        Self { rows: vec![names.map(str::to_owned).to_vec()] }
    }

    /// Adds a row; missing cells at its end stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells =
            self.rows.iter().skip(1).filter_map(|row| row.get(column)).filter(|cell| *cell != "–").peekable();
        cells.peek().is_some()
            && cells.all(|cell| cell.starts_with(|first: char| first.is_ascii_digit() || first == '-' || first == '×'))
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &'_ Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
        let layout: Vec<_> = (0..columns).map(|column| (width(column), self.is_numeric(column))).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (width, numeric)) in layout.iter().copied().enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let text = cell(row, column);
                line += &if numeric { format!("{gap}{text:>width$}") } else { format!("{gap}{text:<width$}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A whole number with commas between its thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A measured number with three significant digits or more: `0.0123`, `1.23`, `123`, `12,345`.
pub(crate) fn measured(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(size.round() as u64))
        }
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_texts_to_the_left() {
        let mut table = TextTable::with_head(["case", "rate/s", "note"]);
        table.row(["QoS 0".to_owned(), grouped(61_234), "warm".to_owned()]);
        table.row(["événement".to_owned(), "–".to_owned()]);
        insta::assert_snapshot!(table.to_string(), @r"
        case       rate/s  note
        QoS 0      61,234  warm
        événement       –
        ");
    }

    #[test]
    fn numbers_are_grouped_and_rounded_for_reading() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
        for (value, expected) in
            [(0.0, "0"), (0.0123, "0.0123"), (0.5, "0.500"), (1.234, "1.23"), (12.34, "12.3"), (-12345.6, "-12,346")]
        {
            assert_eq!(measured(value), expected);
        }
    }
}
