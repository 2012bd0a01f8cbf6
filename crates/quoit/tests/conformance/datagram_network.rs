//! Datagrams over a cable: two namespaces joined by a pair of virtual devices (`veth(4)`), which cut and join, have an MTU,
//! and can be pulled out. Nothing outside of them is touched.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quoit::{
    Address, DatagramError, DatagramOptions, DatagramSend, DatagramSocketId, Errno, Gro, MulticastGroup,
    Refusal, Token,
};
use quoit_namespace::Namespace;
use quoit_skipped::skip_for;

use crate::datagram_bench::{Bench, bench, client, interface, numbered, receive, set};
use crate::levels::Level;
use crate::sockets::PATIENCE;

macro_rules! datagram_network {
    ($level:ident) => {
        tests! { $level, datagram_network:
            both_families_cross
            groups_of_both_families_are_joined_and_left
            segments_cross_joined
            what_the_cable_does_not_take_is_told
            a_pulled_cable_is_told_and_put_back
        }
    };
}

/// Of the nets that are kept for examples (RFC 5737, RFC 3849), which no real host has.
const HERE: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const THERE: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
/// Nobody has it.
const NOBODY: &str = "192.0.2.9";

/// The two ends.
struct Cable {
    here: Namespace,
    there: Namespace,
}

impl Cable {
    fn lay() -> io::Result<Self> {
        let cable = Self {
            here: Namespace::make()?,
            there: Namespace::make()?,
        };
        let far = cable.there.path();
        cable
            .here
            .run(&format!("ip link add near type veth peer name far netns {far}"))?;
        for (end, device, [v4, v6]) in [(&cable.here, "near", HERE), (&cable.there, "far", THERE)] {
            end.run(&format!("ip address add {v4}/24 dev {device}"))?;
            // Usable at once: nobody else has it.
            end.run(&format!("ip address add {v6}/64 dev {device} nodad"))?;
            end.run(&format!("ip link set {device} up"))?;
            // By this a host tells itself what it cannot reach.
            end.run("ip link set lo up")?;
        }
        for (here, there) in HERE.into_iter().zip(THERE) {
            carry(&cable.here, here, &cable.there, there)?;
            carry(&cable.there, there, &cable.here, here)?;
        }
        Ok(cable)
    }

    fn client(&self, host: &str) -> UdpSocket {
        let address = SocketAddr::new(host.parse().unwrap(), 0).to_string();
        self.there.within(|| client(&address)).unwrap()
    }
}

/// Waits until what is sent from one end comes to the other. A device that went up before its peer gets its queue from a
/// work item of the kernel's (`linkwatch_do_dev()`), and until then drops what is sent by it without a word.
fn carry(from: &Namespace, sender: &str, to: &Namespace, receiver: &str) -> io::Result<()> {
    let bind = |host: &str| UdpSocket::bind(SocketAddr::new(host.parse().unwrap(), 0));
    let sender = from.within(|| bind(sender))??;
    let receiver = to.within(|| bind(receiver))??;
    receiver.set_read_timeout(Some(Duration::from_millis(10)))?;
    let since = Instant::now();
    loop {
        // No route is such a thing that comes later.
        let sent = sender.send_to(b"?", receiver.local_addr()?);
        match sent.and_then(|_| receiver.recv(&mut [0])) {
            Err(_) if since.elapsed() < PATIENCE => {}
            outcome => return outcome.map(drop),
        }
    }
}

/// Runs `body` on a loop at this end of a cable, or says why not.
fn with_cable(level: &Level, what: &str, body: impl FnOnce(&mut Bench, &Cable) + Send) {
    match Cable::lay() {
        Ok(cable) => cable
            .here
            .within(|| bench(level, |bench| body(bench, &cable)))
            .unwrap(),
        Err(error) => skip_for(what, &error, "CAP_SYS_ADMIN, CAP_NET_ADMIN"),
    }
}

fn at(host: &str) -> String {
    SocketAddr::new(host.parse().unwrap(), 0).to_string()
}

fn socket_address(bench: &Bench, socket: DatagramSocketId) -> SocketAddr {
    match bench.address(socket) {
        Address::Tcp(address) => address,
        other => panic!("{other}"),
    }
}

/// A datagram goes there, and one comes back.
fn crosses(bench: &mut Bench, socket: DatagramSocketId, client: &UdpSocket) {
    let to = client.local_addr().unwrap();
    bench.send_to(socket, to, b"over");
    bench.flush(socket);
    assert_eq!(receive(client), b"over");
    let before = bench.got.len();
    client
        .send_to(b"and back", socket_address(bench, socket))
        .unwrap();
    bench.wait_received(before + 1);
    let got = &bench.got[before];
    assert_eq!((got.bytes.as_slice(), &got.peer), (&b"and back"[..], &to.into()));
}

pub(crate) fn both_families_cross(level: &Level) {
    with_cable(level, "both_families_cross", |bench, cable| {
        let options = DatagramOptions {
            receive_local_address: true,
            receive_ecn: true,
            receive_timestamps: true,
            ..DatagramOptions::default()
        };
        for (here, there) in HERE.into_iter().zip(THERE) {
            let socket = bench.bind(&at(here), &options);
            crosses(bench, socket, &cable.client(there));
            let got = bench.got.last().unwrap();
            assert_eq!(got.local, Some(here.parse().unwrap()));
            assert!(got.interface.is_some() && got.ecn.is_some() && got.timestamp.is_some());
        }
    });
}

/// By a device that takes part in multicast, which the loopback device does not for IPv6.
pub(crate) fn groups_of_both_families_are_joined_and_left(level: &Level) {
    with_cable(
        level,
        "groups_of_both_families_are_joined_and_left",
        |bench, cable| {
            let (near, far) = (
                interface(c"near"),
                cable.there.within(|| interface(c"far")).unwrap(),
            );
            for (own, wildcard, group) in [
                (THERE[0], "0.0.0.0", "239.192.7.7"),
                (THERE[1], "[::]", "ff15::7:7"),
            ] {
                let group: IpAddr = group.parse().unwrap();
                let member = MulticastGroup {
                    group,
                    interface: near,
                };
                let options = DatagramOptions {
                    groups: vec![member],
                    receive_local_address: true,
                    ..DatagramOptions::default()
                };
                let socket = bench.bind(&format!("{wildcard}:0"), &options);
                let client = cable.client(own);
                match own.parse().unwrap() {
                    IpAddr::V4(own) => {
                        let by_address = i32::from_ne_bytes(own.octets());
                        set(&client, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, by_address);
                    }
                    IpAddr::V6(_) => set(
                        &client,
                        libc::IPPROTO_IPV6,
                        libc::IPV6_MULTICAST_IF,
                        far.cast_signed(),
                    ),
                }
                let to = SocketAddr::new(group, socket_address(bench, socket).port());
                bench.got.clear();
                // The device is up, and has its routes a moment later.
                let mut sent = Err(io::ErrorKind::NetworkUnreachable.into());
                bench.until("there is a route", |_| {
                    sent = client.send_to(b"to all", to);
                    !matches!(&sent, Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable)
                });
                sent.unwrap();
                bench.wait_received(1);
                assert_eq!(
                    (bench.got[0].local, bench.got[0].interface),
                    (Some(group), Some(near))
                );
                // Once more is refused, as is what is no group; neither ends anything.
                for (wrong, errno) in [(group, libc::EADDRINUSE), (own.parse().unwrap(), libc::EINVAL)] {
                    let refused = bench.event_loop.join_multicast(
                        socket,
                        MulticastGroup {
                            group: wrong,
                            ..member
                        },
                    );
                    assert_eq!(refused, Err(Refusal::Error(Errno::new(errno))), "{wrong}");
                }
                bench.event_loop.leave_multicast(socket, member).unwrap();
                let again = bench.event_loop.leave_multicast(socket, member);
                assert_eq!(again, Err(Refusal::Error(Errno::new(libc::EADDRNOTAVAIL))));
                client.send_to(b"to nobody", to).unwrap();
                bench.event_loop.join_multicast(socket, member).unwrap();
                client.send_to(b"to all again", to).unwrap();
                bench.wait_received(2);
                assert_eq!(bench.payloads(), [&b"to all"[..], b"to all again"]);

                // And from here to members at the other end, by a named interface.
                let listener = cable.there.within(|| {
                    let listener = client_of(wildcard);
                    match group {
                        IpAddr::V4(group) => listener.join_multicast_v4(&group, &own.parse().unwrap())?,
                        IpAddr::V6(group) => listener.join_multicast_v6(&group, far)?,
                    }
                    io::Result::Ok(listener)
                });
                let listener = listener.unwrap().unwrap();
                let to = SocketAddr::new(group, listener.local_addr().unwrap().port());
                let mut datagram = DatagramSend::new(Address::Tcp(to), b"from here");
                datagram.interface = Some(near);
                bench.send(socket, datagram).unwrap();
                bench.flush(socket);
                assert_eq!(bench.errors, []);
                assert_eq!(receive(&listener), b"from here");
            }
            assert_eq!(bench.errors, []);
        },
    );
}

fn client_of(wildcard: &str) -> UdpSocket {
    client(&format!("{wildcard}:0"))
}

pub(crate) fn segments_cross_joined(level: &Level) {
    with_cable(level, "segments_cross_joined", |bench, cable| {
        let joining = DatagramOptions {
            gro: Gro::Transparent,
            ..DatagramOptions::default()
        };
        for (here, there) in HERE.into_iter().zip(THERE) {
            bench.got.clear();
            let socket = bench.bind(&at(here), &joining);
            let to = socket_address(bench, socket);
            let bytes = numbered(3, 10_500);
            // Sent from the other end by a loop there.
            cable
                .there
                .within(|| sends_segments(level, &at(there), to, &bytes))
                .unwrap();
            bench.wait_received(11);
            assert_eq!(
                bench.payloads(),
                bytes.chunks(1000).map(<[u8]>::to_vec).collect::<Vec<_>>()
            );
            let counters = bench.counters(socket);
            assert_eq!(counters.received, 11);
            // The pair hands over what leaves as one buffer, and cuts it for nobody who takes it whole.
            assert!(counters.received_buffers < 11, "{counters:?}");
        }
    });
}

fn sends_segments(level: &Level, own: &str, to: SocketAddr, bytes: &[u8]) {
    bench(level, |bench| {
        let socket = bench.bind(own, &DatagramOptions::default());
        let mut datagram = DatagramSend::new(Address::Tcp(to), bytes);
        datagram.segment_size = Some(1000);
        bench.send(socket, datagram).unwrap();
        bench.flush(socket);
        let counters = bench.counters(socket);
        assert_eq!((counters.sent, counters.sends), (11, 1));
    });
}

pub(crate) fn what_the_cable_does_not_take_is_told(level: &Level) {
    with_cable(level, "what_the_cable_does_not_take_is_told", |bench, cable| {
        // The least that IPv6 allows.
        for (end, device) in [(&cable.here, "near"), (&cable.there, "far")] {
            end.run(&format!("ip link set {device} mtu 1280")).unwrap();
        }
        let probe = [
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            ),
        ];
        for ((here, there), (level, name, value)) in HERE.into_iter().zip(THERE).zip(probe) {
            bench.errors.clear();
            let client = cable.client(there);
            let to = client.local_addr().unwrap();
            let socket = bench.bind(&at(here), &DatagramOptions::default());

            // Segments larger than the MTU leave one by one, each in fragments.
            let bytes = numbered(5, 6000);
            let mut datagram = DatagramSend::new(Address::Tcp(to), &bytes[..]);
            datagram.segment_size = Some(2000);
            bench.send(socket, datagram).unwrap();
            bench.flush(socket);
            for expected in bytes.chunks(2000) {
                assert!(receive(&client) == expected);
            }
            let counters = bench.counters(socket);
            assert_eq!((counters.sent, counters.segmentation_refused), (3, 1));

            // What must not be cut is refused with its size.
            set(
                bench.event_loop.datagram_descriptor(socket).unwrap(),
                level,
                name,
                value,
            );
            bench.send_to(socket, to, &[1; 1400]);
            bench.until("it is told", |bench| !bench.errors.is_empty());
            assert_eq!(bench.errors, [(socket, DatagramError::TooLarge { size: 1400 })]);
            crosses(bench, socket, &client);
        }
    });
}

pub(crate) fn a_pulled_cable_is_told_and_put_back(level: &Level) {
    with_cable(level, "a_pulled_cable_is_told_and_put_back", |bench, cable| {
        let options = DatagramOptions {
            receive_errors: true,
            ..DatagramOptions::default()
        };
        for (here, there) in HERE.into_iter().zip(THERE) {
            let client = cable.client(there);
            let to = client.local_addr().unwrap();
            let socket = bench.bind(&at(here), &options);
            crosses(bench, socket, &client);
            cable.here.run("ip link set near down").unwrap();
            let mut datagram = DatagramSend::new(Address::Tcp(to), &b"lost"[..]);
            datagram.token = Token(7);
            bench.sent.clear();
            bench.send(socket, datagram).unwrap();
            bench.until("its outcome is told", |bench| !bench.sent.is_empty());
            assert_eq!(bench.sent, [(Token(7), Err(Errno::new(libc::ENETUNREACH)))]);
            assert_eq!(bench.closed.get(&socket), None);

            cable.here.run("ip link set near up").unwrap();
            // An interface that goes down loses its addresses of IPv6.
            cable
                .here
                .run(&format!("ip address replace {}/64 dev near nodad", HERE[1]))
                .unwrap();
            crosses(bench, socket, &client);
        }

        // Nobody answers for the address: the kernel asks three times, and gives up.
        cable
            .here
            .run("ip ntable change name arp_cache dev near retrans 10")
            .unwrap();
        let socket = bench.bind(&at(HERE[0]), &options);
        bench.errors.clear();
        let gone = SocketAddr::new(NOBODY.parse().unwrap(), 9);
        bench.send_to(socket, gone, b"anybody?");
        bench.until("it is told", |bench| !bench.errors.is_empty());
        match bench.errors[..] {
            [(of, DatagramError::Unreachable(told))] => {
                assert_eq!(of, socket);
                assert_eq!(
                    (told.receiver(), told.errno()),
                    (gone, Errno::new(libc::EHOSTUNREACH))
                );
            }
            ref other => panic!("{other:?}"),
        }
        crosses(bench, socket, &cable.client(THERE[0]));
    });
}
