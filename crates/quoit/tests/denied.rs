//! io_uring denied by a seccomp filter, as container runtimes do it: in children of this process, for a filter
//! cannot be taken off again.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::thread;

use quoit::{Config, EngineChoice, EngineKind, Loop, LoopIndex, Runtime, RuntimeConfig};
use quoit::{Listen, ListenerOptions, StartError};
use support::{Echo, case, client, deny, echo, engines, guard, listening, run_child, tcp};

const ALL: [i64; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// With the filter on: `Auto` serves on epoll and says why, `Require` fails and says why.
fn falls_back(words: &[&str]) {
    let names_all = |text: &str| {
        for word in words {
            assert!(text.contains(word), "{word:?} is not named in: {text}");
        }
        assert!(!text.contains('\n'), "more than one line: {text}");
    };
    let (mut event_loop, address) = listening(Config::default());
    assert_eq!(event_loop.engine(), EngineKind::Epoll);
    names_all(event_loop.engine_reason());
    let remote = event_loop.remote();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = client(address);
            for number in 0..100u32 {
                echo(&mut client, &number.to_ne_bytes().repeat(500));
            }
            drop(client);
            remote
                .post(quoit::Command::Drain {
                    within: support::PATIENCE,
                })
                .unwrap();
        });
        event_loop.run(&mut Echo::default()).unwrap();
    });
    assert_eq!(event_loop.counters().received_bytes, 100 * 2000);

    let required = Config {
        engine: EngineChoice::Require(EngineKind::Uring),
        ..Config::default()
    };
    let error = Loop::new(LoopIndex::default(), required).unwrap_err();
    assert!(
        matches!(&error, StartError::Engine { engine: EngineKind::Uring, reason } if error.to_string().contains(reason)),
        "{error:?}"
    );
    names_all(&error.to_string());

    // Several loops: the same, on threads that inherit the filter.
    let config = RuntimeConfig {
        loops: 2,
        listeners: vec![(
            Listen::Address("127.0.0.1:0".parse().unwrap()),
            ListenerOptions::default(),
        )],
        ..RuntimeConfig::default()
    };
    let runtime = Runtime::start(config, |_| Echo::default()).unwrap();
    assert_eq!(runtime.engine(), EngineKind::Epoll);
    names_all(runtime.engine_reason());
    echo(&mut client(tcp(&runtime.addresses()[0])), b"through two loops");
}

fn in_child(test: &str, case_name: &str, child: impl FnOnce()) {
    guard(60);
    if case().as_deref() == Some(case_name) {
        child();
    } else if case().is_none() {
        run_child(test, case_name);
    }
}

#[test]
fn all_calls_answer_eperm() {
    in_child("all_calls_answer_eperm", "eperm", || {
        deny(ALL, libc::EPERM);
        falls_back(&["io_uring_setup", "seccomp", "profile"]);
    });
}

#[test]
fn all_calls_answer_enosys() {
    in_child("all_calls_answer_enosys", "enosys", || {
        deny(ALL, libc::ENOSYS);
        falls_back(&["io_uring_setup", "ENOSYS", "seccomp", "profile"]);
    });
}

/// A profile that allows only a part of what io_uring needs is found by the probe, not by the first request.
#[test]
fn registering_alone_is_denied() {
    in_child("registering_alone_is_denied", "register", || {
        if engines().contains(&EngineKind::Uring) {
            deny([ALL[2]], libc::EPERM);
            falls_back(&["denied", "seccomp", "io_uring_register"]);
        }
    });
}

#[test]
fn entering_alone_is_denied() {
    in_child("entering_alone_is_denied", "enter", || {
        if engines().contains(&EngineKind::Uring) {
            deny([ALL[1]], libc::EPERM);
            falls_back(&["denied", "seccomp", "io_uring_enter"]);
        }
    });
}

/// The other way round: without a filter nothing is said of one.
#[test]
fn without_a_filter_none_is_named() {
    guard(60);
    if case().is_none() && engines().contains(&EngineKind::Uring) {
        let event_loop = Loop::new(LoopIndex::default(), Config::default()).unwrap();
        assert_eq!(event_loop.engine(), EngineKind::Uring);
        assert!(!event_loop.engine_reason().contains("seccomp"));
    }
}
