//! The old process: it hands its sockets over, and lets go of them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quoit::listen::{self, SocketFile};
use quoit::{Address, Listen, ListenOptions, ListenSocket};
use quoit_host::console::say;

use super::{Claim, HandedFile, wire};

/// How long a successor may take from the sockets to serving on them.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a listening socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Use {
    /// What is served.
    Connections,
    /// The metrics.
    Metrics,
}

impl Use {
    const ALL: [Self; 2] = [Self::Connections, Self::Metrics];

    /// As it is sent.
    fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Metrics => "metrics",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// A listening socket of this process, to be handed over: once more.
#[derive(Debug)]
struct Offered {
    purpose: Use,
    descriptor: OwnedFd,
    /// The file of a Unix socket goes with it.
    with_file: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(in super::super) struct Offer {
    sockets: Vec<Offered>,
    /// Of Unix sockets that this process has made: they stay when the sockets are handed over.
    files: Vec<SocketFile>,
    /// Of Unix sockets that were handed over to this process with their files, and where such may be. They are this
    /// process's once the predecessor drains.
    handed: Vec<HandedFile>,
    may_be_handed: Vec<PathBuf>,
}

impl Offer {
    /// Nothing yet, of a process that is handed Unix sockets over with the files at these paths.
    pub(in super::super) fn after(may_be_handed: Vec<PathBuf>) -> Self {
        Self {
            may_be_handed,
            ..Self::default()
        }
    }

    /// Listens as is asked for, and keeps the socket for a successor.
    ///
    /// # Errors
    /// One line: the socket cannot be made.
    pub(in super::super) fn keep(
        &mut self,
        purpose: Use,
        listen: Listen,
        options: &ListenOptions,
    ) -> Result<Listen, String> {
        let socket = match listen {
            Listen::Address(address) => listen::bind(&address, options).map_err(|error| error.to_string())?,
            Listen::Socket(socket) => socket,
        };
        if self.sockets.len() == wire::MOST_SOCKETS {
            return Err(format!(
                "--hand-over takes at most {} listeners",
                wire::MOST_SOCKETS
            ));
        }
        let address = socket.address().clone();
        let (descriptor, file) = socket.into_parts();
        let kept = descriptor
            .try_clone()
            .map_err(|error| format!("cannot keep {address} for a successor: {error}"))?;
        let handed = match &address {
            Address::UnixPath(path) if self.may_be_handed.contains(path) => HandedFile::at(path),
            _ => None,
        };
        self.sockets.push(Offered {
            purpose,
            descriptor: kept,
            with_file: file.is_some() || handed.is_some(),
        });
        self.files.extend(file);
        self.handed.extend(handed);
        let socket = ListenSocket::adopt(descriptor).map_err(|error| error.to_string())?;
        Ok(Listen::Socket(socket))
    }
}

#[derive(Debug)]
enum State {
    /// Whoever comes gets the sockets.
    Serving,
    /// That process has them, and has not said yet that it serves.
    Taking(i32),
    /// Nothing is handed over any more.
    Draining,
}

/// What the threads of the hand-over share.
#[derive(Debug)]
struct Shared {
    claim: Claim,
    state: Mutex<State>,
    /// None when they were handed over, or are not needed any more.
    offer: Mutex<Option<Offer>>,
    /// Held from before this process drains until the successor is told so. Without connections it is over at once, and would
    /// seem to have ended by itself.
    telling: Mutex<()>,
}

/// Hands the sockets over to whoever connects to the path, for as long as it is not dropped.
#[derive(Debug, Clone)]
pub(in super::super) struct Giver(Arc<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Giver {
    /// From [`Giver::place`] on, who connects to the path gets the sockets. `taken` is called when such a process serves.
    pub(in super::super) fn start(
        claim: Claim,
        offer: Offer,
        taken: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            claim,
            state: Mutex::new(State::Serving),
            offer: Mutex::new(Some(offer)),
            telling: Mutex::new(()),
        });
        let giver = Self(Arc::clone(&shared));
        let taken = Arc::new(taken);
        std::thread::spawn(move || {
            for stream in shared.claim.listener.incoming() {
                // Without descriptors or memory for it, the next one may find some.
                let Ok(stream) = stream else {
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let (shared, taken) = (Arc::clone(&shared), Arc::clone(&taken));
                std::thread::spawn(move || shared.give(&stream, &*taken));
            }
        });
        giver
    }

    /// Takes the path.
    ///
    /// # Errors
    /// One line: it cannot be had.
    pub(in super::super) fn place(&self) -> Result<(), String> {
        let claim = &self.0.claim;
        let placed = claim.place();
        placed.map_err(|error| {
            format!(
                "--hand-over {}: cannot be put there: {error}",
                claim.path.display()
            )
        })
    }

    /// The process drains by itself: from now on whoever comes is told so.
    pub(in super::super) fn drains(&self) {
        let before = std::mem::replace(&mut *lock(&self.0.state), State::Draining);
        match lock(&self.0.offer).take() {
            // The one that has the sockets may come to serve on them.
            Some(offer) if matches!(before, State::Taking(_)) => std::mem::forget(offer.files),
            Some(offer) => offer.handed.iter().for_each(HandedFile::remove),
            None => {}
        }
    }

    /// The process ends. Waits until a successor that it drains for has been told so.
    pub(in super::super) fn ends(&self) {
        let _telling = lock(&self.0.telling);
        self.0.claim.remove();
    }
}

impl Shared {
    fn give(&self, stream: &UnixStream, taken: &(dyn Fn() + Send + Sync)) {
        let Ok((process, trusted)) = wire::peer(stream) else {
            return;
        };
        let refuse = |reason: &str| {
            // If it has gone, it need not know.
            let _ = wire::send(stream, &format!("{} refused {reason}", wire::HELLO), &[]);
        };
        if !trusted {
            return refuse("the sockets are for processes of the same user");
        }
        match &mut *lock(&self.state) {
            State::Draining => return refuse("it drains; try again when it has ended"),
            State::Taking(other) => return refuse(&format!("process {other} is taking over already")),
            state => *state = State::Taking(process),
        }
        match self.hand_over(stream) {
            Ok(()) => {}
            Err(problem) => {
                let mut state = lock(&self.state);
                if matches!(*state, State::Taking(_)) {
                    *state = State::Serving;
                    say(format_args!(
                        "quoit serve: process {process} was to take over, and {problem}; serving goes on"
                    ));
                }
                return;
            }
        }
        let before = std::mem::replace(&mut *lock(&self.state), State::Draining);
        if let Some(offer) = lock(&self.offer).take() {
            // They are the successor's.
            std::mem::forget(offer.files);
        }
        let _telling = lock(&self.telling);
        if !matches!(before, State::Draining) {
            say(format_args!("quoit serve: process {process} has taken over"));
            taken();
        }
        self.claim.leave();
        let _ = wire::send(stream, wire::DRAINING, &[]);
    }

    /// Hands the sockets over, and waits until they are served on.
    fn hand_over(&self, stream: &UnixStream) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("could not be given the sockets: {error}");
        {
            let offer = lock(&self.offer);
            let sockets = offer.as_ref().map(|offer| &offer.sockets[..]).unwrap_or_default();
            let mut line = wire::HELLO.to_owned();
            for socket in sockets {
                let with_file = if socket.with_file { wire::WITH_FILE } else { "" };
                line = line + " " + socket.purpose.name() + with_file;
            }
            let descriptors: Vec<_> = sockets.iter().map(|socket| socket.descriptor.as_fd()).collect();
            wire::send(stream, &line, &descriptors).map_err(failed)?;
        }
        let patience = wire::Patience {
            time: PATIENCE,
            given_up: None,
        };
        match wire::receive(stream, patience) {
            Ok((line, _)) if line == wire::READY => Ok(()),
            Ok((line, _)) if line.is_empty() => Err("has gone".to_owned()),
            Ok((line, _)) => Err(format!("said `{}`", line.escape_debug())),
            Err(error) => {
                let refused = format!("refused it took more than {} s", PATIENCE.as_secs());
                let _ = wire::send(stream, &refused, &[]);
                Err(format!("did not come to serve: {error}"))
            }
        }
    }
}
