//! The findings for people.

use comfy_table::{ContentArrangement, Table, presets};

use super::examination::{Examination, FeatureFinding, State};
use super::hints::bytes;

/// Columns where standard output does not say how many it has: a pipe, a log.
const WIDTH: u16 = 110;

/// The verdict in the first line, then the tables.
pub(super) fn write(found: &Examination) -> String {
    let mut sections = vec![
        verdict_and_kernel(found),
        features(found),
        memory(found),
        settings(found),
    ];
    if !found.uring.usable {
        // Nothing about features is known that would be worth a table.
        sections.remove(1);
    }
    sections.join("\n\n")
}

fn verdict(found: &Examination) -> String {
    match (&found.uring.missing, &found.uring.remedy) {
        (Some(missing), Some(remedy)) => {
            format!("engine: {}, because {missing}; remedy: {remedy}", found.engine)
        }
        _ => format!("engine: {} ({})", found.engine, found.reason),
    }
}

/// The verdict, and what is known of this kernel.
fn verdict_and_kernel(found: &Examination) -> String {
    match found.distribution.line() {
        Some(line) => format!("{}\nkernel: {line}", verdict(found)),
        None => verdict(found),
    }
}

fn table(header: [&str; 3]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table.set_header(header);
    table
}

fn features(found: &Examination) -> String {
    let mut table = table(["io_uring feature", "state", "what it is for"]);
    for feature in &found.features {
        table.add_row([feature.name.to_owned(), state(feature), feature.about.to_owned()]);
    }
    table.trim_fmt()
}

fn state(feature: &FeatureFinding) -> String {
    match (feature.state, feature.by_option) {
        (State::On, None) => "on".to_owned(),
        (State::On, Some(option)) => format!("there, used with {option}"),
        (State::Off, _) => format!(
            "off: {}; Linux {} has it",
            feature.reason.as_deref().unwrap_or("not there"),
            feature.minimum_kernel
        ),
        (State::Unknown, _) => "unknown".to_owned(),
    }
}

fn memory(found: &Examination) -> String {
    let memory = &found.memory_a_loop;
    let mut table = table(["memory per loop", "bytes", ""]);
    let mut row = |name: &str, value: u64, about: &str| {
        table.add_row([name.to_owned(), bytes(value), about.to_owned()]);
    };
    row("queues", memory.queues_bytes, "pinned");
    row("buffer ring", memory.buffer_ring_bytes, "pinned");
    row(
        "registered pool",
        memory.registered_pool_bytes,
        "pinned; with --register-pool only",
    );
    row(
        "locked",
        memory.locked_bytes,
        "all that is pinned: RLIMIT_MEMLOCK must have room for it",
    );
    row(
        "receive pool",
        memory.receive_pool_bytes,
        "reserved, touched as it is used",
    );
    row(
        "send memory",
        memory.send_memory_bytes,
        "reserved, touched as it is used",
    );
    table.trim_fmt()
}

fn settings(found: &Examination) -> String {
    let mut table = table(["setting", "value", "hint"]);
    for setting in &found.settings {
        table.add_row([
            setting.name,
            &setting.value,
            setting.hint.as_deref().unwrap_or(""),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use quoit::EngineKind;
    use quoit::host::{Diagnosis, HostFacts};
    use quoit::{Config, FeatureSet};

    use super::*;

    #[test]
    fn the_first_line_is_the_verdict() {
        let denied = Examination::of(
            &Config::default(),
            HostFacts::default(),
            Err(Diagnosis {
                missing: "it is denied".into(),
                remedy: "allow it".into(),
            }),
            EngineKind::Epoll,
            "it is denied; allow it".into(),
        );
        let text = write(&denied);
        assert_eq!(
            text.lines().next(),
            Some("engine: epoll, because it is denied; remedy: allow it")
        );
        assert!(!text.contains("io_uring feature"), "{text}");

        let allowed = Examination::of(
            &Config::default(),
            HostFacts::default(),
            Ok(quoit::Capabilities {
                features: FeatureSet::ALL,
                missing: Vec::new(),
            }),
            EngineKind::Uring,
            "io_uring is usable here".into(),
        );
        let text = write(&allowed);
        assert_eq!(
            text.lines().next(),
            Some("engine: uring (io_uring is usable here)")
        );
        assert!(text.contains("there, used with --zero-copy"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
}
