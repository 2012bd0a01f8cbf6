//! Addresses as text: what users write on a command line, and what messages show.

use std::ffi::OsStr;
use std::fmt;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use super::{Address, AddressError, SocketAddress};

const UNIX_PREFIX: &str = "unix:";

/// Why a text is no address: the text, what is wrong with it and how it should look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseAddressError {
    text: String,
    reason: Reason,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Reason {
    Empty,
    NoPort { example: String },
    BadPort { port: String },
    NoHost { port: u16 },
    Unbracketed { example: String },
    BadHost,
    NoUnixName,
    BadEscape,
    Unix(AddressError),
}

impl fmt::Display for ParseAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an address: ", self.text)?;
        match &self.reason {
            Reason::Empty => f.write_str("it is empty; write, for example, 127.0.0.1:8080 or unix:/run/app.sock"),
            Reason::NoPort { example } => {
                write!(f, "the port is missing; write, for example, {example}")
            }
            Reason::BadPort { port } => write!(
                f,
                "{port:?} is not a port from 0 to 65535; write, for example, 127.0.0.1:8080"
            ),
            Reason::NoHost { port } => write!(
                f,
                "the IP address is missing; write, for example, 127.0.0.1:{port} for this host only, or \
                 0.0.0.0:{port} or [::]:{port} for all its addresses"
            ),
            Reason::Unbracketed { example } => {
                write!(f, "an IPv6 address must be in brackets; write, for example, {example}")
            }
            Reason::BadHost => f.write_str(
                "the part before the port is not an IP address, and names are not looked up; write, for \
                 example, 127.0.0.1:8080, [::1]:8080 or unix:/run/app.sock",
            ),
            Reason::NoUnixName => f.write_str(
                "nothing follows the prefix; write, for example, unix:/run/app.sock for a path or unix:@app for \
                 an abstract name",
            ),
            Reason::BadEscape => f.write_str(
                "a backslash must be followed by x and two hexadecimal digits or by another backslash; write, \
                 for example, unix:@a\\x00b",
            ),
            Reason::Unix(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParseAddressError {}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let parsed = match text.strip_prefix(UNIX_PREFIX) {
            Some(name) => parse_unix(name),
            None => text.parse().map(Self::Tcp).map_err(|_| diagnose(text)),
        };
        parsed.map_err(|reason| ParseAddressError {
            text: text.to_owned(),
            reason,
        })
    }
}

fn parse_unix(text: &str) -> Result<Address, Reason> {
    let address = match text.strip_prefix('@') {
        _ if matches!(text, "" | "@") => return Err(Reason::NoUnixName),
        Some(name) => Address::UnixAbstract(unescape(name)?.into()),
        None => Address::UnixPath(OsStr::from_bytes(&unescape(text)?).into()),
    };
    match SocketAddress::try_from(&address) {
        Ok(_) => Ok(address),
        Err(error) => Err(Reason::Unix(error)),
    }
}

/// What is wrong with a text that is no IP address with a port.
fn diagnose(text: &str) -> Reason {
    if text.is_empty() {
        return Reason::Empty;
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        // `::1:8080` is an IPv6 address as a whole, but hardly meant as one.
        return match text
            .rsplit_once(':')
            .map(|(host, port)| (host.parse::<Ipv6Addr>(), port.parse()))
        {
            Some((Ok(host), Ok(port))) => Reason::Unbracketed {
                example: SocketAddr::new(host.into(), port).to_string(),
            },
            _ => Reason::NoPort {
                example: SocketAddr::new(ip, 8080).to_string(),
            },
        };
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Reason::NoPort {
            example: "127.0.0.1:8080".to_owned(),
        };
    };
    if text.ends_with(']') {
        return Reason::NoPort {
            example: "[::1]:8080".to_owned(),
        };
    }
    let Ok(port) = port.parse::<u16>() else {
        return Reason::BadPort {
            port: port.to_owned(),
        };
    };
    match host.parse::<Ipv6Addr>() {
        Ok(ip) => Reason::Unbracketed {
            example: SocketAddr::new(ip.into(), port).to_string(),
        },
        Err(_) if matches!(host, "" | "*") => Reason::NoHost { port },
        Err(_) => Reason::BadHost,
    }
}

fn unescape(text: &str) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return Ok(bytes),
            [b'\\', b'\\', rest @ ..] => {
                bytes.push(b'\\');
                rest
            }
            [b'\\', b'x', high, low, rest @ ..] => {
                let digit = |byte: u8| (byte as char).to_digit(16).ok_or(Reason::BadEscape);
                bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
                rest
            }
            [b'\\', ..] => return Err(Reason::BadEscape),
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let hexadecimal = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
        bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                f.write_str("\\\\")?;
            } else if character.is_control() {
                hexadecimal(f, character.encode_utf8(&mut [0; 4]).as_bytes())?;
            } else {
                f.write_char(character)?;
            }
        }
        hexadecimal(f, chunk.invalid())?;
    }
    Ok(())
}

/// What [`str::parse`] reads; only [`Address::UnixUnnamed`] (`unix:`) and an empty abstract name (`unix:@`)
/// cannot be read back, and an IPv6 address loses its flow information.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::UnixPath(path) => {
                let bytes = path.as_os_str().as_bytes();
                f.write_str(UNIX_PREFIX)?;
                if bytes.starts_with(b"@") {
                    f.write_str("./")?;
                }
                escape(bytes, f)
            }
            Self::UnixAbstract(name) => {
                f.write_str(UNIX_PREFIX)?;
                f.write_char('@')?;
                escape(name, f)
            }
            Self::UnixUnnamed => f.write_str(UNIX_PREFIX),
        }
    }
}

/// A text is an address, which is shown so that it can be read again, or what is wrong with it is said in one line.
/// See [`crate::fuzzing`].
#[cfg(any(test, fuzzing))]
pub(crate) fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<Address>() {
        Ok(address) => {
            let shown = address.to_string();
            assert!(!shown.contains('\n'), "{shown}");
            match shown.parse::<Address>() {
                // A path that begins with @ is shown with the folder before it.
                Ok(again) => assert_eq!(again.to_string(), shown),
                Err(error) => assert!(shown.starts_with("unix:./@"), "{error}"),
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{UNIX_ABSTRACT_LIMIT, UNIX_PATH_LIMIT};
    use super::*;
    use proptest::prelude::*;
    use std::net::{SocketAddrV4, SocketAddrV6};

    fn writable_addresses() -> impl Strategy<Value = Address> {
        let v4 = any::<(u32, u16)>().prop_map(|(ip, port)| SocketAddrV4::new(ip.into(), port).into());
        let v6 = any::<(u128, u16, u32)>()
            .prop_map(|(ip, port, scope)| SocketAddrV6::new(ip.into(), port, 0, scope).into());
        let bytes = proptest::collection::vec(1u8.., 1..=UNIX_PATH_LIMIT);
        let text = proptest::string::string_regex("[a-z/@\\\\é\u{1b}]{1,40}").unwrap();
        let path = prop_oneof![bytes, text.prop_map(String::into_bytes)]
            .prop_filter("is written with a leading ./", |path| path[0] != b'@')
            .prop_map(|path| Address::UnixPath(OsStr::from_bytes(&path).into()));
        let name = proptest::collection::vec(any::<u8>(), 1..=UNIX_ABSTRACT_LIMIT)
            .prop_map(|name| Address::UnixAbstract(name.into()));
        prop_oneof![v4.prop_map(Address::Tcp), v6.prop_map(Address::Tcp), path, name]
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(address in writable_addresses()) {
            let text = address.to_string();
            prop_assert!(!text.chars().any(char::is_control));
            prop_assert_eq!(text.parse::<Address>().unwrap(), address);
        }

        #[test]
        fn any_text_is_read_or_refused_with_an_example(text in ".{0,24}") {
            if let Err(error) = text.parse::<Address>() {
                let message = error.to_string();
                prop_assert!(message.contains("; write, for example, ") || message.contains("use a shorter"));
            }
        }
    }

    #[test]
    fn the_documented_forms() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        let cases = [
            ("127.0.0.1:8080", tcp("127.0.0.1:8080")),
            ("[::1]:8080", tcp("[::1]:8080")),
            ("unix:/run/app.sock", Address::UnixPath("/run/app.sock".into())),
            ("unix:@name", Address::UnixAbstract(b"name"[..].into())),
            ("unix:@a\\x00b", Address::UnixAbstract(b"a\0b"[..].into())),
            ("unix:./@name", Address::UnixPath("./@name".into())),
        ];
        for (text, address) in cases {
            assert_eq!(text.parse(), Ok(address.clone()));
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(Address::UnixPath("@name".into()).to_string(), "unix:./@name");
        assert_eq!(Address::UnixUnnamed.to_string(), "unix:");
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let cases = [
            ("", "it is empty"),
            ("8080", "the port is missing"),
            ("127.0.0.1", "write, for example, 127.0.0.1:8080"),
            ("::1", "write, for example, [::1]:8080"),
            ("[::1]", "write, for example, [::1]:8080"),
            ("::1:9000", "must be in brackets; write, for example, [::1]:9000"),
            ("127.0.0.1:http", "\"http\" is not a port"),
            ("127.0.0.1:65536", "\"65536\" is not a port"),
            (":8080", "0.0.0.0:8080"),
            ("*:8080", "0.0.0.0:8080"),
            ("1:2:3:4:5:6:7:8:9000", "[1:2:3:4:5:6:7:8]:9000"),
            ("localhost:8080", "names are not looked up"),
            ("unix:", "nothing follows the prefix"),
            ("unix:@", "nothing follows the prefix"),
            ("unix:/a\\b", "a backslash must be followed"),
            ("unix:/a\\x0", "a backslash must be followed"),
            ("unix:/a\\x0g", "a backslash must be followed"),
            ("unix:/a\\x00", "contains a NUL byte"),
        ];
        for (text, expected) in cases {
            let message = text.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(expected), "{text:?}: {message}");
        }
        let long = format!("unix:/{}", "p".repeat(UNIX_PATH_LIMIT));
        let message = long.parse::<Address>().unwrap_err().to_string();
        assert!(message.contains("has 108 bytes"), "{message}");
    }
}
