//! What a measurement depends on beside the servers.

use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use quoit_report::results::model::Environment;

use super::placement::site::Site;

/// Reads the machine's state as it is now. What is only known after a run is absent.
pub(crate) fn read() -> Environment {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| {
        let line = processor.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    Environment {
        started_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs()),
        quoit_version: env!("CARGO_PKG_VERSION").to_owned(),
        // By the build script or the environment of the build; absent where there is no repository.
        commit: option_env!("QUOIT_COMMIT")
            .filter(|commit| !commit.is_empty())
            .map(str::to_owned),
        kernel: read_line("/proc/sys/kernel/osrelease"),
        processor: line("model name"),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: kibibytes
            .and_then(|count| count.parse::<u64>().ok())
            .map(|count| count * 1024),
        virtualised: line("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        congestion_control: read_line("/proc/sys/net/ipv4/tcp_congestion_control"),
        io_uring_disabled: read_line("/proc/sys/kernel/io_uring_disabled"),
        load_average: read_line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        stolen_share: None,
        foreign_share: None,
        versions: BTreeMap::new(),
    }
}

/// As [`read`], for what is measured at a site.
pub(crate) fn at(site: &Site) -> Environment {
    Environment {
        congestion_control: site.congestion_control().map(str::to_owned),
        ..read()
    }
}

/// The time now, UTC, as it may stand in a file's name: `20261121T154500Z`.
pub(crate) fn utc_stamp() -> String {
    let text = httpdate::fmt_http_date(SystemTime::now());
    // `Sun, 06 Nov 1994 08:49:37 GMT`: the names of months are fixed.
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.find(&text[8..11]).map_or(0, |place| place / 3 + 1);
    let time = text[17..25].replace(':', "");
    format!("{}{month:02}{}T{time}Z", &text[12..16], &text[5..7])
}

fn read_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_is_sortable() {
        let stamp = utc_stamp();
        assert_eq!(
            (stamp.len(), &stamp[8..9], &stamp[15..]),
            (16, "T", "Z"),
            "{stamp}"
        );
        let month: u32 = stamp[4..6].parse().expect("a number");
        assert!((1..=12).contains(&month), "{stamp}");
    }
}
