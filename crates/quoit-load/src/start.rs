//! Runs that begin together: the time that was given for it, and what has to wait until then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use super::error::LoadError;
use super::plan::Plan;
use super::progress::Progress;

/// Times that lie further ahead are mistakes, such as milliseconds in place of seconds.
const FURTHEST: Duration = Duration::from_secs(86_400);

/// Between two looks at the clock and at the order to stop.
const TICK: Duration = Duration::from_millis(100);

/// Refuses a beginning that is over, or absurdly far ahead.
///
/// # Errors
/// It is.
pub(super) fn check(plan: &Plan) -> Result<(), LoadError> {
    plan.start_at
        .map_or(Ok(()), |at| check_at(at, now()))
        .map_err(LoadError::new)
}

fn check_at(at: Duration, now: Duration) -> Result<(), String> {
    let given = at.as_secs_f64();
    if let Some(ago) = now.checked_sub(at).filter(|ago| !ago.is_zero()) {
        return Err(format!(
            "the window was to begin at {given}, which was {:.1} s ago; give --start-at a later time (now it is {:.1})",
            ago.as_secs_f64(),
            now.as_secs_f64()
        ));
    }
    let ahead = at.saturating_sub(now);
    if ahead > FURTHEST {
        return Err(format!(
            "the window is to begin at {given}, which is {:.1} days ahead; --start-at takes a time within a day (in \
             seconds, not milliseconds; now it is {:.1})",
            ahead.as_secs_f64() / FURTHEST.as_secs_f64(),
            now.as_secs_f64()
        ));
    }
    Ok(())
}

/// Waits until the connections are to be opened. Before a beginning that was given that is no earlier than they need, or
/// a server would close them meanwhile, as they do nothing. An order to stop ends the wait.
pub(super) fn await_opening(plan: &Plan, stop: &AtomicBool, observe: &mut dyn FnMut(Progress)) {
    let Some(at) = plan.start_at else {
        return;
    };
    let opening = at.saturating_sub(plan.warmup + plan.ramp_up + plan.timeout);
    loop {
        let left = opening.saturating_sub(now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        observe(Progress::Waiting { left });
        thread::park_timeout(left.min(TICK));
    }
}

/// The wall clock, since 1970.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_lies_within_a_day() {
        let now = Duration::from_secs(1_700_000_000);
        for ahead in [Duration::ZERO, Duration::from_millis(1), FURTHEST] {
            assert_eq!(check_at(now + ahead, now), Ok(()));
        }
        let past = check_at(now - Duration::from_millis(2_500), now).unwrap_err();
        assert!(
            past.contains("2.5 s ago") && past.contains("--start-at a later time"),
            "{past}"
        );
        // Milliseconds.
        let far = check_at(Duration::from_secs(1_700_000_000_000), now).unwrap_err();
        assert!(
            far.contains("days ahead") && far.contains("not milliseconds"),
            "{far}"
        );
    }
}
