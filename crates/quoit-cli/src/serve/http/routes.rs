//! Which path means what, and which methods it takes.

use super::head::Method;
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
    Health,
}

impl Route {
    /// The route whose path is fixed and is this one.
    pub(super) fn named(path: &str) -> Option<Self> {
        Some(match path {
            "/plaintext" => Self::Plaintext,
            "/json" => Self::Json,
            "/echo" => Self::Echo,
            "/metrics" => Self::Metrics,
            "/healthz" => Self::Health,
            _ => return None,
        })
    }

    /// The route that a request names: 404 without one, 405 when it does not take the method.
    pub(super) fn resolve(target: Target<'_>, method: Method) -> Result<Self, Refusal> {
        let Target::Path(path) = target else {
            return Err(not_allowed("GET, HEAD, POST"));
        };
        let numbered = || path.strip_prefix("/bytes/").and_then(byte_count).map(Self::Bytes);
        let Some(route) = Self::named(path).or_else(numbered) else {
            return Err(Refusal::new(Status::NotFound, "there is nothing at this path"));
        };
        match (route, method) {
            (Self::Echo, Method::Post) => Ok(route),
            (Self::Echo, _) => Err(not_allowed("POST")),
            (_, Method::Get | Method::Head) => Ok(route),
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
