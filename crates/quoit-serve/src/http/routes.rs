//! Which path means what, and which methods it takes.

use super::method::Method;
use super::respond::{Refusal, Status};
use super::target::Target;

/// A resource of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Plaintext,
    Json,
    /// So many bytes of [`super::pattern`].
    Bytes(u64),
    Echo,
    Metrics,
    Probe(Probe),
}

/// What is asked of the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Whether the loop that answers drains.
    Health,
    /// Whether the program takes new clients.
    Ready,
    /// Whether all of its loops turn.
    Live,
}

impl Route {
    /// The route whose path is fixed and is this one.
    #[inline(always)]
    fn named(path: &str) -> Option<Self> {
        Some(match path {
            "/plaintext" => Self::Plaintext,
            "/json" => Self::Json,
            "/echo" => Self::Echo,
            "/metrics" => Self::Metrics,
            "/healthz" => Self::Probe(Probe::Health),
            "/readyz" => Self::Probe(Probe::Ready),
            "/livez" => Self::Probe(Probe::Live),
            _ => return None,
        })
    }

    /// The route that a request's target names: 400 or 414 when it is not a valid target, 404 without a route,
    /// 405 when the route does not take the method.
    #[inline(always)]
    pub(super) fn resolve(target: &str, method: Method) -> Result<Self, Refusal> {
        // What names a resource letter for letter needs no look at its letters.
        match Self::named(target) {
            Some(route) => route.taking(method),
            None => Self::resolve_other(target, method),
        }
    }

    /// As [`resolve`](Self::resolve), for targets that are more than the path of a named route.
    fn resolve_other(target: &str, method: Method) -> Result<Self, Refusal> {
        let Target::Path(path) = Target::parse(target, method)? else {
            return Err(not_allowed("GET, HEAD, POST"));
        };
        let numbered = || path.strip_prefix("/bytes/").and_then(byte_count).map(Self::Bytes);
        match Self::named(path).or_else(numbered) {
            Some(route) => route.taking(method),
            None => Err(Refusal::new(Status::NotFound, "there is nothing at this path")),
        }
    }

    /// This route, if it takes the method.
    #[inline(always)]
    fn taking(self, method: Method) -> Result<Self, Refusal> {
        match (self, method) {
            (Self::Echo, Method::Post) => Ok(self),
            (Self::Echo, _) => Err(not_allowed("POST")),
            (_, Method::Get | Method::Head) => Ok(self),
            (_, _) => Err(not_allowed("GET, HEAD")),
        }
    }
}

/// Reads the N of `/bytes/N`: decimal digits alone, up to 2^63 - 1, the largest length that clients with
/// signed arithmetic can hold.
fn byte_count(digits: &str) -> Option<u64> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits
        .parse()
        .ok()
        .filter(|count| *count <= i64::MAX.unsigned_abs())
}

fn not_allowed(allow: &'static str) -> Refusal {
    Refusal {
        status: Status::MethodNotAllowed,
        reason: "this path does not take the method",
        allow: Some(allow),
    }
}
