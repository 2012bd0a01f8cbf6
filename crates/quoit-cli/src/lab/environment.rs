//! What a measurement depends on beside the servers.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine as it was when a measurement began. What cannot be read is absent.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Environment {
    /// Seconds since 1970.
    pub(crate) started_at: u64,
    pub(crate) quoit_version: &'static str,
    pub(crate) kernel: Option<String>,
    pub(crate) processor: Option<String>,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// The processor says that it is a virtual one.
    pub(crate) virtualised: bool,
    pub(crate) tcp_congestion_control: Option<String>,
    /// `kernel.io_uring_disabled`: 0 all may, 1 a group may, 2 nobody may.
    pub(crate) io_uring_disabled: Option<String>,
    /// Runnable threads over the last minute.
    pub(crate) load_average: Option<f64>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = |name: &str| {
            let line = processor.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        Self {
            started_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            quoit_version: env!("CARGO_PKG_VERSION"),
            kernel: read("/proc/sys/kernel/osrelease"),
            processor: line("model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            virtualised: line("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            tcp_congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            io_uring_disabled: read("/proc/sys/kernel/io_uring_disabled"),
            load_average: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }

    /// What a reader of the figures has to know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.tcp_congestion_control.as_deref() == Some("bbr") {
            notes.push(
                "TCP congestion control is bbr, whose pacing timers distort loopback; for figures that last: \
                 sysctl -w net.ipv4.tcp_congestion_control=cubic"
                    .to_owned(),
            );
        }
        if let Some(load) = self.load_average.filter(|load| *load > 0.5) {
            notes.push(format!(
                "the machine was not idle when this began (load average {load})"
            ));
        }
        if self.virtualised {
            notes.push(
                "a virtual machine on loopback, without a network card: the ratios mean something, the rates \
                 are no capacity"
                    .to_owned(),
            );
        }
        notes
    }

    /// One line for the end of a table.
    pub(crate) fn summary(&self) -> String {
        let unknown = || "unknown".to_owned();
        format!(
            "Linux {}, {}, {} core(s), congestion control {}",
            self.kernel.clone().unwrap_or_else(unknown),
            self.processor.clone().unwrap_or_else(unknown),
            self.cores,
            self.tcp_congestion_control.clone().unwrap_or_else(unknown)
        )
    }
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
