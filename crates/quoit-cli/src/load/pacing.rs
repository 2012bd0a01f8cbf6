//! When a request is due.

/// Closed loop: each connection keeps `depth` requests outstanding, and a reply makes the next request due
/// at once, as long as the allowance lasts. The server's pace sets the rate, so that latencies say nothing
/// about a load that does not wait (coordinated omission); they are for comparing at saturation.
#[derive(Debug)]
pub(crate) struct ClosedLoop {
    depth: u32,
    /// Requests that may still be sent.
    allowance: u64,
}

impl ClosedLoop {
    /// Nothing is due before an allowance is given.
    pub(crate) fn new(depth: u32) -> Self {
        ClosedLoop { depth, allowance: 0 }
    }

    /// Sets how many requests may be sent from now on.
    pub(crate) fn allow(&mut self, requests: u64) {
        self.allowance = requests;
    }

    /// Whether no more requests may be sent on any connection.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.allowance == 0
    }

    /// Takes one request for a connection with `outstanding` ones, if one is due.
    pub(crate) fn take(&mut self, outstanding: u32) -> bool {
        let due = outstanding < self.depth && self.allowance > 0;
        if due {
            self.allowance -= 1;
        }
        due
    }

    /// Takes back requests that the server declined by announcing the connection's end.
    pub(crate) fn give_back(&mut self, requests: u64) {
        self.allowance = self.allowance.saturating_add(requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_up_to_the_depth_while_the_allowance_lasts() {
        let mut pacing = ClosedLoop::new(2);
        assert!(pacing.is_exhausted());
        assert!(!pacing.take(0));
        pacing.allow(3);
        assert!(pacing.take(0) && pacing.take(1));
        assert!(!pacing.take(2));
        assert!(pacing.take(1));
        assert!(pacing.is_exhausted() && !pacing.take(0));
        pacing.give_back(1);
        assert!(pacing.take(0) && !pacing.take(0));
    }
}
