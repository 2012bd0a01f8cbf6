//! Several generators as one: the load is shared out, and the reports are put together again.

use hdrhistogram::Histogram;
use quoit_load::encoded;
use serde_json::{Map, Value, json};

use crate::error::{LabError, Result};
use crate::experiment::model::{LoadSpec, Pace};

/// Fields of `quoit load --json` that are added up.
const SUMS: &[&str] = &[
    "connections",
    "threads",
    "requests",
    "requests_per_second",
    "received_bytes",
    "received_megabytes_per_second",
    "reconnects",
    "repeated_requests",
    "offered_per_second",
];
/// Fields of which the largest counts.
const LARGEST: &[&str] = &["elapsed_seconds", "warmup_seconds", "generator_cpu_utilization"];
/// Fields that say what went wrong first.
const REASONS: &[&str] = &["first_error", "invalid"];
/// The generator's CPU by request, and the share of the requests that overlapped a slip: weighted with the requests.
const CPU: &str = "generator_cpu_ns_per_request";
const SLIPPED: &str = "slipped_share";
/// How late requests were sent: that of the generator which was latest.
const LAG: &str = "lag";
/// Counts of the parts of the window, which begin and end alike for each generator.
const INTERVALS: &str = "intervals";
/// The latencies of the replies, as a V2 histogram, compressed, in base64.
const HISTOGRAM: &str = "histogram";
/// What is computed from it.
const LATENCY: &str = "latency";

/// The part of a load that one of several generators makes: connections and rate are divided, what does not come out
/// even goes to the first ones.
pub(crate) fn share(load: &LoadSpec, index: usize, generators: usize) -> LoadSpec {
    let (index, generators) = (index as u32, generators.max(1) as u32);
    let connections = load.connections / generators + u32::from(index < load.connections % generators);
    LoadSpec {
        connections,
        threads: load.threads.min(connections.max(1)),
        pace: match load.pace {
            Pace::Rate(rate) => {
                Pace::Rate(rate * f64::from(connections) / f64::from(load.connections.max(1)))
            }
            pace => pace,
        },
        ..load.clone()
    }
}

/// Puts the reports of several generators together: counts and rates are added, latencies merged from their
/// histograms, and the CPU per request is that of all machines. What cannot be put together (further latencies without
/// a histogram of their own) is null; what says how the load was made is taken from the first.
///
/// # Errors
/// There is no report, one is no object, or a histogram cannot be read.
pub(crate) fn merge(reports: &[Value]) -> Result<Value> {
    let objects: Option<Vec<&Map<String, Value>>> = reports.iter().map(Value::as_object).collect();
    let Some((objects, first)) = objects.and_then(|objects| {
        let first = *objects.first()?;
        Some((objects, first))
    }) else {
        return Err(LabError::new("a generator's report is not a JSON object"));
    };
    if objects.len() == 1 {
        return Ok(reports[0].clone());
    }
    let mut merged = first.clone();
    for (name, value) in &mut merged {
        let all = || objects.iter().filter_map(|object| object.get(name));
        match name.as_str() {
            sum if SUMS.contains(&sum) => *value = add(all()),
            largest if LARGEST.contains(&largest) => {
                *value = json!(all().filter_map(Value::as_f64).fold(0.0, f64::max));
            }
            reason if REASONS.contains(&reason) => *value = first_reason(&objects, reason),
            "interrupted" => *value = json!(all().any(|value| value.as_bool() == Some(true))),
            "errors" => *value = add_counts(all()),
            CPU | SLIPPED => *value = weighted(&objects, name),
            LAG => *value = latest(all()),
            INTERVALS => *value = add_intervals(all()),
            latency if latency.starts_with(LATENCY) => *value = Value::Null,
            _ => {}
        }
    }
    let histograms: Vec<&str> = objects
        .iter()
        .filter_map(|object| object.get(HISTOGRAM)?.as_str())
        .collect();
    if histograms.len() == objects.len() {
        let histogram = merge_histograms(&histograms)?;
        let text = encoded::encode(&histogram).map_err(LabError::new)?;
        merged.insert(LATENCY.to_owned(), summary(&histogram));
        merged.insert(HISTOGRAM.to_owned(), text.into());
    }
    Ok(Value::Object(merged))
}

/// The sum, as a whole number if all are.
fn add<'a>(values: impl Iterator<Item = &'a Value> + Clone) -> Value {
    match values.clone().map(Value::as_u64).sum::<Option<u64>>() {
        Some(sum) => json!(sum),
        None => json!(values.filter_map(Value::as_f64).sum::<f64>()),
    }
}

fn add_counts<'a>(values: impl Iterator<Item = &'a Value>) -> Value {
    let mut sums = Map::new();
    for (name, count) in values.filter_map(Value::as_object).flatten() {
        let sum = sums.get(name).and_then(Value::as_u64).unwrap_or_default();
        sums.insert(name.clone(), json!(sum + count.as_u64().unwrap_or_default()));
    }
    Value::Object(sums)
}

fn first_reason(objects: &[&Map<String, Value>], name: &str) -> Value {
    let mut numbered = objects.iter().zip(1..);
    let found = numbered.find_map(|(object, number)| Some((object.get(name)?.as_str()?, number)));
    found.map_or(Value::Null, |(reason, number)| {
        json!(format!("generator {number}: {reason}"))
    })
}

fn weighted(objects: &[&Map<String, Value>], name: &str) -> Value {
    let figure = |object: &Map<String, Value>, name: &str| object.get(name).and_then(Value::as_f64);
    let (mut sum, mut requests) = (0.0, 0.0);
    for object in objects {
        let (Some(each), Some(count)) = (figure(object, name), figure(object, "requests")) else {
            return Value::Null;
        };
        sum += each * count;
        requests += count;
    }
    json!(if requests > 0.0 { sum / requests } else { 0.0 })
}

fn latest<'a>(lags: impl Iterator<Item = &'a Value>) -> Value {
    let p99 = |lag: &Value| lag.get("p99_ns").and_then(Value::as_f64).unwrap_or(0.0);
    let latest = lags.max_by(|one, other| p99(one).total_cmp(&p99(other)));
    latest.cloned().unwrap_or_default()
}

/// The intervals that all have, with their counts added. Percentiles cannot be.
fn add_intervals<'a>(lists: impl Iterator<Item = &'a Value>) -> Value {
    let lists: Vec<&[Value]> = lists
        .map(|list| list.as_array().map_or(&[][..], Vec::as_slice))
        .collect();
    let common = lists.iter().map(|list| list.len()).min().unwrap_or(0);
    let sum = |index: usize| {
        let of = |name: &'static str| add(lists.iter().filter_map(move |list| list[index].get(name)));
        json!({
            "at_seconds": lists[0][index].get("at_seconds"),
            "requests": of("requests"),
            "requests_per_second": of("requests_per_second"),
            "p50_ns": null,
            "p99_ns": null,
            "errors": of("errors"),
        })
    };
    (0..common).map(sum).collect()
}

fn merge_histograms(texts: &[&str]) -> Result<Histogram<u64>> {
    encoded::merge(texts.iter().copied()).map_err(|what| {
        LabError::new(format!(
            "the histogram in a generator's report cannot be read: {what}"
        ))
    })
}

/// As in the report of one generator.
fn summary(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    json!({
        "mean_ns": histogram.mean(),
        "standard_deviation_ns": histogram.stdev(),
        "p50_ns": histogram.value_at_quantile(0.5),
        "p90_ns": histogram.value_at_quantile(0.9),
        "p99_ns": histogram.value_at_quantile(0.99),
        "p99_9_ns": histogram.value_at_quantile(0.999),
        "max_ns": histogram.max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[u64]) -> String {
        let mut histogram = Histogram::<u64>::new(3).expect("three digits are possible");
        for value in values {
            histogram.record(*value).expect("it grows");
        }
        encoded::encode(&histogram)
            .expect("it can be written")
            .expect("it has values")
    }

    fn report(requests: u64, cpu: f64, values: &[u64]) -> Value {
        json!({
            "protocol": "echo", "connections": 3, "requests": requests, "requests_per_second": requests as f64 / 2.0,
            "elapsed_seconds": cpu / 100.0, "errors": {"reset": 1, "timeouts": 0}, "first_error": null,
            CPU: cpu, "interrupted": false, "invalid": null, "latency": {"p50_ns": 1}, "latency_at_least": {},
            HISTOGRAM: histogram(values),
        })
    }

    #[test]
    fn counts_are_added_and_latencies_merged() {
        let mut second = report(300, 200.0, &[1000, 1000, 1000]);
        second["invalid"] = json!("errors occurred");
        let merged = merge(&[report(100, 100.0, &[10]), second]).expect("they can be merged");
        assert_eq!(
            (&merged["requests"], &merged["requests_per_second"]),
            (&json!(400), &json!(200.0))
        );
        assert_eq!(
            (&merged["connections"], &merged["protocol"]),
            (&json!(6), &json!("echo"))
        );
        assert_eq!(merged["errors"], json!({"reset": 2, "timeouts": 0}));
        assert_eq!(merged[CPU], json!(175.0));
        assert_eq!(merged["elapsed_seconds"], json!(2.0));
        assert_eq!(merged["invalid"], json!("generator 2: errors occurred"));
        assert_eq!(
            (&merged["first_error"], &merged["interrupted"]),
            (&Value::Null, &json!(false))
        );
        assert_eq!(merged["latency_at_least"], Value::Null);
        assert_eq!(
            (&merged["latency"]["p50_ns"], &merged["latency"]["max_ns"]),
            (&json!(1000), &json!(1000))
        );
        let all = merge_histograms(&[merged[HISTOGRAM].as_str().expect("text")]).expect("it can be read");
        assert_eq!((all.len(), all.min()), (4, 10));
    }

    #[test]
    fn what_is_told_of_parts_of_the_window_is_that_of_all_generators() {
        let part = |at: f64, requests: u64| {
            json!({
                "at_seconds": at, "requests": requests, "requests_per_second": requests as f64, "p50_ns": 5,
                "p99_ns": 7, "errors": 1,
            })
        };
        let [mut first, mut second] = [report(100, 1.0, &[10]), report(300, 1.0, &[20])];
        first["intervals"] = json!([part(1.0, 40), part(2.0, 50)]);
        // A generator that was late has one complete interval less.
        second["intervals"] = json!([part(1.0, 140)]);
        (first["slipped_share"], second["slipped_share"]) = (json!(0.0), json!(0.8));
        (first["lag"], second["lag"]) = (json!({"p99_ns": 5}), json!({"p99_ns": 900}));
        let merged = merge(&[first.clone(), second.clone()]).expect("they can be merged");
        let intervals = merged["intervals"].as_array().expect("a list");
        assert_eq!(intervals.len(), 1, "{merged}");
        assert_eq!(
            (
                &intervals[0]["at_seconds"],
                &intervals[0]["requests"],
                &intervals[0]["errors"]
            ),
            (&json!(1.0), &json!(180), &json!(2))
        );
        assert_eq!(intervals[0]["p99_ns"], Value::Null);
        assert_eq!(merged["slipped_share"], json!(0.6));
        assert_eq!(merged["lag"], json!({"p99_ns": 900}));
        // A closed loop has no lag.
        (first["lag"], second["lag"]) = (Value::Null, Value::Null);
        assert_eq!(
            merge(&[first, second]).expect("they can be merged")["lag"],
            Value::Null
        );
    }

    #[test]
    fn one_report_stays_as_it_is_and_none_is_an_error() {
        let one = report(1, 1.0, &[1]);
        assert_eq!(merge(std::slice::from_ref(&one)).expect("it is one"), one);
        assert!(merge(&[]).is_err() && merge(&[one.clone(), json!(5)]).is_err());
        let mut broken = one.clone();
        broken[HISTOGRAM] = json!("%");
        let error = merge(&[one, broken]).expect_err("it cannot be read").to_string();
        assert!(error.contains("histogram"), "{error}");
    }

    #[test]
    fn shares_add_up() {
        let load = LoadSpec {
            protocol: "echo".to_owned(),
            connections: 10,
            threads: 4,
            pipeline: 1,
            pace: Pace::Rate(1000.0),
            arguments: Vec::new(),
        };
        let shares: Vec<LoadSpec> = (0..3).map(|index| share(&load, index, 3)).collect();
        let connections: Vec<u32> = shares.iter().map(|share| share.connections).collect();
        assert_eq!(connections, [4, 3, 3]);
        assert_eq!(shares[1].threads, 3);
        assert_eq!(shares[0].pace, Pace::Rate(400.0));
        assert_eq!(share(&load, 0, 1), load);
    }
}
