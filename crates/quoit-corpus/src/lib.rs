//! How the functions are fed that the fuzz targets call, outside of the fuzzer.
//!
//! Each crate that decodes bytes which others chose has a module `fuzzing`: one function for each decoder, which takes
//! any bytes and panics where the decoder does not keep its promises. The targets in `fuzz/` call them with what
//! the fuzzer invents, and [`replay!`] makes an ordinary test of each, with the files of its corpus.

mod pieces;
mod replay;

pub use pieces::cuttings;
#[doc(hidden)]
pub use replay::replay;
