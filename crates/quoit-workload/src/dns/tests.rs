//! Queries built by the library, and bytes that are none.

use std::net::{Ipv4Addr, Ipv6Addr};

use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::opt::AllOptData;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::{A, Aaaa};
use proptest::prelude::*;

use super::{MOST_BYTES, MOST_GROWTH, Outcome, Record, Responder, Zone};

const TTL: u32 = 77;

fn responder() -> Responder {
    let records = [
        "www.Example.test=192.0.2.1",
        "www.example.test=192.0.2.2",
        "www.example.test.=2001:db8::1",
        "*.example.test=192.0.2.9",
        "deep.below.example.test=2001:db8::2",
    ];
    let records = records.map(|text| text.parse::<Record>().expect("a record"));
    Responder::new(Zone::new(records), TTL)
}

fn name(text: &str) -> Name<Vec<u8>> {
    text.parse().expect("a name")
}

/// A query of class IN, whose header `adapt` changes.
fn query(text: &str, rtype: Rtype, adapt: impl FnOnce(&mut MessageBuilder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(0x1234);
    builder.header_mut().set_rd(true);
    adapt(&mut builder);
    let mut question = builder.question();
    question.push((name(text), rtype)).expect("there is room");
    question.finish()
}

fn plain(text: &str, rtype: Rtype) -> Vec<u8> {
    query(text, rtype, |_| {})
}

/// The query with an OPT record of that version and these raw options.
fn with_edns(mut query: Vec<u8>, version: u8, options: &[u8]) -> Vec<u8> {
    query[11] += 1;
    query.extend([0, 0, 41, 0x10, 0, 0, version, 0x80, 0]);
    query.extend((options.len() as u16).to_be_bytes());
    query.extend(options);
    query
}

#[track_caller]
fn ask(responder: &mut Responder, query: &[u8]) -> (Outcome, Message<Vec<u8>>) {
    let (outcome, response) = responder.answer(query);
    let response = Message::from_octets(response.to_vec()).expect("a message");
    let header = response.header();
    assert!(header.qr());
    assert_eq!(header.id().to_be_bytes(), query[..2]);
    assert!(!header.ra() && !header.tc() && !header.z() && !header.ad());
    (outcome, response)
}

/// The addresses that a response has.
fn addresses(response: &Message<Vec<u8>>) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let section = response.answer().expect("it is well-formed");
    let v4 = section.limit_to::<A>().map(|record| {
        let record = record.expect("it is well-formed");
        assert_eq!((record.class(), record.ttl().as_secs()), (Class::IN, TTL));
        record.data().addr()
    });
    let v6 = section.limit_to::<Aaaa>().map(|record| {
        let record = record.expect("it is well-formed");
        assert_eq!((record.class(), record.ttl().as_secs()), (Class::IN, TTL));
        record.data().addr()
    });
    (v4.collect(), v6.collect())
}

#[test]
fn an_address_is_answered_for_the_name_as_it_was_asked() {
    let mut responder = responder();
    let asked = plain("wWw.eXample.TEST", Rtype::AAAA);
    let (outcome, response) = ask(&mut responder, &asked);
    assert_eq!(outcome, Outcome::Answered);
    assert_eq!(response.header().rcode(), Rcode::NOERROR);
    assert!(response.header().aa() && response.header().rd());
    assert_eq!(
        addresses(&response),
        (vec![], vec!["2001:db8::1".parse().unwrap()])
    );
    assert_eq!(response.as_slice().len(), asked.len() + MOST_GROWTH);
    assert_eq!(response.as_slice()[12..asked.len()], asked[12..]);
    let query = Message::from_octets(asked).expect("a message");
    assert!(response.is_answer(&query));
}

#[test]
fn the_id_chooses_among_several_addresses() {
    let mut responder = responder();
    for (id, expected) in [(0, "192.0.2.1"), (1, "192.0.2.2"), (u16::MAX, "192.0.2.2")] {
        let asked = query("www.example.test", Rtype::A, |builder| {
            builder.header_mut().set_id(id)
        });
        let (_, response) = ask(&mut responder, &asked);
        assert_eq!(addresses(&response), (vec![expected.parse().unwrap()], vec![]));
    }
}

#[test]
fn what_is_found_decides_the_outcome() {
    let mut responder = responder();
    for (text, rtype, expected) in [
        // Below the wildcard, and further below.
        ("other.example.test", Rtype::A, Outcome::Answered),
        ("a.b.c.example.test", Rtype::A, Outcome::Answered),
        ("other.example.test", Rtype::AAAA, Outcome::NoData),
        ("*.example.test", Rtype::A, Outcome::Answered),
        // A name that exists is under no wildcard, nor is what lies below it (RFC 4592, 2.2.1 and 3.3.1).
        ("www.example.test", Rtype::MX, Outcome::NoData),
        ("www.example.test", Rtype::ANY, Outcome::Answered),
        ("deep.below.example.test", Rtype::ANY, Outcome::Answered),
        ("below.example.test", Rtype::A, Outcome::Refused),
        ("other.below.example.test", Rtype::A, Outcome::Refused),
        ("below.www.example.test", Rtype::A, Outcome::Refused),
        ("example.test", Rtype::A, Outcome::Refused),
        ("test", Rtype::A, Outcome::Refused),
        (".", Rtype::NS, Outcome::Refused),
        ("www.example.com", Rtype::A, Outcome::Refused),
        ("www.example.test", Rtype::AXFR, Outcome::Refused),
        ("www.example.test", Rtype::IXFR, Outcome::Refused),
    ] {
        let asked = plain(text, rtype);
        let (outcome, response) = ask(&mut responder, &asked);
        assert_eq!(outcome, expected, "{text} {rtype}");
        let (v4, v6) = addresses(&response);
        assert_eq!(
            v4.len() + v6.len(),
            usize::from(outcome == Outcome::Answered),
            "{text} {rtype}"
        );
        let refused = outcome == Outcome::Refused;
        assert_eq!(response.header().rcode() == Rcode::REFUSED, refused, "{text}");
        assert_eq!(response.header().aa(), !refused, "{text}");
        assert_eq!(response.as_slice()[12..asked.len()], asked[12..], "{text}");
    }
}

#[test]
fn another_class_is_refused() {
    let mut asked = plain("www.example.test", Rtype::A);
    *asked.last_mut().unwrap() = 3;
    let (outcome, response) = ask(&mut responder(), &asked);
    assert_eq!(
        (outcome, response.header().rcode()),
        (Outcome::Refused, Rcode::REFUSED)
    );
}

#[test]
fn edns_is_answered_with_edns() {
    let mut responder = responder();
    for (text, version, rcode, outcome) in [
        ("www.example.test", 0, OptRcode::NOERROR, Outcome::Answered),
        ("www.example.com", 0, OptRcode::REFUSED, Outcome::Refused),
        ("www.example.test", 1, OptRcode::BADVERS, Outcome::BadVersion),
    ] {
        // A cookie, which is passed over.
        let options = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        let asked = with_edns(plain(text, Rtype::A), version, &options);
        let (found, response) = ask(&mut responder, &asked);
        assert_eq!(found, outcome, "{text}");
        let edns = response.opt().expect("it has one");
        assert_eq!((edns.version(), edns.dnssec_ok()), (0, true), "{text}");
        assert_eq!(edns.udp_payload_size(), MOST_BYTES, "{text}");
        assert_eq!(edns.rcode(response.header()), rcode, "{text}");
        assert_eq!(edns.opt().iter::<AllOptData<_, _>>().count(), 0, "{text}");
        assert_eq!(response.header_counts().arcount(), 1, "{text}");
    }
    let (_, response) = ask(&mut responder, &plain("www.example.test", Rtype::A));
    assert!(response.opt().is_none());
}

#[test]
fn other_operations_are_not_implemented() {
    for opcode in [
        Opcode::STATUS,
        Opcode::NOTIFY,
        Opcode::UPDATE,
        Opcode::from_int(15),
    ] {
        let asked = query("www.example.test", Rtype::SOA, |builder| {
            builder.header_mut().set_opcode(opcode)
        });
        let (outcome, response) = ask(&mut responder(), &asked);
        assert_eq!(outcome, Outcome::NotImplemented);
        let header = response.header();
        assert_eq!((header.opcode(), header.rcode()), (opcode, Rcode::NOTIMP));
        assert_eq!(response.as_slice().len(), 12);
    }
}

#[test]
fn what_is_no_query_is_answered_with_a_header() {
    let right = || plain("www.example.test", Rtype::A);
    let edited = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = right();
        edit(&mut bytes);
        bytes
    };
    let opt = [0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0];
    let wrong = [
        ("no question", edited(&|bytes| bytes[5] = 0)),
        (
            "two questions",
            edited(&|bytes| {
                bytes[5] = 2;
                bytes.extend(*b"\x01a\0\0\x01\0\x01");
            }),
        ),
        ("cut", edited(&|bytes| bytes.truncate(bytes.len() - 1))),
        ("truncation", edited(&|bytes| bytes[2] |= 2)),
        ("trailing bytes", edited(&|bytes| bytes.push(0))),
        ("an answer", edited(&|bytes| bytes[7] = 1)),
        (
            "an answer that is there",
            edited(&|bytes| {
                bytes[7] = 1;
                bytes.extend(*b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04\x7f\0\0\x01");
            }),
        ),
        ("records that are missing", edited(&|bytes| bytes[11] = 1)),
        ("a label of an unknown kind", edited(&|bytes| bytes[12] = 0x80)),
        ("a name that never ends", edited(&|bytes| bytes[12] = 63)),
        // Alone, and behind a label: to itself, and into the header, which is a name as well as any.
        (
            "a loop",
            b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01".to_vec(),
        ),
        (
            "a pointer",
            b"\0\0\0\0\0\x01\0\0\0\0\0\0\xc0\x00\0\x01\0\x01".to_vec(),
        ),
        (
            "a pointer behind a label",
            b"\0\0\0\0\0\x01\0\0\0\0\0\0\x01a\xc0\x00\0\x01\0\x01".to_vec(),
        ),
        ("two OPT records", with_edns(with_edns(right(), 0, &[]), 0, &[])),
        (
            "an OPT record of a name",
            edited(&|bytes| {
                bytes[11] = 1;
                bytes.extend(b"\x01a");
                bytes.extend(opt);
            }),
        ),
        (
            "an OPT record in the wrong section",
            edited(&|bytes| {
                bytes[9] = 1;
                bytes.extend(opt);
            }),
        ),
        ("an option that is cut", with_edns(right(), 0, &[0, 10, 0, 8, 1])),
        (
            "more bytes than are taken",
            with_edns(right(), 0, &{
                let mut option = vec![0; usize::from(MOST_BYTES)];
                option[..4].copy_from_slice(&[0, 12, 4, 0xcc]);
                option
            }),
        ),
    ];
    for (what, bytes) in wrong {
        let (outcome, response) = ask(&mut responder(), &bytes);
        assert_eq!(outcome, Outcome::Malformed, "{what}");
        assert_eq!(response.header().rcode(), Rcode::FORMERR, "{what}");
        assert_eq!(response.as_slice().len(), 12, "{what}");
        assert_eq!(response.as_slice()[4..], [0; 8], "{what}");
    }
}

#[test]
fn responses_and_scraps_are_not_answered() {
    let mut response = plain("www.example.test", Rtype::A);
    response[2] |= 0x80;
    for bytes in [&response[..], &response[..11], &[]] {
        assert_eq!(responder().answer(bytes), (Outcome::Ignored, &[][..]));
    }
}

#[test]
fn the_longest_name_is_answered() {
    let label = "a".repeat(63);
    let short = "b".repeat(48);
    let longest = format!("{label}.{label}.{label}.{short}.example.test");
    assert_eq!(name(&longest).as_slice().len(), 255);
    let asked = with_edns(plain(&longest, Rtype::A), 0, &[]);
    let (outcome, response) = ask(&mut responder(), &asked);
    assert_eq!(outcome, Outcome::Answered);
    assert_eq!(response.as_slice().len(), asked.len() + 16);
}

#[test]
fn what_is_no_record_is_refused_with_the_reason() {
    for (text, expected) in [
        ("www.example.test", "NAME=ADDRESS"),
        ("www..test=192.0.2.1", "`www..test` is not a name"),
        ("www.test=192.0.2.256", "`192.0.2.256` is not an address"),
        ("www.test=", "`` is not an address"),
    ] {
        let error = text.parse::<Record>().expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// A query, right or nearly so.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let names = prop::sample::select(vec![
        "WWW.example.test",
        "a.example.test",
        "deep.below.example.test",
        "nowhere.test",
        ".",
    ]);
    let types = prop::sample::select(vec![Rtype::A, Rtype::AAAA, Rtype::ANY, Rtype::TXT, Rtype::AXFR]);
    let edns = prop::option::of((0..2u8, prop::collection::vec(any::<u8>(), 0..20)));
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let shape = (any::<u16>(), 0..40usize, prop::collection::vec(any::<u8>(), 0..3));
    (names, types, edns, edits, shape).prop_map(|(name, rtype, edns, edits, (id, cut, more))| {
        let mut bytes = query(name, rtype, |builder| builder.header_mut().set_id(id));
        if let Some((version, options)) = edns {
            bytes = with_edns(bytes, version, &options);
        }
        for (place, value) in edits {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        // Now and then.
        if cut < 10 {
            bytes.truncate(bytes.len() - cut);
        }
        if cut > 30 {
            bytes.extend(more);
        }
        bytes
    })
}

fn holds_its_bounds(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut responder = responder();
    let (outcome, response) = responder.answer(bytes);
    let bound = match outcome {
        Outcome::Answered => bytes.len() + MOST_GROWTH,
        Outcome::Ignored => 0,
        _ => bytes.len(),
    };
    prop_assert!(
        response.len() <= bound,
        "{outcome:?}: {} for {}",
        response.len(),
        bytes.len()
    );
    if outcome == Outcome::Ignored {
        return Ok(());
    }
    let message = Message::from_octets(response).expect("at least a header");
    prop_assert!(message.header().qr());
    prop_assert_eq!(&response[..2], &bytes[..2]);
    if message.header_counts().qdcount() > 0 {
        let question = message.question().next().expect("it has one");
        prop_assert!(question.is_ok());
        let end = message.answer().expect("it is well-formed").pos();
        prop_assert_eq!(&response[12..end], &bytes[12..end]);
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_bytes_are_amplified(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        holds_its_bounds(&bytes)?;
    }

    #[test]
    fn no_query_is_amplified(bytes in nearly()) {
        holds_its_bounds(&bytes)?;
    }
}
