//! The forest plot: every comparison's cost ratio with its interval, over the A/A band.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{self, Area, Chart, Drawn, Layout, UNIT};
use super::colours::{BAND, Colour, LOSS, TIE, WIN};
use crate::error::Result;
use crate::report::view::{self, Judged};
use crate::results::model::{CaseResults, Verdict};

/// Heights in pixels of the page.
const HEADING: i32 = 26;
const ROW: i32 = 26;
/// On a narrow page the name stands above its row.
const NARROW_ROW: i32 = 42;
const AXIS: i32 = 44;
const TOP: i32 = 8;
/// Between the axis and what stands beside a row.
const GAP: i32 = 14;
/// Ratios that the axis may be marked at.
const TICKS: [f64; 23] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0,
    10.0, 20.0, 50.0, 100.0,
];
/// The least ratio of the axis' end to 1.
const LEAST_REACH: f64 = 1.08;
/// Ratios further off are drawn at the edge.
const MOST_REACH: f64 = 100.0;

/// One row or the heading of a case.
enum Row<'a> {
    Case(&'a str),
    Comparison(Judged<'a>),
}

/// The plot of these cases; `None` without a comparison.
pub(crate) fn forest(cases: &[CaseResults]) -> Result<Option<Chart>> {
    let rows: Vec<Row<'_>> = cases
        .iter()
        .filter(|case| !case.comparisons.is_empty())
        .flat_map(|case| {
            let comparisons = view::judged(case).into_iter().map(Row::Comparison);
            std::iter::once(Row::Case(&case.name)).chain(comparisons)
        })
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let height = |row: i32| {
        let rows = rows.iter().map(|entry| match entry {
            Row::Case(_) => HEADING,
            Row::Comparison(_) => row,
        });
        TOP + rows.sum::<i32>() + AXIS
    };
    let layouts = [Layout::wide(height(ROW)), Layout::narrow(height(NARROW_ROW))];
    canvas::chart("forest", layouts, |area, layout| draw(area, layout, &rows)).map(Some)
}

/// What stands beside a row of the wide chart: the ratio with its interval, and what it means.
fn label(judged: &Judged<'_>) -> String {
    let cost = judged.comparison.cost;
    let [median, low, high] = [cost.median, cost.low, cost.high].map(ratio);
    format!("{median} [{low}, {high}] {}", view::verdict_word(judged.verdict))
}

/// The room that the labels of all rows need at the right, in pixels of the page.
fn room_for_labels(rows: &[Row<'_>]) -> i32 {
    let widths = rows.iter().map(|row| match row {
        Row::Case(_) => 0,
        Row::Comparison(judged) => canvas::text_width(&label(judged)),
    });
    GAP + widths.max().unwrap_or(0) + GAP
}

/// How far the axis goes from 1, as a factor, on both sides.
fn reach(rows: &[Row<'_>]) -> f64 {
    let reach = rows.iter().fold(LEAST_REACH, |reach, row| match row {
        Row::Case(_) => reach,
        Row::Comparison(judged) => {
            let cost = judged.comparison.cost;
            reach
                .max(cost.high)
                .max(1.0 / cost.low)
                .max(judged.comparison.band.unwrap_or(1.0))
        }
    });
    (reach * 1.02).min(MOST_REACH)
}

fn draw(area: &Area<'_>, layout: Layout, rows: &[Row<'_>]) -> Drawn {
    let (left, right) = if layout.narrow {
        (16, layout.width - 16)
    } else {
        (290, layout.width - room_for_labels(rows))
    };
    let reach = reach(rows).ln();
    // In units of the drawing, from a ratio.
    let at = |ratio: f64| {
        let share = (ratio.ln().clamp(-reach, reach) / reach + 1.0) / 2.0;
        ((f64::from(left) + share * f64::from(right - left)) * f64::from(UNIT)) as i32
    };
    let bottom = (layout.height - AXIS) * UNIT;

    // The bands lie under everything, the grid under the rows.
    let mut top = TOP;
    for row in rows {
        match row {
            Row::Case(_) => top += HEADING,
            Row::Comparison(judged) => {
                let height = if layout.narrow { NARROW_ROW } else { ROW };
                if let Some(band) = judged.comparison.band {
                    let corners = [(at(1.0 / band), top * UNIT), (at(band), (top + height) * UNIT)];
                    area.draw(&Rectangle::new(corners, BAND.rgb().filled()))?;
                }
                top += height;
            }
        }
    }
    ticks(area, layout, reach, at, bottom)?;

    let mut top = TOP;
    for row in rows {
        match row {
            Row::Case(name) => {
                let name = canvas::fitted(name, layout.width - 16);
                let style = canvas::text(super::colours::MUTED, HPos::Left, VPos::Center);
                let x = if layout.narrow { left } else { 8 };
                area.draw_text(&name, &style, (x * UNIT, (top + HEADING / 2 + 2) * UNIT))?;
                top += HEADING;
            }
            Row::Comparison(judged) => {
                comparison(area, layout, judged, (left, right, top), at)?;
                top += if layout.narrow { NARROW_ROW } else { ROW };
            }
        }
    }
    Ok(())
}

/// The axis and its grid.
fn ticks(area: &Area<'_>, layout: Layout, reach: f64, at: impl Fn(f64) -> i32, bottom: i32) -> Drawn {
    let room = 38 * UNIT;
    // 1 has its place before its neighbours, and so on outwards.
    let mut marked: Vec<f64> = Vec::new();
    let mut ticks = TICKS.to_vec();
    ticks.sort_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
    // Far ends are more useful than the second neighbour of 1.
    if reach > 0.5 {
        ticks.retain(|tick| ![0.95, 1.05, 0.9, 1.1].contains(tick));
    }
    for tick in ticks {
        let free = marked.iter().all(|other| (at(*other) - at(tick)).abs() >= room);
        if tick.ln().abs() <= reach && free {
            marked.push(tick);
        }
    }
    let label = canvas::axis_text().pos(plotters::style::text_anchor::Pos::new(HPos::Center, VPos::Top));
    for tick in marked {
        let x = at(tick);
        let style = if tick == 1.0 {
            canvas::axis()
        } else {
            canvas::grid()
        };
        area.draw(&PathElement::new([(x, TOP * UNIT), (x, bottom)], style))?;
        area.draw_text(&format!("{tick}"), &label, (x, bottom + 6 * UNIT))?;
    }
    let below = bottom + 25 * UNIT;
    let words = |text: &str, x: i32, side: HPos| {
        let style = canvas::axis_text().pos(plotters::style::text_anchor::Pos::new(side, VPos::Top));
        area.draw_text(text, &style, (x, below))
    };
    let (cheaper, dearer) = if layout.narrow {
        ("← less", "more →")
    } else {
        ("← costs less", "costs more →")
    };
    words(cheaper, at((-reach).exp()), HPos::Left)?;
    words(dearer, at(reach.exp()), HPos::Right)
}

/// A ratio in as many digits as mean something, and have room: beyond ten the third decimal does not.
fn ratio(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.3}")
    } else {
        format!("{ratio:.1}")
    }
}

fn comparison(
    area: &Area<'_>,
    layout: Layout,
    judged: &Judged<'_>,
    (left, right, top): (i32, i32, i32),
    at: impl Fn(f64) -> i32,
) -> Drawn {
    let comparison = judged.comparison;
    let cost = comparison.cost;
    let (colour, word) = look(judged.verdict);
    let names = |room: i32| {
        // Both ends of a pair have a place, however long the first is.
        let against = canvas::fitted(&format!(" : {}", comparison.against), room / 2);
        canvas::fitted(&comparison.server, room - canvas::text_width(&against)) + &against
    };
    let figure = format!("{}  {word}", ratio(cost.median));
    let middle = if layout.narrow {
        let room = right - left - canvas::text_width(&figure) - 8;
        let y = (top + 12) * UNIT;
        let name = names(room);
        area.draw_text(&name, &canvas::ink(HPos::Left, VPos::Center), (left * UNIT, y))?;
        let style = canvas::text(colour, HPos::Right, VPos::Center);
        area.draw_text(&figure, &style, (right * UNIT, y))?;
        (top + 29) * UNIT
    } else {
        let y = (top + ROW / 2) * UNIT;
        let name = names(left - 24);
        area.draw_text(
            &name,
            &canvas::ink(HPos::Right, VPos::Center),
            ((left - GAP) * UNIT, y),
        )?;
        let style = canvas::text(colour, HPos::Left, VPos::Center);
        area.draw_text(&label(judged), &style, ((right + GAP) * UNIT, y))?;
        y
    };
    let line = canvas::stroke(colour, 2.0);
    area.draw(&PathElement::new(
        [(at(cost.low), middle), (at(cost.high), middle)],
        line,
    ))?;
    for end in [cost.low, cost.high] {
        let cap = [(at(end), middle - 6 * UNIT), (at(end), middle + 6 * UNIT)];
        area.draw(&PathElement::new(cap, line))?;
    }
    let centre = (at(cost.median), middle);
    let radius = 4 * UNIT;
    match judged.verdict {
        Verdict::Loss => area.draw(&Rectangle::new(
            [
                (centre.0 - radius, centre.1 - radius),
                (centre.0 + radius, centre.1 + radius),
            ],
            colour.rgb().filled(),
        )),
        Verdict::Tie | Verdict::Unjudged => area.draw(&Circle::new(centre, radius, line)),
        Verdict::Win => area.draw(&Circle::new(centre, radius, colour.rgb().filled())),
    }
}

fn look(verdict: Verdict) -> (Colour, &'static str) {
    let colour = match verdict {
        Verdict::Loss => LOSS,
        Verdict::Tie | Verdict::Unjudged => TIE,
        Verdict::Win => WIN,
    };
    (colour, view::verdict_word(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;
    use crate::results::model::Ratio;

    #[test]
    fn labels_at_the_right_have_room_whatever_they_say() {
        let mut cases = example::results().cases;
        for (comparison, factor) in cases[0].comparisons.iter_mut().zip([1.0, 1e4]) {
            // Nothing is judged by one pair, and no word is longer than that.
            comparison.pairs = 1;
            comparison.verdict = Verdict::Unjudged;
            let of = |ratio: f64| ratio * factor;
            let Ratio { median, low, high } = comparison.cost;
            comparison.cost = Ratio {
                median: of(median),
                low: of(low),
                high: of(high),
            };
        }
        let chart = forest(&cases)
            .expect("it can be drawn")
            .expect("there are comparisons");
        let [wide, _] = &chart.svg;
        let mut labels = 0;
        for text in wide.split("<text ").skip(1) {
            let (attributes, content) = text.split_once('>').expect("the element is closed");
            let content = content.split("</text").next().expect("the text ends").trim();
            if attributes.contains("text-anchor=\"start\"") && content.contains('[') {
                let x = attributes
                    .split("x=\"")
                    .nth(1)
                    .and_then(|rest| rest.split('"').next());
                let x: i32 = x.and_then(|x| x.parse().ok()).expect("it has a place");
                let end = x / UNIT + canvas::text_width(content);
                assert!(end <= Layout::wide(0).width, "{content} ends at {end}");
                labels += 1;
            }
        }
        let comparisons: usize = cases.iter().map(|case| case.comparisons.len()).sum();
        assert_eq!(labels, comparisons, "{wide}");
    }
}
