//! `serve udp-sink`: takes the datagrams of one run of `quoit load udp`, accounts for each, and ends with a report.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quoit::{DatagramSocketId, Datagrams, EngineKind, Handler, Loop, Token};
use quoit_workload::{Sink, SinkReport, Work};

use super::{DatagramArguments, DatagramFigures, Sockets};

/// The run, as all loops see it.
#[derive(Debug)]
pub(crate) struct SinkRun {
    state: Mutex<State>,
    over: Sender<()>,
}

#[derive(Debug)]
struct State {
    /// What each loop has told last.
    loops: Vec<Option<Sink>>,
    /// All together, from the moment on at which the run was over.
    found: Option<Sink>,
}

impl SinkRun {
    /// For so many loops; and what tells that all senders are done.
    pub(crate) fn new(loops: u16) -> (Self, Receiver<()>) {
        let (over, is_over) = mpsc::channel();
        let state = State {
            loops: (0..loops).map(|_| None).collect(),
            found: None,
        };
        let run = Self {
            state: Mutex::new(state),
            over,
        };
        (run, is_over)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while it is locked")
    }

    /// Takes in what a loop has counted so far. What comes once the run is over counts no more.
    fn publish(&self, index: usize, sink: Sink) {
        let mut state = self.state();
        if state.found.is_some() {
            return;
        }
        state.loops[index] = Some(sink);
        let found = state.merged().filter(Sink::is_over);
        if found.is_some() {
            state.found = found;
            // The receiver is gone with the program alone.
            let _ = self.over.send(());
        }
    }

    /// What was found, at the end or so far.
    ///
    /// # Errors
    /// The memory of this process cannot be read.
    pub(crate) fn report(
        &self,
        engine: EngineKind,
        work: Duration,
        arguments: DatagramArguments,
    ) -> io::Result<SinkReport> {
        let state = self.state();
        let nothing = || Sink::new(Work::of(Duration::ZERO));
        let found = state
            .found
            .clone()
            .or_else(|| state.merged())
            .unwrap_or_else(nothing);
        let server = format!("quoit {engine}{}", if arguments.joins() { "+gro" } else { "" });
        let sockets = state.loops.len() as u64;
        let wanted = arguments.receive_buffer().map(|bytes| bytes * sockets);
        let found = found.asking_for(wanted);
        found.report(&server, work, arguments.pool_bytes() * sockets)
    }
}

impl State {
    /// All loops together; `None` if none has told anything.
    fn merged(&self) -> Option<Sink> {
        let mut told = self.loops.iter().flatten();
        let mut sum = told.next()?.clone();
        told.for_each(|sink| sum.merge(sink));
        Some(sum)
    }
}

/// The handler.
#[derive(Debug)]
pub(crate) struct UdpSink {
    sink: Sink,
    /// Shutdown datagrams that were told to the others.
    told: u64,
    index: usize,
    sockets: Vec<DatagramSocketId>,
    run: Arc<SinkRun>,
    figures: Arc<DatagramFigures>,
}

impl UdpSink {
    pub(crate) fn new(
        event_loop: &mut Loop,
        sockets: &Sockets,
        work: Work,
        run: Arc<SinkRun>,
        figures: Arc<DatagramFigures>,
    ) -> Self {
        let sockets = sockets.open(event_loop);
        figures.tick(event_loop);
        Self {
            sink: Sink::new(work),
            told: 0,
            index: usize::from(event_loop.index().get()),
            sockets,
            run,
            figures,
        }
    }

    fn look(&mut self, event_loop: &Loop, socket: DatagramSocketId) {
        if let Some(descriptor) = event_loop.datagram_descriptor(socket) {
            // Since Linux 4.12 it cannot fail, and this program needs a newer one.
            let _ = self.sink.look(descriptor);
        }
    }

    fn tell(&mut self, event_loop: &mut Loop) {
        for index in 0..self.sockets.len() {
            let socket = self.sockets[index];
            self.look(event_loop, socket);
            if let Some(counters) = event_loop.datagram_counters(socket) {
                self.sink.came_in(counters.receive_batches);
            }
        }
        self.run.publish(self.index, self.sink.clone());
    }
}

impl Handler for UdpSink {
    fn on_datagrams(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagrams: Datagrams) {
        if self.sink.received(1) {
            self.look(event_loop, socket);
        }
        let whole = datagrams.whole();
        let segment = whole.segment_size().map(usize::from);
        self.sink.take_message(&whole, segment, !whole.is_truncated());
        drop(datagrams);
        let shutdowns = self.sink.account().totals().shutdowns;
        // What this loop has of the run is told with each shutdown: another may know of the senders that are missing.
        if shutdowns > self.told {
            self.told = shutdowns;
            self.tell(event_loop);
        }
    }

    fn on_timer(&mut self, event_loop: &mut Loop, _token: Token) {
        self.figures.publish(event_loop, &self.sockets);
        self.figures.tick(event_loop);
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        self.tell(event_loop);
        for &socket in &self.sockets {
            // One that has failed is closed already.
            let _ = event_loop.close_datagram(socket);
        }
    }
}
