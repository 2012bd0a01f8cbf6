//! Request targets (RFC 9112, section 3.2) and the authority in them and in the Host field.

use std::net::Ipv6Addr;

use super::MAX_TARGET_BYTES;
use super::method::Method;
use super::respond::{Refusal, Status};

/// The longest DNS name (253 characters, RFC 1035, section 2.3.4) with a port.
const MAX_JUDGED_BYTES: usize = 259;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// An absolute path, without its query.
    Path(&'a str),
    /// `*`: the server as a whole.
    Server,
}

impl<'a> Target<'a> {
    /// Reads origin-form, absolute-form (`http` and `https`) and, for OPTIONS, asterisk-form. The host of
    /// an absolute-form must be valid and is not used: the routes are the same for every host.
    pub(super) fn parse(target: &'a str, method: Method) -> Result<Self, Refusal> {
        if target.len() > MAX_TARGET_BYTES {
            return Err(Refusal::new(
                Status::UriTooLong,
                "the request target is longer than 8192 bytes",
            ));
        }
        let bytes = target.as_bytes();
        let plain = |byte: &u8| PATH_BYTES[usize::from(*byte)];
        // In most requests the path is all there is, and one look at each byte says so.
        let path_end = bytes.iter().position(|byte| !plain(byte)).unwrap_or(bytes.len());
        if !bytes[path_end..].iter().all(|byte| plain(byte) || *byte == b'?') {
            return Err(bad("the request target holds a byte that no target may hold"));
        }
        if bytes.first() == Some(&b'/') {
            return Ok(Self::Path(&target[..path_end]));
        }
        let path_and_query = if target == "*" {
            return match method {
                Method::Options => Ok(Self::Server),
                _ => Err(bad("the target * is for OPTIONS alone")),
            };
        } else {
            path_of_absolute_form(target)?
        };
        let path_end = path_and_query.find('?').unwrap_or(path_and_query.len());
        Ok(Self::Path(match &path_and_query[..path_end] {
            "" => "/",
            path => path,
        }))
    }
}

fn path_of_absolute_form(target: &str) -> Result<&str, Refusal> {
    const NEITHER: &str = "the request target is neither a path nor an http URI";
    let (scheme, rest) = target.split_once("://").ok_or(bad(NEITHER))?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(bad(NEITHER));
    }
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    if !is_authority(&rest.as_bytes()[..authority_end]) {
        return Err(bad("the host in the request target is not valid"));
    }
    Ok(&rest[authority_end..])
}

/// The authority that was last found valid, by a loop. Most requests to a server name it in the same way, and what
/// equals a valid authority is one.
#[derive(Debug, Default)]
pub(super) struct JudgedHost(Vec<u8>);

impl JudgedHost {
    /// Whether `value` is a valid authority: see [`is_authority`].
    #[inline]
    pub(super) fn accepts(&mut self, value: &[u8]) -> bool {
        // Before the first one there is nothing to equal, not even for an empty value, which is not valid.
        (!value.is_empty() && value == self.0) || self.judge(value)
    }

    fn judge(&mut self, value: &[u8]) -> bool {
        let valid = is_authority(value);
        // Longer ones are rare, and would be kept for nothing.
        if valid && value.len() <= MAX_JUDGED_BYTES {
            self.0.clear();
            self.0.extend_from_slice(value);
        }
        valid
    }
}

/// Whether `value` is a host with an optional port: a DNS name or IPv4 address of letters, digits, `-`,
/// `.`, `_` and `~`, or an IPv6 address in brackets.
///
/// Narrower than RFC 3986: sub-delimiters and percent-encoding are refused, because no real host has them
/// and a list such as `a,b` is what a proxy makes of two Host fields. User information is refused as
/// RFC 9110, section 4.2.4, demands.
fn is_authority(value: &[u8]) -> bool {
    let port = if let Some(rest) = value.strip_prefix(b"[") {
        let Some(end) = rest.iter().position(|byte| *byte == b']') else {
            return false;
        };
        let (address, after) = rest.split_at(end);
        if !std::str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok()) {
            return false;
        }
        &after[1..]
    } else {
        let name = value
            .iter()
            .take_while(|byte| HOST_NAME_BYTES[usize::from(**byte)])
            .count();
        if name == 0 {
            return false;
        }
        &value[name..]
    };
    match port {
        [] => true,
        [b':', digits @ ..] => {
            digits.len() <= 5
                && digits.iter().all(u8::is_ascii_digit)
                && digits
                    .iter()
                    .fold(0, |port, digit| port * 10 + u32::from(digit - b'0'))
                    <= 65_535
        }
        _ => false,
    }
}

/// What a path may hold, as this server sees it: anything visible but `#`, which begins a fragment, and `?`, which
/// begins a query.
static PATH_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        allowed[byte] = value.is_ascii_graphic() && !matches!(value, b'#' | b'?');
        byte += 1;
    }
    allowed
};

static HOST_NAME_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        allowed[byte] = value.is_ascii_alphanumeric() || matches!(value, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    allowed
};

fn bad(reason: &'static str) -> Refusal {
    Refusal::new(Status::BadRequest, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        for valid in [
            "a",
            "localhost:8080",
            "127.0.0.1",
            "[::1]",
            "[::1]:80",
            "a_b.example.",
            "h:",
            "h:65535",
        ] {
            assert!(is_authority(valid.as_bytes()), "{valid}");
        }
        let invalid = [
            "",
            ":80",
            "a b",
            "a,b",
            "user@host",
            "h:65536",
            "h:123456",
            "h:+1",
            "h:8a",
            "[::1",
            "[]",
            "[::g]",
            "[::1]x",
            "a/b",
            "a\\b",
            "a%00",
            "h:1:2",
            "\u{e9}",
        ];
        for invalid in invalid {
            assert!(!is_authority(invalid.as_bytes()), "{invalid}");
        }
    }

    #[test]
    fn the_three_forms() {
        let path = |target| Target::parse(target, Method::Get).map_err(|refusal| refusal.status);
        assert_eq!(path("/a/b?c=d"), Ok(Target::Path("/a/b")));
        assert_eq!(path("http://h/a?b"), Ok(Target::Path("/a")));
        assert_eq!(path("HTTPS://h:1?b"), Ok(Target::Path("/")));
        assert_eq!(path("http://h"), Ok(Target::Path("/")));
        for invalid in [
            "*",
            "a",
            "h:80",
            "ftp://h/",
            "http:///a",
            "http://u@h/",
            "/a#b",
            "/\u{e9}",
            "://h",
        ] {
            assert_eq!(path(invalid), Err(Status::BadRequest), "{invalid}");
        }
        assert_eq!(Target::parse("*", Method::Options).ok(), Some(Target::Server));
    }
}
