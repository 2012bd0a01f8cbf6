//! `serve rpc`: the RPC connections' logic on the loop's connections.

use std::sync::Arc;
use std::time::Duration;

use quoit::{CloseReason, ConnectionId, Handler, Lease, ListenerId, Loop, Refusal, Token};
use quoit_host::monotonic_nanoseconds;
use quoit_workload::Work;

use super::queue::{queue, room};
use super::rpc::{Environment, Next, RpcConnection};
use super::rpc_figures::RpcFigures;

/// Bytes of frames gathered before they are queued.
const OUTPUT_STEP: usize = 64 * 1024;

/// The handler: one for each loop.
pub(super) struct RpcServer {
    connections: Vec<Option<Box<Client>>>,
    environment: Environment,
    output: Vec<u8>,
    work: Work,
    figures: Arc<RpcFigures>,
}

/// What is kept for a connection.
struct Client {
    rpc: RpcConnection,
    /// Received and not yet taken in: waits until there is room for what answers it.
    rest: Option<Lease>,
    /// Produced, and not queued yet for want of room or memory.
    unsent: Vec<u8>,
    /// When the deadline that is set will come, in nanoseconds of the monotonic clock.
    tick: Option<u64>,
    closing: bool,
}

impl RpcServer {
    /// `streams`: how many a connection may have open.
    pub(super) fn new(streams: usize, work: Work, figures: Arc<RpcFigures>) -> Self {
        Self {
            connections: Vec::new(),
            environment: Environment::new(streams),
            output: Vec::with_capacity(OUTPUT_STEP + 4096),
            work,
            figures,
        }
    }

    /// Lets the connection take in what it has, and produce as much as there is room for.
    fn advance(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        let Self {
            connections,
            environment,
            output,
            ..
        } = self;
        let Some(Some(client)) = connections.get_mut(connection.slot().index()) else {
            return;
        };
        let now = monotonic_nanoseconds();
        client.take_in(now, environment);
        let Ok(()) = client.send(event_loop, connection, now, environment, output) else {
            // It closes already, so nobody waits for the rest.
            client.closing = true;
            client.rest = None;
            client.unsent = Vec::new();
            return;
        };
        // Bytes that cannot be taken in before there is room stay in the client's own socket.
        let _ = if client.rest.is_some() {
            event_loop.pause(connection)
        } else {
            event_loop.resume(connection)
        };
        let tick = client.rpc.next_tick();
        if tick != client.tick {
            client.tick = tick;
            let after = tick.map(|tick| Duration::from_nanos(tick.saturating_sub(now)));
            // The limit on timers is set for two per connection, so this is never refused to a live one.
            let _ = event_loop.set_deadline(connection, after);
        }
    }
}

impl Client {
    fn take_in(&mut self, now: u64, environment: &mut Environment) {
        if self.closing {
            self.rest = None;
        }
        if let Some(rest) = &mut self.rest {
            let taken = self.rpc.receive(rest, now, environment);
            if taken == rest.len() {
                self.rest = None;
            } else {
                rest.advance(taken);
            }
        }
    }

    /// Queues what was produced before, then produces and queues more until there is no room, or nothing more.
    ///
    /// # Errors
    /// The connection is being closed or gone.
    fn send(
        &mut self,
        event_loop: &mut Loop,
        connection: ConnectionId,
        now: u64,
        environment: &mut Environment,
        output: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        loop {
            if !self.unsent.is_empty() {
                queue(event_loop, connection, &mut self.unsent)?;
                if !self.unsent.is_empty() {
                    return Ok(());
                }
                // Its memory is not kept: this is rare.
                self.unsent = Vec::new();
            }
            if self.closing {
                return event_loop.close(connection, None);
            }
            let room = room(event_loop, connection);
            if room == 0 {
                return Ok(());
            }
            output.clear();
            let next = self.rpc.produce(output, room.min(OUTPUT_STEP), now, environment);
            queue(event_loop, connection, output)?;
            self.unsent.extend_from_slice(output);
            self.closing = next == Next::Close;
            // Refusals that were in the way may have left.
            self.take_in(now, environment);
            if next == Next::Wait && self.rest.is_none() {
                return Ok(());
            }
        }
    }
}
impl Handler for RpcServer {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, _listener: ListenerId) {
        let index = connection.slot().index();
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Box::new(Client {
            rpc: RpcConnection::new(),
            rest: None,
            unsent: Vec::new(),
            tick: None,
            closing: false,
        }));
        if self.environment.draining {
            self.advance(event_loop, connection);
        }
    }

    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        self.work.burn();
        let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) else {
            return;
        };
        debug_assert!(client.rest.is_none(), "nothing is received while something waits");
        client.rest = Some(data);
        self.advance(event_loop, connection);
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        self.advance(event_loop, connection);
    }

    fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        if let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) {
            client.rpc.end_of_stream();
        }
        self.advance(event_loop, connection);
    }

    fn on_deadline(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        if let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) {
            client.tick = None;
            client.rpc.tick(monotonic_nanoseconds());
        }
        self.advance(event_loop, connection);
    }

    fn on_closed(
        &mut self,
        _quoit: &mut Loop,
        connection: ConnectionId,
        _token: Token,
        _reason: CloseReason,
    ) {
        if let Some(client) = self.connections.get_mut(connection.slot().index())
            && let Some(mut client) = client.take()
        {
            client.rpc.forget(&mut self.environment);
        }
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        self.environment.draining = true;
        let connections: Vec<_> = event_loop.connection_ids().collect();
        for connection in connections {
            if let Some(Some(client)) = self.connections.get_mut(connection.slot().index()) {
                client.rpc.drain();
            }
            self.advance(event_loop, connection);
        }
    }

    fn on_turn_end(&mut self, _quoit: &mut Loop) {
        self.figures.publish(&self.environment.totals);
    }
}
