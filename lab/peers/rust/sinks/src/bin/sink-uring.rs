//! io_uring as a classic loop would use it: single-shot RECVMSG operations, `--depth` of them outstanding, each with a
//! buffer of its own and submitted again once its datagram is handled.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;

use io_uring::{IoUring, opcode, squeue, types};
use lab_sinks::{Arguments, Messages, Receive, TICK};
use quoit_workload::{Sink, Taken};

fn main() -> ExitCode {
    lab_sinks::main("sink-uring", &["single-shot"], Single::new)
}

struct Single {
    // Before what the kernel writes to: it is dropped first, which ends all that is outstanding.
    ring: IoUring,
    socket: UdpSocket,
    messages: Messages,
    /// Completions of a turn: which message, and the result.
    completed: Vec<(usize, i32)>,
}

impl Single {
    fn new(arguments: &Arguments, socket: UdpSocket) -> io::Result<Self> {
        let depth = arguments.depth;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(depth as u32)?;
        let mut sink = Self {
            ring,
            socket,
            messages: Messages::new(depth, arguments.room()),
            completed: Vec::with_capacity(depth),
        };
        for index in 0..depth {
            sink.arm(index)?;
        }
        Ok(sink)
    }

    fn arm(&mut self, index: usize) -> io::Result<()> {
        self.messages.reset(index);
        let header = &raw mut self.messages.headers()[index].msg_hdr;
        let receive: squeue::Entry = opcode::RecvMsg::new(types::Fd(self.socket.as_raw_fd()), header)
            .build()
            .user_data(index as u64);
        // SAFETY: the header and all that it points to live in `messages`, which outlives the ring, and are not touched
        // until the operation is complete. There are as many entries as messages.
        unsafe { self.ring.submission().push(&receive) }.map_err(io::Error::other)
    }
}

impl Receive for Single {
    fn receive(&mut self, sink: &mut Sink) -> io::Result<Taken> {
        let tick = types::Timespec::new().nsec(TICK.subsec_nanos());
        let wait = types::SubmitArgs::new().timespec(&tick);
        match self.ring.submitter().submit_with_args(1, &wait) {
            Ok(_) => {}
            // Nothing came, or a signal.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => {
                return Ok(Taken::Counted);
            }
            Err(error) => return Err(error),
        }
        self.completed.clear();
        let completions = self.ring.completion();
        self.completed
            .extend(completions.map(|entry| (entry.user_data() as usize, entry.result())));
        if !self.completed.is_empty() && sink.received(self.completed.len() as u32) {
            sink.look(self.socket.as_fd())?;
        }
        for place in 0..self.completed.len() {
            let (index, result) = self.completed[place];
            let length = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))?;
            let (message, segment, whole) = self.messages.message(index, length);
            if sink.take_message(message, segment, whole) == Taken::Last {
                return Ok(Taken::Last);
            }
            self.arm(index)?;
        }
        Ok(Taken::Counted)
    }

    fn pool(&self) -> usize {
        self.messages.pool()
    }
}
