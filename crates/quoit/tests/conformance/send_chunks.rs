//! The memory for copied sends, which all connections of a loop have in common.

use std::time::Duration;

use quoit::{Address, Config, ConnectionId, ListenerOptions, Refusal, StreamOptions, Token};

use crate::driver::{Driver, drive_with, loopback};
use crate::levels::Level;
use crate::sending::fill;

macro_rules! send_chunks {
    ($level:ident) => {
        tests! { $level, send_chunks: used_up kept_for_who_is_told }
    };
}

const CHUNKS: u32 = 8;
const CHUNK_SIZE: u32 = 4096;

fn few_chunks(config: &mut Config) {
    config.send_chunks = CHUNKS;
    config.send_chunk_size = CHUNK_SIZE;
    config.zero_copy_threshold = None;
}

/// Whoever was refused for want of the loop's send memory is told when there is some again, once, whatever
/// freed it.
pub(crate) fn used_up(level: &Level) {
    const MOST_HOGS: usize = 20;
    drive_with(level, few_chunks, |driver| {
        let address = driver.listen_with_small_buffers();
        for abort in [false, true] {
            let (mut client, id) = driver.pair(&address);
            let mut hogs = Vec::new();
            while driver.send(id, b"x", Token::NONE).is_ok() {
                driver.wait_flushed(id);
                assert_eq!(client.receive(1), b"x");
                // One alone has its share; and the kernel may have taken more of the others', see above.
                if hogs.len() < MOST_HOGS {
                    let (hog_client, hog) = driver.pair(&address);
                    hog_client.set_receive_buffer(4096);
                    hogs.push((hog_client, hog));
                }
                for (_, hog) in &hogs {
                    fill(driver, *hog, &mut Vec::new());
                }
            }
            for _ in 0..2 {
                let refused = driver.send(id, b"x", Token::NONE);
                assert_eq!(refused, Err(Refusal::Full), "{:?}", driver.seen(id));
            }
            let readers: Vec<_> = hogs
                .into_iter()
                .map(|(mut hog_client, hog)| {
                    if abort {
                        driver.abort(hog).unwrap();
                        driver.beside(|| drop(hog_client))
                    } else {
                        driver.abort_later(hog);
                        driver.beside(move || drop(hog_client.receive_rest()))
                    }
                })
                .collect();
            driver.until("it is told", |driver| driver.seen(id).writable == 1);
            driver.send(id, b"x", Token::NONE).unwrap();
            driver.wait_flushed(id);
            assert_eq!(client.receive(1), b"x");
            for reader in readers {
                driver.join(reader);
            }
            driver.until_quiet();
            assert_eq!(driver.seen(id).writable, 1);
        }
    });
}

impl Driver {
    fn listen_with_small_buffers(&mut self) -> Address {
        let options = ListenerOptions {
            stream: StreamOptions {
                send_buffer: Some(4096),
                ..StreamOptions::default()
            },
            ..ListenerOptions::default()
        };
        self.listen_on(&loopback(), &options).1
    }

    /// Nothing more is sent to a connection: it is closed when its queue is flushed.
    fn abort_later(&mut self, id: ConnectionId) {
        self.shutdown(id).unwrap();
    }
}

/// What one is told of is not taken by those that come before it with the next sends; and not kept any longer for one that
/// has no use for it.
pub(crate) fn kept_for_who_is_told(level: &Level) {
    const LONG: [u8; 3 * CHUNK_SIZE as usize] = [7; 3 * CHUNK_SIZE as usize];
    drive_with(level, few_chunks, |driver| {
        let address = driver.listen_with_small_buffers();
        let mut others: Vec<_> = (0..CHUNKS).map(|_| driver.pair(&address)).collect();
        for uses_it in [true, false] {
            let (mut client, id) = driver.pair(&address);
            let mut hogs = Vec::new();
            while driver.send(id, &LONG[..], Token::NONE).is_ok() {
                driver.wait_flushed(id);
                assert_eq!(client.receive(LONG.len()), LONG);
                let (hog_client, hog) = driver.pair(&address);
                hog_client.set_receive_buffer(4096);
                hogs.push((hog_client, hog));
                for (_, hog) in &hogs {
                    fill(driver, *hog, &mut Vec::new());
                }
            }
            let told = driver.seen(id).writable;
            for (_, hog) in &hogs {
                driver.abort(*hog).unwrap();
            }
            driver.until("it is told", |driver| driver.seen(id).writable > told);
            if !uses_it {
                // Its turn to take them is over with the next one.
                driver.until("all is free", |driver| {
                    driver.event_loop.counters().send_chunks_used == 0
                });
                driver.turn(Duration::ZERO);
            }
            let taken = others
                .iter()
                .filter(|(_, other)| driver.send(*other, b"x", Token::NONE).is_ok())
                .count();
            let sent = driver.send(id, &LONG[..], Token::NONE);
            if uses_it {
                assert_eq!(sent, Ok(()), "{taken} others were first");
                assert!(taken <= CHUNKS as usize - 3, "{taken}");
            } else {
                assert_eq!((taken, sent), (CHUNKS as usize, Err(Refusal::Full)));
            }
            for (other_client, other) in others.iter_mut().take(taken) {
                driver.wait_flushed(*other);
                assert_eq!(other_client.receive(1), b"x");
            }
            if uses_it {
                driver.wait_flushed(id);
                assert_eq!(client.receive(LONG.len()), LONG);
            }
        }
    });
}
