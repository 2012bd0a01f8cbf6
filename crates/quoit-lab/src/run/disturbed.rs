//! Slices that the machine disturbed, and how many of them are repeated.

use quoit_report::results;
use quoit_report::results::model::Slice;

/// Shares beyond which a slice says more about the machine than about the server: of the processors' time that the
/// hypervisor gave to others, and that other processes used. A shared machine always loses some of both, which pairs
/// and medians even out.
const MOST_STOLEN: f64 = 0.25;
const MOST_FOREIGN: f64 = 0.25;
/// Share of the requests that may lie in gaps of the generator's own schedule.
const MOST_SLIPPED: f64 = 0.5;

/// Times that one slice is repeated at most.
const REPEATS_A_SLICE: u32 = 3;
/// Share of all slices that are repeated at most, and the number that a short run may have anyway.
const REPEATS_SHARE: f64 = 0.1;
const REPEATS_ANYWAY: u32 = 3;

/// Why a slice should not count; `None` if it may.
pub(crate) fn reason(slice: &Slice) -> Option<String> {
    let beyond = |what: &str, share: Option<f64>, most: f64| {
        let share = share.filter(|share| *share > most)?;
        Some(format!("{what} ({:.0} %)", share * 100.0))
    };
    slice
        .spoiled
        .clone()
        .or_else(|| {
            beyond(
                "the hypervisor gave the processors to others",
                slice.stolen_share,
                MOST_STOLEN,
            )
        })
        .or_else(|| {
            beyond(
                "other processes used the processors",
                slice.foreign_share,
                MOST_FOREIGN,
            )
        })
        .or_else(|| {
            let slipped = slice.figures.slipped_share;
            beyond(
                "the generator did not come to run for many of its requests",
                slipped,
                MOST_SLIPPED,
            )
        })
        .or_else(|| {
            beyond(
                "the server's runtime was still compiling",
                slice.figures.compiling_share,
                results::MOST_COMPILING,
            )
        })
}

/// Whether a slice that was spoiled `times` times already is repeated, after `spoiled` of `measured` slices were.
pub(crate) fn may_repeat(times: u32, spoiled: u32, measured: u32) -> bool {
    let in_all = (f64::from(measured) * REPEATS_SHARE) as u32;
    times < REPEATS_A_SLICE && spoiled < in_all.max(REPEATS_ANYWAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quoit_report::results::model::Figures;

    #[test]
    fn disturbed_slices_are_told() {
        assert_eq!(reason(&Slice::default()), None);
        let slice = |stolen, foreign, slipped, compiling| Slice {
            stolen_share: Some(stolen),
            foreign_share: Some(foreign),
            figures: Figures {
                slipped_share: Some(slipped),
                compiling_share: Some(compiling),
                ..Figures::default()
            },
            ..Slice::default()
        };
        assert_eq!(reason(&slice(0.2, 0.2, 0.4, 0.009)), None);
        for (slice, expected) in [
            (slice(0.3, 0.0, 0.0, 0.0), "hypervisor"),
            (
                slice(0.0, 0.3, 0.0, 0.0),
                "other processes used the processors (30 %)",
            ),
            (slice(0.0, 0.0, 0.6, 0.0), "the generator did not"),
            (
                slice(0.0, 0.0, 0.0, 0.03),
                "the server's runtime was still compiling (3 %)",
            ),
        ] {
            let told = reason(&slice).expect(expected);
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn repeats_have_a_bound() {
        assert!(may_repeat(2, 0, 0));
        assert!(!may_repeat(3, 0, 1000));
        assert!(!may_repeat(0, 3, 20));
        assert!(may_repeat(0, 3, 40) && !may_repeat(0, 4, 40));
    }
}
