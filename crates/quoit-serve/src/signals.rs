//! Ending on SIGINT and SIGTERM: drain first, at once on the second.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use quoit::{Runtime, TurnError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// How serving ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// All connections were finished, or aborted at the deadline.
    Drained,
    /// A second signal came before that.
    Forced,
    /// A loop failed.
    Failed(TurnError),
    /// A loop's handler panicked, and has said so.
    Panicked,
}

enum Happening {
    Signal,
    /// The loops have ended; `None` if a handler panicked, and has said so.
    Ended(Option<Result<(), TurnError>>),
}

/// The signals that end serving: a byte for each. Those that come before there is anything to drain wait here.
#[derive(Debug)]
pub(super) struct EndSignals(UnixStream);

/// Takes the signals over, from the moment of this call.
pub(super) fn subscribe() -> io::Result<EndSignals> {
    let (signals, sender) = UnixStream::pair()?;
    pipe::register(SIGTERM, sender.try_clone()?)?;
    pipe::register(SIGINT, sender)?;
    Ok(EndSignals(signals))
}

impl EndSignals {
    /// Whether one has come.
    pub(super) fn arrived(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        // A failing poll(2) is as good as no signal: it waits all the same.
        matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1..))
    }
}

/// Readable once one has come.
impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until the runtime ends, by a signal or by itself. `stopping` is called before a signal drains it.
pub(super) fn wait_for_end(
    runtime: Runtime,
    signals: EndSignals,
    drain: Duration,
    stopping: impl Fn(),
) -> Ending {
    let EndSignals(mut signals) = signals;
    let (sender, happenings) = mpsc::channel();
    let drainer = runtime.drainer();
    let of_signals = sender.clone();
    std::thread::spawn(move || {
        while signals.read_exact(&mut [0]).is_ok() {
            // The receiver is gone only when the process is about to be.
            let _ = of_signals.send(Happening::Signal);
        }
    });
    std::thread::spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| runtime.join()));
        let _ = sender.send(Happening::Ended(ended.ok()));
    });
    wait(&happenings, || {
        stopping();
        drainer.drain(drain);
    })
}

fn wait(happenings: &Receiver<Happening>, drain: impl Fn()) -> Ending {
    let mut draining = false;
    loop {
        match happenings.recv() {
            Ok(Happening::Signal) if draining => return Ending::Forced,
            Ok(Happening::Signal) => {
                draining = true;
                drain();
            }
            Ok(Happening::Ended(Some(Ok(())))) => return Ending::Drained,
            Ok(Happening::Ended(Some(Err(error)))) => return Ending::Failed(error),
            // The other sender is never dropped, so this is all that an error here could mean.
            Ok(Happening::Ended(None)) | Err(_) => return Ending::Panicked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::cell::Cell;
    use std::mem::discriminant;

    /// How it ends after these, and how often it was told to drain.
    fn end(happenings: impl IntoIterator<Item = Happening>) -> (Ending, u32) {
        let (sender, receiver) = mpsc::channel();
        for happening in happenings {
            sender.send(happening).unwrap();
        }
        let drained = Cell::new(0);
        let ending = wait(&receiver, || drained.set(drained.get() + 1));
        (ending, drained.get())
    }

    #[test]
    fn the_first_signal_drains_and_the_second_ends() {
        let drained = end([Happening::Signal, Happening::Ended(Some(Ok(())))]);
        assert!(matches!(drained, (Ending::Drained, 1)), "{drained:?}");
        let forced = end([Happening::Signal, Happening::Signal]);
        assert!(matches!(forced, (Ending::Forced, 1)), "{forced:?}");
    }

    #[test]
    fn loops_that_end_by_themselves_end_it() {
        let panicked = end([Happening::Ended(None)]);
        assert!(matches!(panicked, (Ending::Panicked, 0)), "{panicked:?}");
        let error = TurnError::Engine(quoit::Errno::ENOMEM);
        let failed = end([Happening::Ended(Some(Err(error)))]);
        assert_eq!(discriminant(&failed.0), discriminant(&Ending::Failed(error)));
    }
}
