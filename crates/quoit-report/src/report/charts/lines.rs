//! Lines over two axes: latency percentiles, CPU against offered load, throughput over time.

use std::ops::Range;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::canvas::{self, Area, Chart, Drawn, Layout, UNIT};
use super::colours::{GRID, SERIES};
use crate::error::Result;
use crate::results::model::{CaseResults, Slice};
use crate::table;

/// Percentiles beyond these nines stand on too few requests.
const MOST_NINES: f64 = 5.0;

/// One line of a server; `index` is the server's number on the page.
struct Line {
    index: usize,
    points: Vec<(f64, f64)>,
}

/// What the axes are.
struct Axes {
    x: Range<f64>,
    y: Range<f64>,
    x_title: &'static str,
    x_label: fn(f64) -> String,
    y_label: fn(f64) -> String,
    /// `y` is the logarithm (base 10) of what is labelled.
    logarithmic: bool,
    x_labels: usize,
    /// Whether every point has its mark.
    marks: bool,
}

/// The latency curves of a case: percentiles by their nines (90 %, 99 %, 99.9 % at equal distances) against a
/// logarithmic axis of time. `None` without curves.
pub(crate) fn percentiles(case: &CaseResults, names: &[&str]) -> Result<Option<Chart>> {
    let lines: Vec<Line> = case
        .servers
        .iter()
        .filter_map(|server| {
            let points: Vec<(f64, f64)> = server
                .latency_curve
                .iter()
                .filter(|(percentile, latency)| *percentile < 100.0 && *latency > 0.0)
                .map(|(percentile, latency)| (nines(*percentile), latency.log10()))
                .filter(|(nines, _)| *nines <= MOST_NINES + 1e-6)
                .collect();
            (!points.is_empty()).then_some(Line {
                index: number(names, &server.server),
                points,
            })
        })
        .collect();
    let Some((x, y)) = bounds(&lines) else {
        return Ok(None);
    };
    // Up to whole nines; the last point may miss them by a rounding.
    let most = (x.end - 0.01).ceil().max(1.0);
    let axes = Axes {
        x: 0.0..most,
        y: (y.start - 0.08)..(y.end + 0.08),
        x_title: "percentile",
        x_label: |nines| {
            if (nines - nines.round()).abs() > 1e-6 {
                return String::new();
            }
            format!("{} %", 100.0 - 100.0 / 10_f64.powf(nines.round()))
        },
        y_label: |log| round_time(10_f64.powf(log)),
        logarithmic: true,
        x_labels: most as usize + 1,
        marks: true,
    };
    lines_of("percentiles", &lines, &axes).map(Some)
}

/// `0 %` is 0, `90 %` is 1, `99 %` is 2.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// CPU per unit against the offered load, over the cases with a schedule; `None` with fewer than two of them.
pub(crate) fn cost_of_load(cases: &[CaseResults], names: &[&str]) -> Result<Option<Chart>> {
    let mut lines: Vec<Line> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let mut points: Vec<(f64, f64)> = cases
                .iter()
                .filter_map(|case| {
                    let offered = case.offered_per_second?;
                    let server = case.servers.iter().find(|server| server.server == *name)?;
                    Some((offered, server.figures.server_cpu_ns_per_unit))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line { index, points }
        })
        .collect();
    lines.retain(|line| !line.points.is_empty());
    let Some((x, y)) = bounds(&lines) else {
        return Ok(None);
    };
    if x.start >= x.end {
        return Ok(None);
    }
    let axes = Axes {
        x: 0.0..x.end * 1.04,
        y: 0.0..above(y.end),
        x_title: "offered per second",
        x_label: table::count,
        y_label: round_time,
        logarithmic: false,
        x_labels: 8,
        marks: true,
    };
    lines_of("load", &lines, &axes).map(Some)
}

/// Units per second in every second of every slice that counts, in the order in which they ran: how steady it was.
/// `None` where no slice has samples.
pub(crate) fn throughput(case: &CaseResults, names: &[&str]) -> Result<Option<Chart>> {
    let mut before = 0.0;
    let mut lines = Vec::new();
    for slice in case.slices.iter().filter(|slice| slice.spoiled.is_none()) {
        let points = rates(slice);
        let points: Vec<_> = points.into_iter().map(|(at, rate)| (before + at, rate)).collect();
        if !points.is_empty() {
            lines.push(Line {
                index: number(names, &slice.server),
                points,
            });
        }
        before += slice.samples.last().map_or(0.0, |sample| sample.at_seconds);
    }
    let Some((_, y)) = bounds(&lines) else {
        return Ok(None);
    };
    let axes = Axes {
        x: 0.0..before,
        y: 0.0..above(y.end),
        x_title: "measured seconds, slice after slice",
        x_label: |seconds| format!("{seconds:.0}"),
        y_label: table::count,
        logarithmic: false,
        x_labels: 8,
        marks: false,
    };
    lines_of("throughput", &lines, &axes).map(Some)
}

/// `(second, units per second)` of a slice, each in the middle of its sample.
pub(crate) fn rates(slice: &Slice) -> Vec<(f64, f64)> {
    let mut start = 0.0;
    let mut rates = Vec::new();
    for sample in &slice.samples {
        let length = sample.at_seconds - start;
        if let Some(units) = sample.units
            && length > 0.0
        {
            rates.push((start + length / 2.0, units / length));
        }
        start = sample.at_seconds;
    }
    rates
}

fn number(names: &[&str], server: &str) -> usize {
    names.iter().position(|name| *name == server).unwrap_or(0)
}

/// A duration of an axis, whose values are round: `10 ms`, not `10.00 ms`.
fn round_time(nanoseconds: f64) -> String {
    table::nanoseconds(nanoseconds)
        .replace(".00 ", " ")
        .replace(".0 ", " ")
}

/// A little above the largest value; above zero also where all are zero.
fn above(largest: f64) -> f64 {
    if largest > 0.0 { largest * 1.08 } else { 1.0 }
}

/// From the least to the greatest of both coordinates; `None` without a point.
fn bounds(lines: &[Line]) -> Option<(Range<f64>, Range<f64>)> {
    let points = || lines.iter().flat_map(|line| &line.points);
    points().next()?;
    let range = |coordinate: fn(&(f64, f64)) -> f64| {
        let least = points().map(coordinate).fold(f64::INFINITY, f64::min);
        let greatest = points().map(coordinate).fold(f64::NEG_INFINITY, f64::max);
        least..greatest
    };
    Some((range(|point| point.0), range(|point| point.1)))
}

fn lines_of(kind: &'static str, lines: &[Line], axes: &Axes) -> Result<Chart> {
    let layouts = [Layout::wide(360), Layout::narrow(280)];
    canvas::chart(kind, layouts, |area, layout| draw(area, layout, lines, axes))
}

/// Powers of ten and their halves and fifths that lie in a range of logarithms.
fn decades(range: &Range<f64>) -> Vec<f64> {
    let few: &[f64] = if range.end - range.start > 2.5 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    (range.start.floor() as i32..=range.end.ceil() as i32)
        .flat_map(|decade| few.iter().map(move |step| f64::from(decade) + step.log10()))
        .filter(|log| range.contains(log))
        .collect()
}

fn draw(area: &Area<'_>, layout: Layout, lines: &[Line], axes: &Axes) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin_top(12 * UNIT)
        .margin_right(32 * UNIT)
        .x_label_area_size(46 * UNIT)
        .y_label_area_size(if layout.narrow { 66 } else { 78 } * UNIT)
        .build_cartesian_2d(axes.x.clone(), axes.y.clone())?;
    let x_labels = if layout.narrow {
        axes.x_labels.min(5)
    } else {
        axes.x_labels
    };
    let y_label = |value: &f64| (axes.y_label)(*value);
    let x_label = |value: &f64| (axes.x_label)(*value);
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(canvas::grid())
        .axis_style(canvas::axis())
        .label_style(canvas::axis_text())
        .axis_desc_style(canvas::axis_text())
        .x_labels(x_labels)
        .y_labels(if layout.narrow { 5 } else { 7 })
        .x_label_formatter(&x_label)
        .y_label_formatter(&y_label)
        .x_desc(axes.x_title);
    if axes.logarithmic {
        mesh.disable_y_mesh().y_labels(0);
    }
    mesh.draw()?;
    if axes.logarithmic {
        logarithmic_axis(area, &chart, axes)?;
    }
    for line in lines {
        let colour = SERIES[line.index % SERIES.len()];
        let style = canvas::stroke(colour, 2.0);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        // A single second is no line.
        if axes.marks || line.points.len() == 1 {
            for point in &line.points {
                canvas::mark(area, chart.backend_coord(point), line.index)?;
            }
        }
    }
    Ok(())
}

type LinearChart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The marks of a logarithmic axis, where the library would choose even steps of the logarithm.
fn logarithmic_axis(area: &Area<'_>, chart: &LinearChart<'_, '_>, axes: &Axes) -> Drawn {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let style = canvas::axis_text().pos(Pos::new(HPos::Right, VPos::Center));
    for log in decades(&axes.y) {
        let (left, y) = chart.backend_coord(&(axes.x.start, log));
        let (right, _) = chart.backend_coord(&(axes.x.end, log));
        area.draw(&PathElement::new(
            [(left, y), (right, y)],
            canvas::stroke(GRID, 1.0),
        ))?;
        area.draw_text(&(axes.y_label)(log), &style, (left - 8 * UNIT, y))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_are_evenly_apart() {
        for (percentile, expected) in [(0.0, 0.0), (90.0, 1.0), (99.0, 2.0), (99.9, 3.0)] {
            assert!((nines(percentile) - expected).abs() < 1e-9, "{percentile}");
        }
    }

    #[test]
    fn a_logarithmic_axis_is_marked_at_round_values() {
        let marks = decades(&(1.9..3.4));
        let values: Vec<f64> = marks.iter().map(|log| 10_f64.powf(*log).round()).collect();
        assert_eq!(values, [100.0, 200.0, 500.0, 1000.0, 2000.0]);
        assert_eq!(decades(&(2.0..6.0)), [2.0, 3.0, 4.0, 5.0]);
    }
}
