//! Columns.

use crate::screen::Screen;

/// A head and rows, padded; nothing where there are no rows.
pub(super) fn table<const N: usize>(
    head: [&str; N],
    rows: &[[String; N]],
    screen: Screen,
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = screen.dim(&line(head));
    for row in rows {
        text.push('\n');
        text.push_str(&line(row.each_ref().map(String::as_str)));
    }
    text.push('\n');
    text
}
