//! Memory that a generator walks over, so that what else runs on its processor finds the caches cold.

use std::hint::black_box;

/// A cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    touched: u64,
}

/// So much memory.
#[derive(Default)]
pub(crate) struct Displacer(Box<[Line]>);

impl Displacer {
    /// This many bytes, in whole lines.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![Line::default(); bytes.div_ceil(size_of::<Line>())].into_boxed_slice())
    }

    /// Reads and writes each line.
    pub(crate) fn walk(&mut self) {
        for line in &mut self.0 {
            line.touched = line.touched.wrapping_add(1);
        }
        black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_touched_once_per_walk() {
        let mut displacer = Displacer::new(1000);
        displacer.walk();
        displacer.walk();
        assert_eq!(displacer.0.len() * 64, 1024);
        assert!(displacer.0.iter().all(|line| line.touched == 2));
        Displacer::new(0).walk();
    }
}
