//! `serve sink`: takes everything, answers nothing.

use quoit::{ConnectionId, Handler, Lease, Loop};
use quoit_workload::Work;

/// The handler.
#[derive(Debug)]
pub(super) struct Sink {
    work: Work,
}

impl Sink {
    pub(super) fn new(work: Work) -> Self {
        Self { work }
    }
}

impl Handler for Sink {
    fn on_data(&mut self, _quoit: &mut Loop, _connection: ConnectionId, data: Lease) {
        self.work.burn();
        drop(data);
    }
}
