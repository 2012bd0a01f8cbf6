//! Options of a stream socket, and setting them.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::errno::Errno;
use crate::sys::{Linux, SocketOption, SocketSys};

/// Options of a stream socket. Those for TCP are ignored for Unix sockets.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// `TCP_NODELAY`. Default on: whatever gathers in a turn leaves together, so waiting for more only delays.
    pub no_delay: bool,
    /// TCP keepalive. Default off, as in the kernel: probes cost idle servers, and most protocols have their own.
    pub keepalive: Option<Keepalive>,
    /// `SO_RCVBUF` in bytes. Default `None`: the kernel tunes it (`net.ipv4.tcp_rmem`); a fixed size ends that.
    pub receive_buffer: Option<u32>,
    /// `SO_SNDBUF` in bytes. Default `None`: the kernel tunes it (`net.ipv4.tcp_wmem`); a fixed size ends that.
    pub send_buffer: Option<u32>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            no_delay: true,
            keepalive: None,
            receive_buffer: None,
            send_buffer: None,
        }
    }
}

impl StreamOptions {
    /// Sets what differs from the kernel's defaults on a socket of no loop, or of a loop's connection.
    ///
    /// # Errors
    /// The option that was refused, and the kernel's error. TCP's options do not exist on Unix sockets, which is no
    /// fault.
    pub fn apply(&self, socket: BorrowedFd<'_>) -> Result<(), (SocketOption, Errno)> {
        self.apply_counted(&Linux, socket).map(drop)
    }

    /// As [`StreamOptions::apply`]; returns how many calls it took.
    pub(crate) fn apply_counted(
        &self,
        system: &impl SocketSys,
        socket: BorrowedFd<'_>,
    ) -> Result<u64, (SocketOption, Errno)> {
        let keepalive = self.keepalive.map(|keepalive| SocketOption::Keepalive {
            idle: keepalive.idle,
            interval: keepalive.interval,
            probes: keepalive.probes,
        });
        let wanted = [
            self.no_delay.then_some(SocketOption::NoDelay(true)),
            keepalive,
            self.receive_buffer.map(SocketOption::ReceiveBuffer),
            self.send_buffer.map(SocketOption::SendBuffer),
        ];
        let mut calls = 0;
        for option in wanted.into_iter().flatten() {
            calls += 1;
            match system.set_option(socket, option) {
                Ok(()) | Err(Errno::EOPNOTSUPP) => {}
                Err(errno) if errno.code() == libc::ENOPROTOOPT => {}
                Err(errno) => return Err((option, errno)),
            }
        }
        Ok(calls)
    }
}

/// TCP keepalive (`tcp(7)`), in whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Idle time before the first probe. Default 60 s.
    pub idle: Duration,
    /// Time between probes. Default 10 s.
    pub interval: Duration,
    /// Unanswered probes after which the connection is reset. Default 6.
    pub probes: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            probes: 6,
        }
    }
}
