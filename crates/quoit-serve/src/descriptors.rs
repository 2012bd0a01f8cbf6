//! Descriptors for the connections that may be.

use quoit::RuntimeConfig;

use quoit_host::DescriptorLimit;

/// Descriptors besides the connections: standard streams, listeners, a loop's ring and eventfd, the connections of the
/// metrics.
const SPARE: u64 = 32 + super::metrics::CONNECTIONS as u64;
/// Descriptors per loop: its ring or epoll instance, its eventfd, its share of each listener.
const A_LOOP: u64 = 8;
/// Below this, fewer connections than the default promises are worth a word even to who did not ask for any.
const FEW: u64 = 1024;

/// Raises the limit on descriptors as far as the connections ask for. If it stays too low, there are fewer connections, so
/// that something is left for the metrics and whatever else the program opens; returns one line that says so, for a number of
/// connections that was not `given` only if the limit is low indeed, as then nobody counts on it.
pub(super) fn prepare(config: &mut RuntimeConfig, given: bool) -> Option<String> {
    let connections = u64::from(config.config.connections) * u64::from(config.loops);
    let needed = needed(config.config.connections, config.loops);
    match DescriptorLimit::raise(needed) {
        Ok(limit) => {
            config.config.connections = affordable(config.config.connections, config.loops, limit.soft);
            warning(connections, needed, limit, given)
        }
        Err(error) => Some(format!("cannot raise the limit on open descriptors: {error}")),
    }
}

/// Connections that each loop may have with so many descriptors in all: no more than it is to have, and at least one.
fn affordable(connections: u32, loops: u16, descriptors: u64) -> u32 {
    let each = descriptors.saturating_sub(SPARE) / u64::from(loops);
    let most = each.saturating_sub(A_LOOP).max(1);
    connections.min(u32::try_from(most).unwrap_or(u32::MAX))
}

/// Descriptors that a server needs whose loops have room for so many connections each.
pub fn needed(connections: u32, loops: u16) -> u64 {
    u64::from(loops) * (u64::from(connections) + A_LOOP) + SPARE
}

fn warning(connections: u64, needed: u64, limit: DescriptorLimit, given: bool) -> Option<String> {
    (limit.soft < needed && (given || limit.soft < FEW)).then(|| {
        format!(
            "{connections} connections need {needed} descriptors, but this process may have {}; past them \
             accepting pauses; {}, or lower --connections",
            limit.soft,
            DescriptorLimit::remedy(needed)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_connections_than_descriptors() {
        assert_eq!(affordable(16_384, 1, needed(16_384, 1)), 16_384);
        assert_eq!(affordable(16_384, 4, needed(100, 4)), 100);
        assert_eq!(affordable(16_384, 4, 20), 1);
    }

    #[test]
    fn only_a_limit_that_matters_is_worth_a_word() {
        let limit = |soft| DescriptorLimit { soft, hard: soft };
        for (soft, given, warned) in [
            (20_000, true, false),
            (10_000, true, true),
            (10_000, false, false),
            (1000, false, true),
        ] {
            let warning = warning(16_384, 16_456, limit(soft), given);
            assert_eq!(warning.is_some(), warned, "{soft} {given}");
            if let Some(text) = warning {
                assert!(
                    text.contains(&format!("may have {soft};")) && !text.contains('\n'),
                    "{text}"
                );
            }
        }
    }
}
