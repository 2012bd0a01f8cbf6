//! Ending on SIGINT and SIGTERM: drain first, at once on the second.

use std::io;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use quoit::{Runtime, TurnError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How serving ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// All connections were finished, or aborted at the deadline.
    Drained,
    /// A second signal came before that.
    Forced,
    /// A loop failed.
    Failed(TurnError),
}

enum Happening {
    Signal,
    Ended(Result<(), TurnError>),
}

/// Takes the signals over, from the moment of this call.
pub(super) fn subscribe() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM])
}

/// Waits until the runtime ends, by a signal or by itself.
pub(super) fn wait_for_end(runtime: Runtime, mut signals: Signals, drain: Duration) -> Ending {
    let (sender, happenings) = mpsc::channel();
    let remotes: Vec<_> = runtime.remotes().cloned().collect();
    let of_signals = sender.clone();
    std::thread::spawn(move || {
        // The receiver is gone only when the process is about to be.
        for _ in signals.forever() {
            let _ = of_signals.send(Happening::Signal);
        }
    });
    std::thread::spawn(move || {
        let _ = sender.send(Happening::Ended(runtime.join()));
    });
    wait(&happenings, || {
        for remote in &remotes {
            let mut command = quoit::Command::Drain { within: drain };
            while let Err(quoit::PostError::Full(back)) = remote.post(command) {
                command = back;
                std::thread::yield_now();
            }
        }
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
            Ok(Happening::Ended(Ok(()))) => return Ending::Drained,
            Ok(Happening::Ended(Err(error))) => return Ending::Failed(error),
            // A handler panicked, and said so.
            Err(_) => return Ending::Forced,
        }
    }
}
