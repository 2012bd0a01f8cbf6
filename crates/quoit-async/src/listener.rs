//! A listener's handle, whatever its address family.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use quoit::{Accept, Address, ListenSocket, ListenerId, ListenerOptions};

use crate::accept::{Acceptor, Share};
use crate::budget::within_budget;
use crate::closing::Socket;
use crate::errors::listen_error;
use crate::home::{self, Home};
use crate::link::Link;
use crate::waiters::WaiterKey;

/// Dropping it stops listening.
#[derive(Debug)]
pub(crate) struct Listener {
    home: Arc<Home>,
    /// None: the runtime's own, which it stops.
    id: Option<ListenerId>,
    share: Share,
    address: Address,
    /// What it accepts is reset when it is dropped.
    resets: bool,
}

impl Listener {
    pub(crate) fn bind(address: &Address, options: ListenerOptions) -> io::Result<Self> {
        let socket = quoit::listen::bind(address, &options.listen).map_err(listen_error)?;
        Self::on(socket, options)
    }

    /// Accepts on this thread's loop, or for all loops of the program.
    pub(crate) fn on(socket: ListenSocket, mut options: ListenerOptions) -> io::Result<Self> {
        options.tell_failures = true;
        let home = match home::current() {
            Some(home) => home,
            None => {
                let family = crate::loops::family()?;
                if family.homes().len() > 1 {
                    options.accept = Accept::Spread(family.remotes());
                }
                Arc::clone(&family.homes()[0])
            }
        };
        let acceptor = Acceptor::new(1);
        let share = acceptor.share(0);
        let address = socket.address().clone();
        acceptor.listens_on(&address);
        share.take();
        let id = crate::ask::ask(&home, move |driver| {
            let id = driver
                .event_loop
                .listen_on(socket, &options)
                .map_err(listen_error)?;
            // Before the loop's next turn, which is the first to accept.
            driver.family.add_listener(id, acceptor);
            Ok::<_, io::Error>(id)
        })??;
        Ok(Self {
            home,
            id: Some(id),
            share,
            address,
            resets: false,
        })
    }

    /// Has what it accepts reset when that is dropped.
    pub(crate) fn resetting(mut self, resets: bool) -> Self {
        self.resets = resets;
        self
    }

    /// Of a listener that the runtime has made.
    pub(crate) fn of_runtime(home: Arc<Home>, share: Share, address: Address) -> Self {
        share.take();
        Self {
            home,
            id: None,
            share,
            address,
            resets: false,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection, with its peer's address.
    pub(crate) async fn accept(&self) -> io::Result<(Arc<Link>, Address)> {
        let mut waiting = Accepting {
            share: &self.share,
            key: None,
        };
        poll_fn(|cx| self.poll_with(cx, Some(&mut waiting.key))).await
    }

    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Arc<Link>, Address)>> {
        self.poll_with(cx, None)
    }

    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        key: Option<&mut Option<WaiterKey>>,
    ) -> Poll<io::Result<(Arc<Link>, Address)>> {
        let accepted = ready!(within_budget(cx, |cx| self.share.poll_accept(cx, key)));
        if let Ok((link, _)) = &accepted
            && self.resets
        {
            link.reset_on_drop();
        }
        Poll::Ready(accepted)
    }

    pub(crate) fn incoming(self) -> Accepted {
        Accepted {
            listener: self,
            ended: false,
        }
    }
}

/// The connections of a listener, one after the other, behind which comes nothing once the listener has ended.
#[derive(Debug)]
pub(crate) struct Accepted {
    listener: Listener,
    ended: bool,
}

impl Accepted {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Arc<Link>>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let result = ready!(self.listener.poll_accept(cx));
        // Servers go on behind an error, and would never rest.
        self.ended = result.is_err() && self.listener.share.has_ended();
        Poll::Ready(Some(result.map(|(link, _)| link)))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && let Some(family) = self.home.living_family()
        {
            family.closing.begin(Socket::Listener(id), port_of(&self.address));
            let told = self.home.call(move |driver| driver.stop_listening(id));
            if told.is_err() {
                // A loop that is gone listens no more.
                let mut wakers = Vec::new();
                family.closing.end(Socket::Listener(id), &mut wakers);
                wakers.into_iter().for_each(Waker::wake);
            }
        }
    }
}

fn port_of(address: &Address) -> u16 {
    match address {
        Address::Tcp(address) => address.port(),
        _ => 0,
    }
}

/// A future that waits for a connection, and is forgotten when it is dropped.
struct Accepting<'a> {
    share: &'a Share,
    key: Option<WaiterKey>,
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.share.forget(key);
        }
    }
}
