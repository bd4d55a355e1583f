//! A table at the end of the terminal that is drawn again and again; log lines go above it.
//!
//! Invariant: as many lines are erased as were drawn. So lines never wrap, and what else is written to the terminal goes
//! through this module while there is a table.

use std::io::{self, IsTerminal as _, Write};

use parking_lot::Mutex;

/// The terminal cuts lines at its edge: a wrapped line would be two to erase.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// Lines of the table at the end of the terminal.
static LINES_DRAWN: Mutex<usize> = Mutex::new(0);

/// Draws `table` on standard output, a terminal, in place of the one before.
pub(crate) fn draw(table: &str) -> io::Result<()> {
    let mut drawn = LINES_DRAWN.lock();
    let text = redrawn(&mut drawn, table);
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Leaves the table where it is; later lines go below it.
pub(crate) fn finish() {
    *LINES_DRAWN.lock() = 0;
}

fn redrawn(drawn: &mut usize, table: &str) -> String {
    let text = format!("{}{WRAP_OFF}{table}{WRAP_ON}", erased(drawn));
    *drawn = table.lines().count();
    text
}

/// Returns the terminal codes that erase the table.
fn erased(drawn: &mut usize) -> String {
    match std::mem::take(drawn) {
        0 => String::new(),
        lines => format!("\x1b[{lines}A\x1b[J"),
    }
}

/// Standard error for log lines. On a terminal a line takes the place of the table, which is drawn again below it.
pub(crate) struct StderrAboveTable;

impl Write for StderrAboveTable {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut drawn = LINES_DRAWN.lock();
        let mut stderr = io::stderr().lock();
        if stderr.is_terminal() {
            stderr.write_all(erased(&mut drawn).as_bytes())?;
        }
        stderr.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lines_are_erased_as_were_drawn() {
        let mut drawn = 0;
        assert_eq!(redrawn(&mut drawn, "a\nb\n\nc\n"), "\x1b[?7la\nb\n\nc\n\x1b[?7h");
        assert_eq!(redrawn(&mut drawn, "d\n"), "\x1b[4A\x1b[J\x1b[?7ld\n\x1b[?7h");
        assert_eq!(drawn, 1);
    }

    #[test]
    fn a_line_erases_the_table_once_and_the_next_table_goes_below_it() {
        let mut drawn = 0;
        assert_eq!(erased(&mut drawn), "", "without a table nothing is erased");
        redrawn(&mut drawn, "a\nb\n");
        assert_eq!(erased(&mut drawn), "\x1b[2A\x1b[J");
        assert_eq!(erased(&mut drawn), "");
        assert_eq!(redrawn(&mut drawn, "c\n"), "\x1b[?7lc\n\x1b[?7h");
    }
}
