//! The layout of the ABI as text: what `include/quoit-layout.txt` holds, and what every binding compares with the
//! library that it has loaded.

use std::fmt::Write as _;

use crate::types::{self, Constant, Structure};

/// All structures, fields and constants, one per line: `struct NAME SIZE ALIGNMENT`, `field STRUCT NAME OFFSET SIZE`,
/// `constant NAME VALUE`. Numbers are decimal; sizes and offsets are in bytes.
#[must_use]
pub fn layout() -> String {
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        text.write_fmt(arguments).expect("a string takes every text");
        text.push('\n');
    };
    for structure in types::STRUCTURES.iter().chain([&types::COUNTERS]) {
        let Structure {
            name,
            size,
            alignment,
            fields,
        } = structure;
        line(format_args!("struct {name} {size} {alignment}"));
        for field in *fields {
            line(format_args!(
                "field {name} {} {} {}",
                field.name, field.offset, field.size
            ));
        }
    }
    for Constant { name, value } in types::CONSTANTS {
        line(format_args!("constant {name} {value}"));
    }
    text
}
