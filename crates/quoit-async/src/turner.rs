//! The turns of a loop whose thread a runtime has: when they are made, and what is left to do after each.
//!
//! Nothing here knows the runtime. `serve` has tokio's, the simulator one of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quoit::TurnError;

use crate::driver::{Driver, Turned};
use crate::home::Home;

/// Makes the turns of a loop whose thread a runtime has.
pub(crate) struct Turner {
    pub(crate) driver: Rc<RefCell<Driver>>,
    pub(crate) home: Arc<Home>,
    /// Until when the runtime's timer lets the loop sleep.
    pub(crate) alarm: Cell<Option<Instant>>,
    pub(crate) outcome: RefCell<Option<Result<(), TurnError>>>,
    /// The last turn has woken somebody, whose task has run by now.
    has_woken: Cell<bool>,
}

/// What is left to do after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// Another turn, behind the tasks that were woken.
    None,
    /// Nothing until the loop's descriptor says so, or this time has passed.
    Parked(Option<Duration>),
    /// The loop has ended, or failed.
    Over,
}

impl Turner {
    pub(crate) fn new(driver: &Rc<RefCell<Driver>>) -> Rc<Self> {
        let home = Arc::clone(&driver.borrow().home);
        Rc::new(Self {
            driver: Rc::clone(driver),
            home,
            alarm: Cell::new(None),
            outcome: RefCell::new(None),
            has_woken: Cell::new(false),
        })
    }

    /// The poller has told of the loop's descriptor, and does not again: only a turn finds out of what.
    pub(crate) fn told(&self) {
        self.has_woken.set(false);
    }

    /// Makes a turn that does not wait, wakes whom it concerns, and parks the loop if that was nobody.
    pub(crate) fn turn(&self) -> Rest {
        if self.outcome.borrow().is_some() {
            return Rest::Over;
        }
        // What those have left behind may have gone to the kernel at once: then a turn would find nothing.
        if self.has_woken.take() && !self.driver.borrow().wakes_anybody() && !self.home.has_wanted() {
            match self.park() {
                Rest::None => {}
                rest => return rest,
            }
        }
        let (result, mut wakers) = {
            let mut driver = self.driver.borrow_mut();
            let result = driver.turn(Some(Duration::ZERO));
            (result, driver.take_wakers())
        };
        let woken = !wakers.is_empty();
        self.has_woken.set(woken);
        for waker in wakers.drain(..) {
            waker.wake();
        }
        let mut driver = self.driver.borrow_mut();
        driver.keep_wakers(wakers);
        let ended = match result {
            Ok(Turned::Running) => None,
            Ok(Turned::Drained) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        if ended.is_some() {
            *self.outcome.borrow_mut() = ended;
            self.home.wake();
            return Rest::Over;
        }
        if woken || driver.wakes_anybody() || self.home.has_wanted() {
            return Rest::None;
        }
        drop(driver);
        self.park()
    }

    /// Parks the loop, if it has nothing to do.
    fn park(&self) -> Rest {
        let parked = self.driver.borrow_mut().park();
        match parked {
            Ok(Some(Duration::ZERO)) => Rest::None,
            Ok(limit) => Rest::Parked(limit),
            Err(error) => {
                *self.outcome.borrow_mut() = Some(Err(error));
                self.home.wake();
                Rest::Over
            }
        }
    }

    /// The runtime has nothing to do: what its tasks have left to be done since the last turn is done now.
    pub(crate) fn before_sleep(&self, now: impl FnOnce() -> Instant) {
        if self.driver.borrow().is_parked() && !self.home.has_wanted() {
            return;
        }
        match self.turn() {
            Rest::Parked(limit) => {
                let until = limit.map(|limit| now() + limit);
                let early_enough = match (until, self.alarm.get()) {
                    (None, _) => true,
                    (Some(until), Some(alarm)) => alarm <= until,
                    (Some(_), None) => false,
                };
                if !early_enough {
                    self.home.wake();
                }
            }
            Rest::None | Rest::Over => self.home.wake(),
        }
    }
}
