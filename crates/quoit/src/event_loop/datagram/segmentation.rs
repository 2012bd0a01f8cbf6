//! Where segments are known to be refused, so that none is offered in vain again.
//!
//! Whether the kernel cuts a send (`UDP_SEGMENT`) depends on the device that it leaves by and on the MTU of the path,
//! which the route to the receiver decides. A refusal is therefore remembered by route: a server whose tunnel cannot cut
//! goes on cutting for everybody else.

use std::net::IpAddr;

/// Routes that are remembered. Where more are refused, the fault is that of a device which many peers are behind, or of
/// the socket itself, and is held against all: else each new peer would cost a send in vain.
const ROUTES: usize = 16;

/// What chooses the device and the path of a send: where it goes (`None`: to the peer that the socket is connected to)
/// and the interface that it names (0: none).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Route {
    pub(super) to: Option<IpAddr>,
    pub(super) interface: u32,
}

/// The sizes that were refused.
#[derive(Debug)]
pub(super) struct Segmentation {
    /// Segments of at least this size are refused whatever the route.
    everywhere: u32,
    routes: Vec<(Route, u32)>,
}

impl Segmentation {
    /// Nothing was refused yet.
    pub(super) fn new() -> Self {
        Self {
            everywhere: u32::MAX,
            routes: Vec::with_capacity(ROUTES),
        }
    }

    /// Of a socket that cuts nothing.
    pub(super) fn never() -> Self {
        Self {
            everywhere: 0,
            routes: Vec::new(),
        }
    }

    /// The size from which on segments are refused on this route.
    pub(super) fn refused_from(&self, route: impl FnOnce() -> Route) -> u32 {
        if self.routes.is_empty() {
            return self.everywhere;
        }
        let route = route();
        let known = self.routes.iter().find(|(known, _)| *known == route);
        known.map_or(self.everywhere, |&(_, from)| from.min(self.everywhere))
    }

    /// Notes that segments of at least this size were refused on the route.
    pub(super) fn refuse(&mut self, route: Route, from: u32) {
        if let Some((_, known)) = self.routes.iter_mut().find(|(known, _)| *known == route) {
            *known = from.min(*known);
        } else if self.routes.len() < ROUTES {
            self.routes.push((route, from));
        } else {
            self.everywhere = from.min(self.everywhere);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn route(host: u8, interface: u32) -> Route {
        Route {
            to: Some(Ipv4Addr::new(192, 0, 2, host).into()),
            interface,
        }
    }

    #[test]
    fn a_refusal_is_of_one_route() {
        let mut known = Segmentation::new();
        known.refuse(route(1, 0), 1400);
        known.refuse(route(1, 7), 0);
        known.refuse(Route::default(), 9);
        known.refuse(route(1, 0), 1200);
        known.refuse(route(1, 0), 1300);
        let from = |route| known.refused_from(|| route);
        assert_eq!(from(route(1, 0)), 1200);
        assert_eq!((from(route(1, 7)), from(Route::default())), (0, 9));
        assert_eq!((from(route(2, 0)), from(route(2, 7))), (u32::MAX, u32::MAX));
    }

    #[test]
    fn many_routes_tell_of_the_device() {
        let mut known = Segmentation::new();
        for host in 0..ROUTES as u8 {
            known.refuse(route(host, 0), 0);
        }
        assert_eq!(known.refused_from(|| route(200, 0)), u32::MAX);
        known.refuse(route(100, 0), 1000);
        assert_eq!(known.refused_from(|| route(200, 0)), 1000);
        assert_eq!(
            (known.refused_from(|| route(3, 0)), known.routes.len()),
            (0, ROUTES)
        );
    }

    #[test]
    fn who_cuts_nothing_is_not_asked() {
        assert_eq!(Segmentation::never().refused_from(Route::default), 0);
    }
}
