//! The measured window: which replies count.

/// The window of one thread. Times are in nanoseconds of the run's clock.
#[derive(Debug, Default)]
pub(super) struct Window {
    start: Option<u64>,
    /// When it ends, if it is limited in time.
    until: Option<u64>,
    /// Requests still to be answered or lost, if it is limited in requests.
    remaining: Option<u64>,
    /// When the last request was completed.
    last: u64,
    /// Requests answered or lost so far.
    completed: u64,
}

impl Window {
    /// Opens it at `now`, limited as given.
    pub(super) fn open(&mut self, now: u64, until: Option<u64>, requests: Option<u64>) {
        *self = Window {
            start: Some(now),
            until,
            remaining: requests,
            last: now,
            completed: 0,
        };
    }

    /// Whether it was opened.
    pub(super) fn was_opened(&self) -> bool {
        self.start.is_some()
    }

    /// Whether what happens at `now` counts.
    pub(super) fn contains(&self, now: u64) -> bool {
        self.start.is_some() && !self.is_over(now)
    }

    /// Whether its limit is reached.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| now >= until) || self.remaining == Some(0)
    }

    /// Completes up to `count` requests at `now`: how many of them count.
    pub(super) fn complete(&mut self, now: u64, count: u32) -> u32 {
        if !self.contains(now) {
            return 0;
        }
        let counted = match &mut self.remaining {
            None => count,
            Some(remaining) => {
                let counted = u64::from(count).min(*remaining);
                *remaining -= counted;
                // No more than `count`, which is a u32.
                counted as u32
            }
        };
        self.last = now;
        self.completed += u64::from(counted);
        counted
    }

    /// Requests answered or lost so far.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Start and end of the window that is closed at `now`: a window limited in requests ends with the
    /// last of them.
    pub(super) fn bounds(&self, now: u64) -> Option<(u64, u64)> {
        let end = if self.remaining == Some(0) {
            self.last
        } else {
            self.until.map_or(now, |at| at.min(now))
        };
        self.start.map(|start| (start, end.max(start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_limited_in_time_counts_what_falls_into_it() {
        let mut window = Window::default();
        assert_eq!(window.complete(5, 1), 0);
        window.open(10, Some(20), None);
        assert_eq!(window.complete(10, 3), 3);
        assert_eq!(window.complete(19, 1), 1);
        assert_eq!(window.complete(20, 1), 0);
        assert!(window.is_over(20));
        assert_eq!((window.completed(), window.bounds(25)), (4, Some((10, 20))));
        assert_eq!(window.bounds(15), Some((10, 15)));
    }

    #[test]
    fn a_window_limited_in_requests_counts_exactly_those() {
        let mut window = Window::default();
        window.open(10, None, Some(4));
        assert_eq!(window.complete(11, 3), 3);
        assert!(!window.is_over(1_000));
        assert_eq!(window.complete(12, 3), 1);
        assert!(window.is_over(12));
        assert_eq!((window.completed(), window.bounds(90)), (4, Some((10, 12))));
    }
}
