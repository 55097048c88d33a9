//! Tables for people.

use comfy_table::{ContentArrangement, Table, presets::UTF8_BORDERS_ONLY};
use fulgurite_trace::escape::{Lines, escape};

/// Columns where the width of the terminal is not known.
const COLUMNS: u16 = 120;

fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    columns.or_else(|| Table::new().width()).unwrap_or(COLUMNS).max(40)
}

/// A table as text; every cell is escaped, since names and messages may come from guests.
pub(crate) fn text<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = empty();
    table.set_header(heads);
    filled(table, rows)
}

/// Names and values, without a heading.
pub(crate) fn pairs(rows: impl IntoIterator<Item = [String; 2]>) -> String {
    filled(empty(), rows)
}

fn empty() -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width());
    table
}

fn filled<const N: usize>(mut table: Table, rows: impl IntoIterator<Item = [String; N]>) -> String {
    for row in rows {
        // Line breaks stay within the cell's borders.
        table.add_row(row.map(|cell| escape(&cell, Lines::Keep).into_owned()));
    }
    table.to_string()
}
