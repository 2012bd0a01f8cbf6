//! What the streams of a loop share with it, on whatever thread they are used.
//!
//! On the loop's own thread a stream reaches the loop directly. On any other it leaves what it wants in its own state, and
//! itself in the list of those that want something: each is in it at most once, so it needs no limit, nothing is ever refused
//! for want of room, and a wake costs a system call only if the loop sleeps.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;

use quoit::{EngineKind, Remote, Token};

use crate::driver::Driver;
use crate::errors::Gone;
use crate::family::Family;
use crate::link::Link;
use crate::lock::lock;
use crate::mailbox::{Mailbox, Wake};
use crate::port::Port;
use crate::signal::Signal;

/// Something that is done on the loop's thread, and is rare: to listen, to connect, to set an option.
pub(crate) type Call = Box<dyn FnOnce(&mut Driver) + Send>;

/// What streams have left for the loop since it looked last.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) links: Vec<Arc<Link>>,
    pub(crate) ports: Vec<Arc<Port>>,
    pub(crate) calls: Vec<Call>,
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (links, ports, calls) = (self.links.len(), self.ports.len(), self.calls.len());
        write!(f, "Wanted({links} links, {ports} ports, {calls} calls)")
    }
}

/// One loop, as its streams see it.
pub(crate) struct Home {
    pub(crate) remote: Remote,
    pub(crate) engine: EngineKind,
    /// Not held: it holds its homes, and neither would ever go.
    family: OnceLock<Weak<Family>>,
    wanted: Mailbox<Wanted>,
    pub(crate) ended: Arc<Signal>,
    last_alarm: AtomicU64,
    /// Of a task in a runtime of the loop's thread that makes turns, where one does.
    task: Mutex<Option<Waker>>,
}

struct Current {
    home: Arc<Home>,
    driver: Rc<RefCell<Driver>>,
}

thread_local! {
    /// The loop of this thread.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Makes a driver the one of this thread until this is dropped.
pub(crate) struct Entered;

impl Entered {
    pub(crate) fn enter(home: &Arc<Home>, driver: &Rc<RefCell<Driver>>) -> Self {
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "a thread has one loop");
            *current = Some(Current {
                home: Arc::clone(home),
                driver: Rc::clone(driver),
            });
        });
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let current = CURRENT.with_borrow_mut(Option::take);
        drop(current);
    }
}

/// The loop of this thread, if it has one.
pub(crate) fn current() -> Option<Arc<Home>> {
    CURRENT
        .try_with(|current| {
            let current = current.try_borrow().ok()?;
            current.as_ref().map(|current| Arc::clone(&current.home))
        })
        .ok()
        .flatten()
}

/// Whether the loop of this thread is at work further up this stack.
pub(crate) fn is_at_work() -> bool {
    let at_work = CURRENT.try_with(|current| {
        let current = current.try_borrow().ok()?;
        Some(current.as_ref()?.driver.try_borrow_mut().is_err())
    });
    at_work.ok().flatten().unwrap_or(false)
}

/// The thread has no loop any more, and nothing of the one that it had ends.
#[cfg(quoit_simulated)]
pub(crate) fn forget() {
    std::mem::forget(CURRENT.with_borrow_mut(Option::take));
}

/// Calls `f` as on a thread that has no loop. With the loop at work further up this stack, that is so anyway.
#[cfg(quoit_simulated)]
pub(crate) fn without<R>(f: impl FnOnce() -> R) -> R {
    let current = CURRENT.with(|current| current.try_borrow_mut().ok()?.take());
    let result = f();
    if current.is_some() {
        CURRENT.with_borrow_mut(|place| *place = current);
    }
    result
}

impl Home {
    pub(crate) fn new(remote: Remote, engine: EngineKind) -> Arc<Self> {
        Arc::new(Self {
            remote,
            engine,
            family: OnceLock::new(),
            wanted: Mailbox::new(),
            ended: Arc::default(),
            last_alarm: AtomicU64::new(0),
            task: Mutex::default(),
        })
    }

    /// Says which loops belong together, once they are all made.
    pub(crate) fn join(&self, family: &Arc<Family>) {
        let joined = self.family.set(Arc::downgrade(family));
        assert!(joined.is_ok(), "a loop is of one family");
    }

    /// The loops that this one is of. Asked for on the thread of one of them, as each holds the family for as long as it runs.
    pub(crate) fn family(&self) -> Arc<Family> {
        self.living_family().expect("one of its loops runs")
    }

    /// The same on any thread, unless all of them have ended.
    pub(crate) fn living_family(&self) -> Option<Arc<Family>> {
        let family = self.family.get().expect("joined before the loop's first turn");
        family.upgrade()
    }

    /// Calls `f` with the driver, if this is the loop's thread and the driver is not at work further up the stack.
    pub(crate) fn here<R>(self: &Arc<Self>, f: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        CURRENT
            .try_with(|current| {
                let current = current.try_borrow().ok()?;
                let current = current.as_ref()?;
                if !Arc::ptr_eq(&current.home, self) {
                    return None;
                }
                let mut driver = current.driver.try_borrow_mut().ok()?;
                if driver.disturb() {
                    self.wake();
                }
                Some(f(&mut driver))
            })
            .ok()
            .flatten()
    }

    /// Leaves a stream in the list of those that want something. Its state says what.
    pub(crate) fn want(&self, link: Arc<Link>) -> Result<(), Gone> {
        self.leave(|wanted| wanted.links.push(link))
    }

    /// The same for a datagram socket.
    pub(crate) fn want_port(&self, port: Arc<Port>) -> Result<(), Gone> {
        self.leave(|wanted| wanted.ports.push(port))
    }

    /// Has something done on the loop's thread: at once if this is it, otherwise in the loop's next turn.
    pub(crate) fn call(self: &Arc<Self>, f: impl FnOnce(&mut Driver) + Send + 'static) -> Result<(), Gone> {
        let mut call = Some(f);
        let called = self.here(|driver| call.take().map(|f| f(driver)));
        match (called, call) {
            (_, Some(f)) => self.leave(|wanted| wanted.calls.push(Box::new(f))),
            _ => Ok(()),
        }
    }

    /// The name of the next timer of this loop.
    pub(crate) fn next_alarm(&self) -> Token {
        Token(self.last_alarm.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn leave(&self, leave: impl FnOnce(&mut Wanted)) -> Result<(), Gone> {
        if self.wanted.leave(leave)? == Wake::Needed {
            self.wake();
        }
        Ok(())
    }

    /// Has the loop make a turn soon.
    pub(crate) fn wake(&self) {
        let task = lock(&self.task).clone();
        match task {
            Some(task) => task.wake(),
            None => self.remote.wake(),
        }
    }

    /// Says which task makes the loop's turns when it is woken.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_task(&self, task: &Waker) {
        let mut present = lock(&self.task);
        if !present.as_ref().is_some_and(|present| present.will_wake(task)) {
            let before = present.replace(task.clone());
            drop(present);
            drop(before);
        }
    }

    /// No task makes the loop's turns any more: it waits in the kernel.
    #[cfg(feature = "tokio")]
    pub(crate) fn clear_task(&self) {
        let before = lock(&self.task).take();
        drop(before);
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn has_wanted(&self) -> bool {
        self.wanted.is_filled()
    }

    /// Takes what was left since the last call in exchange for `empty`. Returns whether there may have been something.
    pub(crate) fn take_wanted(&self, empty: &mut Wanted) -> bool {
        self.wanted.take(empty)
    }

    /// The loop has ended. What is still wanted is returned, to be told so, as is who waits for the end.
    pub(crate) fn end(&self, wakers: &mut Vec<Waker>) -> Wanted {
        let left = self.wanted.end();
        self.ended.raise((), wakers);
        left
    }
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Home({:?} on {})", self.remote, self.engine)
    }
}
