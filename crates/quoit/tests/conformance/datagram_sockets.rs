//! Datagram sockets beside each other and of other kinds: one port for several, groups, broadcast, Unix; and the loop
//! around them.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use quoit::{
    Address, Config, DatagramError, DatagramOptions, DatagramSend, DatagramSocket, DatagramSocketError,
    Errno, MulticastGroup, Refusal, Steering, Token, WaitMode,
};

use crate::datagram_bench::{Bench, bench, bench_with, client, interface, numbered, receive};
use crate::levels::Level;
use crate::sockets::PATIENCE;

macro_rules! datagram_sockets {
    ($level:ident) => {
        tests! { $level, datagram_sockets:
            several_on_one_port_get_all
            each_processor_has_its_socket
            a_group_is_joined_and_left
            a_socket_of_both_families_sends_to_groups_of_ipv4
            broadcasting_must_be_allowed
            unix_sockets_by_path_and_name
            a_full_unix_peer_loses_and_is_told
            a_unix_peer_that_is_gone_fails_the_send_itself
            a_flooded_socket_starves_no_other
            what_the_kernel_drops_is_counted
            opened_and_closed_before_the_first_turn
            errors_say_what_to_do
            draining_closes_them
            every_way_of_waiting_works
            a_loop_with_little_to_do_does_not_coalesce
            a_parked_loop_is_told
        }
    };
}

pub(crate) fn several_on_one_port_get_all(level: &Level) {
    bench(level, |bench| {
        let address = "127.0.0.1:0".parse().unwrap();
        let options = DatagramOptions::default();
        let group = DatagramSocket::bind_group(&address, &options, 3, Steering::Hash).unwrap();
        let at = group[0].address().clone();
        assert!(group.iter().all(|socket| *socket.address() == at));
        for socket in group {
            bench.event_loop.open_datagram(socket, Token(1)).unwrap();
        }
        let Address::Tcp(at) = at else {
            panic!("no UDP socket")
        };
        let clients: Vec<_> = (0..10).map(|_| client("127.0.0.1:0")).collect();
        for number in 0..5 {
            for client in &clients {
                client.send_to(&[number], at).unwrap();
            }
        }
        bench.wait_received(50);
        for client in &clients {
            let peer = client.local_addr().unwrap().into();
            let of_this: Vec<_> = bench.got.iter().filter(|got| got.peer == peer).collect();
            // Always the same socket, so in order.
            assert!(of_this.iter().all(|got| got.socket == of_this[0].socket));
            assert!(of_this.iter().flat_map(|got| &got.bytes).eq(&[0, 1, 2, 3, 4]));
        }
    });
}

pub(crate) fn each_processor_has_its_socket(level: &Level) {
    bench(level, |bench| {
        let address = "127.0.0.1:0".parse().unwrap();
        let options = DatagramOptions::default();
        let group = DatagramSocket::bind_group(&address, &options, 2, Steering::Cpu).unwrap();
        let Address::Tcp(at) = group[0].address().clone() else {
            panic!("no UDP socket")
        };
        let sockets: Vec<_> = group
            .into_iter()
            .map(|socket| bench.event_loop.open_datagram(socket, Token(1)).unwrap())
            .collect();
        for cpu in quoit::available_cpus() {
            bench.got.clear();
            // The loopback device hands a packet over on the processor that sent it.
            std::thread::spawn(move || {
                quoit::pin_current_thread(cpu).unwrap();
                let client = client("127.0.0.1:0");
                for number in 0..20 {
                    client.send_to(&[number], at).unwrap();
                }
            })
            .join()
            .unwrap();
            bench.wait_received(20);
            let expected = sockets[cpu % 2];
            assert!(
                bench.got.iter().all(|got| got.socket == expected),
                "processor {cpu}"
            );
        }
    });
}

pub(crate) fn a_group_is_joined_and_left(level: &Level) {
    bench(level, |bench| {
        let group: IpAddr = "239.192.7.7".parse().unwrap();
        let member = MulticastGroup {
            group,
            interface: interface(c"lo"),
        };
        let options = DatagramOptions {
            groups: vec![member],
            receive_local_address: true,
            multicast_loop: Some(true),
            multicast_hops: Some(1),
            ..DatagramOptions::default()
        };
        let socket = bench.bind("0.0.0.0:0", &options);
        let Address::Tcp(at) = bench.address(socket) else {
            panic!("no UDP socket")
        };
        let sender = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let to_group = || {
            let mut datagram = DatagramSend::new((group, at.port()).into_address(), b"to all");
            datagram.interface = Some(member.interface);
            datagram
        };
        bench.send(sender, to_group()).unwrap();
        bench.wait_received(1);
        assert_eq!((bench.got[0].socket, bench.got[0].local), (socket, Some(group)));

        bench.event_loop.leave_multicast(socket, member).unwrap();
        let again = bench.event_loop.leave_multicast(socket, member);
        assert_eq!(again, Err(Refusal::Error(Errno::new(libc::EADDRNOTAVAIL))));
        bench.send(sender, to_group()).unwrap();
        bench.until_quiet();
        assert_eq!(bench.got.len(), 1);
        bench.event_loop.join_multicast(socket, member).unwrap();
        bench.send(sender, to_group()).unwrap();
        bench.wait_received(2);

        let no_group = MulticastGroup {
            group: "127.0.0.1".parse().unwrap(),
            interface: 0,
        };
        let of_ipv6 = MulticastGroup {
            group: "ff15::7:7".parse().unwrap(),
            interface: member.interface,
        };
        for wrong in [no_group, of_ipv6] {
            let refused = bench.event_loop.join_multicast(socket, wrong);
            assert_eq!(refused, Err(Refusal::Error(Errno::EINVAL)), "{wrong:?}");
        }
        // The socket goes on, and is a member of the other group still.
        bench.send(sender, to_group()).unwrap();
        bench.wait_received(3);
        assert_eq!(bench.got[2].local, Some(group));
        let options = DatagramOptions {
            groups: vec![no_group],
            ..DatagramOptions::default()
        };
        let error = bench
            .event_loop
            .bind_datagram(&"127.0.0.1:0".parse().unwrap(), &options, Token::NONE)
            .unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("joining the group 127.0.0.1")
                && message.contains("it is not a multicast group")
        );
    });
}

/// Its packets to IPv4 are IPv4's, for which the kernel has options and control messages of their own.
pub(crate) fn a_socket_of_both_families_sends_to_groups_of_ipv4(level: &Level) {
    bench(level, |bench| {
        let member = MulticastGroup {
            group: "239.192.7.8".parse().unwrap(),
            interface: interface(c"lo"),
        };
        let options = DatagramOptions {
            groups: vec![member],
            ..DatagramOptions::default()
        };
        let receiver = bench.bind("0.0.0.0:0", &options);
        let Address::Tcp(at) = bench.address(receiver) else {
            panic!("no UDP socket")
        };
        let options = DatagramOptions {
            multicast_loop: Some(false),
            multicast_hops: Some(7),
            ..DatagramOptions::default()
        };
        let sender = bench.bind("[::]:0", &options);
        for (to, bytes) in [
            (member.group, &b"to all"[..]),
            ("127.0.0.1".parse().unwrap(), b"to one"),
        ] {
            bench.got.clear();
            let mut datagram = DatagramSend::new((to, at.port()).into_address(), bytes);
            datagram.interface = Some(member.interface);
            datagram.token = Token(5);
            bench.send(sender, datagram).unwrap();
            bench.until("it has an outcome", |bench| !bench.sent.is_empty());
            assert_eq!(bench.sent.pop(), Some((Token(5), Ok(bytes.len() as u32))));
            bench.wait_received(1);
            assert_eq!(bench.got[0].bytes, bytes);
        }
        let has = |level, name| {
            let socket = bench.event_loop.datagram_descriptor(sender).unwrap();
            let (mut value, mut length) = (-1i32, size_of::<i32>() as libc::socklen_t);
            // SAFETY: the value and its length outlive the call, and the length is the value's.
            let result = unsafe {
                let (value, length) = ((&raw mut value).cast(), &raw mut length);
                libc::getsockopt(socket.as_raw_fd(), level, name, value, length)
            };
            assert_eq!(result, 0);
            value
        };
        assert_eq!(has(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS), 7);
        assert_eq!(has(libc::IPPROTO_IP, libc::IP_MULTICAST_TTL), 7);
        assert_eq!(has(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP), 0);
        assert_eq!(has(libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP), 0);
    });
}

/// An address from its two parts.
trait IntoAddress {
    fn into_address(self) -> Address;
}

impl IntoAddress for (IpAddr, u16) {
    fn into_address(self) -> Address {
        std::net::SocketAddr::from(self).into()
    }
}

pub(crate) fn broadcasting_must_be_allowed(level: &Level) {
    bench(level, |bench| {
        let receiver = bench.bind("0.0.0.0:0", &DatagramOptions::default());
        let Address::Tcp(at) = bench.address(receiver) else {
            panic!("no UDP socket")
        };
        let to = || DatagramSend::new(([127, 255, 255, 255].into(), at.port()).into_address(), b"all");
        let plain = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        bench.send(plain, to()).unwrap();
        bench.until("it is told", |bench| !bench.errors.is_empty());
        let expected = DatagramError::Send {
            errno: Errno::EACCES,
            size: 3,
        };
        assert_eq!(bench.errors, [(plain, expected)]);
        let options = DatagramOptions {
            broadcast: true,
            ..DatagramOptions::default()
        };
        let allowed = bench.bind("127.0.0.1:0", &options);
        bench.send(allowed, to()).unwrap();
        bench.wait_received(1);
    });
}

pub(crate) fn unix_sockets_by_path_and_name(level: &Level) {
    bench(level, |bench| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server");
        let name = format!("unix:@quoit-datagrams-{:p}-{}", &directory, std::process::id());
        let options = DatagramOptions {
            receive_timestamps: true,
            // Not had by Unix sockets, and ignored.
            receive_ecn: true,
            receive_local_address: true,
            gro: quoit::Gro::Transparent,
            ..DatagramOptions::default()
        };
        for address in [Address::UnixPath(path.clone()), name.parse().unwrap()] {
            let socket = bench.bind_at(&address, &options);
            assert_eq!(bench.address(socket), address);
            let client_at = directory.path().join(format!("client{}", bench.opened.len()));
            let named = bench.bind_at(&Address::UnixPath(client_at.clone()), &DatagramOptions::default());
            let unnamed = bench.bind_at(&Address::UnixUnnamed, &DatagramOptions::default());
            bench.got.clear();
            for (number, sender) in [named, unnamed, named].into_iter().enumerate() {
                let bytes = numbered(number, 3000 * number);
                bench
                    .send(sender, DatagramSend::new(address.clone(), bytes))
                    .unwrap();
                bench.wait_received(number + 1);
            }
            let peers: Vec<_> = bench.got.iter().map(|got| got.peer.clone()).collect();
            let client_at = Address::UnixPath(client_at);
            assert_eq!(
                peers,
                [client_at.clone(), Address::UnixUnnamed, client_at.clone()]
            );
            assert!(bench.got[2].bytes == numbered(2, 6000) && bench.got[0].timestamp.is_some());
            let mut answer = DatagramSend::new(client_at, b"answers");
            answer.segment_size = Some(4);
            bench.send(socket, answer).unwrap();
            bench.wait_received(5);
            assert_eq!(bench.payloads()[3..], [&b"answ"[..], b"ers"]);
            bench.close(socket);
            bench.until("it closes", |bench| bench.closed.contains_key(&socket));
            assert!(!path.exists(), "the file of a socket that is gone");
        }
        assert_eq!(bench.errors, []);
    });
}

pub(crate) fn a_full_unix_peer_loses_and_is_told(level: &Level) {
    bench(level, |bench| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slow");
        let slow = UnixDatagram::bind(&path).unwrap();
        let socket = bench.bind_at(&Address::UnixUnnamed, &DatagramOptions::default());
        let to = Address::UnixPath(path);
        // Whatever `net.unix.max_dgram_qlen` says within reason.
        while bench.errors.is_empty() && bench.counters(socket).sent < 10_000 {
            bench.send(socket, DatagramSend::new(to.clone(), b"x")).unwrap();
            // One at a time: a kernel that polls takes them when it comes to it.
            bench.flush(socket);
        }
        let expected = DatagramError::Send {
            errno: Errno::EAGAIN,
            size: 1,
        };
        assert_eq!(bench.errors, [(socket, expected)]);
        slow.recv(&mut [0]).unwrap();
        bench.send(socket, DatagramSend::new(to, b"x")).unwrap();
        bench.flush(socket);
        assert_eq!(bench.errors.len(), 1);
    });
}

/// It is no answer to an earlier one, as of the network: nothing but this datagram is lost.
pub(crate) fn a_unix_peer_that_is_gone_fails_the_send_itself(level: &Level) {
    bench(level, |bench| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gone");
        drop(UnixDatagram::bind(&path).unwrap());
        let socket = bench.bind_at(&Address::UnixUnnamed, &DatagramOptions::default());
        bench
            .send(socket, DatagramSend::new(Address::UnixPath(path), b"lost"))
            .unwrap();
        bench.flush(socket);
        let expected = DatagramError::Send {
            errno: Errno::ECONNREFUSED,
            size: 4,
        };
        assert_eq!(bench.errors, [(socket, expected)]);
    });
}

/// Neither the turn's work nor the memory of one socket is another's.
pub(crate) fn a_flooded_socket_starves_no_other(level: &Level) {
    bench(level, |bench| {
        // Paused, for a kernel that polls receives the flood while it is sent.
        let options = DatagramOptions {
            slots: 512,
            paused: true,
            // Room for the flood whatever the default is, and no more than anybody may have.
            receive_buffer: Some(200_000),
            ..DatagramOptions::default()
        };
        let flooded = bench.bind("127.0.0.1:0", &options);
        let quiet = bench.bind("127.0.0.1:0", &options);
        let flood = bench.client(flooded);
        let question = bench.client(quiet);
        for _ in 0..250 {
            flood.send(b"flood").unwrap();
        }
        question.send(b"question").unwrap();
        bench.resume(flooded);
        bench.resume(quiet);
        let here = |bench: &Bench| bench.got.iter().position(|got| got.socket == quiet);
        bench.until("the question arrives", |bench| here(bench).is_some());
        // Few of the other's shares of a turn (64): of epoll's reads, or of io_uring's tries for one socket.
        let before = here(bench).unwrap();
        assert!(before <= 192, "{before} of the flood came first");
        bench.wait_received(251);

        // With all of the flooded one's slots held, the quiet one still receives.
        let tight = DatagramOptions {
            slots: 2,
            ..DatagramOptions::default()
        };
        let flooded = bench.bind("127.0.0.1:0", &tight);
        bench.holds = true;
        let flood = bench.client(flooded);
        for _ in 0..10 {
            flood.send(b"flood").unwrap();
        }
        bench.wait_received(253);
        for _ in 0..5 {
            let before = bench.got.len();
            question.send(b"question").unwrap();
            bench.wait_received(before + 1);
        }
        assert_eq!(bench.counters(flooded).received, 2);
    });
}

pub(crate) fn what_the_kernel_drops_is_counted(level: &Level) {
    bench(level, |bench| {
        let options = DatagramOptions {
            receive_buffer: Some(4096),
            paused: true,
            ..DatagramOptions::default()
        };
        let socket = bench.bind("127.0.0.1:0", &options);
        let client = bench.client(socket);
        for _ in 0..1000 {
            client.send(&[1; 100]).unwrap();
        }
        // Nothing is received, and still it is known.
        let dropped = bench.counters(socket).kernel_drops;
        assert!((900..1000).contains(&dropped), "{dropped}");
        bench.resume(socket);
        // All that the socket holds: as long as it is full, what follows is dropped too.
        bench.wait_received(1000 - dropped as usize);
        client.send(&[1; 100]).unwrap();
        bench.wait_received(1001 - dropped as usize);
        bench.until_quiet();
        let counters = bench.counters(socket);
        assert_eq!(
            (counters.received + counters.kernel_drops, counters.kernel_drops),
            (1001, dropped)
        );
    });
}

pub(crate) fn opened_and_closed_before_the_first_turn(level: &Level) {
    let mut event_loop = quoit::Loop::new(quoit::LoopIndex::default(), level.config()).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    for _ in 0..3 {
        let socket = event_loop
            .bind_datagram(&address, &DatagramOptions::default(), Token(1))
            .unwrap();
        assert_eq!(socket.slot().get(), 0);
        let bound = event_loop.datagram_address(socket).unwrap().clone();
        event_loop.close_datagram(socket).unwrap();
        // Its port is free at once.
        let Address::Tcp(bound) = bound else {
            panic!("no UDP socket")
        };
        drop(std::net::UdpSocket::bind(bound).unwrap());
    }
    let mut events = quoit::Events::with_capacity(16);
    event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(events.len(), 6);
}

pub(crate) fn errors_say_what_to_do(level: &Level) {
    bench_with(
        level,
        |config| config.datagram_sockets = 1,
        |bench| {
            let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
            let address = bench.address(socket);
            let mut bind = |address: &Address, options: &DatagramOptions| {
                bench
                    .event_loop
                    .bind_datagram(address, options, Token::NONE)
                    .unwrap_err()
                    .to_string()
            };
            let taken = bind(&address, &DatagramOptions::default());
            assert!(
                taken.contains(&address.to_string()) && taken.contains("choose another port"),
                "{taken}"
            );
            let free = "127.0.0.1:0".parse().unwrap();
            let limit = bind(&free, &DatagramOptions::default());
            assert!(limit.contains("raise `datagram_sockets`"), "{limit}");
            let options = DatagramOptions {
                max_datagram: 70_000,
                ..DatagramOptions::default()
            };
            let fault = bind(&free, &options);
            assert_eq!(fault, "datagram socket: `max_datagram` must be from 1 to 65,527");
            let stream: OwnedFd = std::net::TcpListener::bind("127.0.0.1:0").unwrap().into();
            let adopted = DatagramSocket::adopt(stream, &DatagramOptions::default());
            let error = adopted.unwrap_err();
            assert_eq!(error.errno(), Some(Errno::new(libc::EPROTOTYPE)));
            assert!(matches!(error, DatagramSocketError::System { .. }));
        },
    );
}

pub(crate) fn draining_closes_them(level: &Level) {
    for within in [PATIENCE, Duration::ZERO] {
        bench(level, |bench| {
            let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
            let client = client("127.0.0.1:0");
            let to: Address = client.local_addr().unwrap().into();
            if !within.is_zero() {
                bench.send(socket, DatagramSend::new(to, b"last")).unwrap();
            }
            bench.event_loop.drain(within);
            bench.until("it has drained", |bench| bench.drained);
            assert!(bench.closed.contains_key(&socket));
            if !within.is_zero() {
                assert_eq!(receive(&client), b"last");
            }
        });
    }
}

pub(crate) fn every_way_of_waiting_works(level: &Level) {
    for wait in [
        WaitMode::Block,
        WaitMode::Spin(Duration::from_micros(50)),
        WaitMode::Spin(PATIENCE),
        WaitMode::Poll,
        WaitMode::Coalesce(Duration::from_micros(100)),
        WaitMode::Coalesce(Duration::from_millis(2)),
    ] {
        let tune = |config: &mut Config| config.wait = wait;
        bench_with(level, tune, |bench| {
            let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
            let client = bench.client(socket);
            for number in 0..20 {
                let other = client.try_clone().unwrap();
                let sender = std::thread::spawn(move || other.send(&numbered(number, 10)).unwrap());
                while bench.got.len() == number {
                    let begun = std::time::Instant::now();
                    bench.turn(PATIENCE);
                    assert!(begun.elapsed() < PATIENCE, "nothing ended the wait: {wait:?}");
                }
                sender.join().unwrap();
            }
            // A turn's time ends it, as do timers, wakes and returned slots.
            bench.turn(Duration::from_millis(1));
            bench
                .event_loop
                .set_named_timer(Duration::from_millis(1), Token(1))
                .unwrap();
            while bench.timers == 0 {
                bench.turn(PATIENCE);
            }
            let remote = bench.event_loop.remote();
            let waker = std::thread::spawn(move || remote.wake());
            while bench.turn(PATIENCE) == 0 {}
            waker.join().unwrap();
        });
    }
}

/// With nothing to do but a timer the loop finds that there is nothing to wait for.
pub(crate) fn a_loop_with_little_to_do_does_not_coalesce(level: &Level) {
    let coalesce = |config: &mut Config| config.wait = WaitMode::Coalesce(Duration::from_millis(1));
    bench_with(level, coalesce, |bench| {
        let sleep = |bench: &mut Bench| {
            let (fired, token) = (bench.timers, Token(1));
            let after = Duration::from_millis(1);
            bench.event_loop.set_named_timer(after, token).unwrap();
            while bench.timers == fired {
                bench.turn(PATIENCE);
            }
            bench.event_loop.counters().coalesced_sleeps
        };
        assert!(sleep(bench) > 0, "it begins by trying");
        let begun = std::time::Instant::now();
        loop {
            let before = sleep(bench);
            if sleep(bench) == before {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "it goes on for nothing");
        }
        let before = sleep(bench);
        for _ in 0..10 {
            assert_eq!(sleep(bench), before, "nothing has come since");
        }
    });
}

pub(crate) fn a_parked_loop_is_told(level: &Level) {
    let pollable = |config: &mut Config| config.pollable = true;
    bench_with(level, pollable, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let client = bench.client(socket);
        for number in 0..10 {
            let limit = loop {
                bench.turn(Duration::ZERO);
                let limit = bench.event_loop.park().unwrap();
                if limit != Some(Duration::ZERO) {
                    break limit;
                }
            };
            assert_eq!(limit, None);
            client.send(&numbered(number, 10)).unwrap();
            let mut poll = libc::pollfd {
                fd: bench.event_loop.poll_descriptor().unwrap().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one live pollfd, and its count says so.
            assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 30_000) }, 1);
            while bench.got.len() == number {
                bench.turn(Duration::ZERO);
            }
        }
    });
}
