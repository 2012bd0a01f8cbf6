//! Where segments are known to be refused, so that none is offered in vain again.
//!
//! Whether the kernel cuts a send (`UDP_SEGMENT`) depends on the device that it leaves by and on the MTU of the path,
//! which the route to the receiver decides. A refusal is therefore remembered by route, and for a while: a server one of
//! whose tunnels cannot cut, or some of whose peers are behind a small MTU, goes on cutting for everybody else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::sys::Time;

/// How long a refusal is remembered: as long as the kernel by default remembers the MTU of a path
/// (`net.ipv4.route.mtu_expires`, ip-sysctl of the kernel's documentation).
const REMEMBERED: Duration = Duration::from_secs(600);

/// Routes that are remembered; past that the oldest refusal is forgotten, which costs a send in vain.
const ROUTES: usize = 1024;

/// Where so many routes refuse segments of any size, the fault is that of a device which many peers are behind, or of the
/// socket itself, and is held against all: else each new peer would cost a send in vain. A size that is too large for a path
/// says nothing of others.
const DEVICE: usize = 16;

/// What chooses the device and the path of a send: where it goes (`None`: to the peer that the socket is connected to)
/// and the interface that it names (0: none).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Route {
    pub(super) to: Option<IpAddr>,
    pub(super) interface: u32,
}

#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// Segments of at least this size are refused.
    from: u32,
    until: Time,
}

/// The sizes that were refused.
#[derive(Debug, Default)]
pub(super) struct Segmentation {
    /// Until then nothing is cut, whatever the route.
    nowhere_until: Time,
    /// Takes no memory before the first refusal.
    routes: HashMap<Route, Refusal>,
}

impl Segmentation {
    /// Of a socket that cuts nothing.
    pub(super) fn never() -> Self {
        Self {
            nowhere_until: Time::from_nanos(u64::MAX),
            ..Self::default()
        }
    }

    /// The size from which on segments are refused on this route.
    pub(super) fn refused_from(&self, now: Time, route: impl FnOnce() -> Route) -> u32 {
        if self.nowhere_until > now {
            return 0;
        }
        if self.routes.is_empty() {
            return u32::MAX;
        }
        let known = self.routes.get(&route());
        known
            .filter(|refusal| refusal.until > now)
            .map_or(u32::MAX, |refusal| refusal.from)
    }

    /// Notes that segments of at least this size were refused on the route; zero: of any.
    pub(super) fn refuse(&mut self, now: Time, route: Route, from: u32) {
        let until = now + REMEMBERED;
        let known = self.routes.get(&route).filter(|refusal| refusal.until > now);
        let from = known.map_or(from, |refusal| refusal.from.min(from));
        if !self.routes.contains_key(&route) && self.routes.len() >= ROUTES {
            self.make_room(now);
        }
        self.routes.insert(route, Refusal { from, until });
        if from == 0 {
            let cut_nothing = |refusal: &&Refusal| refusal.from == 0 && refusal.until > now;
            if self.routes.values().filter(cut_nothing).count() > DEVICE {
                self.nowhere_until = until;
            }
        }
    }

    fn make_room(&mut self, now: Time) {
        self.routes.retain(|_, refusal| refusal.until > now);
        if self.routes.len() < ROUTES {
            return;
        }
        let oldest = self.routes.iter().min_by_key(|(_, refusal)| refusal.until);
        if let Some(oldest) = oldest.map(|(route, _)| *route) {
            self.routes.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const NOW: Time = Time::from_nanos(7);

    fn route(host: u16, interface: u32) -> Route {
        let [high, low] = host.to_be_bytes();
        Route {
            to: Some(Ipv4Addr::new(198, 18, high, low).into()),
            interface,
        }
    }

    fn from(known: &Segmentation, route: Route) -> u32 {
        known.refused_from(NOW, || route)
    }

    #[test]
    fn a_refusal_is_of_one_route() {
        let mut known = Segmentation::default();
        known.refuse(NOW, route(1, 0), 1400);
        known.refuse(NOW, route(1, 7), 0);
        known.refuse(NOW, Route::default(), 9);
        known.refuse(NOW, route(1, 0), 1200);
        known.refuse(NOW, route(1, 0), 1300);
        assert_eq!(from(&known, route(1, 0)), 1200);
        assert_eq!(
            (from(&known, route(1, 7)), from(&known, Route::default())),
            (0, 9)
        );
        assert_eq!(from(&known, route(2, 0)), u32::MAX);
        assert_eq!(from(&known, route(2, 7)), u32::MAX);
    }

    #[test]
    fn however_many_paths_are_small_the_others_are_cut_for() {
        let mut known = Segmentation::default();
        for host in 0..2 * ROUTES as u16 {
            known.refuse(NOW + Duration::from_nanos(host.into()), route(host, 0), 1280);
        }
        assert_eq!(from(&known, route(u16::MAX, 0)), u32::MAX);
        // Of those that are too many the oldest are forgotten.
        assert_eq!(
            (from(&known, route(0, 0)), known.routes.len()),
            (u32::MAX, ROUTES)
        );
        assert_eq!(from(&known, route(2 * ROUTES as u16 - 1, 0)), 1280);
    }

    #[test]
    fn many_routes_that_cut_nothing_tell_of_the_device() {
        let mut known = Segmentation::default();
        for host in 0..DEVICE as u16 {
            known.refuse(NOW, route(host, 0), 0);
        }
        known.refuse(NOW, route(100, 0), 1000);
        assert_eq!(from(&known, route(200, 0)), u32::MAX);
        known.refuse(NOW, route(101, 0), 0);
        assert_eq!(from(&known, route(200, 0)), 0);
    }

    #[test]
    fn refusals_are_forgotten() {
        let mut known = Segmentation::default();
        for host in 0..=DEVICE as u16 {
            known.refuse(NOW, route(host, 0), 0);
        }
        let later = NOW + REMEMBERED;
        assert_eq!(known.refused_from(later, || route(1, 0)), u32::MAX);
        // What was known before is not held against it.
        known.refuse(later, route(1, 0), 1400);
        assert_eq!(known.refused_from(later, || route(1, 0)), 1400);
    }

    #[test]
    fn who_cuts_nothing_is_not_asked() {
        let never = Segmentation::never();
        assert_eq!(never.refused_from(NOW + REMEMBERED, Route::default), 0);
    }
}
