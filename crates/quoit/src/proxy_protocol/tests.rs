#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;

/// The header of these bytes, of which none may be left over.
#[track_caller]
fn whole(bytes: &[u8]) -> Header {
    let (header, length) = decode(bytes, DEFAULT_LIMIT).unwrap().expect("it is whole");
    assert_eq!(length, bytes.len());
    header
}

#[track_caller]
fn refused(bytes: &[u8]) -> HeaderError {
    decode(bytes, DEFAULT_LIMIT).expect_err("it is no header")
}

fn tcp(source: &str, destination: &str) -> Option<Addresses> {
    Some(Addresses {
        source: source.parse::<SocketAddr>().unwrap().into(),
        destination: destination.parse::<SocketAddr>().unwrap().into(),
    })
}

/// A header of version 2 by its fields.
fn binary(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = binary::SIGNATURE.to_vec();
    bytes.extend_from_slice(&[version_and_command, family]);
    bytes.extend_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

const IPV4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 0x04, 1, 0xbb];

#[test]
fn lines_name_both_ends() {
    for (line, expected) in [
        (
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            tcp("192.168.0.1:56324", "192.168.0.11:443"),
        ),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            tcp("255.255.255.255:65535", "255.255.255.255:65535"),
        ),
        (
            "PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n",
            tcp("0.0.0.0:0", "0.0.0.0:0"),
        ),
        (
            "PROXY TCP6 2001:DB8::7 ::1 1 2\r\n",
            tcp("[2001:db8::7]:1", "[::1]:2"),
        ),
        // As inet_ntop(3) writes it.
        (
            "PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n",
            tcp("[::ffff:192.0.2.7]:1", "[::1]:2"),
        ),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN what ever \u{1}\r\n", None),
    ] {
        let header = whole(line.as_bytes());
        assert_eq!(
            (header.version, header.addresses),
            (Version::One, expected),
            "{line:?}"
        );
    }
}

#[test]
fn a_line_has_one_form() {
    for line in [
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2\rx",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2 \r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 2 3\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1\r\n",
        "PROXY TCP4  192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY  TCP4 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2.256 198.51.100.1 1 2\r\n",
        "PROXY TCP4 192.0.2 198.51.100.1 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.7 192.0.2.7 1 2\r\n",
        "PROXY TCP6 ::1%1 ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 01 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 +1 2\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 65536\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 1 \r\n",
        "PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY tcp4 192.0.2.7 198.51.100.1 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY UNKNOWN \n",
        "PROXY \r\n",
    ] {
        assert_eq!(refused(line.as_bytes()), HeaderError::Line, "{line:?}");
    }
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"PROXYTCP4",
        b"proxy ",
        b"\x16\x03\x01",
        b"\r\n\r\n\0\r\nQUIX",
    ] {
        assert_eq!(refused(bytes), HeaderError::Missing, "{bytes:?}");
    }
}

#[test]
fn a_line_has_at_most_107_bytes() {
    let line = |length: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(length - 16)).into_bytes();
    whole(&line(MOST_TEXT));
    let too_long = HeaderError::TooLong { limit: MOST_TEXT };
    assert_eq!(refused(&line(MOST_TEXT + 1)), too_long);
    // Before its end is seen.
    assert_eq!(refused(&line(500)[..MOST_TEXT]), too_long);
    assert_eq!(decode(&line(500)[..MOST_TEXT - 1], 0), Ok(None));
}

#[test]
fn binary_headers_name_both_ends() {
    let header = whole(&binary(0x21, 0x11, &IPV4));
    assert_eq!(header.version, Version::Two);
    assert_eq!(header.addresses, tcp("192.0.2.7:56324", "198.51.100.1:443"));
    let mut ipv6 = [0; 36];
    (ipv6[0], ipv6[15], ipv6[31], ipv6[33], ipv6[35]) = (0x20, 7, 1, 80, 90);
    assert_eq!(
        whole(&binary(0x21, 0x21, &ipv6)).addresses,
        tcp("[2000::7]:80", "[::1]:90")
    );
    let mut unix = [0; 216];
    unix[..9].copy_from_slice(b"/run/sock");
    unix[109..112].copy_from_slice(b"abc");
    let addresses = whole(&binary(0x21, 0x31, &unix)).addresses.unwrap();
    assert_eq!(addresses.source, Address::UnixPath("/run/sock".into()));
    assert_eq!(addresses.destination, Address::UnixAbstract(b"abc"[..].into()));
    let addresses = whole(&binary(0x21, 0x31, &[0; 216])).addresses.unwrap();
    assert_eq!(addresses.source, Address::UnixUnnamed);
    unix[..108].fill(b'a');
    assert_eq!(refused(&binary(0x21, 0x31, &unix)), HeaderError::Path);
}

#[test]
fn who_is_not_named_has_the_connections_own_addresses() {
    for bytes in [
        binary(0x20, 0x00, &[]),
        // What follows is skipped, whatever it is.
        binary(0x20, 0x11, &IPV4),
        binary(0x20, 0x11, &[1, 2, 3]),
        binary(0x20, 0xff, &[3, 0xff]),
        binary(0x21, 0x00, &[]),
        binary(0x21, 0x00, &[3, 0xff]),
        binary(0x21, 0x01, &IPV4),
        binary(0x21, 0x10, &IPV4),
        binary(0x21, 0x12, &IPV4),
        binary(0x21, 0x22, &[0; 36]),
        binary(0x21, 0x32, &[0; 216]),
    ] {
        let header = whole(&bytes);
        assert_eq!(header, Header::new(None), "{bytes:?}");
        assert_eq!(header.values().count(), 0);
    }
}

#[test]
fn binary_headers_that_are_none() {
    for (bytes, error) in [
        (binary(0x11, 0x11, &IPV4), HeaderError::Version(1)),
        (binary(0x31, 0x11, &IPV4), HeaderError::Version(3)),
        (binary(0x22, 0x11, &IPV4), HeaderError::Command(2)),
        (binary(0x21, 0x41, &IPV4), HeaderError::Family(0x41)),
        (binary(0x21, 0x13, &IPV4), HeaderError::Family(0x13)),
        (binary(0x21, 0x11, &IPV4[..11]), HeaderError::TooShort),
        (binary(0x21, 0x21, &[0; 35]), HeaderError::TooShort),
        (binary(0x21, 0x31, &[0; 215]), HeaderError::TooShort),
        (
            binary(0x21, 0x11, &[&IPV4[..], &[4]].concat()),
            HeaderError::Value,
        ),
        (
            binary(0x21, 0x11, &[&IPV4[..], &[4, 0, 1]].concat()),
            HeaderError::Value,
        ),
        (
            binary(0x21, 0x11, &[&IPV4[..], &[3, 0, 3, 0, 0, 0]].concat()),
            HeaderError::Value,
        ),
    ] {
        assert_eq!(refused(&bytes), error, "{bytes:?}");
    }
    // As soon as it is certain.
    assert_eq!(refused(&binary(0x11, 0, &[])[..13]), HeaderError::Version(1));
    let long = binary(0x21, 0x00, &[0; DEFAULT_LIMIT - 15]);
    let too_long = HeaderError::TooLong { limit: DEFAULT_LIMIT };
    assert_eq!(refused(&long[..16]), too_long);
    whole(&binary(0x21, 0x00, &[0; DEFAULT_LIMIT - 16]));
    let longest = binary(0x21, 0x00, &[0; 65_535]);
    assert_eq!(
        decode(&longest, usize::MAX),
        Ok(Some((Header::new(None), MOST_BINARY)))
    );
}

/// The examples of RFC 3720, B.4.
#[test]
fn the_checksum_is_that_of_the_rfc() {
    assert_eq!(binary::crc32c(&[0; 32], 0), 0x8a91_36aa);
    assert_eq!(binary::crc32c(&[0xff; 32], 32), 0x62a8_ab43);
    let counting: Vec<u8> = (0..32).collect();
    assert_eq!(binary::crc32c(&counting, 32), 0x46dd_794e);
}

#[test]
fn a_checksum_is_checked() {
    let checksum = [&IPV4[..], &[4, 0, 2, 9, 9, 3, 0, 4, 0, 0, 0, 0, 5, 0, 1, 7]].concat();
    let mut bytes = binary(0x21, 0x11, &checksum);
    let place = 16 + 12 + 5 + 3;
    let sum = binary::crc32c(&bytes, place);
    bytes[place..place + 4].copy_from_slice(&sum.to_be_bytes());
    let header = whole(&bytes);
    let values: Vec<_> = header.values().collect();
    assert_eq!(values, [(4, &[9, 9][..]), (3, &sum.to_be_bytes()), (5, &[7])]);
    // With another type it is no checksum.
    for at in (16..bytes.len()).filter(|at| *at != place - 3) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(decode(&changed, DEFAULT_LIMIT).is_err(), "{at}");
    }
    let twice = [&checksum[..], &[3, 0, 4, 0, 0, 0, 0]].concat();
    assert_eq!(refused(&binary(0x21, 0x11, &twice)), HeaderError::Value);
}

#[test]
fn values_are_kept_as_long_as_they_fit() {
    let mut header = Header::new(tcp("192.0.2.7:1", "192.0.2.8:2"));
    assert_eq!(header.push_value(3, &[0; 4]), Err(HeaderError::Value));
    header.push_value(2, b"example.test").unwrap();
    header.push_value(0x20, &[]).unwrap();
    let found = whole(&header.encode());
    let values: Vec<_> = found.values().collect();
    assert_eq!(values, [(2, &b"example.test"[..]), (0x20, &[])]);
    let too_long = Err(HeaderError::TooLong { limit: MOST_BINARY });
    assert_eq!(header.push_value(4, &[0; 65_536]), too_long);
    let room = 65_535 - 216 - 15 - 3 - 3;
    assert_eq!(header.push_value(4, &vec![0; room + 1]), too_long);
    header.push_value(4, &vec![0; room]).unwrap();
    assert_eq!(decode(&header.encode(), usize::MAX).unwrap().unwrap().0, header);
}

fn address() -> impl Strategy<Value = Address> {
    let ip = any::<(IpAddr, u16)>().prop_map(|parts| SocketAddr::from(parts).into());
    let path = prop::collection::vec(1..=255u8, 1..=107).prop_map(|path| {
        Address::UnixPath(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(path).into())
    });
    // One that ends in a zero cannot be told from one that was filled up.
    let name = prop::collection::vec(any::<u8>(), 0..=106).prop_map(|mut name| {
        name.push(b'x');
        Address::UnixAbstract(name.into())
    });
    prop_oneof![4 => ip, 1 => path, 1 => name, 1 => Just(Address::UnixUnnamed)]
}

fn header() -> impl Strategy<Value = Header> {
    let addresses =
        (address(), address()).prop_map(|(source, destination)| Addresses { source, destination });
    let value = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..40));
    let values = prop::collection::vec(value, 0..5);
    (prop::option::of(addresses), values, any::<bool>()).prop_map(|(addresses, values, is_text)| {
        let mut header = Header::new(addresses);
        if is_text {
            header.version = Version::One;
        } else if header.addresses.is_some() {
            for (kind, value) in values {
                // That of the checksum is refused.
                let _ = header.push_value(kind, &value);
            }
        }
        header
    })
}

/// What is left of a header in its form.
fn sayable(header: &Header) -> Header {
    let mut said = header.clone();
    let can_be_said = match &header.addresses {
        Some(Addresses {
            source: Address::Tcp(source),
            destination: Address::Tcp(destination),
        }) => source.is_ipv4() == destination.is_ipv4(),
        Some(Addresses { source, destination }) => {
            header.version == Version::Two && source.is_unix() && destination.is_unix()
        }
        None => true,
    };
    if !can_be_said {
        said.addresses = None;
        said.values = Box::default();
    }
    said
}

/// Bytes that are nearly a header: one of which some bytes are changed, or none.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let changed = (
        header(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    )
        .prop_map(|(header, changes)| {
            let mut bytes = header.encode();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        });
    prop_oneof![3 => changed, 1 => prop::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #[test]
    fn what_is_written_is_read(header in header(), behind in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut bytes = header.encode();
        let length = bytes.len();
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(decode(&bytes, MOST_BINARY), Ok(Some((sayable(&header), length))));
        // Wherever it is cut, more is asked for.
        for end in 0..length {
            prop_assert_eq!(decode(&bytes[..end], MOST_BINARY), Ok(None), "{}", end);
        }
    }

    /// What is said of some bytes holds for more: otherwise it would matter how they are cut.
    #[test]
    fn more_bytes_change_no_verdict(bytes in nearly(), limit in 0..400usize) {
        let mut verdict = Ok(None);
        for end in 0..=bytes.len() {
            let now = decode(&bytes[..end], limit);
            if verdict != Ok(None) {
                prop_assert_eq!(&now, &verdict, "at {}", end);
            }
            match &now {
                Ok(Some((_, length))) => prop_assert!(*length <= end && *length <= limit.max(MOST_TEXT)),
                Ok(None) => prop_assert!(end < limit.max(MOST_TEXT)),
                Err(_) => {}
            }
            verdict = now;
        }
    }

    /// Another's parser is of the same opinion of all addresses that are taken here. (It refuses more of what names none.)
    #[test]
    fn what_is_taken_is_what_others_take(bytes in nearly()) {
        if let Ok(Some((header, length))) = decode(&bytes, MOST_BINARY) && header.addresses.is_some() {
            let (theirs, used) = proxy_header::ProxyHeader::parse(&bytes, Default::default()).unwrap();
            prop_assert_eq!(used, length);
            let ours = header.addresses.and_then(|addresses| match (addresses.source, addresses.destination) {
                (Address::Tcp(source), Address::Tcp(destination)) => Some((source, destination)),
                _ => None,
            });
            let theirs = theirs.proxied_address().filter(|address| address.protocol == proxy_header::Protocol::Stream);
            prop_assert_eq!(ours, theirs.map(|address| (address.source, address.destination)));
        }
    }
}
