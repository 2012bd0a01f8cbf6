//! `serve echo`: sends back what it receives.

use quoit::{ConnectionId, Handler, Lease, Loop, Token};
use quoit_workload::Work;

/// The handler.
#[derive(Debug)]
pub(super) struct Echo {
    work: Work,
}

impl Echo {
    pub(super) fn new(work: Work) -> Self {
        Self { work }
    }
}

impl Handler for Echo {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, mut data: Lease) {
        self.work.burn();
        match event_loop.try_send(connection, &data) {
            Ok(taken) if taken == data.len() => return,
            Ok(taken) => data.advance(taken),
            // The connection is closing: nobody waits for this echo.
            Err(_) => return,
        }
        if event_loop.send_or_abort(connection, data, Token::NONE) && event_loop.is_full(connection) {
            // Nothing more is received until the client has read.
            let _ = event_loop.pause(connection);
        }
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        // A stale id needs no resuming.
        let _ = event_loop.resume(connection);
    }
}
