//! Waiting awake: looking again and again, for a while or for ever, before or instead of a sleep.

use std::time::Duration;

use super::{Loop, TurnError};
use crate::config::WaitMode;
use crate::engine::Engine;
use crate::sys::{SocketSys, Time};

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Looks for something to do until there is something, the mode's time is over, or the turn's. Returns what is left
    /// of that, and the time. No sleep is announced meanwhile, so a wake costs whoever makes it no system call.
    pub(super) fn spin(
        &mut self,
        timeout: Option<Duration>,
        begun: Time,
    ) -> Result<(Option<Duration>, Time), TurnError> {
        let limit = match (self.config.wait, timeout) {
            (WaitMode::Block | WaitMode::Coalesce(_), _) => Some(Duration::ZERO),
            (WaitMode::Spin(budget), None) => Some(budget),
            (WaitMode::Spin(budget), Some(timeout)) => Some(budget.min(timeout)),
            (WaitMode::Poll, timeout) => timeout,
        };
        let end = limit.map(|limit| begun + limit);
        let timer = self.timers.next_deadline();
        let mut now = begun;
        while !self.has_work_or_returns()
            && end.is_none_or(|end| now < end)
            && timer.is_none_or(|timer| now < timer)
        {
            let memory = &mut self.memory;
            self.engine
                .wait(Some(Duration::ZERO), &mut memory.pool)
                .map_err(TurnError::Engine)?;
            std::hint::spin_loop();
            now = self.system.now();
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(now.since(begun)));
        Ok((left, now))
    }

    /// As a sleep would be ended also by another thread: one that wakes the loop, or returns a lease that is waited for.
    fn has_work_or_returns(&mut self) -> bool {
        let memory = &self.memory;
        let leases = memory.pool.has_returns() && (!self.starved.is_empty() || self.capped > 0);
        self.has_work()
            || memory.remote.is_notified()
            || leases
            || (self.datagrams.len() > 0 && self.wants_datagram_leases())
    }
}
