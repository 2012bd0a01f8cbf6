//! The proxy: what passes through it, and whom it holds up.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use socket2::SockRef;

use crate::example::{Example, reset};
use crate::support::{PATIENCE, client, echo, end_of, guard};

/// Downloads repeat after so many bytes: no divisor of any buffer's size.
const CYCLE: usize = 253;

/// A proxy in front of a target of ours.
fn proxied() -> (Example, TcpListener) {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap().to_string();
    (Example::start("proxy", &[&address]), target)
}

#[test]
fn proxy_passes_everything_on_and_half_closes_both_ways() {
    guard(120);
    let (example, target) = proxied();
    for client_ends_first in [true, false] {
        let mut client = client(example.address);
        let (mut server, _) = target.accept().unwrap();
        let (first, last) = if client_ends_first {
            (&mut client, &mut server)
        } else {
            (&mut server, &mut client)
        };
        let request: Vec<u8> = (0..1_000_000u32).map(|index| (index * 7 % 251) as u8).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                first.write_all(&request).unwrap();
                first.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            last.read_to_end(&mut received).unwrap();
            let differs = received
                .iter()
                .zip(&request)
                .position(|(one, other)| one != other);
            assert_eq!(
                (differs, received.len()),
                (None, request.len()),
                "the request came through changed"
            );
        });
        // One direction has ended; the other goes on.
        last.write_all(&request).unwrap();
        last.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        first.read_to_end(&mut received).unwrap();
        let differs = received
            .iter()
            .zip(&request)
            .position(|(one, other)| one != other);
        assert_eq!(
            (differs, received.len()),
            (None, request.len()),
            "the answer came through changed"
        );
    }
}

#[test]
fn proxy_passes_resets_on_both_ways_and_after_half_a_close() {
    guard(120);
    let (example, target) = proxied();
    for half_closed in [false, true] {
        for client_resets in [true, false] {
            let client = client(example.address);
            let (server, _) = target.accept().unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut resets, mut told) = if client_resets {
                (client, server)
            } else {
                (server, client)
            };
            resets.write_all(b"a").unwrap();
            told.read_exact(&mut [0]).unwrap();
            if half_closed {
                told.shutdown(Shutdown::Write).unwrap();
                end_of(&mut resets).unwrap();
            }
            reset(resets);
            let end = end_of(&mut told).unwrap_err();
            assert_eq!(
                end.kind(),
                ErrorKind::ConnectionReset,
                "{half_closed} {client_resets}"
            );
        }
    }
}

#[test]
fn proxy_to_nobody_resets() {
    guard(120);
    let (example, target) = proxied();
    drop(target);
    assert!(end_of(&mut client(example.address)).is_err());
}

/// Downloads that nobody reads: what the proxy holds of them keeps nobody from being served, and is delivered in the end.
#[test]
fn proxy_serves_others_while_many_downloads_stand_still() {
    const SLOW: usize = 40;
    const BUFFER: usize = 1 << 17;
    guard(240);
    let (example, target) = proxied();
    let cycle: Vec<_> = (0..CYCLE * 256).map(|index| (index % CYCLE) as u8).collect();
    let mut slow: Vec<_> = (0..SLOW)
        .map(|_| {
            let near = client(example.address);
            // So that less is on the way, and what matters is what the proxy holds.
            SockRef::from(&near).set_recv_buffer_size(BUFFER).unwrap();
            let (far, _) = target.accept().unwrap();
            SockRef::from(&far).set_send_buffer_size(BUFFER).unwrap();
            far.set_nonblocking(true).unwrap();
            (near, far, 0)
        })
        .collect();
    let mut good = client(example.address);
    let (mut echoing, _) = target.accept().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || std::io::copy(&mut &echoing.try_clone().unwrap(), &mut echoing));
        // Until none has moved for many turns of the proxy's.
        let mut unmoved = 0;
        while unmoved < 100 {
            unmoved += 1;
            for (_, far, sent) in &mut slow {
                let before = *sent;
                flood(far, &cycle, sent);
                if *sent > before {
                    unmoved = 0;
                }
            }
            echo(&mut good, &[3; 100]);
        }
        for _ in 0..20 {
            echo(&mut good, &[4; 30_000]);
        }
        drop(good);
    });
    for (mut near, far, sent) in slow {
        let mut received = vec![0; sent];
        near.read_exact(&mut received).unwrap();
        let differs = received
            .chunks(CYCLE)
            .position(|chunk| chunk != &cycle[..chunk.len()]);
        assert_eq!(differs, None, "of {sent} bytes");
        drop(far);
        end_of(&mut near).unwrap();
    }
}

/// Sends a download on, until the kernel takes no more; `sent` is how much it has taken.
fn flood(far: &mut TcpStream, cycle: &[u8], sent: &mut usize) {
    loop {
        match far.write(&cycle[*sent % CYCLE..]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A client reads nothing while its server sends all that it can, which the proxy must not store; others go on.
#[test]
fn proxy_stores_little_for_a_slow_reader() {
    const TOTAL: u64 = 256 << 20;
    const PIECE: usize = 1 << 16;
    guard(240);
    let (example, target) = proxied();
    let mut slow = client(example.address);
    let (mut flood, _) = target.accept().unwrap();
    let mut brisk = client(example.address);
    let (mut echoing, _) = target.accept().unwrap();
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let piece: Vec<u8> = (0..PIECE).map(|index| (index % 253) as u8).collect();
            while sent.load(Ordering::SeqCst) < TOTAL {
                flood.write_all(&piece).unwrap();
                sent.fetch_add(PIECE as u64, Ordering::SeqCst);
            }
            flood.shutdown(Shutdown::Write).unwrap();
        });
        scope.spawn(move || {
            let mut bytes = [0; 100];
            while echoing.read_exact(&mut bytes).is_ok() {
                echoing.write_all(&bytes).unwrap();
            }
        });
        // Until the flood has not moved for many turns of the proxy's.
        let (mut seen, mut unmoved) = (0, 0);
        while unmoved < 500 {
            echo(&mut brisk, &[3; 100]);
            let now = sent.load(Ordering::SeqCst);
            unmoved = if now == seen && now > 0 { unmoved + 1 } else { 0 };
            seen = now;
        }
        assert!(seen < TOTAL, "nothing was held up");
        drop(brisk);
        let mut received = 0;
        let mut bytes = vec![0; PIECE];
        while received < TOTAL {
            slow.read_exact(&mut bytes).unwrap();
            assert!(
                bytes
                    .iter()
                    .enumerate()
                    .all(|(index, &byte)| byte == (index % 253) as u8),
                "changed at {received}"
            );
            received += PIECE as u64;
        }
        end_of(&mut slow).unwrap();
    });
    // Its pool and a connection's leases, far below what was sent.
    let peak = example.peak_memory();
    assert!(peak < 64 * 1024, "the proxy had {peak} KiB");
}
