//! Loops that belong together: a listener of one of them hands its connections to all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use quoit::{ListenerId, LoopIndex, Remote, Runtime};

use crate::accept::Acceptor;
use crate::closing::Closing;
use crate::home::Home;
use crate::lock::lock;

/// The loops of one runtime, and who takes the connections of their listeners.
#[derive(Debug)]
pub(crate) struct Family {
    homes: Vec<Arc<Home>>,
    acceptors: Mutex<HashMap<ListenerId, Arc<Acceptor>>>,
    next: AtomicUsize,
    pub(crate) closing: Closing,
}

impl Family {
    /// That of the loops of a runtime.
    pub(crate) fn of(runtime: &Runtime) -> Arc<Self> {
        let engine = runtime.engine();
        let homes = runtime.remotes().map(|remote| Home::new(remote.clone(), engine));
        Self::joining(homes.collect())
    }

    /// That of these loops.
    pub(crate) fn joining(homes: Vec<Arc<Home>>) -> Arc<Self> {
        assert!(!homes.is_empty(), "a runtime has a loop");
        let family = Arc::new(Self {
            homes,
            acceptors: Mutex::default(),
            next: AtomicUsize::new(0),
            closing: Closing::default(),
        });
        for home in &family.homes {
            home.join(&family);
        }
        family
    }

    pub(crate) fn homes(&self) -> &[Arc<Home>] {
        &self.homes
    }

    /// The remotes of all loops, among which a listener spreads its connections.
    pub(crate) fn remotes(&self) -> Arc<[Remote]> {
        self.homes.iter().map(|home| home.remote.clone()).collect()
    }

    /// The next loop in turn, for what is opened from outside of the loops' threads.
    pub(crate) fn next(&self) -> &Arc<Home> {
        &self.homes[self.next.fetch_add(1, Ordering::Relaxed) % self.homes.len()]
    }

    /// Says who takes a listener's connections.
    pub(crate) fn add_listener(&self, listener: ListenerId, acceptor: Arc<Acceptor>) {
        lock(&self.acceptors).insert(listener, acceptor);
    }

    /// Who takes the connections of a listener.
    pub(crate) fn acceptor(&self, listener: ListenerId) -> Option<Arc<Acceptor>> {
        lock(&self.acceptors).get(&listener).cloned()
    }

    /// Those that get no connection any more on this loop once it has ended: it has a share of theirs, or all that its listeners
    /// accept.
    pub(crate) fn acceptors_of(&self, ended: LoopIndex) -> Vec<Arc<Acceptor>> {
        let acceptors = lock(&self.acceptors);
        let of_loop = acceptors
            .iter()
            .filter(|(listener, acceptor)| listener.loop_index() == ended || acceptor.is_shared());
        of_loop.map(|(_, acceptor)| Arc::clone(acceptor)).collect()
    }

    pub(crate) fn remove_listener(&self, listener: ListenerId) -> Option<Arc<Acceptor>> {
        lock(&self.acceptors).remove(&listener)
    }
}
