//! A server's own counters, from the Prometheus text that it serves under `/metrics`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::error::{LabError, Result};
use super::http;

/// Counters by name, without the prefix `quoit_` and the suffix `_total`; the loops' values are summed,
/// other labels are part of the name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    values: BTreeMap<String, f64>,
}

impl Counters {
    /// Reads the counters of a server.
    ///
    /// # Errors
    /// It does not answer, or with something else than 200.
    pub(crate) fn read(address: SocketAddr) -> Result<Self> {
        let mut body = Vec::new();
        let keep = |piece: &[u8]| {
            body.extend_from_slice(piece);
            true
        };
        http::get(address, "/metrics", keep)
            .map_err(LabError::io(format!("reading http://{address}/metrics")))?;
        Ok(Self::parse(&String::from_utf8_lossy(&body)))
    }

    /// Reads the text exposition format of Prometheus 0.0.4 or OpenMetrics 1.0. Samples that are not ours,
    /// are no counters or cannot be read are passed over: what a server shows beside is its own affair.
    pub(crate) fn parse(text: &str) -> Self {
        let mut counters = Self::default();
        for line in text.lines() {
            let Some((name, labels, value)) = sample(line) else {
                continue;
            };
            let Some(name) = name
                .strip_prefix("quoit_")
                .and_then(|name| name.strip_suffix("_total"))
            else {
                continue;
            };
            let labels: Vec<String> = labels
                .into_iter()
                .filter(|(label, _)| *label != "loop")
                .map(|(label, value)| format!("{label}={value}"))
                .collect();
            let name = if labels.is_empty() {
                name.to_owned()
            } else {
                format!("{name}{{{}}}", labels.join(","))
            };
            *counters.values.entry(name).or_default() += value;
        }
        counters
    }

    /// Adds what was counted between two readings.
    pub(crate) fn add_difference(&mut self, before: &Self, after: &Self) {
        for (name, value) in &after.values {
            let since = value - before.values.get(name).unwrap_or(&0.0);
            *self.values.entry(name.clone()).or_default() += since;
        }
    }

    /// Names and values, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// Name, labels and value of a sample line.
type Sample<'a> = (&'a str, Vec<(&'a str, String)>, f64);

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let name_end = line.find(|character: char| character == '{' || character.is_whitespace())?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(labels) => read_labels(labels)?,
        None => (Vec::new(), rest),
    };
    // A time stamp or an exemplar may follow the value.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

/// Reads `name="value",...}` and gives what follows. Values may hold any character; `\\`, `\"` and `\n`
/// are escapes.
fn read_labels(mut text: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        loop {
            match characters.next()? {
                (end, '"') => {
                    text = &quoted[end + 1..];
                    break;
                }
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, character) => value.push(character),
            }
        }
        labels.push((name.trim(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_summed_and_other_labels_kept() {
        let counters = Counters::parse(
            "# HELP quoit_enters Calls of io_uring_enter.\n# TYPE quoit_enters counter\n\
             quoit_enters_total{loop=\"0\"} 10\nquoit_enters_total{loop=\"1\"} 32\n\
             quoit_closed_total{loop=\"0\",reason=\"peer\"} 3 1700000000000\n\
             quoit_closed_total{loop=\"1\",reason=\"peer\"} 4\n\
             quoit_closed_total{reason=\"limit\",loop=\"1\"} 1\n\
             quoit_wakes_total 1.5e3\n\
             quoit_connections{loop=\"0\"} 64\nprocess_cpu_seconds_total 12\n# EOF\n",
        );
        let read: Vec<(&str, f64)> = counters.iter().collect();
        assert_eq!(
            read,
            [
                ("closed{reason=limit}", 1.0),
                ("closed{reason=peer}", 7.0),
                ("enters", 42.0),
                ("wakes", 1500.0)
            ]
        );
    }

    #[test]
    fn label_values_may_hold_anything() {
        let counters = Counters::parse(
            "quoit_x_total{text=\"a \\\"b\\\" } , c=\\\\ \\n\", loop=\"0\" } 5\nquoit_y_total{broken=\"1} 7\nquoit_z_total{} 2\n",
        );
        let read: Vec<(&str, f64)> = counters.iter().collect();
        assert_eq!(read, [("x{text=a \"b\" } , c=\\ \n}", 5.0), ("z", 2.0)]);
    }

    #[test]
    fn what_is_no_sample_is_passed_over() {
        assert_eq!(
            Counters::parse("\n# only\nquoit_a_total\nquoit_b_total x\n<html>\n"),
            Counters::default()
        );
    }

    #[test]
    fn differences_are_added_up() {
        let mut sum = Counters::default();
        let readings = [
            "quoit_a_total 5",
            "quoit_a_total 9\nquoit_b_total 2",
            "quoit_a_total 10\nquoit_b_total 2",
        ];
        for pair in readings.windows(2) {
            sum.add_difference(&Counters::parse(pair[0]), &Counters::parse(pair[1]));
        }
        assert_eq!(sum.iter().collect::<Vec<_>>(), [("a", 5.0), ("b", 2.0)]);
    }
}
