//! Marks in a trace: stores to a page whose address is known before the program runs.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

/// The page of the marks: an address that neither a program nor its libraries are mapped at.
pub(crate) const PAGE: usize = 0x2_7000_0000;

/// What a mark says; the value is the offset of the byte that is stored to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// A turn begins.
    Begin = 0,
    /// A turn is over.
    End = 64,
}

impl Mark {
    pub(crate) fn at(address: usize) -> Option<Self> {
        [Self::Begin, Self::End]
            .into_iter()
            .find(|&mark| address == PAGE + mark as usize)
    }
}

/// Maps the page; what makes the marks.
#[derive(Debug)]
pub(crate) struct Marks(&'static [AtomicU8]);

impl Marks {
    pub(crate) fn new() -> Result<Self, String> {
        const LENGTH: usize = 4096;
        // SAFETY: the mapping is new (MAP_FIXED_NOREPLACE), and nothing unmaps it.
        let mapped = unsafe {
            libc::mmap(
                PAGE as *mut libc::c_void,
                LENGTH,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if mapped as usize != PAGE {
            return Err(format!(
                "the page of the marks could not be mapped: {}",
                std::io::Error::last_os_error()
            ));
        }
        // SAFETY: LENGTH bytes, zero, mapped for good.
        Ok(Self(unsafe {
            std::slice::from_raw_parts(mapped.cast::<AtomicU8>(), LENGTH)
        }))
    }

    #[inline(always)]
    pub(crate) fn set(&self, mark: Mark) {
        // Nothing is moved across it, and it is one store: the tracer has another word for an exchange.
        compiler_fence(Ordering::SeqCst);
        self.0[mark as usize].store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }
}
