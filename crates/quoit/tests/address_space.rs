//! Too little address space (`RLIMIT_AS`): an error value, and nothing is lost; in processes of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::time::Duration;

use quoit::{
    Config, DatagramOptions, EngineKind, Errno, Events, FeatureSet, Footprint, Loop, LoopIndex, StartError,
    Token,
};
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

fn says_what_to_do(text: &str) {
    for remedy in ["`ulimit -v`", "LimitAS=", "vm.overcommit_memory is 2"] {
        assert!(text.contains(remedy), "no {remedy} in: {text}");
    }
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
    // Without a look at what runs here: what that brings in, the allocator keeps.
    let engine = [EngineKind::Epoll, EngineKind::Uring]
        .into_iter()
        .find(|engine| engine.name() == case)
        .unwrap();
    let mut made = 0;
    for megabytes in (1..=160).step_by(3) {
        leave(megabytes << 20);
        let config = Config {
            // What there is too little of is given back by nobody.
            ring_memory_patience: Duration::ZERO,
            ..config(engine)
        };
        match Loop::new(LoopIndex::default(), config) {
            Ok(mut event_loop) => {
                made += 1;
                let mut events = Events::with_capacity(8);
                event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            }
            Err(error) => {
                let no_memory = matches!(
                    error,
                    StartError::Kernel {
                        errno: Errno::ENOMEM,
                        ..
                    }
                );
                assert!(no_memory, "{megabytes} MiB: {error}");
                says_what_to_do(&error.to_string());
            }
        }
    }
    assert!(made > 0, "with 160 MiB there is one");
}

/// What a loop is said to need is what it takes, and not far more.
#[test]
fn what_a_loop_takes_is_known() {
    let Some(case) = case() else {
        for engine in engines() {
            run_child("what_a_loop_takes_is_known", engine.name());
        }
        return;
    };
    guard(60);
    let engine = engines()
        .into_iter()
        .find(|engine| engine.name() == case)
        .unwrap();
    // Large allocations are mapped one by one, and no thread gets 64 MiB in advance.
    // SAFETY: only how memory is had changes.
    unsafe {
        assert_eq!(libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10), 1);
        assert_eq!(libc::mallopt(libc::M_ARENA_MAX, 1), 1);
    }
    for config in [
        config(engine),
        Config {
            connections: 1 << 18,
            inbox: 1 << 16,
            receive_slots: 1 << 14,
            datagram_sockets: 1 << 10,
            ..config(engine)
        },
    ] {
        let said = Footprint::of(&config, FeatureSet::OLDEST).address_space();
        let before = address_space();
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let mut events = Events::with_capacity(4096);
        event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
        let taken = address_space() - before;
        assert!(taken <= said && taken > said / 2, "{taken} of {said}");
    }
}

#[test]
fn a_datagram_socket_is_opened_or_is_not() {
    if case().is_none() {
        return run_child("a_datagram_socket_is_opened_or_is_not", "little");
    }
    guard(60);
    let engine = engines()[0];
    let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
    let options = DatagramOptions {
        slots: 1024,
        ..DatagramOptions::default()
    };
    leave(8 << 20);
    let address = "127.0.0.1:0".parse().unwrap();
    let mut opened = 0;
    let refused = loop {
        match event_loop.bind_datagram(&address, &options, Token::NONE) {
            Ok(_) => opened += 1,
            Err(error) => break error.to_string(),
        }
        assert!(opened < 64, "8 MiB are not enough for as many");
    };
    assert!(refused.contains(&Errno::ENOMEM.to_string()), "{refused}");
    says_what_to_do(&refused);
    // Those that are open go on.
    let mut events = Events::with_capacity(8);
    event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
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
