//! What all charts share: two sizes, one text style, and the way into the page.

use std::io;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::colours::{Colour, GRID, INK, MUTED};
use crate::error::{ReportError, Result};

/// Units of the SVG in one pixel of the page: the library draws on whole units, which is too coarse for curves.
pub(super) const UNIT: i32 = 4;
/// Of text, in pixels of the page.
const TEXT: f64 = 13.0;
/// Of the text of axes.
const AXIS_TEXT: f64 = 12.0;
/// The library's size of a font over the one that it writes into the SVG.
const FONT_SCALE: f64 = 1.24;
const FONT: &str = "system-ui, sans-serif";
/// Width of a character, as a share of its height, to leave enough room.
const CHARACTER: f64 = 0.56;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = std::result::Result<(), DrawingAreaErrorKind<io::Error>>;

/// A finished chart.
pub(crate) struct Chart {
    /// What kind it is: `data-chart` of its figure.
    pub(crate) kind: &'static str,
    /// SVG elements, for a wide and for a narrow page.
    pub(crate) svg: [String; 2],
}

impl Chart {
    /// The wide one as a file of its own. It brings its paper, as a page that shows it may be dark where the reader's
    /// settings are light, or the other way round.
    pub(crate) fn file(&self) -> String {
        let [wide, _] = &self.svg;
        let (start, drawing) = wide.split_once('>').unwrap_or((wide, ""));
        let attribute = |name: &str| {
            let rest = start.split(&format!(" {name}=\"")).nth(1)?;
            rest.split('"').next()?.parse::<i32>().ok()
        };
        let (width, height) = (
            attribute("width").unwrap_or_default(),
            attribute("height").unwrap_or_default(),
        );
        format!(
            "{}{PAPER}{}\n",
            opening(width / UNIT, height / UNIT, (width, height)),
            drawing.trim_start_matches('\n')
        )
    }
}

/// Behind a picture that stands alone.
const PAPER: &str = "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n";

fn opening(width: i32, height: i32, units: (i32, i32)) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {} {}\">\n",
        units.0, units.1
    )
}

/// A picture that says in one line why there is no chart. The line has no characters that SVG gives a meaning.
pub(crate) fn nothing(line: &str) -> String {
    format!(
        "{}{PAPER}<text x=\"20\" y=\"36\" font-family=\"{FONT}\" font-size=\"15\">{line}</text>\n</svg>\n",
        opening(960, 60, (960, 60))
    )
}

/// For which of the two sizes is being drawn.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) narrow: bool,
    /// In pixels of the page.
    pub(super) width: i32,
    pub(super) height: i32,
}

impl Layout {
    pub(super) fn wide(height: i32) -> Self {
        Self {
            narrow: false,
            width: 960,
            height,
        }
    }

    pub(super) fn narrow(height: i32) -> Self {
        Self {
            narrow: true,
            width: 360,
            height,
        }
    }
}

/// Draws a chart in both sizes.
pub(super) fn chart(
    kind: &'static str,
    layouts: [Layout; 2],
    draw: impl Fn(&Area<'_>, Layout) -> Drawn,
) -> Result<Chart> {
    let one = |layout: Layout| {
        let mut svg = String::new();
        let size = (layout.width * UNIT, layout.height * UNIT);
        let area = SVGBackend::with_string(&mut svg, (size.0 as u32, size.1 as u32)).into_drawing_area();
        draw(&area, layout)
            .and_then(|()| area.present())
            .map_err(|error| ReportError::new(format!("drawing the chart {kind}: {error}")))?;
        drop(area);
        let class = if layout.narrow { "narrow" } else { "wide" };
        Ok(svg.replacen("<svg ", &format!("<svg class=\"{class}\" "), 1))
    };
    let [wide, narrow] = layouts;
    Ok(Chart {
        kind,
        svg: [one(wide)?, one(narrow)?],
    })
}

/// Text of the charts, in a colour, held at a point.
pub(super) fn text(colour: Colour, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FONT, font_size(TEXT))
        .into_font()
        .color(&colour.rgb())
        .pos(Pos::new(horizontal, vertical))
}

fn font_size(pixels: f64) -> f64 {
    pixels * FONT_SCALE * f64::from(UNIT)
}

/// Text of an axis.
pub(super) fn axis_text() -> TextStyle<'static> {
    (FONT, font_size(AXIS_TEXT)).into_font().color(&MUTED.rgb())
}

/// About how wide a text is, in pixels of the page.
pub(super) fn text_width(text: &str) -> i32 {
    (text.chars().count() as f64 * TEXT * CHARACTER).ceil() as i32
}

/// As much of a text as has room, in pixels of the page.
pub(super) fn fitted(text: &str, room: i32) -> String {
    if text_width(text) <= room {
        return text.to_owned();
    }
    let kept = (f64::from(room) / (TEXT * CHARACTER)) as usize;
    let mut short: String = text.chars().take(kept.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A line of so many pixels.
pub(super) fn stroke(colour: Colour, width: f64) -> ShapeStyle {
    colour.rgb().stroke_width((width * f64::from(UNIT)) as u32)
}

/// The thin line of a grid.
pub(super) fn grid() -> ShapeStyle {
    stroke(GRID, 1.0)
}

/// The line of an axis.
pub(super) fn axis() -> ShapeStyle {
    stroke(MUTED, 1.0)
}

pub(super) fn ink(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    text(INK, horizontal, vertical)
}

/// The mark of a server, by its number: colour and shape.
pub(super) fn mark(area: &Area<'_>, (x, y): (i32, i32), index: usize) -> Drawn {
    let colour = super::colours::SERIES[index % super::colours::SERIES.len()];
    let style = colour.rgb().filled();
    let radius = 7 * UNIT / 2;
    match index % MARKS.len() {
        0 => area.draw(&Circle::new((x, y), radius, style)),
        1 => area.draw(&Rectangle::new(
            [(x - radius, y - radius), (x + radius, y + radius)],
            style,
        )),
        2 => area.draw(&TriangleMarker::new((x, y), radius + UNIT, style)),
        3 => area.draw(&Polygon::new(
            [
                (x, y - radius - UNIT),
                (x + radius + UNIT, y),
                (x, y + radius + UNIT),
                (x - radius - UNIT, y),
            ],
            style,
        )),
        _ => area.draw(&Cross::new((x, y), radius, stroke(colour, 2.0))),
    }
}

/// The same marks as characters, for the legend.
pub(crate) const MARKS: [&str; 5] = ["●", "■", "▲", "◆", "✕"];
