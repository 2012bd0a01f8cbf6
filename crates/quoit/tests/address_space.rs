//! Too little address space (`RLIMIT_AS`): an error value, and nothing is lost; in processes of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use quoit::{Config, DatagramOptions, Errno, Events, Loop, LoopIndex, StartError, Token};
use support::{case, config, engines, guard, run_child};

/// Bytes of address space that this process has.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kibibytes = line.unwrap().split_whitespace().next().unwrap();
    1024 * kibibytes.parse::<u64>().unwrap()
}

/// Leaves this process so many bytes more than it has.
fn leave(bytes: u64) {
    let most = address_space() + bytes;
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is valid for the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(result, 0);
}

/// However little there is, a loop is made or an error says why not; with enough it is made.
#[test]
fn a_loop_is_made_or_is_not() {
    let Some(case) = case() else {
        for engine in engines() {
            run_child("a_loop_is_made_or_is_not", engine.name());
        }
        return;
    };
    guard(60);
    let engine = engines()
        .into_iter()
        .find(|engine| engine.name() == case)
        .unwrap();
    let mut made = 0;
    for megabytes in (1..=160).step_by(3) {
        leave(megabytes << 20);
        match Loop::new(LoopIndex::default(), config(engine)) {
            Ok(mut quoit) => {
                made += 1;
                let mut events = Events::with_capacity(8);
                quoit
                    .turn([], &mut events, Some(std::time::Duration::ZERO))
                    .unwrap();
            }
            Err(StartError::Kernel { errno, .. }) => assert_eq!(errno, Errno::ENOMEM),
            // A ring that cannot be mapped.
            Err(StartError::Engine { reason, .. }) => assert!(reason.contains("memory"), "{reason}"),
            Err(other) => panic!("{megabytes} MiB: {other}"),
        }
    }
    assert!(made > 0, "with 160 MiB there is one");
}

#[test]
fn a_datagram_socket_is_opened_or_is_not() {
    if case().is_none() {
        return run_child("a_datagram_socket_is_opened_or_is_not", "little");
    }
    guard(60);
    let engine = engines()[0];
    let mut quoit = Loop::new(LoopIndex::default(), config(engine)).unwrap();
    let options = DatagramOptions {
        slots: 1024,
        ..DatagramOptions::default()
    };
    leave(8 << 20);
    let address = "127.0.0.1:0".parse().unwrap();
    let mut opened = 0;
    let refused = loop {
        match quoit.bind_datagram(&address, &options, Token::NONE) {
            Ok(_) => opened += 1,
            Err(error) => break error.to_string(),
        }
        assert!(opened < 64, "8 MiB are not enough for as many");
    };
    assert!(refused.contains(&Errno::ENOMEM.to_string()), "{refused}");
    // Those that are open go on.
    let mut events = Events::with_capacity(8);
    quoit
        .turn([], &mut events, Some(std::time::Duration::ZERO))
        .unwrap();
}

#[test]
fn products_are_bounded() {
    for config in [
        Config {
            receive_slots: 1 << 15,
            receive_slot_size: 1 << 24,
            ..Config::default()
        },
        Config {
            send_chunks: 1 << 24,
            send_chunk_size: 1 << 24,
            ..Config::default()
        },
    ] {
        let error = Loop::new(LoopIndex::default(), config).unwrap_err();
        assert!(matches!(error, StartError::Config(_)), "{error}");
    }
}
