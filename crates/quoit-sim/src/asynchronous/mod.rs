//! The sockets of `quoit-async` on the simulated kernel, in tasks of a runtime in which a seed decides.
//!
//! The tasks accept, connect, also to several addresses, read, write and end their streams, of TCP and of Unix sockets, and send
//! and receive datagrams, in every way that there is, and at random points a future of theirs is dropped, or a task, the listener,
//! the whole loop. They live in one of both ways that programs have: in a runtime on
//! the loop's thread, which parks the loop, or on another thread, which has its moments between any two calls of the loop's.
//!
//! Every byte is compared, in both directions, and every datagram. When nothing goes wrong any more and nothing happens, each future that waits must
//! wait for something that has not happened: if not, a wake was lost.

pub mod datagrams;
mod end;
mod executor;
pub mod plan;
mod race;
mod reading;
mod shared;
mod streams;
mod tasks;
mod writing;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use quoit::internals::LoopMemory;
use quoit::internals::engine::Engine;
use quoit::{Address, Command, Config, EngineKind, ListenOptions, ListenSocket, Loop, LoopIndex, Token};
use quoit_async_sim::simulation::{Left, Simulation};
use quoit_sim_kernel::faces::SimSockets;
use quoit_sim_kernel::faults::Fault;
use quoit_sim_kernel::kernel::{Outside, do_jobs, in_fairness, wait_outside, with};
use quoit_sim_kernel::random::Random;

use crate::options::Options;
use crate::plan::Plan;
use crate::world::Summary;
use datagrams::Sockets;
use executor::{Executor, TaskId};
use plan::{AsyncPlan, Life, PURPOSE};
use race::Candidates;
use shared::Shared;
use streams::Accepts;

/// The run.
pub struct AsyncWorld {
    plan: AsyncPlan,
    config: Config,
    /// Its memory may be held by those who wait.
    is_tight: bool,
    engine: EngineKind,
    random: Random,
    /// Taken away only when the run fails.
    simulation: Option<Rc<Simulation>>,
    executor: Rc<Executor>,
    shared: Rc<Shared>,
    /// The task that makes turns, where one does.
    driver: Option<TaskId>,
    /// The runtime's poller has told of the loop's descriptor, which the task does not know yet.
    told: Rc<Cell<bool>>,
    /// Turns so far.
    turns: Rc<Cell<u32>>,
    most_turns: u32,
    /// The loop has drained.
    drained: Rc<Cell<bool>>,
    /// The beginning, as the runtime's clock has it.
    begin: Instant,
    /// Peers that come by themselves.
    incoming: Vec<usize>,
    /// The datagram sockets.
    sockets: Sockets,
}

/// Polls and sleeps for each turn of the run, at most.
const STEPS_PER_TURN: u32 = 10;
/// Chance, out of 1,024, that a runtime looks into its poller although tasks are ready: tokio does every 61 of them.
const LOOKS: u32 = 100;

/// The time as a runtime has it.
fn instant(begin: Instant) -> Instant {
    begin + Duration::from_nanos(with(|kernel| kernel.now()))
}

/// Whether connections may fail for want of something, or stand still for it.
fn is_lossy(run: &Plan) -> bool {
    let chance = |fault| run.profile.chance(fault) > 0;
    plan::is_tight(&run.config)
        || chance(Fault::TransferFails)
        || chance(Fault::NoMemory)
        || run.config.close_at_lease_limit
}

impl AsyncWorld {
    /// Makes the loop and its surroundings in the installed kernel.
    ///
    /// # Panics
    /// If the simulated kernel has no memory for it, which it has.
    pub fn new<E: Engine + 'static>(
        options: &Options,
        run: &Plan,
        plan: AsyncPlan,
        make: impl Fn(&Plan, &mut LoopMemory) -> E,
    ) -> Self {
        let config = run.config.clone();
        let index = LoopIndex::default();
        let mut memory = LoopMemory::new(index, &config).expect("eventfds are to be had");
        let engine = make(run, &mut memory);
        let event_loop = Loop::with_engine(index, config.clone(), memory, engine, String::new(), SimSockets);
        let executor = Executor::new(Random::new(options.seed, PURPOSE + 10), !config.pollable);
        let mut world = Self {
            random: Random::new(options.seed, PURPOSE + 11),
            engine: event_loop.engine(),
            simulation: Some(Rc::new(Simulation::new(event_loop))),
            shared: Shared::new(
                Rc::clone(&executor),
                is_lossy(run),
                race::is_scarce(&config, run.descriptors, plan.peers(), &run.profile),
                config.stall_limit,
            ),
            sockets: Sockets::default(),
            executor,
            driver: None,
            told: Rc::default(),
            turns: Rc::default(),
            most_turns: run.turns,
            drained: Rc::default(),
            begin: Instant::now(),
            incoming: Vec::new(),
            plan,
            is_tight: plan::is_tight(&config),
            config,
        };
        world.executor.belong_to(world.simulation());
        if world.config.pollable {
            world.begin_driver();
        }
        world.populate(options);
        with(|kernel| kernel.set_descriptor_room(run.descriptors));
        world
    }

    fn simulation(&self) -> &Rc<Simulation> {
        self.simulation.as_ref().expect("taken only when the run fails")
    }

    /// The task that makes turns, as the one of `serve`.
    fn begin_driver(&mut self) {
        let simulation = Rc::clone(self.simulation());
        let (turns, drained, begin) = (Rc::clone(&self.turns), Rc::clone(&self.drained), self.begin);
        let told = Rc::clone(&self.told);
        let driver = poll_fn(move |cx| {
            simulation.set_task(cx.waker());
            if told.take() {
                simulation.told();
            }
            turns.set(turns.get() + 1);
            match simulation.turn_in_task() {
                Err(error) => panic!("the turn failed: {error}"),
                Ok(Left::Nothing) => {
                    drained.set(true);
                    return Poll::Ready(());
                }
                Ok(Left::Turn) => cx.waker().wake_by_ref(),
                Ok(Left::Sleep(None)) => simulation.set_alarm(None),
                Ok(Left::Sleep(Some(limit))) => {
                    let now = instant(begin);
                    let is_armed = |alarm: Instant| now < alarm && alarm <= now + limit;
                    if !simulation.alarm().is_some_and(is_armed) {
                        simulation.set_alarm(Some(now + limit));
                    }
                }
            }
            Poll::Pending
        });
        self.driver = Some(self.executor.spawn_driver(driver));
    }

    fn populate(&mut self, options: &Options) {
        let lives: Vec<(usize, Life)> = self.plan.lives.iter().cloned().enumerate().collect();
        let is_lived = |number| options.only.as_ref().is_none_or(|only| only.contains(&number));
        let lives: Vec<_> = lives
            .into_iter()
            .filter(|&(number, _)| is_lived(number))
            .collect();
        let styles: Rc<Vec<_>> = Rc::new(lives.iter().map(|(_, life)| life.style).collect());
        self.listen(options, &styles);
        let mut connecting = Vec::new();
        for (number, life) in lives {
            let random = Random::new(options.seed, 5000 + number as u64);
            let peer = with(|kernel| kernel.add_peer(life.peer.clone(), random));
            if life.connect_after.is_some() {
                connecting.push((number, life, peer));
            } else {
                if life.peer.address.is_unix() {
                    // By which it is known who was accepted.
                    let name = Address::UnixAbstract(format!("life-{number}").into_bytes().into());
                    with(|kernel| kernel.peers[peer].name = Some(name));
                }
                self.incoming.push(peer);
            }
        }
        // The peers of lives are numbered as these, and the others come behind them.
        for (number, life, peer) in connecting {
            self.connect(options.seed, number, &life, peer);
        }
        self.sockets
            .open(options, &self.plan.datagrams, self.plan.lives.len(), &self.shared);
    }

    /// Begins the task that connects to a peer, or to that and others.
    fn connect(&self, seed: u64, number: usize, life: &Life, peer: usize) {
        let random = Random::new(seed, PURPOSE + 2000 + number as u64);
        let after = life.connect_after.expect("it is one that connects");
        let (shared, simulation) = (Rc::clone(&self.shared), self.simulation());
        let name = format!("the task that connects to peer {peer}");
        let mut peers = vec![peer];
        if let Some(race) = &life.race {
            let others = race.others.iter().enumerate().map(|(other, plan)| {
                let random = Random::new(seed, PURPOSE + 4000 + (number * 16 + other) as u64);
                with(|kernel| kernel.add_peer(plan.clone(), random))
            });
            peers = others.collect();
            peers.insert(race.place, peer);
        }
        let what = |peers| (after, Candidates::new(peers), life.style);
        if life.peer.address.is_unix() {
            let connecting = simulation.connect_unix(life.peer.address.clone());
            let task = tasks::connect(shared, connecting, what(peers), false, random);
            self.executor.spawn(name, task);
            return;
        }
        let what = what(peers);
        let addresses = what.1.addresses();
        match life.patience {
            None => {
                let connecting = simulation.connect(addresses);
                let task = tasks::connect(shared, connecting, what, false, random);
                self.executor.spawn(name, task);
            }
            Some(patience) => {
                let limit = Duration::from_nanos(patience);
                let connecting = simulation.connect_timeout(addresses, limit);
                let task = tasks::connect(shared, connecting, what, true, random);
                self.executor.spawn(name, task);
            }
        }
    }

    fn listen(&mut self, options: &Options, styles: &Rc<Vec<plan::Style>>) {
        let listen = ListenOptions {
            backlog: self.plan.backlog,
            ..ListenOptions::default()
        };
        let bind = |address: &Address| -> ListenSocket {
            quoit::listen::bind_on(&SimSockets, address, &listen).expect("the address is free")
        };
        let listener = in_fairness(|| {
            Simulation::listen_on(bind(&self.plan.address.into())).expect("the loop has room")
        });
        self.accept(listener, options, styles, 0);
        if let Some(address) = &self.plan.unix_address {
            let listener =
                in_fairness(|| Simulation::listen_on_unix(bind(address)).expect("the loop has room"));
            self.accept(listener, options, styles, 10);
        }
    }

    fn accept<L: Accepts + 'static>(
        &self,
        listener: L,
        options: &Options,
        styles: &Rc<Vec<plan::Style>>,
        first: u32,
    ) {
        let listener = Rc::new(listener);
        for number in first..first + self.plan.acceptors {
            let task = tasks::accept(
                Rc::clone(&listener),
                Rc::clone(&self.shared),
                Random::new(options.seed, PURPOSE + 20 + u64::from(number)),
                Rc::clone(styles),
                self.plan.acceptors == 1,
            );
            let task = self.executor.spawn(format!("the acceptor {number}"), task);
            self.shared.acceptors.borrow_mut().push(task);
        }
    }

    /// Runs it all.
    ///
    /// # Panics
    /// If anything is not as it must be.
    #[must_use]
    pub fn run(mut self) -> Summary {
        let mut steps = 0;
        while self.turns.get() < self.most_turns
            && steps < STEPS_PER_TURN * self.most_turns
            && !self.shared.draining.get()
        {
            steps += 1;
            self.meddle();
            let timeout = match self.random.below(4) {
                0 => Duration::ZERO,
                1 => Duration::from_nanos(self.random.magnitude(10_000_000)),
                _ => Duration::from_secs(1),
            };
            if self.random.chance(300) {
                do_jobs();
            }
            self.go_on(timeout);
        }
        if !self.shared.draining.get() {
            self.rest();
            self.come_to_the_end();
        }
        self.end()
    }

    /// One step: a turn of a loop on its own thread, or a poll or a sleep of the runtime on the loop's thread.
    fn go_on(&mut self, timeout: Duration) {
        if self.driver.is_none() {
            self.turns.set(self.turns.get() + 1);
            self.executor.plan();
            match self.simulation().turn(Some(timeout)) {
                Ok(drained) => self.drained.set(self.drained.get() | drained),
                Err(error) => panic!("the turn failed: {error}"),
            }
            self.executor.plan();
        } else if self.executor.has_ready() {
            // A stream may be used from other threads as well.
            let elsewhere = self.random.chance(200);
            self.executor.poll_one(elsewhere);
            // The notifier of a ring is written for a parked loop only.
            let may_be_told = self.engine == EngineKind::Epoll || self.simulation().is_parked();
            if self.random.chance(LOOKS) && may_be_told {
                self.look(Duration::ZERO);
            }
        } else {
            self.sleep(timeout);
        }
        let failure = with(|kernel| kernel.failure.take());
        if let Some(failure) = failure {
            panic!("{failure}");
        }
    }

    /// The runtime has nothing to do, and sleeps in its poller.
    fn sleep(&mut self, timeout: Duration) {
        let begin = self.begin;
        self.simulation().before_sleep(|| instant(begin));
        if self.executor.has_ready() {
            return;
        }
        self.look(timeout);
    }

    /// The runtime looks into its poller, for so long.
    fn look(&mut self, timeout: Duration) {
        let begin = self.begin;
        let now = instant(begin);
        let alarm = self.simulation().alarm();
        let alarm = alarm.map(|alarm| alarm.saturating_duration_since(now));
        let timeout = alarm.map_or(timeout, |alarm| alarm.min(timeout));
        let descriptor = self.simulation().poll_descriptor();
        let descriptor = descriptor.expect("the loop is pollable");
        let outside = match self.engine {
            EngineKind::Uring => Outside::Writes(descriptor),
            EngineKind::Epoll => Outside::Edges(descriptor as usize),
        };
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let executor = Rc::clone(&self.executor);
        let readable = wait_outside(outside, Some(nanoseconds), || executor.has_ready());
        let alarm = self.simulation().alarm();
        let is_due = alarm.is_some_and(|alarm| alarm <= instant(begin));
        if readable {
            self.told.set(true);
        }
        if let Some(driver) = self.driver
            && (readable || is_due)
        {
            self.executor.make_ready(driver);
        }
    }

    /// What happens to tasks and the loop from outside.
    fn meddle(&mut self) {
        if self.random.chance(100) {
            self.shared.release(Some(&mut self.random));
        }
        if self.random.chance(self.plan.posts) {
            self.post();
        }
        if self.random.chance(self.plan.aborts) {
            let tasks = self.executor.tasks();
            let acceptors = self.shared.acceptors.borrow().clone();
            let others: Vec<_> = tasks
                .into_iter()
                .filter(|task| !acceptors.contains(task))
                .collect();
            if !others.is_empty() {
                let task = *self.random.choose(&others);
                self.abort(task);
            }
        }
        if self.random.chance(self.plan.stops_listening) {
            self.stop_listening();
        }
        if self.random.chance(self.plan.drains) {
            let within = Duration::from_nanos(self.random.magnitude(5_000_000_000));
            self.drain(within);
        }
    }

    /// Another thread has something to say to the loop, whose inbox may be full.
    fn post(&mut self) {
        let remote = self.simulation().remote();
        let count = self.random.magnitude(8);
        let after = self.random.magnitude(100_000);
        let job = move || {
            for _ in 0..count {
                // Nothing comes of it, but that the inbox is as full.
                let _ = remote.post(Command::CancelTimer {
                    token: Token(u64::MAX),
                });
            }
        };
        with(|kernel| kernel.plan_job(after, Box::new(job)));
    }

    /// Ends a task on the thread that the tasks are on.
    fn abort(&self, task: TaskId) {
        if self.driver.is_some() {
            self.executor.abort(task);
        } else {
            Simulation::elsewhere(|| self.executor.abort(task));
        }
    }

    /// Nobody accepts any more, and so the listener goes.
    fn stop_listening(&mut self) {
        let acceptors = std::mem::take(&mut *self.shared.acceptors.borrow_mut());
        acceptors.into_iter().for_each(|task| self.abort(task));
    }

    fn drain(&mut self, within: Duration) {
        with(|kernel| kernel.note(|| format!("the loop drains within {within:?}")));
        self.shared.draining.set(true);
        self.simulation().drain(within);
        if let Some(driver) = self.driver {
            self.executor.make_ready(driver);
        }
    }
}

impl Drop for AsyncWorld {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nothing of a run that has failed is asked to end well.
            std::mem::forget((Rc::clone(&self.executor), Rc::clone(&self.shared)));
            if let Some(simulation) = self.simulation.take() {
                simulation.abandon();
                std::mem::forget(simulation);
            }
        }
    }
}
