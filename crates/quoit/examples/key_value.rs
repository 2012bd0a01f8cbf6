//! A line protocol: `SET key value` stores, `GET key` answers `+value` or `-none`; anything else answers
//! `-error`. One line a request, any number at once, cut anywhere.
//!
//!     cargo run --example key_value -- 127.0.0.1:7000

mod signals;

use std::collections::HashMap;

use quoit::{Config, ConnectionId, Drainer, Handler, Lease, ListenerOptions, Loop, LoopIndex, Token};

/// The longest line, its end not counted. A longer one closes the connection.
const LONGEST: usize = 4096;

#[derive(Default)]
struct KeyValue {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// What each connection has sent of a line that is not complete.
    partial: HashMap<ConnectionId, Vec<u8>>,
    draining: bool,
}

impl KeyValue {
    fn answer(&mut self, line: &[u8], answers: &mut Vec<u8>) {
        let mut words = line.splitn(3, |&byte| byte == b' ');
        match (words.next(), words.next(), words.next()) {
            (Some(b"SET"), Some(key), Some(value)) => {
                self.values.insert(key.to_vec(), value.to_vec());
                answers.extend(b"+ok");
            }
            (Some(b"GET"), Some(key), None) => match self.values.get(key) {
                Some(value) => answers.extend([b"+", &value[..]].concat()),
                None => answers.extend(b"-none"),
            },
            _ => answers.extend(b"-error"),
        }
        answers.push(b'\n');
    }
}

impl Handler for KeyValue {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        // Copied, and the lease returned: a connection that never ends its line holds no receive memory.
        let mut input = self.partial.remove(&connection).unwrap_or_default();
        input.extend_from_slice(&data);
        drop(data);
        let too_long = |line: &[u8]| line.len() > LONGEST;
        if input.split(|&byte| byte == b'\n').any(too_long) {
            let _ = event_loop.abort(connection);
            return;
        }
        let (mut answers, mut rest) = (Vec::new(), &input[..]);
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            self.answer(&rest[..end], &mut answers);
            rest = &rest[end + 1..];
        }
        let between_lines = rest.is_empty();
        self.partial.insert(connection, rest.to_vec());
        if !event_loop.send_or_abort(connection, answers, Token::NONE) {
            return;
        }
        if self.draining && between_lines {
            let _ = event_loop.close(connection, None);
        } else if event_loop.is_full(connection) {
            // No more lines are taken in from a client that does not read the answers, until it does.
            let _ = event_loop.pause(connection);
        }
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        let _ = event_loop.resume(connection);
    }

    fn on_closed(&mut self, _: &mut Loop, connection: ConnectionId, _: Token, _: quoit::CloseReason) {
        self.partial.remove(&connection);
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        self.draining = true;
        // A client that has begun a line gets its response first.
        let between_lines = |id: &ConnectionId| self.partial.get(id).is_none_or(Vec::is_empty);
        let idle: Vec<_> = event_loop.connection_ids().filter(between_lines).collect();
        for connection in idle {
            let _ = event_loop.close(connection, None);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:0".into());
    let mut event_loop = Loop::new(LoopIndex::default(), Config::default())?;
    let listener = event_loop.listen(&address.parse()?, &ListenerOptions::default())?;
    let address = event_loop.listener_address(listener).ok_or("closed")?;
    signals::drain_on_signals(Drainer::from(event_loop.remote()))?;
    println!("listening on {address} engine={}", event_loop.engine());
    Ok(event_loop.run(&mut KeyValue::default())?)
}
