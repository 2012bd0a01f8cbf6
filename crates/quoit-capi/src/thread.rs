//! Which thread a loop belongs to, and whether that thread has ended.

use std::sync::{Arc, Weak};

thread_local! {
    /// Lives as long as its thread, and is another one for every thread.
    static MARK: Arc<()> = Arc::new(());
}

/// Names a thread without keeping anything of it.
#[derive(Debug)]
pub(crate) struct ThreadMark(Weak<()>);

impl ThreadMark {
    /// The calling thread's; none while it is ending.
    pub(crate) fn current() -> Option<Self> {
        MARK.try_with(|mark| Self(Arc::downgrade(mark))).ok()
    }

    /// Whether it is the calling thread.
    pub(crate) fn is_current(&self) -> bool {
        // The allocation stays while there is a weak reference, so no other thread's mark has this address.
        MARK.try_with(|mark| std::ptr::eq(Arc::as_ptr(mark), self.0.as_ptr()))
            .unwrap_or(false)
    }

    /// Whether that thread has ended, or is about to and runs no more of its program.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart_and_their_end_is_seen() {
        let mine = ThreadMark::current().unwrap();
        let other = std::thread::spawn(|| {
            let mark = ThreadMark::current().unwrap();
            assert!(mark.is_current());
            mark
        })
        .join()
        .unwrap();
        assert!(mine.is_current() && !mine.has_ended());
        assert!(!other.is_current() && other.has_ended());
    }
}
