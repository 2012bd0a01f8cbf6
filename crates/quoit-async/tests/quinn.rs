//! QUIC by quinn, over its own runtime's sockets first and then over ours, on each engine: what passes there must pass here.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/bulk.rs"]
mod bulk;
#[path = "support/quic.rs"]
mod quic;

use std::future::poll_fn;
use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;

use quinn::AsyncUdpSocket;
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};

use bulk::Pattern;
use quic::{bind, everywhere, pair};

#[test]
fn much_goes_through_both_ways_in_segments() {
    everywhere(async |runtime| {
        let (server, client, there, here) = pair(&runtime, "127.0.0.1:0", "127.0.0.1").await;
        let total = bulk::bytes();
        let echo = async {
            let (mut to, mut from) = here.accept_bi().await.unwrap();
            while let Some(chunk) = from.read_chunk(1 << 20, true).await.unwrap() {
                to.write_chunk(chunk.bytes).await.unwrap();
            }
            to.finish().unwrap();
        };
        let talk = async {
            let (mut to, mut from) = there.open_bi().await.unwrap();
            let send = async {
                let mut pattern = Pattern::default();
                while pattern.count() < total {
                    to.write_all(pattern.next(30_001, total)).await.unwrap();
                }
                to.finish().unwrap();
            };
            let receive = async {
                let mut pattern = Pattern::default();
                while let Some(chunk) = from.read_chunk(1 << 20, true).await.unwrap() {
                    pattern.check(&chunk.bytes);
                }
                assert_eq!(pattern.count(), total);
            };
            tokio::join!(send, receive);
        };
        tokio::join!(echo, talk);
        let stats = there.stats();
        // Several datagrams left with one call, and more fits in each than is sure to: nothing is fragmented on its way.
        assert!(stats.udp_tx.ios < stats.udp_tx.datagrams / 2, "{stats:?}");
        assert!(stats.path.current_mtu > 1400, "{stats:?}");
        there.close(0u32.into(), b"");
        here.closed().await;
        tokio::join!(server.wait_idle(), client.wait_idle());
    });
}

#[test]
fn who_asks_an_address_of_many_is_answered_from_it() {
    everywhere(async |runtime| {
        // A client takes nothing from another address than the one that it asked.
        let (_server, _client, there, here) = pair(&runtime, "0.0.0.0:0", "127.0.0.2").await;
        assert_eq!(here.local_ip(), Some("127.0.0.2".parse::<IpAddr>().unwrap()));
        let (datagram, sent) = tokio::join!(there.read_datagram(), async {
            here.send_datagram("from there".into()).unwrap();
        });
        let () = sent;
        assert_eq!(datagram.unwrap(), "from there");
    });
}

/// Sends as quinn's connections do: again when there is room.
async fn send(socket: &Arc<dyn AsyncUdpSocket>, transmit: &Transmit<'_>) {
    let mut poller = Arc::clone(socket).create_io_poller();
    while let Err(error) = socket.try_send(transmit) {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        poll_fn(|cx| poller.as_mut().poll_writable(cx)).await.unwrap();
    }
}

/// Receives so many bytes: the datagrams, and what is said of the last.
async fn receive(socket: &dyn AsyncUdpSocket, bytes: usize) -> (Vec<Vec<u8>>, RecvMeta) {
    let mut memory = vec![vec![0; 65_536]; 4];
    let mut datagrams = Vec::new();
    let mut metas = [RecvMeta::default(); 4];
    let mut last = RecvMeta::default();
    let mut left = bytes;
    while left > 0 {
        let mut buffers: Vec<_> = memory.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        let count = poll_fn(|cx| socket.poll_recv(cx, &mut buffers, &mut metas))
            .await
            .unwrap();
        for (meta, buffer) in metas.iter().zip(&memory).take(count) {
            datagrams.extend(buffer[..meta.len].chunks(meta.stride).map(<[u8]>::to_vec));
            left -= meta.len;
            last = *meta;
        }
    }
    (datagrams, last)
}

#[test]
fn a_transmit_says_all_that_it_can() {
    everywhere(async |runtime| {
        let from = runtime.wrap_udp_socket(bind("0.0.0.0:0")).unwrap();
        let to = runtime.wrap_udp_socket(bind("0.0.0.0:0")).unwrap();
        let port = to.local_addr().unwrap().port();
        let contents: Vec<u8> = (0..3_500).map(|at: u32| (at / 1000) as u8).collect();
        let source: IpAddr = "127.0.0.3".parse().unwrap();
        for ecn in [
            None,
            Some(EcnCodepoint::Ect0),
            Some(EcnCodepoint::Ect1),
            Some(EcnCodepoint::Ce),
        ] {
            let transmit = Transmit {
                destination: SocketAddr::from(([127, 0, 0, 4], port)),
                ecn,
                contents: &contents,
                segment_size: Some(1000),
                src_ip: Some(source),
            };
            send(&from, &transmit).await;
            let (datagrams, meta) = receive(&*to, contents.len()).await;
            let sizes: Vec<_> = datagrams.iter().map(Vec::len).collect();
            assert_eq!(sizes, [1000, 1000, 1000, 500]);
            assert_eq!(datagrams.concat(), contents);
            assert_eq!(meta.ecn, ecn);
            assert_eq!(
                meta.addr,
                SocketAddr::new(source, from.local_addr().unwrap().port())
            );
            assert_eq!(meta.dst_ip, Some("127.0.0.4".parse().unwrap()));
        }
    });
}

#[test]
fn a_socket_of_both_families_says_as_much_of_ipv4() {
    everywhere(async |runtime| {
        let both = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None).unwrap();
        both.set_only_v6(false).unwrap();
        both.bind(&"[::]:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        both.set_nonblocking(true).unwrap();
        let both = runtime.wrap_udp_socket(both.into()).unwrap();
        let other = runtime.wrap_udp_socket(bind("127.0.0.1:0")).unwrap();
        let (at, others_at) = (both.local_addr().unwrap(), other.local_addr().unwrap());
        let contents = vec![7; 2500];
        let transmit = |destination, src_ip| Transmit {
            destination,
            ecn: Some(EcnCodepoint::Ce),
            contents: &contents,
            segment_size: Some(1000),
            src_ip,
        };
        send(
            &other,
            &transmit(SocketAddr::from(([127, 0, 0, 5], at.port())), None),
        )
        .await;
        let (datagrams, meta) = receive(&*both, contents.len()).await;
        assert_eq!(datagrams.len(), 3);
        assert_eq!(meta.ecn, Some(EcnCodepoint::Ce));
        assert_eq!(meta.addr.ip().to_canonical(), others_at.ip());
        let asked = meta.dst_ip.unwrap();
        assert_eq!(asked.to_canonical(), "127.0.0.5".parse::<IpAddr>().unwrap());
        // The answer, by the names that it was asked by.
        send(&both, &transmit(meta.addr, Some(asked))).await;
        let (datagrams, meta) = receive(&*other, contents.len()).await;
        assert_eq!(datagrams.len(), 3);
        assert_eq!(meta.ecn, Some(EcnCodepoint::Ce));
        assert_eq!(meta.addr, SocketAddr::from(([127, 0, 0, 5], at.port())));
    });
}

#[test]
fn a_client_that_moves_is_followed() {
    everywhere(async |runtime| {
        let (_server, client, there, here) = pair(&runtime, "127.0.0.1:0", "127.0.0.1").await;
        let total = bulk::bytes() / 4;
        let send = async {
            let mut to = there.open_uni().await.unwrap();
            let mut pattern = Pattern::default();
            let mut moved = 0;
            while pattern.count() < total {
                to.write_all(pattern.next(30_001, total)).await.unwrap();
                if pattern.count() > total / 5 * (moved + 1) {
                    moved += 1;
                    client.rebind(bind("127.0.0.1:0")).unwrap();
                }
            }
            to.finish().unwrap();
            to.stopped().await.unwrap();
        };
        let receive = async {
            let mut from = here.accept_uni().await.unwrap();
            let mut pattern = Pattern::default();
            while let Some(chunk) = from.read_chunk(1 << 20, true).await.unwrap() {
                pattern.check(&chunk.bytes);
            }
            assert_eq!(pattern.count(), total);
        };
        tokio::join!(send, receive);
        assert_eq!(here.remote_address(), client.local_addr().unwrap());
    });
}

#[test]
fn what_cannot_be_sent_is_lost_and_nothing_else() {
    everywhere(async |runtime| {
        let from = runtime.wrap_udp_socket(bind("127.0.0.1:0")).unwrap();
        let to = runtime.wrap_udp_socket(bind("127.0.0.1:0")).unwrap();
        let transmit = |destination, contents| Transmit {
            destination,
            ecn: None,
            contents,
            segment_size: None,
            src_ip: None,
        };
        let to_it = to.local_addr().unwrap();
        let too_long = vec![1; 65_536];
        send(&from, &transmit(to_it, &too_long)).await;
        // An address that the socket has no form for.
        send(&from, &transmit("[::1]:9".parse().unwrap(), b"lost")).await;
        send(&from, &transmit(to_it, b"there")).await;
        assert_eq!(receive(&*to, 5).await.0, [b"there"]);
        // All are gone by now, and nothing is told of those that were lost: quinn would give up the endpoint.
        let mut memory = [0; 16];
        let told = poll_fn(|cx| {
            let mut buffers = [IoSliceMut::new(&mut memory)];
            Poll::Ready(from.poll_recv(cx, &mut buffers, &mut [RecvMeta::default()]))
        });
        assert!(told.await.is_pending());
        send(&to, &transmit(from.local_addr().unwrap(), b"and back")).await;
        assert_eq!(receive(&*from, 8).await.0, [b"and back"]);
    });
}
