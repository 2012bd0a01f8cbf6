//! Filling datagrams and handing them to the kernel.

use std::io;
use std::os::fd::AsFd;

use quoit_workload::{Header, Kind};
use socket2::Socket;

use super::calls::{Scratch, send_many, send_segments};
use super::plan::Mode;
use crate::Sizes;

/// The datagrams of one sender.
pub(super) struct Outbox {
    mode: Mode,
    sizes: Sizes,
    seed: u64,
    /// What all headers of this sender have in common.
    header: Header,
    /// Room for the datagrams of a batch, each `stride` bytes from the one before.
    buffer: Vec<u8>,
    stride: usize,
    lengths: Vec<usize>,
    scratch: Scratch,
    /// System calls made.
    pub(super) calls: u64,
    /// Bytes sent.
    pub(super) bytes: u64,
}

/// What stands behind the header of a datagram, the same in all of them: byte `i` of a datagram is `content()[i]`.
pub(super) fn content(bytes: usize) -> Vec<u8> {
    // A period that is no power of two, so that nothing that is shifted by one looks right.
    (0..bytes).map(|place| (place % 251) as u8).collect()
}

impl Outbox {
    /// For `batch` datagrams at a time.
    pub(super) fn new(mode: Mode, sizes: Sizes, seed: u64, batch: usize, header: Header) -> Self {
        let stride = sizes.largest();
        Self {
            mode,
            sizes,
            seed,
            header,
            buffer: content(stride).repeat(batch),
            stride,
            lengths: Vec::with_capacity(batch),
            scratch: Scratch::default(),
            calls: 0,
            bytes: 0,
        }
    }

    /// The size of the datagram with this number.
    pub(super) fn size(&self, sequence: u64) -> usize {
        self.sizes.of(self.seed, u64::from(self.header.sender), sequence)
    }

    /// Sends datagrams, no more than a batch, with the numbers from `first` on, that were due at `starts`. Returns how
    /// many were sent, and the error that stopped it, if one did.
    pub(super) fn send(&mut self, socket: &Socket, first: u64, starts: &[u64]) -> (usize, Option<io::Error>) {
        self.lengths.clear();
        for ((sequence, &due), datagram) in (first..)
            .zip(starts)
            .zip(self.buffer.chunks_exact_mut(self.stride))
        {
            let header = Header {
                sequence,
                due,
                ..self.header
            };
            datagram[..Header::BYTES].copy_from_slice(&header.encode());
            self.lengths.push(
                self.sizes
                    .of(self.seed, u64::from(header.sender), header.sequence),
            );
        }
        let mut sent = 0;
        let mut error = None;
        while sent < starts.len() && error.is_none() {
            match self.send_from(socket, sent) {
                Ok(more) => sent += more,
                Err(failure) if failure.kind() == io::ErrorKind::Interrupted => {}
                Err(failure) => error = Some(failure),
            }
        }
        self.bytes += self.lengths[..sent].iter().sum::<usize>() as u64;
        (sent, error)
    }

    /// One call for the datagrams from place `from` on.
    fn send_from(&mut self, socket: &Socket, from: usize) -> io::Result<usize> {
        self.calls += 1;
        let start = from * self.stride;
        match self.mode {
            Mode::Sendto => socket
                .send(&self.buffer[start..start + self.lengths[from]])
                .map(|_| 1),
            Mode::Sendmmsg => {
                let buffer = &self.buffer[start..];
                let pieces = buffer.chunks_exact(self.stride).zip(&self.lengths[from..]);
                let pieces = pieces.map(|(piece, &length)| &piece[..length]);
                send_many(socket.as_fd(), pieces, &mut self.scratch)
            }
            Mode::Gso => {
                let end = self.lengths.len() * self.stride;
                let segment = u16::try_from(self.stride).expect("the plan's sizes are those of UDP");
                send_segments(socket.as_fd(), &self.buffer[start..end], segment)?;
                Ok(self.lengths.len() - from)
            }
        }
    }
}

/// The bytes of a shutdown datagram of `size` bytes.
pub(super) fn shutdown(header: Header, sent: u64, number: u32, size: u32) -> Vec<u8> {
    let header = Header {
        kind: Kind::Shutdown,
        sequence: sent,
        shutdown: number,
        ..header
    };
    let mut datagram = content(size as usize);
    datagram[..Header::BYTES].copy_from_slice(&header.encode());
    datagram
}
