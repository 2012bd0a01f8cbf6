//! What a loop may be asked: the commands of a batch, and the methods behind them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use super::connection::{Connection, Phase};
use super::{Loop, TimerKey};
use crate::address::{Address, SocketAddress};
use crate::command::{AttachOptions, Command, ConnectOptions, StreamOptions};
use crate::engine::{Engine, Operation};
use crate::errno::Errno;
use crate::event::{CloseReason, Event, Refusal};
use crate::id::{ConnectionId, Slot, Token};
use crate::sys::SocketSys;

impl<E: Engine, K: SocketSys> Loop<E, K> {
    /// Carries out one command; a refusal becomes an event.
    pub(super) fn execute(&mut self, command: Command<'_>) {
        let (token, connection, result) = match command {
            Command::Connect {
                address,
                options,
                token,
            } => {
                let result = self.connect(&address, &options, token).map(|connection| {
                    self.events.push_back(Event::Connecting { connection, token });
                });
                (token, None, result)
            }
            Command::TakeOver(handed_over) => return self.take_over(handed_over),
            Command::Attach {
                descriptor,
                options,
                token,
            } => (token, None, self.attach(descriptor, &options, token).map(drop)),
            Command::Send {
                connection,
                payload,
                token,
            } => (token, Some(connection), self.send(connection, payload, token)),
            Command::SendGathered {
                connection,
                pieces,
                token,
            } => (
                token,
                Some(connection),
                self.send_gathered(connection, pieces, token),
            ),
            Command::SendFile {
                connection,
                range,
                token,
            } => (token, Some(connection), self.send_file(connection, range, token)),
            Command::Shutdown { connection } => (Token::NONE, Some(connection), self.shutdown(connection)),
            Command::Close { connection, deadline } => {
                (Token::NONE, Some(connection), self.close(connection, deadline))
            }
            Command::Abort { connection } => (Token::NONE, Some(connection), self.abort(connection)),
            Command::Pause { connection } => (Token::NONE, Some(connection), self.pause(connection)),
            Command::Resume { connection } => (Token::NONE, Some(connection), self.resume(connection)),
            Command::SetDeadline { connection, after } => (
                Token::NONE,
                Some(connection),
                self.set_deadline(connection, after),
            ),
            Command::SetTimer { after, token } => (token, None, self.set_named_timer(after, token)),
            Command::CancelTimer { token } => {
                self.cancel_named_timer(token);
                return;
            }
            Command::PauseListening { listener } => (Token::NONE, None, self.pause_listening(listener)),
            Command::ResumeListening { listener } => (Token::NONE, None, self.resume_listening(listener)),
            Command::StopListening { listener } => (Token::NONE, None, self.stop_listening(listener)),
            Command::Drain { within } => {
                self.drain(within);
                return;
            }
            Command::Refuse {
                connection,
                token,
                refusal,
            } => (token, connection, Err(refusal)),
            Command::OpenDatagram { .. }
            | Command::SendDatagrams { .. }
            | Command::PauseDatagrams { .. }
            | Command::ResumeDatagrams { .. }
            | Command::SetMembership { .. }
            | Command::CloseDatagram { .. }
            | Command::RefuseDatagram { .. } => return self.execute_datagram(command),
        };
        if let Err(refusal) = result {
            self.events.push_back(Event::Refused {
                token,
                connection,
                refusal,
            });
        }
    }

    pub(super) fn find(&mut self, id: ConnectionId) -> Result<&mut Connection, Refusal> {
        if id.loop_index() != self.index {
            return Err(Refusal::Stale);
        }
        self.connections
            .get_mut(id.slot(), id.generation())
            .ok_or(Refusal::Stale)
    }

    /// As [`Loop::find`], for looking only.
    pub(super) fn look_up(&self, id: ConnectionId) -> Option<&Connection> {
        if id.loop_index() != self.index {
            return None;
        }
        self.connections.get(id.slot(), id.generation())
    }

    /// Begins to connect. [`Event::Opened`] follows, or [`Event::Closed`] with the reason: `Timeout`,
    /// `Error(ECONNREFUSED)` and the like. Sends may be queued at once. A Unix socket's attempt ends at once
    /// too; with the listener's backlog full it ends with `EAGAIN` (`unix(7)`).
    ///
    /// # Errors
    /// [`Refusal::Limit`] with all connection slots taken; the kernel's error if there can be no such socket,
    /// or not with these options.
    pub fn connect(
        &mut self,
        address: &Address,
        options: &ConnectOptions,
        token: Token,
    ) -> Result<ConnectionId, Refusal> {
        let address = SocketAddress::try_from(address).map_err(|_| Errno::EINVAL)?;
        let socket = self.system.stream_socket(&address)?;
        self.counters.system_calls.add(1);
        if self.engine.wants_nonblocking() {
            self.system.set_nonblocking(socket.as_fd(), true)?;
            self.counters.system_calls.add(1);
        }
        self.connect_prepared(socket, address, options, token)
    }

    /// As [`Loop::connect`], by a socket that the caller has made: bound, or with options that [`StreamOptions`] has none for.
    /// The loop sets its blocking mode as its engine wants it, owns it from here on and closes it.
    ///
    /// # Errors
    /// As [`Loop::connect`]; `EPROTOTYPE` if it is no stream socket, `EINVAL` if it listens. The socket is closed. One that is
    /// connected already ends by `Error(EISCONN)`: see [`Loop::attach`].
    pub fn connect_on(
        &mut self,
        socket: OwnedFd,
        address: &Address,
        options: &ConnectOptions,
        token: Token,
    ) -> Result<ConnectionId, Refusal> {
        let address = SocketAddress::try_from(address).map_err(|_| Errno::EINVAL)?;
        // A datagram socket would connect, too.
        if self.system.is_listening(socket.as_fd())? {
            return Err(Refusal::Error(Errno::EINVAL));
        }
        self.system
            .set_nonblocking(socket.as_fd(), self.engine.wants_nonblocking())?;
        self.counters.system_calls.add(1);
        self.connect_prepared(socket, address, options, token)
    }

    fn connect_prepared(
        &mut self,
        socket: OwnedFd,
        address: SocketAddress,
        options: &ConnectOptions,
        token: Token,
    ) -> Result<ConnectionId, Refusal> {
        self.set_stream_options(&socket, &options.socket)?;
        if let Some(local) = &options.local {
            let local = SocketAddress::try_from(local).map_err(|_| Errno::EINVAL)?;
            self.system.bind(socket.as_fd(), &local)?;
            self.counters.system_calls.add(1);
        }
        let descriptor = socket.as_raw_fd();
        let mut connection = Connection::new(socket, Phase::Connecting, token, options.paused);
        connection.operations.connect = true;
        let id = self.insert(connection)?;
        let timeout = options.timeout.unwrap_or(self.config.connect_timeout);
        let limit = self.set_timer(timeout, TimerKey::Limit(id));
        self.find(id)?.limit = limit;
        self.submit(Operation::Connect {
            connection: id.slot(),
            descriptor,
            address: Box::new(address),
        });
        Ok(id)
    }

    pub(super) fn on_connected(&mut self, slot: Slot, result: Result<(), Errno>) {
        let (connection, generation) = self
            .connections
            .at(slot)
            .expect("a slot with an operation in flight is in use");
        let id = ConnectionId::new(self.index, slot, generation);
        connection.operations.connect = false;
        if connection.phase == Phase::Connecting {
            let limit = connection.limit.take();
            match result {
                Ok(()) => {
                    connection.phase = Phase::Open;
                    let token = connection.token;
                    self.clear_timer(limit);
                    self.counters.connected.add(1);
                    self.events.push_back(Event::Opened {
                        connection: id,
                        token,
                    });
                    self.mark_dirty(slot);
                    self.arm_receive(slot);
                }
                Err(errno) => {
                    self.clear_timer(limit);
                    let reason = match CloseReason::from_errno(errno) {
                        CloseReason::Timeout => CloseReason::Timeout,
                        _ => CloseReason::Error(errno),
                    };
                    self.end(slot, reason, false);
                }
            }
        }
        self.finish_if_quiet(slot);
    }

    /// Makes a connected stream socket, accepted or made elsewhere, a connection of this loop. The loop sets
    /// its blocking mode as its engine wants it, owns it from here on and closes it. [`Event::Opened`] (or
    /// `Accepted`, see [`AttachOptions::accepted_by`]) follows.
    ///
    /// # Errors
    /// [`Refusal::Limit`] with all connection slots taken; the kernel's error if it is no stream socket. The
    /// descriptor is closed.
    pub fn attach(
        &mut self,
        descriptor: OwnedFd,
        options: &AttachOptions,
        token: Token,
    ) -> Result<ConnectionId, Refusal> {
        if self.system.is_listening(descriptor.as_fd())? {
            return Err(Refusal::Error(Errno::EINVAL));
        }
        self.system
            .set_nonblocking(descriptor.as_fd(), self.engine.wants_nonblocking())?;
        let id = self.insert(Connection::new(descriptor, Phase::Open, token, options.paused))?;
        self.events.push_back(match options.accepted_by {
            // Counted by the loop that has accepted it.
            Some(listener) => Event::Accepted {
                listener,
                connection: id,
            },
            None => Event::Opened {
                connection: id,
                token,
            },
        });
        self.arm_receive(id.slot());
        Ok(id)
    }

    /// Puts a connection into the table.
    pub(super) fn insert(&mut self, connection: Connection) -> Result<ConnectionId, Refusal> {
        let (slot, generation) = self.connections.insert(connection).map_err(|_| Refusal::Limit)?;
        self.show_connections();
        self.after_slot_taken();
        Ok(ConnectionId::new(self.index, slot, generation))
    }

    /// Tells other loops how many connections this one has, those included that only wait for a slot.
    pub(super) fn show_connections(&self) {
        let waiting = self.surplus_accepted.len() as u32;
        self.memory
            .remote
            .set_connections(self.connections.len() + waiting);
    }

    fn set_stream_options(&mut self, socket: &OwnedFd, options: &StreamOptions) -> Result<(), Errno> {
        let socket = socket.as_fd();
        let calls = options
            .apply_counted(&self.system, socket)
            .map_err(|(_, errno)| errno)?;
        self.counters.system_calls.add(calls);
        Ok(())
    }

    /// Delivers nothing more of a connection until [`Loop::resume`]: not what is in flight either, which is
    /// kept. The peer is slowed down by TCP once the socket's buffer is full. The end of the stream is held
    /// back too; a reset is reported at once if no data is held back.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is ending already. Both change nothing: what its peer sent before it ended may
    /// be on the way, and comes before [`Event::Closed`].
    pub fn pause(&mut self, connection: ConnectionId) -> Result<(), Refusal> {
        let state = self.find(connection)?;
        if state.phase == Phase::Ending {
            return Err(Refusal::Closing);
        }
        if !state.paused {
            state.paused = true;
            self.cancel_receive(connection.slot());
            self.inspect_soon();
            self.events.check_queued();
        }
        Ok(())
    }

    /// Delivers again, what was kept first.
    ///
    /// # Errors
    /// [`Refusal::Stale`].
    pub fn resume(&mut self, connection: ConnectionId) -> Result<(), Refusal> {
        if self.find(connection)?.paused {
            self.check_paused(connection.slot());
            self.find(connection)?.paused = false;
            self.deliver_held_back(connection.slot());
        }
        Ok(())
    }

    /// Sets, moves or (with `None`) clears the connection's deadline: [`Event::Deadline`] follows, not before
    /// then and within a few milliseconds of it. It ends with the connection, or when that is closed gracefully. One that
    /// has come and was not reported is moved or cleared as well, nor does a [`Handler`](crate::Handler) hear of it that does
    /// so in the same turn.
    ///
    /// # Errors
    /// [`Refusal::Stale`]; [`Refusal::Closing`] if it is being closed; [`Refusal::Limit`] with all timers in use.
    pub fn set_deadline(&mut self, connection: ConnectionId, after: Option<Duration>) -> Result<(), Refusal> {
        let state = self.find(connection)?;
        if matches!(state.phase, Phase::Draining | Phase::Ending) {
            return Err(Refusal::Closing);
        }
        let earlier = state.deadline.take();
        self.clear_timer(earlier);
        let timer = match after {
            Some(after) => {
                let timer = self.set_timer(after, TimerKey::Deadline(connection));
                Some(timer.ok_or(Refusal::Limit)?)
            }
            None => None,
        };
        let state = self.find(connection)?;
        state.deadline = timer;
        if std::mem::take(&mut state.is_due) {
            // It may not have been told yet.
            self.events.check_queued();
        }
        Ok(())
    }

    /// Sets the timer that `token` names, or moves it: [`Event::Timer`] follows, not before then and within a
    /// few milliseconds of it. If it has fired already, that event may still be on the way as well.
    ///
    /// # Errors
    /// [`Refusal::Limit`] with all timers in use.
    pub fn set_named_timer(&mut self, after: Duration, token: Token) -> Result<(), Refusal> {
        self.cancel_named_timer(token);
        let timer = self
            .set_timer(after, TimerKey::Timer(token))
            .ok_or(Refusal::Limit)?;
        self.named_timers.insert(token, timer);
        Ok(())
    }

    /// Clears the timer that `token` names. Returns whether it was set; if it has fired already, its event may
    /// still be on the way.
    pub fn cancel_named_timer(&mut self, token: Token) -> bool {
        let timer = self.named_timers.remove(&token);
        self.clear_timer(timer);
        timer.is_some()
    }
}
