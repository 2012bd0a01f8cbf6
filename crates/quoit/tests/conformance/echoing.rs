//! Bytes come back as they were sent, however they are cut.

use std::io::Read;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quoit::{Address, Counters};

use crate::driver::{OnData, drive};
use crate::levels::Level;
use crate::sockets::{Client, pattern};

macro_rules! echoing {
    ($level:ident) => {
        tests! { $level, echoing: random_sizes_in_random_chunks many_at_once what_enters_carry_is_counted }
    };
}

/// Writes `chunks` of a pattern and reads it back, at the same time.
fn talk(address: &Address, start: usize, chunks: &[usize], read_size: usize) {
    let mut client = Client::connect(address);
    let total = chunks.iter().sum();
    let expected = pattern(start, total);
    let mut writer = client.try_clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = &expected[..];
            for &chunk in chunks {
                let (now, later) = rest.split_at(chunk);
                writer.send(now);
                rest = later;
            }
            writer.shutdown();
        });
        let mut received = Vec::with_capacity(total);
        let mut buffer = vec![0; read_size];
        loop {
            match client.read(&mut buffer).unwrap() {
                0 => break,
                count => received.extend_from_slice(&buffer[..count]),
            }
        }
        assert_eq!(received.len(), total);
        assert!(received == expected, "other bytes came back");
    });
}

pub(crate) fn random_sizes_in_random_chunks(level: &Level) {
    let config = Config {
        cases: 20,
        failure_persistence: None,
        ..Config::default()
    };
    let chunk = prop_oneof![1..64usize, 1..5_000usize, 30_000..200_000usize];
    let chunks = prop::collection::vec(chunk, 1..12);
    let clients = prop::collection::vec((chunks, 1..70_000usize), 1..4);
    TestRunner::new(config)
        .run(&clients, |clients| {
            drive(level, |driver| {
                driver.on_data = OnData::Echo;
                let address = driver.listen();
                let threads: Vec<_> = clients
                    .into_iter()
                    .enumerate()
                    .map(|(start, (chunks, read_size))| {
                        let address = address.clone();
                        driver.beside(move || talk(&address, start, &chunks, read_size))
                    })
                    .collect();
                for thread in threads {
                    driver.join(thread);
                }
            });
            Ok(())
        })
        .unwrap();
}

pub(crate) fn many_at_once(level: &Level) {
    drive(level, |driver| {
        driver.on_data = OnData::Echo;
        let address = driver.listen();
        let client = driver.beside(move || {
            let mut clients: Vec<_> = (0..200).map(|_| Client::connect(&address)).collect();
            for round in 0..10 {
                for (index, client) in clients.iter_mut().enumerate() {
                    client.send(&pattern(index + round, 600));
                }
                for (index, client) in clients.iter_mut().enumerate() {
                    assert_eq!(client.receive(600), pattern(index + round, 600));
                }
            }
            for client in &mut clients {
                client.shutdown();
                client.expect_end();
            }
        });
        driver.join(client);
        driver.until("all have closed", |driver| driver.event_loop.connections() == 0);
        assert_eq!(driver.event_loop.counters().closed_peer, 200);
    });
}

/// Enters of a kind by how much they carried, each with the least of its power of two.
fn enters(counters: &Counters, kind: &str) -> Vec<(u64, u64)> {
    counters
        .figures()
        .filter_map(|(name, _, _, count)| Some((name.strip_prefix(kind)?.parse().unwrap(), count)))
        .collect()
}

pub(crate) fn what_enters_carry_is_counted(level: &Level) {
    drive(level, |driver| {
        driver.on_data = OnData::Echo;
        let address = driver.listen();
        let client = driver.beside(move || {
            let mut client = Client::connect(&address);
            for _ in 0..100 {
                client.send(&pattern(0, 100));
                client.receive(100);
            }
        });
        driver.join(client);
        driver.until("it has closed", |driver| driver.event_loop.connections() == 0);
        let counters = driver.event_loop.counters();
        let powers = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];
        // What the last enter brought is counted with the next.
        for (kind, counted, carried) in [
            ("enters_submitting_", counters.enters, counters.submissions),
            ("enters_bringing_", counters.enters - 1, counters.completions),
        ] {
            let sizes = enters(&counters, kind);
            assert!(sizes.iter().map(|&(least, _)| least).eq(powers), "{sizes:?}");
            assert_eq!(
                sizes.iter().map(|(_, count)| count).sum::<u64>(),
                counted,
                "{kind}"
            );
            let least: u64 = sizes.iter().map(|(least, count)| least * count).sum();
            assert!(least <= carried, "{kind}: {least} of {carried}");
            // The kernel's thread, where there is one, leaves little to submit.
            assert!(least > 0 || level.config().kernel_poll.is_some(), "{kind}");
        }
    });
}
