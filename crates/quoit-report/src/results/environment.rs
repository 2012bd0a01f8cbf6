//! What the state of the machine means for the figures.

use super::model::Environment;

impl Environment {
    /// What a reader of the figures has to know.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.congestion_control.as_deref() == Some("bbr") {
            notes.push(
                "TCP congestion control is bbr, whose pacing timers distort loopback; for figures that last, with all \
                 that the servers need in a network of their own: unshare --net sh -c 'ip link set lo up; sysctl -w \
                 net.ipv4.tcp_congestion_control=cubic; quoit lab ...'"
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
    pub fn summary(&self) -> String {
        let unknown = || "unknown".to_owned();
        format!(
            "Linux {}, {}, {} core(s), congestion control {}",
            self.kernel.clone().unwrap_or_else(unknown),
            self.processor.clone().unwrap_or_else(unknown),
            self.cores,
            self.congestion_control.clone().unwrap_or_else(unknown)
        )
    }
}
