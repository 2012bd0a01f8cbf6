//! Bytes come back as they were sent, however they are cut.

use std::io::Read;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quoit::Address;

use crate::driver::{OnData, drive};
use crate::levels::Level;
use crate::sockets::{Client, pattern};

macro_rules! echoing {
    ($level:ident) => {
        tests! { $level, echoing: random_sizes_in_random_chunks many_at_once }
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
        driver.until("all have closed", |driver| driver.quoit.connections() == 0);
        assert_eq!(driver.quoit.counters().closed_peer, 200);
    });
}
