//! Memory for copied sends: a fixed number of equal chunks, handed out to outbound queues. What they are in all is the
//! loop's budget of copies, of which [received bytes](crate::pool::Pool::lease_copied) may take a part too.

use crate::errno::Errno;
use crate::reserved::{Reserved, stride};

/// Bytes of chunks that are kept when they are not in use.
const KEPT_BYTES: u64 = 1 << 20;

/// Chunks for which there is room in the list of free ones from the start.
const FIRST_CHUNKS: usize = 64;

/// A chunk in somebody's hands. Not `Clone`: it is given back exactly once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk(u32);

/// All chunks of a loop. Free ones are taken last in, first out, so the same few stay in the caches.
#[derive(Debug)]
pub(crate) struct Chunks {
    memory: Reserved,
    size: u32,
    free: Vec<u32>,
    /// Chunks that were ever taken: those from here on are free and untouched, and not in `free`.
    touched: u32,
    count: u32,
    /// Bytes of the budget that others have.
    charged: u64,
    /// Chunks that are set aside.
    promised: u32,
    budget: u64,
    /// What is left of it: kept, as it is asked for several times for each send.
    left: u64,
}

impl Chunks {
    /// `count` chunks of `size` bytes; reserved, not touched.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(count: u32, size: u32) -> Result<Self, Errno> {
        assert!(count > 0 && size > 0);
        let budget = u64::from(count) * u64::from(size);
        Ok(Self {
            memory: Reserved::new(count as usize * stride(size))?,
            size,
            free: Vec::with_capacity(FIRST_CHUNKS),
            touched: 0,
            count,
            charged: 0,
            promised: 0,
            budget,
            left: budget,
        })
    }

    /// Bytes of one chunk.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// All chunks, taken or not.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Chunks that can be taken.
    pub(crate) fn available(&self) -> usize {
        (self.left() / u64::from(self.size)) as usize
    }

    /// Whether one can be taken: without the division that their number takes.
    pub(crate) fn has_one(&self) -> bool {
        self.left() >= u64::from(self.size)
    }

    /// Bytes of the budget.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes of the budget that nobody has, or was promised.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Sets chunks aside, of those that are [available](Self::available).
    pub(crate) fn promise(&mut self, chunks: u32) {
        assert!(
            chunks as usize <= self.available(),
            "no more is promised than there is"
        );
        self.promised += chunks;
        self.left -= u64::from(chunks) * u64::from(self.size);
    }

    /// Ends a promise, so that the chunks can be taken.
    pub(crate) fn end_promise(&mut self, chunks: u32) {
        assert!(chunks <= self.promised, "no more is taken back than was promised");
        self.promised -= chunks;
        self.left += u64::from(chunks) * u64::from(self.size);
    }

    /// Bytes of the budget that others have.
    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    /// Takes bytes of the budget for memory elsewhere; false, and none are taken, if there are fewer.
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        let enough = bytes <= self.left();
        if enough {
            self.charged += bytes;
            self.left -= bytes;
        }
        enough
    }

    /// Gives back what was [charged](Self::charge).
    pub(crate) fn refund(&mut self, bytes: u64) {
        assert!(bytes <= self.charged, "no more than was charged is given back");
        self.charged -= bytes;
        self.left += bytes;
    }

    /// Chunks in use.
    pub(crate) fn used(&self) -> u32 {
        self.touched - self.free.len() as u32
    }

    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Chunk> {
        if !self.has_one() {
            return None;
        }
        let chunk = match self.free.pop() {
            Some(index) => Chunk(index),
            None => self.touch()?,
        };
        self.left -= u64::from(self.size);
        Some(chunk)
    }

    /// Takes the first chunk that was never taken.
    #[cold]
    fn touch(&mut self) -> Option<Chunk> {
        if self.touched == self.count {
            return None;
        }
        self.touched += 1;
        // Room to take each chunk back is made when it is first taken, not in the middle of a later request.
        self.free.reserve(self.touched as usize);
        Some(Chunk(self.touched - 1))
    }

    #[expect(clippy::needless_pass_by_value, reason = "giving it back ends the chunk")]
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        debug_assert!(chunk.0 < self.touched);
        self.free.push(chunk.0);
        self.left += u64::from(self.size);
    }

    /// Whether much of the memory was touched, and little of that is in use.
    pub(crate) fn is_mostly_unused(&self) -> bool {
        self.is_large() && self.used() <= self.touched / 4
    }

    /// Whether so much of the memory was touched that giving some back is worth it.
    pub(crate) fn is_large(&self) -> bool {
        u64::from(self.touched) * u64::from(self.size) > KEPT_BYTES
    }

    /// Gives the memory behind the last chunk in use back to the system. From here on the first free chunks are taken
    /// first, so that sooner or later none behind them is in use.
    pub(crate) fn trim(&mut self) {
        self.free.sort_unstable_by_key(|&chunk| std::cmp::Reverse(chunk));
        let before = self.touched;
        let unused = (1..)
            .zip(&self.free)
            .take_while(|&(behind, &chunk)| before - behind == chunk);
        let count = unused.count();
        self.free.drain(..count);
        self.touched -= count as u32;
        let end = |chunks: u32| chunks as usize * stride(self.size);
        self.memory.forget(end(self.touched)..end(before));
    }

    /// Keeps the memory from ever being freed.
    pub(crate) fn leak(&mut self) {
        self.memory.leak();
    }

    /// Where byte `offset` of a chunk lies.
    pub(crate) fn address(&self, chunk: &Chunk, offset: u32) -> *const u8 {
        debug_assert!(offset <= self.size);
        // SAFETY: chunk and offset lie within the allocation.
        unsafe {
            self.memory
                .address()
                .as_ptr()
                .add(chunk.0 as usize * stride(self.size) + offset as usize)
        }
    }

    /// Copies bytes into a chunk from `offset` on. Never over bytes that were lent to the kernel: a chunk is
    /// only ever filled towards its end.
    pub(crate) fn write(&mut self, chunk: &Chunk, offset: u32, bytes: &[u8]) {
        assert!(offset as usize + bytes.len() <= self.size as usize);
        // SAFETY: the range lies within the chunk, as just checked, and nobody else writes there; the kernel
        // reads only what was filled before.
        unsafe {
            let target = self
                .memory
                .address()
                .as_ptr()
                .add(chunk.0 as usize * stride(self.size) + offset as usize);
            target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chunks_are_counted_and_used_again() {
        let mut chunks = Chunks::new(2, 64).unwrap();
        let first = chunks.take().unwrap();
        let second = chunks.take().unwrap();
        assert_eq!((chunks.take(), chunks.used(), chunks.available()), (None, 2, 0));
        chunks.write(&second, 60, b"abcd");
        // SAFETY: four bytes were just written there.
        let written = unsafe { std::slice::from_raw_parts(chunks.address(&second, 60), 4) };
        assert_eq!(written, b"abcd");
        chunks.give_back(first);
        assert_eq!((chunks.used(), chunks.available()), (1, 1));
        assert!(chunks.take().is_some());
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn what_is_not_in_use_is_given_back() {
        const COUNT: u32 = 1024;
        let mut chunks = Chunks::new(COUNT, 4096).unwrap();
        let mut taken: Vec<_> = (0..COUNT).map(|_| chunks.take().unwrap()).collect();
        for chunk in &taken {
            chunks.write(chunk, 0, &[7; 4096]);
        }
        assert!(!chunks.is_mostly_unused());
        // One in the midst stays.
        let kept = taken.swap_remove(100);
        taken.into_iter().for_each(|chunk| chunks.give_back(chunk));
        assert!(chunks.is_mostly_unused());
        chunks.trim();
        assert_eq!(
            (chunks.touched, chunks.used(), chunks.available()),
            (101, 1, 1023)
        );
        assert!(!chunks.is_large());
        let resident = crate::reserved::tests::resident(&chunks.memory);
        assert!(resident <= 110, "{resident} pages");
        // SAFETY: the chunk's bytes were written.
        let bytes = unsafe { std::slice::from_raw_parts(chunks.address(&kept, 0), 4096) };
        assert!(bytes.iter().all(|&byte| byte == 7));
        // The first ones come first.
        assert_eq!(chunks.take(), Some(Chunk(0)));
        chunks.give_back(kept);
        chunks.trim();
        assert_eq!((chunks.touched, chunks.used()), (1, 1));
        let again: Vec<_> = (1..COUNT).map(|_| chunks.take().unwrap()).collect();
        assert_eq!((again.len(), chunks.take()), (1023, None));
    }

    proptest! {
        /// Whatever is taken and given back, each chunk keeps its own bytes.
        #[test]
        fn chunks_in_use_do_not_overlap(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            const COUNT: u32 = 16;
            let mut chunks = Chunks::new(COUNT, 64).unwrap();
            let mut taken: Vec<(Chunk, [u8; 64])> = Vec::new();
            for (number, (take, which)) in steps.into_iter().enumerate() {
                if take {
                    let room = chunks.available();
                    match chunks.take() {
                        Some(chunk) => {
                            let bytes = [number as u8; 64];
                            chunks.write(&chunk, 0, &bytes[..32]);
                            chunks.write(&chunk, 32, &bytes[32..]);
                            taken.push((chunk, bytes));
                        }
                        None => prop_assert_eq!(room, 0),
                    }
                } else if !taken.is_empty() {
                    chunks.give_back(taken.swap_remove(which.index(taken.len())).0);
                }
                prop_assert_eq!(chunks.used() as usize, taken.len());
                prop_assert_eq!(chunks.available(), COUNT as usize - taken.len());
                for (chunk, bytes) in &taken {
                    // SAFETY: the chunk's 64 bytes were written, and are not written to meanwhile.
                    let found = unsafe { std::slice::from_raw_parts(chunks.address(chunk, 0), 64) };
                    prop_assert_eq!(found, &bytes[..]);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "bytes.len() <=")]
    fn a_write_past_the_end_is_a_fault() {
        let mut chunks = Chunks::new(2, 64).unwrap();
        let chunk = chunks.take().unwrap();
        chunks.write(&chunk, 60, b"12345");
    }
}
