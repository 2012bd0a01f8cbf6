//! Horizontal bars, one a server: CPU in parts that are stacked, and memory.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::canvas::{self, Area, Chart, Drawn, Layout, UNIT};
use super::colours::{Colour, STACK};
use crate::error::Result;
use crate::report::view;
use crate::results::model::{CaseResults, ServerSummary};
use crate::table;

/// Heights in pixels of the page.
const ROW: i32 = 30;
const NARROW_ROW: i32 = 46;
const MARGIN: i32 = 8;
/// Room behind a bar for its figure.
const FIGURE: i32 = 84;

/// One server's bar: its parts from the left, and the figure behind it.
struct Bar<'a> {
    name: &'a str,
    parts: Vec<(f64, Colour)>,
    figure: String,
}

/// The CPU of server (user space and kernel, where they are known apart) and generator for one unit; `None` where
/// CPU is not the cost.
pub(crate) fn cpu(case: &CaseResults) -> Result<Option<Chart>> {
    if view::is_memory(case) || case.servers.is_empty() {
        return Ok(None);
    }
    let bar = |server: &'_ ServerSummary| {
        let figures = &server.figures;
        let cpu = figures.server_cpu_ns_per_unit;
        let user = figures.server_user_share.map_or(0.0, |share| cpu * share);
        let generator = figures.generator_cpu_ns_per_unit.unwrap_or(0.0);
        let parts = [user, cpu - user, generator];
        (
            parts.into_iter().zip(STACK).collect(),
            table::nanoseconds(cpu + generator),
        )
    };
    let bars = view::servers(case)
        .into_iter()
        .map(|server| {
            let (parts, figure) = bar(server);
            Bar {
                name: &server.server,
                parts,
                figure,
            }
        })
        .collect::<Vec<_>>();
    bars_of("cpu", &bars).map(Some)
}

/// Resident memory and, behind it, its peak; or memory per connection. `None` where none was measured.
pub(crate) fn memory(case: &CaseResults) -> Result<Option<Chart>> {
    let bars: Vec<Bar<'_>> = view::servers(case)
        .into_iter()
        .filter_map(|server| {
            let figures = &server.figures;
            let parts = match (figures.bytes_per_connection, figures.resident_bytes) {
                (Some(each), _) => vec![(each.max(0.0), STACK[0])],
                (None, Some(resident)) => {
                    let peak = figures.peak_resident_bytes.unwrap_or(resident).max(resident);
                    vec![(resident as f64, STACK[0]), ((peak - resident) as f64, STACK[2])]
                }
                (None, None) => return None,
            };
            Some(Bar {
                name: &server.server,
                figure: view::bytes(parts[0].0),
                parts,
            })
        })
        .collect();
    if bars.is_empty() {
        return Ok(None);
    }
    bars_of("memory", &bars).map(Some)
}

fn bars_of(kind: &'static str, bars: &[Bar<'_>]) -> Result<Chart> {
    let rows = bars.len() as i32;
    let layouts = [
        Layout::wide(2 * MARGIN + rows * ROW),
        Layout::narrow(2 * MARGIN + rows * NARROW_ROW),
    ];
    canvas::chart(kind, layouts, |area, layout| draw(area, layout, bars))
}

fn draw(area: &Area<'_>, layout: Layout, bars: &[Bar<'_>]) -> Drawn {
    let length = |bar: &Bar<'_>| bar.parts.iter().map(|(value, _)| value).sum::<f64>();
    let longest = bars.iter().map(length).fold(0.0, f64::max);
    let names = bars
        .iter()
        .map(|bar| canvas::text_width(bar.name))
        .max()
        .unwrap_or(0);
    let left = if layout.narrow {
        MARGIN
    } else {
        names.clamp(80, 280) + 16
    };
    let right = layout.width - FIGURE;
    // In units of the drawing; nothing is drawn of nothing.
    let wide = |value: f64| {
        let share = if longest > 0.0 { value / longest } else { 0.0 };
        (share * f64::from((right - left) * UNIT)) as i32
    };
    let row = if layout.narrow { NARROW_ROW } else { ROW };
    for (index, bar) in bars.iter().enumerate() {
        let top = MARGIN + index as i32 * row;
        let (name, place, middle) = if layout.narrow {
            let name = canvas::fitted(bar.name, layout.width - 2 * MARGIN);
            (name, (left, top + 11), top + 31)
        } else {
            let name = canvas::fitted(bar.name, left - 16);
            (name, (left - 10, top + row / 2), top + row / 2)
        };
        let side = if layout.narrow { HPos::Left } else { HPos::Right };
        let style = canvas::ink(side, VPos::Center);
        area.draw_text(&name, &style, (place.0 * UNIT, place.1 * UNIT))?;
        let mut x = left * UNIT;
        for (value, colour) in &bar.parts {
            let end = x + wide(*value);
            if end > x {
                let corners = [(x, (middle - 9) * UNIT), (end, (middle + 9) * UNIT)];
                area.draw(&Rectangle::new(corners, colour.rgb().filled()))?;
            }
            x = end;
        }
        let style = canvas::ink(HPos::Left, VPos::Center);
        area.draw_text(&bar.figure, &style, (x + 8 * UNIT, middle * UNIT))?;
    }
    Ok(())
}
