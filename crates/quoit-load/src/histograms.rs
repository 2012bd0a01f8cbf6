//! Latencies as HdrHistogram's tools read them, in a log.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::error::LoadError;
use super::tally::{Tally, add_histogram};

/// The latencies of a run's window, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// Of all requests.
    pub(super) all: Histogram<u64>,
    /// Of all, each less the time in which the generator did not run meanwhile: they took at least so long.
    pub(super) at_least: Histogram<u64>,
    /// When the window began, since 1970, and how long it was.
    started_at: Duration,
    length: Duration,
}

impl Latencies {
    /// Those of `tally`, whose window began at `started_at`, if it did.
    ///
    /// # Errors
    /// The histograms have different bounds.
    pub(super) fn new(tally: &Tally, started_at: Option<Duration>) -> Result<Self, LoadError> {
        let mut all = tally.latencies.clone();
        add_histogram(&mut all, &tally.slipped)?;
        let mut at_least = tally.latencies.clone();
        add_histogram(&mut at_least, &tally.slipped_at_least)?;
        Ok(Latencies {
            all,
            at_least,
            started_at: started_at.unwrap_or_default(),
            length: tally
                .window
                .map_or(Duration::ZERO, |(start, end)| Duration::from_nanos(end - start)),
        })
    }

    /// Those of several runs that were merged, whose windows together began at `started_at` and had this `length`.
    pub(super) fn of_runs(
        (all, at_least): (Histogram<u64>, Histogram<u64>),
        (started_at, length): (Duration, Duration),
    ) -> Self {
        Latencies {
            all,
            at_least,
            started_at,
            length,
        }
    }

    /// When the window began, since 1970; zero if it did not.
    pub(super) fn started_at(&self) -> Duration {
        self.started_at
    }

    /// Writes them to `log`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write_to(&self, log: &mut LogFile) -> Result<(), LoadError> {
        let mut text = Vec::new();
        self.write(&mut text, &[("all", &self.all), ("at-least", &self.at_least)])
            .and_then(|()| log.replace(&text).map_err(|error| error.to_string()))
            .map_err(|what| log_error(&log.path, &what))
    }

    fn write(&self, text: &mut Vec<u8>, histograms: &[(&str, &Histogram<u64>)]) -> Result<(), String> {
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .with_start_time(SystemTime::UNIX_EPOCH + self.started_at)
            .with_max_value_divisor(1e6)
            .begin_log_with(text, &mut serializer)
            .map_err(|error| error.to_string())?;
        for &(tag, histogram) in histograms {
            let tag = Tag::new(tag);
            log.write_histogram(histogram, self.started_at, self.length, tag)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// A log in the format of HdrHistogram's HistogramLogWriter, version 1.3: the window's latencies tagged `all` and
/// `at-least`. Times are seconds since 1970, values nanoseconds; the column of maxima is in milliseconds, as such logs
/// have it.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Opens the file, or makes it: before the run, so that a path that is no good does not cost one. What is in it stays
    /// until there is something to write.
    ///
    /// # Errors
    /// It cannot be made, or has something else in it than a log: whoever names a file by mistake may have no other copy.
    pub(crate) fn create(path: &Path) -> Result<Self, LoadError> {
        let failed = |error: io::Error| log_error(path, &error.to_string());
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let is_file = fs::metadata(path).is_ok_and(|there| there.is_file());
        let mut file = options.read(is_file).open(path).map_err(failed)?;
        if is_file {
            let mut first = [0];
            let is_log = file.read(&mut first).map_err(failed)? == 0 || first == *b"#";
            if !is_log {
                return Err(log_error(
                    path,
                    "the file is no log of latencies, and is left alone; name another file",
                ));
            }
        }
        Ok(LogFile {
            path: path.to_owned(),
            file,
        })
    }

    /// Puts a text in place of all that is in the file.
    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        // A pipe or a device has no end, and no beginning.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        self.file.write_all(text)
    }
}

fn log_error(path: &Path, what: &str) -> LoadError {
    LoadError::new(format!(
        "cannot write the latencies to {}: {what}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::encoded::encode;

    #[test]
    fn a_log_is_read_back_with_its_tags() {
        let mut tally = Tally::new(1_000_000_000).unwrap();
        tally.latencies.record_n(1_000_000, 5).unwrap();
        tally.slipped.record(50_000_000).unwrap();
        tally.slipped_at_least.record(20_000_000).unwrap();
        tally.window = Some((10, 2_000_000_010));
        let latencies = Latencies::new(&tally, Some(Duration::from_millis(1_700_000_000_250))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("load.hlog");
        latencies.write_to(&mut LogFile::create(&path).unwrap()).unwrap();
        let text = fs::read(&path).unwrap();
        let found: Vec<_> = IntervalLogIterator::new(&text)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => Some((
                    interval.tag().unwrap().as_str().to_owned(),
                    interval.duration(),
                    interval.max(),
                    interval.encoded_histogram().to_owned(),
                )),
                _ => None,
            })
            .collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0.as_str(), found[1].0.as_str()), ("all", "at-least"));
        assert_eq!(found[0].1, Duration::from_secs(2));
        assert!((found[0].2 - 50.0).abs() < 0.1 && (found[1].2 - 20.0).abs() < 0.1);
        assert_eq!(Some(&found[0].3), encode(&latencies.all).unwrap().as_ref());
        assert_eq!(Some(&found[1].3), encode(&latencies.at_least).unwrap().as_ref());
        assert!(
            text.starts_with(b"#[Histogram log format version 1.3]"),
            "{}",
            String::from_utf8_lossy(&text)
        );

        let missing = LogFile::create(Path::new("/nonexistent/x")).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/x"));
    }
}
