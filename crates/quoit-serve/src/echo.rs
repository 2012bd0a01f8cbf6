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
    fn on_data(&mut self, quoit: &mut Loop, connection: ConnectionId, mut data: Lease) {
        self.work.burn();
        match quoit.try_send(connection, &data) {
            Ok(taken) if taken == data.len() => return,
            Ok(taken) => data.advance(taken),
            // The connection is closing: nobody waits for this echo.
            Err(_) => return,
        }
        if quoit.send_or_abort(connection, data, Token::NONE) && quoit.is_full(connection) {
            // Nothing more is received until the client has read.
            let _ = quoit.pause(connection);
        }
    }

    fn on_writable(&mut self, quoit: &mut Loop, connection: ConnectionId) {
        // A stale id needs no resuming.
        let _ = quoit.resume(connection);
    }
}
