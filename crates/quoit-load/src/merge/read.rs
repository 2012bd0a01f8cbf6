//! Reading the reports that are merged, and refusing those that are not of one load.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use crate::encoded::decode;
use crate::report::{Details, HISTOGRAM_UNIT, Report, StreamReport};

/// A report of one run.
#[derive(Debug)]
pub(super) struct Part {
    /// Its label, or else where it stands.
    pub(super) name: String,
    /// Where it stands: the file, and which of its reports.
    pub(super) place: String,
    pub(super) head: Report,
    pub(super) streams: Box<StreamReport>,
    value: Value,
}

/// Characters that are shown of what is no report.
const MOST_SAID: usize = 200;

/// What is the same in all reports of one load: pointers into their objects (RFC 6901).
const SAME: [&str; 17] = [
    "/version",
    "/protocol",
    "/histogram_unit",
    "/target",
    "/path",
    "/request_body_bytes",
    "/message_sizes",
    "/schedule",
    "/batch",
    "/pipeline",
    "/churn",
    "/rpc/direction",
    "/rpc/messages_per_stream",
    "/rpc/credit",
    "/rpc/push",
    "/rpc/every_seconds",
    "/message_bytes",
];

impl Part {
    /// When its window began and ended, in seconds since 1970, if it did.
    pub(super) fn window(&self) -> Option<(f64, f64)> {
        let start = self.streams.window_started_at;
        (start > 0.0).then_some((start, start + self.head.elapsed_seconds))
    }

    /// What it says, if anything, with its name.
    pub(super) fn said(&self, what: Option<&String>) -> Option<String> {
        what.map(|what| format!("{}: {what}", self.name))
    }

    fn new(place: String, value: Value) -> Result<Self, String> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let Some(protocol) = text("protocol") else {
            return Err(format!(
                "{place} is no report of `quoit load --json`: it names no protocol"
            ));
        };
        if protocol == "udp" {
            return Err(format!(
                "{place} is a report of `quoit load udp`, which cannot be merged: it has no histogram"
            ));
        }
        if value.get("merged").is_some() {
            return Err(format!(
                "{place} is a merged report; give the reports that it was made of"
            ));
        }
        let Some(version) = text("version") else {
            return Err(format!(
                "{place} does not say which version wrote it; make the run with this one"
            ));
        };
        let unit = text("histogram_unit").unwrap_or("none");
        if unit != HISTOGRAM_UNIT {
            return Err(format!(
                "the unit of the histograms in {place} is {unit}; only {HISTOGRAM_UNIT} can be merged"
            ));
        }
        let head = Report::deserialize(&value)
            .map_err(|error| format!("{place}, of version {version}, cannot be understood: {error}"))?;
        let Details::Streams(streams) = head.details.clone() else {
            return Err(format!("{place} is no report of connections"));
        };
        let part = Part {
            name: streams.label.clone().unwrap_or_else(|| place.clone()),
            place,
            head,
            streams,
            value,
        };
        part.check_histograms().map(|()| part)
    }

    /// Refuses damaged histograms, and times that are none.
    fn check_histograms(&self) -> Result<(), String> {
        let streams = &self.streams;
        let rpc = streams.rpc.as_ref();
        for (name, encoded) in [
            ("histogram", &streams.histogram),
            ("histogram_at_least", &streams.histogram_at_least),
            ("lag_histogram", &streams.lag_histogram),
            ("connects_histogram", &streams.connects_histogram),
            ("stream_histogram", rpc.map_or(&None, |rpc| &rpc.stream_histogram)),
        ] {
            let values = encoded
                .as_deref()
                .map_or(Ok(0), |text| decode(text).map(|all| all.len()));
            let values = values.map_err(|what| format!("the {name} of {} is damaged: {what}", self.place))?;
            // Messages without a send time have no latency.
            let is_whole = match name {
                "histogram" | "histogram_at_least" if rpc.is_none() => values == streams.requests,
                "histogram" | "histogram_at_least" => values <= streams.requests,
                _ => true,
            };
            if !is_whole {
                return Err(format!(
                    "the {name} of {} is damaged: it has {values} values, of {} requests",
                    self.place, streams.requests
                ));
            }
        }
        let times = [streams.window_started_at, self.head.elapsed_seconds];
        if times.iter().all(|time| (0.0..1e12).contains(time)) {
            Ok(())
        } else {
            Err(format!("the times in {} are none", self.place))
        }
    }
}

/// The reports in `files`, which are of one load.
///
/// # Errors
/// They are not, or one cannot be read.
pub(super) fn all(files: &[PathBuf]) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut seen: Vec<((u64, u64), &Path)> = Vec::new();
    for path in files {
        let (bytes, identity) = read(path)?;
        if let Some((_, other)) = seen.iter().find(|(other, _)| *other == identity) {
            return Err(if *other == path {
                format!("{} is given twice", path.display())
            } else {
                format!("{} and {} are the same file", other.display(), path.display())
            });
        }
        seen.push((identity, path));
        parts.extend(reports(path, &bytes)?);
    }
    check(&parts)?;
    Ok(parts)
}

/// What is in a file, and what makes it that file: its device and its number there.
fn read(path: &Path) -> Result<(Vec<u8>, (u64, u64)), String> {
    let mut bytes = Vec::new();
    let identity = File::open(path).and_then(|mut file| {
        file.read_to_end(&mut bytes)?;
        let about = file.metadata()?;
        Ok((about.dev(), about.ino()))
    });
    identity
        .map(|identity| (bytes, identity))
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The reports in a file, one after the other.
fn reports(path: &Path, bytes: &[u8]) -> Result<Vec<Part>, String> {
    let file = path.display().to_string();
    if bytes.trim_ascii().is_empty() {
        return Err(format!(
            "{file} is empty: its run has not ended, or printed no report"
        ));
    }
    if bytes.starts_with(b"#") {
        return Err(format!(
            "{file} is a log of HdrHistogram, which says nothing about its run; give what the run with --json printed"
        ));
    }
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let mut values = Vec::new();
    loop {
        let offset = stream.byte_offset();
        match stream.next() {
            None => break,
            Some(Ok(value)) => values.push(value),
            Some(Err(error)) if error.is_eof() => {
                return Err(format!("{file} ends in the middle of a report: it was cut off"));
            }
            // What a run that failed has said, perhaps.
            Some(Err(_)) => {
                let said = String::from_utf8_lossy(bytes[offset..].trim_ascii_start());
                let said: String = said
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(MOST_SAID)
                    .collect();
                return Err(format!(
                    "{file} has something else than reports of `quoit load --json`: {}",
                    said.escape_debug()
                ));
            }
        }
    }
    let single = values.len() == 1;
    let numbered = (1..).zip(values);
    numbered
        .map(|(number, value)| {
            let place = if single {
                file.clone()
            } else {
                format!("{file} (report {number})")
            };
            Part::new(place, value)
        })
        .collect()
}

/// Refuses reports that are the same, or not of one load.
fn check(parts: &[Part]) -> Result<(), String> {
    let Some((first, others)) = parts.split_first() else {
        return Ok(());
    };
    for part in others {
        for pointer in SAME {
            let [one, other] = [first, part].map(|part| part.value.pointer(pointer).unwrap_or(&Value::Null));
            if one != other {
                return Err(format!(
                    "{} and {} are not of one load: {} is {one} in one and {other} in the other",
                    first.place,
                    part.place,
                    pointer.trim_start_matches('/').replace('/', ".")
                ));
            }
        }
    }
    for (index, part) in parts.iter().enumerate() {
        for earlier in &parts[..index] {
            if earlier.value == part.value {
                return Err(format!(
                    "{} and {} are the same report",
                    earlier.place, part.place
                ));
            }
            if earlier.streams.label.is_some() && earlier.streams.label == part.streams.label {
                return Err(format!(
                    "{} and {} both have the label {}: was a run repeated?",
                    earlier.place, part.place, part.name
                ));
            }
        }
    }
    Ok(())
}
