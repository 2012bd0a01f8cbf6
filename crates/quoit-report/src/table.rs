//! Tables and numbers for people.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// A table with this header; all columns but the first are aligned to the right.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    let line = LineStyle::none().fill('─').junction('─');
    let style = TableStyle::new()
        .top_border(line)
        .header_separator(line)
        .bottom_border(line);
    table
        .load_style(style)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A whole number with its thousands set apart: `1,234,567`.
pub fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits
        .strip_prefix('-')
        .map_or(("", digits.as_str()), |digits| ("-", digits));
    let groups: Vec<&str> = (0..digits.len())
        .rev()
        .step_by(3)
        .map(|end| &digits[end.saturating_sub(2)..=end])
        .collect();
    sign.to_owned() + &groups.into_iter().rev().collect::<Vec<_>>().join(",")
}

/// A duration in the unit that suits it: `950 ns`, `12.3 µs`, `4.56 ms`.
pub fn nanoseconds(value: f64) -> String {
    match value {
        ..1e3 => format!("{value:.0} ns"),
        ..1e6 => format!("{:.1} µs", value / 1e3),
        ..1e9 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// A number of events for one unit of work: `2.02`, `0.062`, `0.0031`.
pub fn per_unit(value: f64) -> String {
    match value.abs() {
        ..0.01 => format!("{value:.4}"),
        ..1.0 => format!("{value:.3}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let grouped = [0.0, 999.0, 1000.0, 1_234_567.4, -45_000.0].map(count);
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567", "-45,000"]);
    }

    #[test]
    fn durations_have_a_unit() {
        let durations = [950.0, 12_340.0, 4_560_000.0, 1.5e9].map(nanoseconds);
        assert_eq!(durations, ["950 ns", "12.3 µs", "4.56 ms", "1.50 s"]);
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!(
            [2.0171, 0.0623, 0.00312].map(per_unit),
            ["2.02", "0.062", "0.0031"]
        );
    }
}
