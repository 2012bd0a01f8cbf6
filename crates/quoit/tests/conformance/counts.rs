//! What the counters of a loop say of all that it has done, held against what it has told: behind each case.

use quoit::{CloseReason, Counters};

use crate::driver::Seen;

pub(crate) fn check<'a>(counters: &Counters, seen: impl Iterator<Item = &'a Seen> + Clone) {
    let closed = |is: fn(CloseReason) -> bool| {
        let reasons = seen.clone().filter_map(|seen| seen.closed);
        reasons.filter(|reason| is(*reason)).count() as u64
    };
    let counted = [
        counters.closed_local,
        counters.closed_peer,
        counters.closed_reset,
        counters.closed_timeout,
        counters.closed_limit,
        counters.closed_error,
    ];
    let told = [
        closed(|reason| reason == CloseReason::Local),
        closed(|reason| reason == CloseReason::PeerClosed),
        closed(|reason| reason == CloseReason::Reset),
        closed(|reason| reason == CloseReason::Timeout),
        closed(|reason| reason == CloseReason::Limit),
        closed(|reason| matches!(reason, CloseReason::Error(_))),
    ];
    assert_eq!(counted, told, "closes by reason: {counters:?}");
    let sum = |prefix: &str| -> u64 {
        let figures = counters.figures();
        figures
            .filter(|(name, ..)| name.starts_with(prefix))
            .map(|(.., value)| value)
            .sum()
    };
    assert_eq!(sum("enters_submitting_"), counters.enters, "{counters:?}");
    let brought = counters.enters.saturating_sub(1);
    assert_eq!(sum("enters_bringing_"), brought, "{counters:?}");
    assert!(counters.system_calls >= counters.enters, "{counters:?}");
    assert!(counters.short_sends <= counters.sends, "{counters:?}");
    let zero_copy = (counters.zero_copy_copied, counters.zero_copy_sends);
    assert!(zero_copy.0 <= zero_copy.1, "{counters:?}");
    assert!(counters.stalled_closed <= counters.closed_limit, "{counters:?}");
    let received: u64 = seen.map(|seen| seen.total).sum();
    assert!(counters.received_bytes >= received, "{counters:?}");
}
