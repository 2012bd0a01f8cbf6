//! The values that options take.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use jiff::Timestamp;

use super::super::target::Target;

/// Addresses that one `--source` may name.
const MOST_SOURCES: u32 = 65_536;

/// What slow readers read, if nothing else is said.
const SLOW_BYTES_PER_SECOND: u32 = 1_000;

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    const DAY: f64 = 86_400.0;
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.0..=DAY).contains(&seconds) {
        return Err(format!("must lie between 0 and {DAY}"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(crate) fn parse_positive_seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text).and_then(|time| {
        if time.is_zero() {
            Err("must be more than 0".to_owned())
        } else {
            Ok(time)
        }
    })
}

pub(super) fn parse_path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err("a path starts with `/`".to_owned());
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a path has only visible ASCII characters; encode others with %".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn parse_host(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a host has only visible ASCII characters, and at least one".to_owned());
    }
    Ok(text.to_owned())
}

/// A body that every reply must have.
#[derive(Debug, Clone)]
pub(super) struct Expected(pub(super) Vec<u8>);

pub(super) fn parse_expected(text: &str) -> Result<Expected, String> {
    match text.strip_prefix('@') {
        Some(file) => std::fs::read(file)
            .map(Expected)
            .map_err(|error| format!("cannot read {file}: {error}")),
        None => Ok(Expected(text.as_bytes().to_vec())),
    }
}

/// What `--connect` of an HTTP run names: the server, and the path if it is a URL with one.
#[derive(Debug, Clone)]
pub(super) struct HttpAddress {
    pub(super) target: Target,
    pub(super) path: Option<String>,
}

pub(super) fn parse_http_address(text: &str) -> Result<HttpAddress, String> {
    if text.starts_with("https://") {
        return Err("TLS is not supported; use http://".to_owned());
    }
    let Some(rest) = text.strip_prefix("http://") else {
        return Ok(HttpAddress {
            target: text.parse()?,
            path: None,
        });
    };
    let (authority, path) = match rest.find('/') {
        Some(slash) => (&rest[..slash], Some(parse_path(&rest[slash..])?)),
        None => (rest, None),
    };
    if authority.starts_with("unix:") {
        return Err("a URL cannot name a Unix socket; use --connect unix:... with --path".to_owned());
    }
    // An IPv6 address has colons of its own, within brackets.
    let has_port = authority
        .rfind(':')
        .is_some_and(|colon| !authority[colon..].contains(']'));
    let target = if has_port {
        authority.parse()?
    } else {
        format!("{authority}:80").parse()?
    };
    Ok(HttpAddress { target, path })
}

/// A point in time, as the time since 1970: given so in seconds, or as RFC 3339 has it.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|_| "not a number of seconds since 1970".to_owned());
    }
    let time: Timestamp = text.parse().map_err(|_| {
        "neither a time such as 2026-11-27T14:00:00Z or 2026-11-27T15:00:00.5+01:00 (RFC 3339) nor a number of seconds \
         since 1970"
            .to_owned()
    })?;
    Duration::try_from(time.duration_since(Timestamp::UNIX_EPOCH)).map_err(|_| "lies before 1970".to_owned())
}

/// What a run is called among others: it stands in tables and messages.
pub(super) fn parse_label(text: &str) -> Result<String, String> {
    const MOST: usize = 100;
    if text.is_empty() || text.len() > MOST || text.chars().any(char::is_control) {
        return Err(format!(
            "a label has 1 to {MOST} bytes, and no control characters"
        ));
    }
    Ok(text.to_owned())
}

pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate: &f64| (0.001..=1e9).contains(rate))
        .ok_or_else(|| "not a rate from 0.001 to 10^9 per second".to_owned())
}

/// `--slip`, in milliseconds.
pub(super) fn parse_milliseconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|milliseconds: &f64| (0.001..=60_000.0).contains(milliseconds))
        .map(|milliseconds| Duration::from_secs_f64(milliseconds / 1e3))
        .ok_or_else(|| "not a number of milliseconds from 0.001 to 60000".to_owned())
}

/// What `--slow` names: how many connections, and the bytes per second that each reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slow {
    pub(super) connections: usize,
    pub(super) bytes_per_second: u32,
}

pub(super) fn parse_slow(text: &str) -> Result<Slow, String> {
    let (connections, bytes) = match text.split_once(':') {
        Some((connections, bytes)) => (connections, Some(bytes)),
        None => (text, None),
    };
    let positive = |text: &str, what: &str| {
        text.parse::<u32>()
            .ok()
            .filter(|&number| number > 0)
            .ok_or_else(|| format!("`{text}` is not a number of {what} above 0"))
    };
    Ok(Slow {
        connections: positive(connections, "connections")? as usize,
        bytes_per_second: bytes.map_or(Ok(SLOW_BYTES_PER_SECOND), |bytes| {
            positive(bytes, "bytes per second")
        })?,
    })
}

/// The addresses that one `--source` names: one, or all from the first to the last of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceRange(pub(crate) Vec<IpAddr>);

pub(crate) fn parse_source(text: &str) -> Result<SourceRange, String> {
    let Some((first, last)) = text.split_once('-') else {
        return text
            .parse()
            .map(|address| SourceRange(vec![address]))
            .map_err(|_| format!("`{text}` is not an IP address"));
    };
    let address = |text: &str| {
        text.parse::<Ipv4Addr>()
            .map(u32::from)
            .map_err(|_| format!("`{text}` is not an IPv4 address; a range goes from one to another"))
    };
    let (first, last) = (address(first)?, address(last)?);
    if first > last || last - first >= MOST_SOURCES {
        return Err(format!(
            "the range {text} must go up, and have at most {MOST_SOURCES} addresses"
        ));
    }
    Ok(SourceRange(
        (first..=last).map(|address| IpAddr::V4(address.into())).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_address_may_be_a_url() {
        for (text, target, path) in [
            (
                "http://127.0.0.1:8080/json?x=1",
                "127.0.0.1:8080",
                Some("/json?x=1"),
            ),
            ("http://127.0.0.1", "127.0.0.1:80", None),
            ("http://[::1]/", "[::1]:80", Some("/")),
            ("http://[::1]:81", "[::1]:81", None),
            ("[::1]:81", "[::1]:81", None),
            ("unix:@x", "unix:@x", None),
        ] {
            let found = parse_http_address(text).unwrap();
            assert_eq!(
                (found.target.to_string().as_str(), found.path.as_deref()),
                (target, path),
                "{text}"
            );
        }
        for text in [
            "https://127.0.0.1/",
            "http://localhost/",
            "http:///x",
            "http://unix:/x",
            "ftp://1.1.1.1",
        ] {
            assert!(parse_http_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_finite_and_not_negative() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("0"), Ok(Duration::ZERO));
        for text in ["-1", "NaN", "inf", "1e9", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert!(parse_positive_seconds("0").is_err());
    }

    #[test]
    fn rates_slips_and_times_lie_in_a_range() {
        assert_eq!(parse_rate("1e5"), Ok(100_000.0));
        assert_eq!(parse_milliseconds("0.5"), Ok(Duration::from_micros(500)));
        for text in [
            "1700000000.5",
            "2023-11-14T22:13:20.5Z",
            "2023-11-14t23:43:20.5+01:30",
        ] {
            assert_eq!(
                parse_time(text),
                Ok(Duration::from_millis(1_700_000_000_500)),
                "{text}"
            );
        }
        for text in ["0", "-1", "NaN", "inf", "1e10", "", "x"] {
            assert!(parse_rate(text).is_err(), "{text}");
            assert!(parse_milliseconds(text).is_err(), "{text}");
        }
        for text in [
            "-1",
            "NaN",
            "inf",
            "x",
            "",
            "1969-12-31T23:59:59Z",
            "2023-11-14T22:13:20",
            "2023-02-29T00:00:00Z",
            "2023-11-14",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn labels_stand_on_one_line() {
        assert_eq!(parse_label("machine 3"), Ok("machine 3".to_owned()));
        for text in ["", "a\nb", &"x".repeat(101)] {
            assert!(parse_label(text).is_err(), "{text}");
        }
    }

    #[test]
    fn slow_readers_have_a_number_and_a_rate() {
        let slow = |connections, bytes_per_second| Slow {
            connections,
            bytes_per_second,
        };
        assert_eq!(parse_slow("5"), Ok(slow(5, 1_000)));
        assert_eq!(parse_slow("5:20"), Ok(slow(5, 20)));
        for text in ["", "0", "5:", "5:0", ":5", "5:6:7", "-1"] {
            assert!(parse_slow(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sources_are_addresses_or_ranges() {
        let found = parse_source("127.0.0.254-127.0.1.1").unwrap().0;
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["127.0.0.254", "127.0.0.255", "127.0.1.0", "127.0.1.1"]);
        assert_eq!(parse_source("::1").unwrap().0.len(), 1);
        for text in [
            "",
            "localhost",
            "127.0.0.2-",
            "127.0.0.3-127.0.0.2",
            "::1-::2",
            "0.0.0.0-255.0.0.0",
        ] {
            assert!(parse_source(text).is_err(), "{text}");
        }
    }
}
