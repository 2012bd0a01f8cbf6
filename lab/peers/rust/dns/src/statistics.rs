//! What dnsperf prints at its end.

use serde_json::{Map, Value, json};

/// Figures of a run of dnsperf 2, as its text has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    sent: u64,
    completed: u64,
    lost: u64,
    seconds: f64,
    /// By name, such as NOERROR.
    response_codes: Vec<(String, u64)>,
    /// Bytes of a query and of its response, on average and rounded down.
    sizes: (u64, u64),
}

impl Statistics {
    /// Reads the text.
    ///
    /// # Errors
    /// A figure is missing, with its name.
    pub fn read(text: &str) -> Result<Self, String> {
        let line = |name: &str| {
            text.lines()
                .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
                .ok_or_else(|| format!("dnsperf does not tell `{name}`"))
        };
        let count = |name: &str| -> Result<u64, String> {
            let word = line(name)?.split(' ').next().unwrap_or_default();
            word.parse().map_err(|_| format!("`{name}` is `{word}`"))
        };
        let seconds = line("Run time (s)")?;
        Ok(Self {
            sent: count("Queries sent")?,
            completed: count("Queries completed")?,
            lost: count("Queries lost")?,
            seconds: seconds
                .parse()
                .map_err(|_| format!("the run time is `{seconds}`"))?,
            response_codes: response_codes(line("Response codes").unwrap_or_default())
                .ok_or("the response codes cannot be read")?,
            sizes: sizes(line("Average packet size")?).ok_or("the sizes of packets cannot be read")?,
        })
    }

    /// The report that the lab reads. What was lost or answered wrongly is an error, as it fails the run: nothing is
    /// lost on loopback but by a server's fault, and each query asks for an address of IPv4 that is there, so that each
    /// response is `growth` bytes longer.
    #[must_use]
    pub fn report(&self, growth: u64) -> Value {
        let mut errors: Map<String, Value> = self
            .response_codes
            .iter()
            .filter(|(name, count)| name != "NOERROR" && *count > 0)
            .map(|(name, count)| (name.clone(), (*count).into()))
            .collect();
        let lost = self.lost.max(self.sent.saturating_sub(self.completed));
        if lost > 0 {
            errors.insert("lost".to_owned(), lost.into());
        }
        let (asked, answered) = self.sizes;
        if errors.is_empty() && self.completed > 0 && answered != asked + growth {
            errors.insert("without an address".to_owned(), self.completed.into());
        }
        let first_error = errors.iter().next().map(|(what, count)| {
            format!(
                "{count} of {} queries: {what} (responses of {answered} bytes on average for {asked})",
                self.sent
            )
        });
        json!({
            "requests": self.completed,
            "elapsed_seconds": self.seconds,
            "sent": self.sent,
            "lost": lost,
            "errors": errors,
            "first_error": first_error,
        })
    }
}

/// Reads `NOERROR 12 (60.00%), REFUSED 8 (40.00%)`; nothing if no query was answered.
fn response_codes(text: &str) -> Option<Vec<(String, u64)>> {
    text.split(", ")
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let mut words = entry.split(' ');
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

/// Reads `request 25, response 41`.
fn sizes(text: &str) -> Option<(u64, u64)> {
    let (request, response) = text.split_once(", ")?;
    let number = |text: &str, name| text.strip_prefix(name)?.trim().parse().ok();
    Some((number(request, "request")?, number(response, "response")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form of dnsperf 2.10.
    fn text(sent: u64, lost: u64, codes: &str, response: u64) -> String {
        format!(
            "[Status] Testing complete (time limit)\n\nStatistics:\n\n  Queries sent:         {sent}\n  \
             Queries completed:    {} (99.00%)\n  Queries lost:         {lost} (1.00%)\n\n  \
             Response codes:       {codes}\n  Average packet size:  request 25, response {response}\n  \
             Run time (s):         1.500131\n  Queries per second:   168808.886036\n",
            sent - lost
        )
    }

    #[test]
    fn a_run_without_faults_has_no_errors() {
        let found = Statistics::read(&text(168_831, 0, "NOERROR 168831 (100.00%)", 41)).expect("it is read");
        let report = found.report(16);
        assert_eq!(
            (&report["requests"], &report["elapsed_seconds"]),
            (&json!(168_831), &json!(1.500_131))
        );
        assert_eq!(
            (&report["errors"], &report["first_error"]),
            (&json!({}), &Value::Null)
        );
    }

    #[test]
    fn what_was_lost_or_wrong_is_an_error() {
        let errors = |text: &str| Statistics::read(text).expect("it is read").report(16)["errors"].clone();
        assert_eq!(
            errors(&text(100, 3, "NOERROR 97 (97.00%)", 41)),
            json!({"lost": 3})
        );
        assert_eq!(
            errors(&text(100, 0, "NOERROR 60 (60.00%), REFUSED 40 (40.00%)", 35)),
            json!({"REFUSED": 40})
        );
        assert_eq!(
            errors(&text(100, 0, "NOERROR 100 (100.00%)", 40)),
            json!({"without an address": 100})
        );
        let nothing = text(10, 10, "", 0).replace("Response codes", "Other");
        assert_eq!(errors(&nothing), json!({"lost": 10}));
    }

    #[test]
    fn what_is_missing_is_named() {
        for name in [
            "Queries sent",
            "Queries lost",
            "Run time (s)",
            "Average packet size",
        ] {
            let text = text(1, 0, "NOERROR 1 (100.00%)", 41).replace(name, "Other");
            let error = Statistics::read(&text).expect_err(name);
            assert!(error.contains(name), "{error}");
        }
    }
}
