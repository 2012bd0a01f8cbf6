//! The uring floor.

fn main() {}
