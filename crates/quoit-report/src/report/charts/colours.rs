//! The colours of the charts, and what becomes of them on a dark page.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// A colour on a light and on a dark page.
#[derive(Clone, Copy)]
pub(crate) struct Colour {
    light: RGBColor,
    dark: &'static str,
}

const fn colour(light: u32, dark: &'static str) -> Colour {
    Colour {
        light: RGBColor((light >> 16) as u8, (light >> 8) as u8, light as u8),
        dark,
    }
}

pub(crate) const INK: Colour = colour(0x1f_2329, "#e6e9ee");
pub(crate) const MUTED: Colour = colour(0x5b_6472, "#a3adba");
pub(crate) const GRID: Colour = colour(0xe2_e6eb, "#2f363f");
/// The A/A band.
pub(crate) const BAND: Colour = colour(0xd5_dbe4, "#39424f");
pub(crate) const LOSS: Colour = colour(0xb4_2319, "#ff8f7f");
pub(crate) const TIE: Colour = colour(0x6b_7583, "#98a3b1");
pub(crate) const WIN: Colour = colour(0x0f_62b5, "#7db8ff");
/// The parts of a stack: the server in user space, in the kernel, and the generator.
pub(crate) const STACK: [Colour; 3] = [
    colour(0x14_4f8c, "#8cc2ff"),
    colour(0x5f_a0de, "#3f7fc4"),
    colour(0xc3_c9d1, "#5a6470"),
];

/// Lines of servers: after Okabe and Ito, told apart with every kind of colour vision, and told apart again by
/// the shape of their marks.
pub(crate) const SERIES: [Colour; 7] = [
    colour(0x00_72b3, "#5ab4f0"),
    colour(0xd2_5b00, "#ff9a4d"),
    colour(0x00_8f68, "#3fd0a4"),
    colour(0xb4_5a91, "#e59ccb"),
    colour(0x8a_6d00, "#e0c341"),
    colour(0x6a_4fb0, "#b5a1ee"),
    colour(0x7a_4a35, "#d6a289"),
];

impl Colour {
    pub(crate) fn rgb(self) -> RGBColor {
        self.light
    }

    fn hex(self) -> String {
        let RGBColor(red, green, blue) = self.light;
        format!("#{red:02X}{green:02X}{blue:02X}")
    }
}

/// The name of the style of a server's marks outside of the charts.
pub(crate) fn series_class(index: usize) -> String {
    format!("series{}", index % SERIES.len())
}

/// The same for a part of a stack.
pub(crate) fn stack_class(index: usize) -> String {
    format!("stack{index}")
}

/// The rules for the colours, to stand behind the style sheet.
pub(crate) fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    let fixed = [INK, MUTED, GRID, BAND, LOSS, TIE, WIN];
    for colour in fixed.iter().chain(&STACK).chain(&SERIES) {
        let (hex, replaced) = (colour.hex(), colour.dark);
        let _ = write!(
            dark,
            "svg [fill=\"{hex}\"]{{fill:{replaced}}}svg [stroke=\"{hex}\"]{{stroke:{replaced}}}"
        );
    }
    let series = SERIES
        .iter()
        .enumerate()
        .map(|(index, colour)| (series_class(index), colour));
    let stack = STACK
        .iter()
        .enumerate()
        .map(|(index, colour)| (stack_class(index), colour));
    for (class, colour) in series.chain(stack) {
        let _ = write!(light, ".{class}{{color:{}}}", colour.hex());
        let _ = write!(dark, ".{class}{{color:{}}}", colour.dark);
    }
    format!("{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_stands_for_one_thing() {
        let fixed = [INK, MUTED, GRID, BAND, LOSS, TIE, WIN];
        let mut all: Vec<String> = fixed
            .iter()
            .chain(&STACK)
            .chain(&SERIES)
            .map(|colour| colour.hex())
            .collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(
            all.len(),
            count,
            "the dark page tells colours apart by their light values"
        );
    }
}
