//! The real kernel.

/// The real kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;
