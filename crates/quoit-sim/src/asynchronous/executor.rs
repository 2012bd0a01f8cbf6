//! A runtime of one thread, in which a seed decides which of the tasks that are ready goes on next.
//!
//! Only the waker of a task's last poll wakes it, as the contract of futures has it, and now and then a poll has a new one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use quoit_async_sim::simulation::Simulation;
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::random::Random;

/// Polls of a task in a row that come to nothing, after which it is taken to be ready for ever.
const IDLE_POLLS: u32 = 3000;
/// Chance, out of 1,024, that a poll has a waker of its own.
const NEW_WAKER: u32 = 200;
/// Nanoseconds until another thread goes on with what was woken, at most.
const LATENCY: u64 = 50_000;
/// Tasks that it goes on with before others have their turn, at most.
const AT_ONCE: u64 = 8;

/// The number of a task, never used again within a run.
pub(super) type TaskId = u64;

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Whom to wake, as it came.
#[derive(Default)]
struct Woken(Mutex<Vec<(TaskId, u64)>>);

struct TaskWaker {
    task: TaskId,
    /// Which of the task's wakers this is: earlier ones wake nobody.
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push((self.task, self.number));
    }
}

struct Task {
    name: String,
    /// Not here while it is polled.
    future: Option<Running>,
    waker: Waker,
    /// The number of that.
    number: u64,
    idle: u32,
    /// Makes turns, and is ready as often as there is something to do.
    drives: bool,
}

/// The tasks.
pub(super) struct Executor {
    woken: Arc<Woken>,
    tasks: RefCell<BTreeMap<TaskId, Task>>,
    ready: RefCell<BTreeSet<TaskId>>,
    next: Cell<TaskId>,
    random: RefCell<Random>,
    /// The tasks are on another thread than the loop.
    outside: bool,
    planned: Cell<bool>,
    /// The loop, once there is one.
    simulation: RefCell<Weak<Simulation>>,
    /// What has come to something, counted by tasks.
    pub(super) progress: Cell<u64>,
    /// When the last was.
    pub(super) polled_at: Cell<u64>,
    /// Polls so far, without those of who makes turns.
    pub(super) polls: Cell<u64>,
}

impl Executor {
    pub(super) fn new(random: Random, outside: bool) -> Rc<Self> {
        Rc::new(Self {
            woken: Arc::default(),
            tasks: RefCell::default(),
            ready: RefCell::default(),
            next: Cell::new(0),
            random: RefCell::new(random),
            outside,
            planned: Cell::new(false),
            simulation: RefCell::default(),
            progress: Cell::new(0),
            polls: Cell::new(0),
            polled_at: Cell::new(0),
        })
    }

    /// Says whose tasks they are.
    pub(super) fn belong_to(&self, simulation: &Rc<Simulation>) {
        *self.simulation.borrow_mut() = Rc::downgrade(simulation);
    }

    fn waker(&self, task: TaskId, number: u64) -> Waker {
        Waker::from(Arc::new(TaskWaker {
            task,
            number,
            woken: Arc::clone(&self.woken),
        }))
    }

    fn add(&self, name: String, future: Running, drives: bool) -> TaskId {
        let id = self.next.get();
        self.next.set(id + 1);
        let task = Task {
            name,
            future: Some(future),
            waker: self.waker(id, 0),
            number: 0,
            idle: 0,
            drives,
        };
        self.tasks.borrow_mut().insert(id, task);
        self.ready.borrow_mut().insert(id);
        id
    }

    /// Begins a task, which is ready.
    pub(super) fn spawn(&self, name: String, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.add(name, Box::pin(future), false)
    }

    /// Begins the task that makes turns.
    pub(super) fn spawn_driver(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.add("driver".to_owned(), Box::pin(future), true)
    }

    /// Ends a task wherever it is.
    pub(super) fn abort(&self, task: TaskId) {
        let removed = self.tasks.borrow_mut().remove(&task);
        self.ready.borrow_mut().remove(&task);
        if let Some(task) = &removed {
            with(|kernel| kernel.note(|| format!("{} is aborted", task.name)));
        }
        drop(removed);
    }

    fn collect(&self) {
        let woken = std::mem::take(&mut *self.woken.0.lock().unwrap_or_else(PoisonError::into_inner));
        let tasks = self.tasks.borrow();
        let mut ready = self.ready.borrow_mut();
        for (id, number) in woken {
            if tasks.get(&id).is_some_and(|task| task.number == number) {
                ready.insert(id);
            }
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        self.collect();
        !self.ready.borrow().is_empty()
    }

    /// Has a task polled whether or not it was woken.
    pub(super) fn make_ready(&self, task: TaskId) {
        if self.tasks.borrow().contains_key(&task) {
            self.ready.borrow_mut().insert(task);
        }
    }

    /// Has all of them polled.
    pub(super) fn make_all_ready(&self) {
        self.ready.borrow_mut().extend(self.tasks.borrow().keys());
    }

    /// Polls one that is ready. `elsewhere`: as on a thread that has no loop, unless it is the one that makes turns.
    pub(super) fn poll_one(&self, elsewhere: bool) {
        self.collect();
        let chosen = {
            let mut ready = self.ready.borrow_mut();
            if ready.is_empty() {
                return;
            }
            let at = self.random.borrow_mut().below(ready.len() as u64) as usize;
            let chosen = ready.iter().nth(at).copied().expect("there are that many");
            ready.remove(&chosen);
            chosen
        };
        self.poll(chosen, elsewhere);
    }

    fn poll(&self, id: TaskId, elsewhere: bool) {
        let new = self.random.borrow_mut().chance(NEW_WAKER);
        let (future, waker, drives) = {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.get_mut(&id).expect("who is ready is there");
            if new {
                task.number += 1;
                task.waker = self.waker(id, task.number);
            }
            let future = task.future.take().expect("a task is not polled by itself");
            (future, task.waker.clone(), task.drives)
        };
        self.polls.set(self.polls.get() + u64::from(!drives));
        self.polled_at.set(with(|kernel| kernel.now()));
        let before = self.progress.get();
        // A run that fails in it ends nothing well.
        let mut future = ManuallyDrop::new(future);
        let mut poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
        let polled = if elsewhere && !drives {
            Simulation::elsewhere(poll)
        } else {
            poll()
        };
        let future = ManuallyDrop::into_inner(future);
        if polled.is_ready() {
            self.progress.set(self.progress.get() + 1);
            self.ready.borrow_mut().remove(&id);
            let removed = self.tasks.borrow_mut().remove(&id);
            drop(future);
            drop(removed);
            return;
        }
        let moved = self.progress.get() != before;
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(&id) else {
            // It has been aborted by itself.
            drop(tasks);
            drop(future);
            return;
        };
        task.future = Some(future);
        task.idle = if moved || drives { 0 } else { task.idle + 1 };
        assert!(
            task.idle < IDLE_POLLS,
            "{} is ready for ever: {IDLE_POLLS} polls in a row have come to nothing",
            task.name
        );
    }

    /// Lets the thread of the tasks go on soon, if that is another one and something is ready.
    pub(super) fn plan(self: &Rc<Self>) {
        if !self.outside || self.planned.get() || !self.has_ready() {
            return;
        }
        self.planned.set(true);
        let after = self.random.borrow_mut().magnitude(LATENCY);
        let executor = Rc::clone(self);
        with(|kernel| kernel.plan_job(after, Box::new(move || executor.go_on())));
    }

    fn go_on(self: &Rc<Self>) {
        self.planned.set(false);
        let at_work = self
            .simulation
            .borrow()
            .upgrade()
            .is_some_and(|simulation| simulation.is_at_work());
        if at_work {
            // The locks that the loop holds cannot be waited for here.
            return self.plan();
        }
        let count = self.random.borrow_mut().magnitude(AT_ONCE);
        for _ in 0..count {
            self.poll_one(true);
        }
        self.plan();
    }

    /// Polls what is ready until nothing is: for when there are no turns any more.
    pub(super) fn run_ready(&self) {
        while self.has_ready() {
            self.poll_one(false);
        }
    }

    /// The tasks that there are, without the one that makes turns.
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        let tasks = self.tasks.borrow();
        let others = tasks.iter().filter(|(_, task)| !task.drives);
        others.map(|(&id, _)| id).collect()
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.tasks
            .borrow()
            .values()
            .map(|task| task.name.clone())
            .collect()
    }
}
