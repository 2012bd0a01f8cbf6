//! Kernels and containers that deny io_uring, by filters on a thread of the test's own.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::*;

/// Probes on a thread where `call` returns `errno`.
fn probe_where(call: i64, errno: Errno) -> SetupError {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, vec![])]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.code() as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    )
    .unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    thread::spawn(move || {
        apply_filter(&program).unwrap();
        probe::<Ring>(FeatureSet::EMPTY, false).unwrap_err()
    })
    .join()
    .unwrap()
}

#[test]
fn the_probe_says_which_step_was_denied_and_how() {
    if found().is_none() {
        return;
    }
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::ENOMEM] {
        let error = probe_where(libc::SYS_io_uring_setup, errno);
        assert_eq!((error.step, error.errno), (Step::Setup, errno));
        assert!(error.to_string().contains("io_uring_setup"), "{error}");
    }
    let error = probe_where(libc::SYS_io_uring_register, Errno::EPERM);
    assert_eq!((error.step, error.errno), (Step::ListOperations, Errno::EPERM));
    let error = probe_where(libc::SYS_io_uring_enter, Errno::EPERM);
    assert!(matches!(error.step, Step::Try(_)) && error.errno == Errno::EPERM);
    let error = probe_where(libc::SYS_socketpair, Errno::EACCES);
    assert_eq!((error.step, error.errno), (Step::Sockets, Errno::EACCES));
}

#[test]
fn everything_can_be_switched_off() {
    if found().is_none() {
        return;
    }
    let capabilities = probe::<Ring>(FeatureSet::ALL, false).unwrap();
    assert_eq!(capabilities.features, FeatureSet::EMPTY);
    let expected: Vec<_> = FeatureSet::ALL
        .iter()
        .map(|feature| (feature, Missing::SwitchedOff))
        .collect();
    assert_eq!(capabilities.missing, expected);
}

#[test]
fn what_needs_a_switched_off_feature_says_so() {
    if found().is_none() {
        return;
    }
    let capabilities = probe::<Ring>("buffer-ring".parse().unwrap(), false).unwrap();
    for (feature, reason) in [
        (Feature::BufferRing, Missing::SwitchedOff),
        (Feature::MultishotReceive, Missing::Needs(Feature::BufferRing)),
        (Feature::ReceiveBudget, Missing::Needs(Feature::MultishotReceive)),
    ] {
        assert!(
            capabilities.missing.contains(&(feature, reason)),
            "{capabilities:?}"
        );
    }
}
