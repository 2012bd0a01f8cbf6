//! That each kind of violation is seen.

use super::*;

const ID: u64 = 7;

fn begun() -> (EventOrder<()>, ConnectionId) {
    let mut order = EventOrder::default();
    let connection = ConnectionId::from_bits(ID);
    order.begin(connection, Token(1), false, false);
    order.check(
        &Event::Opened {
            connection,
            token: Token(1),
        },
        0,
    );
    (order, connection)
}

fn closed(connection: ConnectionId, reason: CloseReason) -> Event {
    Event::Closed {
        connection,
        token: Token(1),
        reason,
    }
}

#[test]
#[should_panic(expected = "two ends of stream")]
fn a_stream_ends_once() {
    let (mut order, connection) = begun();
    order.check(&Event::EndOfStream { connection }, 0);
    order.check(&Event::EndOfStream { connection }, 0);
}

#[test]
#[should_panic(expected = "after a close or an abort")]
fn nothing_is_delivered_after_a_close() {
    let (mut order, connection) = begun();
    order.find(connection).expect("it is open").closing = true;
    order.check(&Event::EndOfStream { connection }, 0);
}

#[test]
#[should_panic(expected = "has closed, and goes on")]
fn closed_is_the_last_event() {
    let (mut order, connection) = begun();
    assert!(order.check(&closed(connection, CloseReason::Reset), 0).is_some());
    assert!(order.open().is_empty());
    order.check(&Event::EndOfStream { connection }, 0);
}

#[test]
#[should_panic(expected = "owed by nothing")]
fn room_is_told_of_as_often_as_there_was_none() {
    let (mut order, connection) = begun();
    order.full(connection);
    order.check(&Event::Writable { connection }, 0);
    order.check(&Event::Writable { connection }, 0);
}

#[test]
#[should_panic(expected = "not acknowledged")]
fn what_was_lent_is_acknowledged_before_a_graceful_end() {
    let (mut order, connection) = begun();
    let state = order.find(connection).expect("it is open");
    state.lent.push_back(Lent::unwatched(Token(5)));
    order.check(&closed(connection, CloseReason::PeerClosed), 0);
}

#[test]
#[should_panic(expected = "is held")]
fn what_is_acknowledged_is_free() {
    let (mut order, connection) = begun();
    let state = order.find(connection).expect("it is open");
    let free = Some(Arc::new(AtomicBool::new(false)));
    state.lent.push_back(Lent {
        free,
        ..Lent::unwatched(Token(5))
    });
    order.check(
        &Event::Sent {
            connection,
            token: Token(5),
        },
        0,
    );
}

#[test]
#[should_panic(expected = "no longer, lent")]
fn a_part_is_told_of_once() {
    let (mut order, connection) = begun();
    let state = order.find(connection).expect("it is open");
    state.lent.push_back(Lent {
        in_parts: 100,
        ..Lent::unwatched(Token(1000))
    });
    for token in [Token(950), Token(1000), Token(950)] {
        order.check(&Event::Sent { connection, token }, 0);
    }
}

#[test]
#[should_panic(expected = "came early")]
fn no_timer_fires_early() {
    let (mut order, _) = begun();
    order.timers.insert(3, 10);
    order.check(&Event::Timer { token: Token(3) }, 9);
}

#[test]
#[should_panic(expected = "drained with")]
fn drained_comes_when_all_have_ended() {
    let (mut order, _) = begun();
    order.check(&Event::Draining, 0);
    order.check(&Event::Drained, 0);
}
