//! Room to send is asked about as long as somebody waits for it: sockets that are not TCP's tell of it whether or not anybody does.

use std::os::unix::net::UnixDatagram;

use super::failing::{Failing, bench as failing};
use super::*;
use crate::engine::{DatagramBatch, SendManner};

const SLOT: Slot = Slot::new(0);

fn datagram_pair() -> (UnixDatagram, UnixDatagram) {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// One datagram of these bytes, to whom the socket is connected.
fn batch(bytes: &[u8]) -> Box<DatagramBatch> {
    let mut batch = Box::<DatagramBatch>::default();
    batch.payloads.push(libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    });
    // SAFETY: structures of integers and pointers, for which all zeroes is a valid value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = batch.payloads.as_mut_ptr();
    message.msg_hdr.msg_iovlen = 1;
    batch.messages.push(message);
    batch
}

impl<P: EpollSys> Bench<P> {
    fn open_datagrams(&mut self, socket: &UnixDatagram) {
        self.engine
            .open_datagrams(SLOT, socket.as_raw_fd(), 0, 1)
            .unwrap();
    }

    fn send_datagram(&mut self, bytes: &[u8]) -> Option<Box<DatagramBatch>> {
        let batch = batch(bytes);
        self.engine
            .send_datagrams(SLOT, batch, SendManner::InOrder, &mut self.pool)
    }
}

#[test]
fn of_a_unix_stream() {
    let mut bench = Bench::new(1, 64);
    let (ours, mut theirs) = unix_pair();
    theirs.set_nonblocking(true).unwrap();
    bench.receive(0, &ours, 100);
    bench.silence();
    let watched = |bench: &mut Bench| bench.engine.connections.get(SLOT).watched_for_room;
    assert!(!watched(&mut bench), "nobody waits");

    // The socket takes some, and of the next send nothing.
    let all = pattern(4 << 20);
    bench.send(0, &ours, &all);
    let taken = sent(bench.one()).unwrap();
    bench.send(0, &ours, &all[taken..]);
    bench.silence();
    assert!(watched(&mut bench));
    let mut arrived = Vec::new();
    sent(bench.drain_until_sent(&mut theirs, &mut arrived)).unwrap();

    // What it has taken leaves, of which it tells, and nobody waits.
    while theirs.read(&mut vec![0; 1 << 20]).is_ok() {}
    bench.silence();
    assert!(!watched(&mut bench));
    bench.send(0, &ours, b"and on");
    assert_eq!(sent(bench.one()), Ok(6));
}

#[test]
fn of_tcp_from_the_start() {
    let mut bench = Bench::new(1, 64);
    let (ours, _theirs) = tcp_pair();
    bench.receive(0, &ours, 100);
    bench.silence();
    assert!(bench.engine.connections.get(SLOT).watched_for_room);
}

#[test]
fn of_datagrams() {
    let mut bench = Bench::new(1, 64);
    let (ours, theirs) = datagram_pair();
    bench.open_datagrams(&ours);
    bench.silence();
    let watched = |bench: &mut Bench| bench.engine.datagrams.get(SLOT).watched_for_room;
    assert!(!watched(&mut bench), "nobody waits");

    while bench.send_datagram(b"one").is_some() {}
    bench.silence();
    assert!(watched(&mut bench));
    let mut sent = 0;
    while sent == 0 {
        theirs.recv(&mut [0; 8]).unwrap();
        sent += bench.glance().len();
    }
    while theirs.recv(&mut [0; 8]).is_ok() {}
    bench.silence();
    assert!(!watched(&mut bench));
    assert!(bench.send_datagram(b"and on").is_some());
}

#[test]
fn that_cannot_be_asked_about_fails_the_send() {
    let no_memory = Errno::new(libc::ENOMEM);
    let mut bench = failing();
    let (ours, _theirs) = unix_pair();
    bench.receive(0, &ours, 100);
    bench.engine.kernel.modify = [libc::ENOMEM].into();
    bench.engine.kernel.send = [libc::EAGAIN].into();
    bench.send(0, &ours, b"bytes");
    assert_eq!(sent(bench.one()), Err(no_memory));

    // And of one that is known to be full.
    bench.engine.kernel.modify = [libc::ENOMEM].into();
    bench.send(0, &ours, b"bytes");
    assert_eq!(sent(bench.one()), Err(no_memory));
    bench.send(0, &ours, b"bytes");
    assert_eq!(sent(bench.one()), Ok(5));
}

#[test]
fn that_cannot_be_asked_about_fails_datagrams() {
    let mut bench: Bench<Failing> = failing();
    let (ours, theirs) = datagram_pair();
    bench.open_datagrams(&ours);
    bench.engine.kernel.modify = [libc::ENOMEM].into();
    let failed = loop {
        let batch = bench.send_datagram(b"one").expect("it has left, or failed");
        if let [result] = batch.results[..] {
            break result;
        }
    };
    assert_eq!(failed, Some(Err(Errno::new(libc::ENOMEM))));
    while theirs.recv(&mut [0; 8]).is_ok() {}
    // It is taken for full until the kernel says that it is not.
    assert!(bench.send_datagram(b"and on").is_none());
    assert!(matches!(bench.one(), Completion::DatagramsSent { .. }));
    assert_eq!(theirs.recv(&mut [0; 8]).unwrap(), 6);
}
