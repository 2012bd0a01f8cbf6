//! `quoit serve dns`, asked by real queries, right and wrong ones, on each engine.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};

use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::{A, Aaaa};

use crate::support::{Client, PATIENCE, Server, connect, engines, quoit, run};

/// Who asks.
struct Resolver(UdpSocket);

impl Resolver {
    /// Connected, so that an answer from another address than was asked does not come.
    #[track_caller]
    fn at(address: SocketAddr) -> Self {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => "0.0.0.0".parse().unwrap(),
            SocketAddr::V6(_) => "::".parse().unwrap(),
        };
        let socket = UdpSocket::bind((any, 0)).expect("a port is free");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        socket.connect(address).expect("it receives there");
        Self(socket)
    }

    fn of(server: &Server) -> Self {
        Self::at(server.address().parse().expect("an address of the Internet"))
    }

    #[track_caller]
    fn exchange(&self, bytes: &[u8]) -> Message<Vec<u8>> {
        self.0.send(bytes).expect("it is sent");
        self.receive()
    }

    #[track_caller]
    fn receive(&self) -> Message<Vec<u8>> {
        let mut response = vec![0; 2048];
        let length = self.0.recv(&mut response).expect("it is answered");
        response.truncate(length);
        Message::from_octets(response).expect("a message")
    }

    /// The rcode of the response, and the addresses that it has.
    #[track_caller]
    fn ask(&self, name: &str, rtype: Rtype) -> (Rcode, Vec<IpAddr>) {
        let query = query(7, name, rtype);
        let response = self.exchange(&query);
        let query = Message::from_octets(query).expect("a message");
        assert!(response.is_answer(&query), "{name} {rtype}");
        (response.header().rcode(), addresses(&response))
    }
}

fn query(id: u16, name: &str, rtype: Rtype) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(id);
    let mut question = builder.question();
    let name: Name<Vec<u8>> = name.parse().expect("a name");
    question.push((name, rtype)).expect("there is room");
    question.finish()
}

fn addresses(response: &Message<Vec<u8>>) -> Vec<IpAddr> {
    let section = response.answer().expect("it is well-formed");
    let v4 = section
        .limit_to::<A>()
        .map(|record| IpAddr::V4(record.expect("it is well-formed").data().addr()));
    let v6 = section
        .limit_to::<Aaaa>()
        .map(|record| IpAddr::V6(record.expect("it is well-formed").data().addr()));
    v4.chain(v6).collect()
}

#[track_caller]
fn address(text: &str) -> Vec<IpAddr> {
    vec![text.parse().expect("an address")]
}

#[test]
fn addresses_are_answered_over_both_versions_of_ip() {
    for engine in engines() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let server = Server::start(&format!(
                "dns --engine {engine} --listen {listen} --loops 2 --work 100 --record www.example.test=192.0.2.7 \
                 --record *.example.test=2001:db8::7"
            ));
            let resolver = Resolver::of(&server);
            for (name, rtype, rcode, found) in [
                ("www.example.test", Rtype::A, Rcode::NOERROR, address("192.0.2.7")),
                ("www.example.test", Rtype::AAAA, Rcode::NOERROR, vec![]),
                (
                    "a.b.Example.Test",
                    Rtype::AAAA,
                    Rcode::NOERROR,
                    address("2001:db8::7"),
                ),
                ("www.example.com", Rtype::A, Rcode::REFUSED, vec![]),
                ("www.test", Rtype::A, Rcode::REFUSED, vec![]),
            ] {
                assert_eq!(
                    resolver.ask(name, rtype),
                    (rcode, found),
                    "{engine} {listen} {name}"
                );
            }
        }
    }
}

#[test]
fn without_records_any_name_below_test_has_an_address() {
    for engine in engines() {
        let server = Server::on(engine, "dns --ttl 5");
        let resolver = Resolver::of(&server);
        let response = resolver.exchange(&query(1, "any.name.test", Rtype::A));
        let record = response.answer().expect("it is well-formed").limit_to_in::<A>();
        let records: Vec<_> = record.map(|record| record.expect("it is well-formed")).collect();
        assert_eq!((records.len(), records[0].class()), (1, Class::IN));
        assert_eq!(records[0].ttl().as_secs(), 5);
        assert_eq!(
            resolver.ask("any.test", Rtype::AAAA),
            (Rcode::NOERROR, address("2001:db8::1"))
        );
    }
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    for engine in engines() {
        for (listen, asked) in [
            // Left to itself, the kernel would answer from 127.0.0.1.
            ("0.0.0.0:0", &["127.0.0.1", "127.0.0.2"][..]),
            ("[::]:0", &["127.0.0.2", "::1"]),
        ] {
            let server = Server::start(&format!("dns --engine {engine} --listen {listen}"));
            let bound: SocketAddr = server.address().parse().expect("an address of the Internet");
            for host in asked {
                let host: IpAddr = host.parse().expect("an address");
                let resolver = Resolver::at(SocketAddr::new(host, bound.port()));
                let (rcode, found) = resolver.ask("www.test", Rtype::A);
                assert_eq!(
                    (rcode, found),
                    (Rcode::NOERROR, address("192.0.2.1")),
                    "{engine} {host}"
                );
            }
        }
    }
}

#[test]
fn what_is_malformed_gets_a_header_and_the_server_goes_on() {
    for engine in engines() {
        let server = Server::on(engine, "dns");
        let resolver = Resolver::of(&server);
        let right = query(7, "www.test", Rtype::A);
        let edited = |place: usize, value: u8| {
            let mut bytes = right.clone();
            bytes[place] = value;
            bytes
        };
        for (bytes, rcode) in [
            (right[..right.len() - 1].to_vec(), Rcode::FORMERR),
            ([&right[..], b"more"].concat(), Rcode::FORMERR),
            (edited(12, 0xc0), Rcode::FORMERR),
            (edited(5, 0), Rcode::FORMERR),
            (edited(2, 5 << 3), Rcode::NOTIMP),
        ] {
            let response = resolver.exchange(&bytes);
            assert_eq!(response.header().rcode(), rcode, "{engine} {bytes:?}");
            assert_eq!(response.as_slice().len(), 12, "{engine} {bytes:?}");
        }
        // None of these is answered: what comes next is the answer to what is asked next.
        for bytes in [&[][..], &right[..11], &edited(2, 0x80)] {
            resolver.0.send(bytes).expect("it is sent");
        }
        assert_eq!(
            resolver.ask("www.test", Rtype::A).1,
            address("192.0.2.1"),
            "{engine}"
        );
    }
}

#[test]
fn many_queries_at_once_are_all_answered() {
    const QUERIES: u16 = 200;
    for engine in engines() {
        let server = Server::on(engine, "dns --record a.test=192.0.2.1 --record a.test=192.0.2.2");
        let resolver = Resolver::of(&server);
        for id in 0..QUERIES {
            resolver
                .0
                .send(&query(id, "a.test", Rtype::A))
                .expect("it is sent");
        }
        let mut ids: Vec<u16> = (0..QUERIES)
            .map(|_| {
                let response = resolver.receive();
                let id = response.header().id();
                // The id chooses.
                let expected = address(if id.is_multiple_of(2) {
                    "192.0.2.1"
                } else {
                    "192.0.2.2"
                });
                assert_eq!(addresses(&response), expected, "{engine} {id}");
                id
            })
            .collect();
        ids.sort_unstable();
        assert!(ids.iter().copied().eq(0..QUERIES), "{engine} {ids:?}");
    }
}

#[test]
fn outcomes_are_among_the_metrics() {
    for engine in engines() {
        let mut command = quoit(&format!(
            "serve dns --engine {engine} --listen 127.0.0.1:0 --metrics 127.0.0.1:0"
        ));
        command.stderr(Stdio::piped());
        let server = Server::start_command(command, 1);
        let metrics = server.message("metrics on ");
        let resolver = Resolver::of(&server);
        resolver.0.send(b"short").expect("it is sent");
        resolver.exchange(b"longer but no query");
        for name in ["a.test", "b.test", "nowhere.example"] {
            resolver.ask(name, Rtype::A);
        }
        resolver.ask("a.test", Rtype::TXT);
        let text = Client::new(connect(&metrics)).get("/metrics").text().to_owned();
        for line in [
            "quoit_dns_answered_total{loop=\"0\"} 2\n",
            "quoit_dns_no_data_total{loop=\"0\"} 1\n",
            "quoit_dns_refused_total{loop=\"0\"} 1\n",
            "quoit_dns_bad_version_total{loop=\"0\"} 0\n",
            "quoit_dns_ignored_total{loop=\"0\"} 1\n",
        ] {
            assert!(text.contains(line), "{engine} {line}: {text}");
        }
    }
}

#[test]
fn it_drains_at_a_signal() {
    for engine in engines() {
        let mut server = Server::on(engine, "dns");
        assert_eq!(Resolver::of(&server).ask("a.test", Rtype::A).0, Rcode::NOERROR);
        server.terminate();
        server.ends_with(0);
    }
}

#[test]
fn dnsperf_finds_nothing_lost_and_nothing_wrong() {
    let installed = Command::new("dnsperf").arg("-h").output().is_ok();
    if !installed {
        println!("dnsperf is not installed");
        return;
    }
    let mut queries = tempfile::NamedTempFile::new().expect("files can be made");
    for number in 0..40 {
        let rtype = if number % 2 == 0 { "A" } else { "AAAA" };
        writeln!(queries, "host-{number}.test {rtype}").expect("it is written");
    }
    for engine in engines() {
        let server = Server::on(engine, "dns");
        let (host, port) = server.address().rsplit_once(':').expect("a port");
        let output = Command::new("dnsperf")
            .args([
                "-s", host, "-p", port, "-c", "4", "-q", "16", "-e", "-n", "50", "-d",
            ])
            .arg(queries.path())
            .output()
            .expect("it is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        for expected in ["NOERROR 2000 (100.00%)", "Queries completed:    2000"] {
            assert!(text.contains(expected), "{engine} {expected}: {text}");
        }
    }
}

#[test]
fn wrong_options_are_refused() {
    for (options, expected) in [
        ("--record www.test", "NAME=ADDRESS"),
        ("--record www.test=somewhere", "`somewhere` is not an address"),
        ("--record www..test=192.0.2.1", "`www..test` is not a name"),
        ("--ttl 2147483648", "2147483647"),
    ] {
        let output = run(&format!("serve dns {options}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {text}");
        assert!(text.contains(expected), "{options}: {text}");
    }
}
