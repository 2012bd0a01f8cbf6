//! Alarms: a time of a loop that a future waits for, on whatever thread it is.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use quoit::Token;

use crate::errors::Gone;
use crate::home::Home;
use crate::signal::{Raised, Signal};

/// Why a time is not waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoAlarm {
    /// All timers of the loop are in use.
    NoTimer,
    /// The loop has ended.
    Gone,
}

impl From<NoAlarm> for io::Error {
    fn from(why: NoAlarm) -> Self {
        match why {
            NoAlarm::NoTimer => Self::new(
                io::ErrorKind::QuotaExceeded,
                "all timers of the loop are in use, so there is none for this limit; raise `Config::timers`",
            ),
            NoAlarm::Gone => Gone.into(),
        }
    }
}

/// What an alarm is raised with.
pub(crate) type Outcome = Result<(), NoAlarm>;

/// A timer of a loop, which is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Alarm {
    home: Arc<Home>,
    token: Token,
    raised: Raised<Outcome>,
}

impl Alarm {
    /// Has `home` raise it after this time.
    pub(crate) fn set(home: &Arc<Home>, after: Duration) -> Result<Self, Gone> {
        let signal = Arc::<Signal<Outcome>>::default();
        let token = home.next_alarm();
        // What is left by one thread may be carried out behind the drop, which the loop's own does at once: none is set then.
        let wanted = Arc::downgrade(&signal);
        home.call(move |driver| {
            if let Some(signal) = wanted.upgrade() {
                driver.set_alarm(token, after, signal);
            }
        })?;
        Ok(Self {
            home: Arc::clone(home),
            token,
            raised: signal.wait(),
        })
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.raised).poll(cx)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !self.raised.signal().is_raised() {
            let token = self.token;
            // The timers of a loop that is gone went with it.
            let _ = self.home.call(move |driver| driver.cancel_alarm(token));
        }
    }
}
