//! Connecting: on this thread's loop, or on one of the program's; to several addresses as RFC 8305 asks for.

use std::future::{Future, poll_fn};
use std::io;
use std::iter::Enumerate;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quoit::{Address, AttachOptions, ConnectOptions, Errno, Token};

use crate::alarm::Alarm;
use crate::driver::Driver;
use crate::errors::NoPlace;
use crate::home::Home;
use crate::link::Link;

/// How long an address is tried before the next one is, too (RFC 8305, 5: the recommended value).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A connection that is being made. Dropped before, it is given up.
struct Attempt {
    link: Option<Arc<Link>>,
}

impl Attempt {
    /// By a socket of the program's, or by one that the loop makes.
    fn begin(
        home: &Arc<Home>,
        socket: Option<OwnedFd>,
        address: Address,
        options: ConnectOptions,
    ) -> io::Result<Self> {
        let link = Link::new(Arc::clone(home));
        let attempt = Self {
            link: Some(Arc::clone(&link)),
        };
        let mut beginning = Beginning(Some(link));
        home.call(move |driver| {
            let link = beginning.0.take().expect("it is begun once");
            let event_loop = &mut driver.event_loop;
            let connecting = match socket {
                Some(socket) => event_loop.connect_on(socket, &address, &options, Token::NONE),
                None => event_loop.connect(&address, &options, Token::NONE),
            };
            match connecting {
                Ok(id) => begun(driver, id, &link),
                Err(refusal) => driver.refuse(&link, refusal),
            }
        })?;
        Ok(attempt)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Link>>> {
        let link = self.link.as_ref().expect("polled until it is ready");
        match link.poll_opened(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => Poll::Ready(Ok(self.link.take().expect("it was there just now"))),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.drop_stream(true);
        }
    }
}

/// An attempt that the loop is to begin. If that ends before, it never does, and who waits is told.
struct Beginning(Option<Arc<Link>>);

impl Drop for Beginning {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            let mut wakers = Vec::new();
            link.on_gone(&mut wakers);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

fn begun(driver: &mut Driver, id: quoit::ConnectionId, link: &Arc<Link>) {
    driver.add_link(id, Arc::clone(link));
    if !link.begin(id) {
        driver.carry_out(link);
    }
}

/// Connects to one address.
pub(crate) async fn connect_to(address: Address, options: ConnectOptions) -> io::Result<Arc<Link>> {
    connect_from(&crate::loops::home()?, None, address, options).await
}

/// Connects a socket to one address.
pub(crate) async fn connect_on(
    socket: OwnedFd,
    address: Address,
    options: ConnectOptions,
) -> io::Result<Arc<Link>> {
    connect_from(&crate::loops::home()?, Some(socket), address, options).await
}

pub(crate) async fn connect_from(
    home: &Arc<Home>,
    socket: Option<OwnedFd>,
    address: Address,
    options: ConnectOptions,
) -> io::Result<Arc<Link>> {
    let mut attempt = Attempt::begin(home, socket, address, options)?;
    poll_fn(|cx| attempt.poll(cx)).await
}

/// Takes a connected socket that was made elsewhere.
pub(crate) fn attach(descriptor: OwnedFd) -> io::Result<Arc<Link>> {
    let home = crate::loops::home()?;
    let link = Link::new(Arc::clone(&home));
    let attached = Arc::clone(&link);
    crate::ask::ask(&home, move |driver| {
        let id = driver
            .event_loop
            .attach(descriptor, &AttachOptions::default(), Token::NONE)
            .map_err(|refusal| match refusal {
                quoit::Refusal::Error(errno) => io::Error::from(errno),
                quoit::Refusal::Limit => NoPlace.into(),
                other => io::Error::other(other),
            })?;
        attached.on_opened(
            (
                driver.event_loop.local_address(id),
                driver.event_loop.peer_address(id),
            ),
            &mut Vec::new(),
        );
        begun(driver, id, &attached);
        Ok::<_, io::Error>(())
    })??;
    Ok(link)
}

/// Puts addresses in the order in which they are tried: the families take turns, beginning with the resolver's first (RFC 8305,
/// 4).
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else {
        return addresses;
    };
    let (preferred, others): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first);
    let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
    let mut order = Vec::new();
    loop {
        let (one, other) = (preferred.next(), others.next());
        if one.is_none() && other.is_none() {
            return order;
        }
        order.extend(one);
        order.extend(other);
    }
}

/// Connects to the first of these addresses that takes the connection. The next one is tried when one fails, or takes longer
/// than a quarter of a second.
pub(crate) async fn connect_first(home: &Arc<Home>, addresses: Vec<SocketAddr>) -> io::Result<Arc<Link>> {
    if let [address] = addresses[..] {
        return connect_from(home, None, address.into(), ConnectOptions::default()).await;
    }
    let mut race = Race {
        home: Arc::clone(home),
        left: interleave(addresses).into_iter().enumerate(),
        attempts: Vec::new(),
        alarm: None,
        error: None,
    };
    poll_fn(move |cx| race.poll(cx)).await
}

struct Race {
    home: Arc<Home>,
    /// What is still to be tried, with its rank.
    left: Enumerate<std::vec::IntoIter<SocketAddr>>,
    attempts: Vec<(usize, Attempt)>,
    /// When the next address is tried, if there is one.
    alarm: Option<Alarm>,
    /// Of the first address that failed, whenever that was: what the resolver prefers is what the program is told of.
    error: Option<(usize, io::Error)>,
}

impl Race {
    fn fail(&mut self, rank: usize, error: io::Error) {
        if self.error.as_ref().is_none_or(|(before, _)| rank < *before) {
            self.error = Some((rank, error));
        }
    }

    fn begin_next(&mut self) -> bool {
        while let Some((rank, address)) = self.left.next() {
            match Attempt::begin(&self.home, None, address.into(), ConnectOptions::default()) {
                Ok(attempt) => {
                    self.attempts.push((rank, attempt));
                    // A loop that is gone has told the attempt so.
                    self.alarm = (self.left.len() > 0)
                        .then(|| Alarm::set(&self.home, ATTEMPT_DELAY).ok())
                        .flatten();
                    return true;
                }
                Err(error) => self.fail(rank, error),
            }
        }
        false
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<Link>>> {
        loop {
            let mut index = 0;
            let mut failed = false;
            while index < self.attempts.len() {
                let (rank, attempt) = &mut self.attempts[index];
                let rank = *rank;
                match attempt.poll(cx) {
                    Poll::Pending => index += 1,
                    Poll::Ready(Ok(link)) => return Poll::Ready(Ok(link)),
                    Poll::Ready(Err(error)) => {
                        drop(self.attempts.swap_remove(index));
                        self.fail(rank, error);
                        failed = true;
                    }
                }
            }
            // For want of a timer it is tried early rather than never.
            let late = match &mut self.alarm {
                Some(alarm) => alarm.poll(cx).is_ready(),
                None => false,
            };
            if (self.attempts.is_empty() || failed || late) && self.begin_next() {
                continue;
            }
            if late {
                self.alarm = None;
            }
            if self.attempts.is_empty() {
                let error = self.error.take().map(|(_, error)| error);
                return Poll::Ready(Err(error.unwrap_or_else(|| Errno::EINVAL.into())));
            }
            return Poll::Pending;
        }
    }
}

/// A connect that is cut off after some time, by a timer of the loop that it is on.
pub(crate) async fn within<T>(
    home: &Arc<Home>,
    limit: Duration,
    connecting: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut alarm = Alarm::set(home, limit)?;
    let mut connecting = std::pin::pin!(connecting);
    poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::as_mut(&mut connecting).poll(cx) {
            return Poll::Ready(result);
        }
        alarm.poll(cx).map(|outcome| {
            outcome?;
            Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"))
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_from_the_resolvers_first_on() {
        let [a, b, c]: [SocketAddr; 3] = ["[::1]:1", "[::2]:1", "[::3]:1"].map(|text| text.parse().unwrap());
        let [x, y]: [SocketAddr; 2] = ["192.0.2.1:1", "192.0.2.2:1"].map(|text| text.parse().unwrap());
        assert_eq!(interleave(vec![a, b, c, x, y]), [a, x, b, y, c]);
        assert_eq!(interleave(vec![x, a, b]), [x, a, b]);
        assert_eq!(interleave(vec![x, y]), [x, y]);
        assert_eq!(interleave(Vec::new()), []);
    }
}
