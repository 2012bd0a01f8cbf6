//! The charts of the page, as SVG that stands in the page: no script, no font and no picture from elsewhere.
//!
//! Every chart is drawn twice, for a wide and for a narrow page, and the style sheet shows one of the two: text
//! keeps its size on a phone. The colours are those of a light page; on a dark one the style sheet replaces
//! them, by the colour that stands in the SVG (see [`colours`]).

pub(crate) mod bars;
mod canvas;
pub(crate) mod colours;
pub(crate) mod forest;
pub(crate) mod lines;

pub(crate) use canvas::{Chart, MARKS, nothing};
