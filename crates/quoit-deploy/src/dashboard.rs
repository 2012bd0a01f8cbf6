//! The dashboard for Grafana: what to look at first, and behind it every counter of the table, so that none is missing.

use quoit::Counters;
use quoit::counters::Figure;
use serde_json::{Value, json};

/// Which series: those of the jobs and instances that are chosen at the top.
const CHOSEN: &str = r#"job=~"$job", instance=~"$instance""#;
const COLUMNS: u64 = 24;
const WIDTH: u64 = 8;
const HEIGHT: u64 = 7;

/// Name of a row, and the beginnings of the names in it; a counter is in the first row that it fits into.
const ROWS: [(&str, &[&str]); 5] = [
    ("Enters", &["enters_"]),
    ("Connections", &["connect", "accept", "closed_", "stalled_"]),
    ("Receiving", &["receive", "lease", "pool_"]),
    ("Sending", &["send", "sent_", "short_", "queued_", "zero_"]),
    ("Loop and engine", &[""]),
];

/// A panel, still without its place.
struct Panel {
    title: String,
    about: String,
    unit: &'static str,
    /// Queries, each with what its series are called.
    queries: Vec<(String, String)>,
}

/// Its text.
#[must_use]
pub fn text() -> String {
    let mut panels = Vec::new();
    let mut top = 0;
    place(&mut panels, &mut top, "What to look at first", first(), false);
    let mut rest: Vec<(&str, Figure, &str)> = Counters::default()
        .figures()
        .map(|(name, figure, about, _)| (name, figure, about))
        .collect();
    for (title, beginnings) in ROWS {
        let is_here = |name: &str| beginnings.iter().any(|beginning| name.starts_with(beginning));
        let (here, others) = rest.into_iter().partition(|(name, ..)| is_here(name));
        rest = others;
        place(&mut panels, &mut top, title, each(&here), true);
    }
    let dashboard = json!({
        "title": "Quoit",
        "uid": "quoit",
        "tags": ["quoit"],
        "description": "Made of the table of counters by `make dashboard`. docs/troubleshooting.md says what to look at.",
        "editable": true,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source" },
            chosen("job", "label_values(quoit_turns_total, job)"),
            chosen("instance", r#"label_values(quoit_turns_total{job=~"$job"}, instance)"#),
        ]},
        "panels": panels,
    });
    let mut text = serde_json::to_string_pretty(&dashboard).expect("it has names for all fields");
    text.push('\n');
    text
}

/// A list at the top of what may be chosen.
fn chosen(name: &str, query: &str) -> Value {
    json!({
        "name": name, "type": "query", "query": query, "definition": query, "refresh": 2,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "multi": true, "includeAll": true, "current": { "text": "All", "value": "$__all" },
    })
}

/// What tells most: the engine, the load, and what stands in its way.
fn first() -> Vec<Panel> {
    let rate = |name: &str| format!("rate(quoit_{name}_total{{{CHOSEN}}}[$__rate_interval])");
    let gauge = |name: &str| format!("quoit_{name}{{{CHOSEN}}}");
    let each_loop = || "{{instance}} loop {{loop}}".to_owned();
    let one = |title: &str, about: &str, unit, query: String| Panel {
        title: title.to_owned(),
        about: about.to_owned(),
        unit,
        queries: vec![(query, each_loop())],
    };
    vec![
        Panel {
            title: "Engine, and why".to_owned(),
            about: "Of quoit serve. The doors have the engine as a label of every counter.".to_owned(),
            unit: "short",
            queries: vec![(
                gauge("engine_info"),
                "{{instance}}: {{engine}}, {{reason}}".to_owned(),
            )],
        },
        one(
            "Connections",
            "Connections that exist.",
            "short",
            gauge("connections"),
        ),
        one(
            "Operations per system call",
            "What io_uring gains by: near 1 there is nothing to share.",
            "short",
            format!("{} / {}", rate("submissions"), rate("enters")),
        ),
        one(
            "Longest lag of a loop",
            "The longest that a handler kept others waiting since the loop was made.",
            "ns",
            gauge("loop_lag_max_ns"),
        ),
        one(
            "Receive pool in use",
            "The share of slots that handlers hold.",
            "percentunit",
            format!("{} / {}", gauge("pool_leased"), gauge("pool_slots")),
        ),
        Panel {
            title: "Nobody accepted".to_owned(),
            about:
                "Times that accepting paused, for want of a connection slot, or of descriptors and memory."
                    .to_owned(),
            unit: "short",
            queries: ["accept_paused_full", "accept_paused_resources"]
                .map(|name| (rate(name), format!("{{{{instance}}}} loop {{{{loop}}}} {name}")))
                .into(),
        },
    ]
}

/// A panel for each counter; those that are the steps of one distribution have one together.
fn each(figures: &[(&str, Figure, &str)]) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for &(name, figure, about) in figures {
        let query = match figure {
            Figure::Counter => format!("rate(quoit_{name}_total{{{CHOSEN}}}[$__rate_interval])"),
            Figure::Gauge => format!("quoit_{name}{{{CHOSEN}}}"),
        };
        let distribution = name
            .rsplit_once('_')
            .filter(|(_, step)| step.bytes().all(|byte| byte.is_ascii_digit()));
        if let Some((family, step)) = distribution {
            // The same for all loops, or there would be ten series of each.
            let query = (format!("sum({query})"), format!("{step} or more"));
            match panels.last_mut() {
                Some(panel) if panel.title == family => panel.queries.push(query),
                _ => panels.push(Panel {
                    title: family.to_owned(),
                    about: format!("How many operations an enter carried, by powers of two. {about}"),
                    unit: "short",
                    queries: vec![query],
                }),
            }
            continue;
        }
        panels.push(Panel {
            title: name.to_owned(),
            about: about.to_owned(),
            unit: unit(name, figure),
            queries: vec![(query, "{{instance}} loop {{loop}}".to_owned())],
        });
    }
    panels
}

/// Grafana's name for it.
fn unit(name: &str, figure: Figure) -> &'static str {
    match figure {
        _ if name.ends_with("_ns") => "ns",
        Figure::Counter if name.ends_with("_bytes") => "Bps",
        Figure::Gauge if name.ends_with("_bytes") => "bytes",
        _ => "short",
    }
}

/// Puts a row of panels below what there is.
fn place(all: &mut Vec<Value>, top: &mut u64, title: &str, panels: Vec<Panel>, is_folded: bool) {
    let id = |all: &Vec<Value>, inner: usize| all.len() * 100 + inner + 1;
    let row = id(all, 0);
    let row_top = *top;
    *top += 1;
    let mut placed = Vec::new();
    for (index, panel) in panels.into_iter().enumerate() {
        let column = index as u64 * WIDTH % COLUMNS;
        let line = index as u64 * WIDTH / COLUMNS;
        placed.push(json!({
            "id": row + index + 1,
            "type": "timeseries",
            "title": panel.title,
            "description": panel.about,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "gridPos": { "x": column, "y": *top + line * HEIGHT, "w": WIDTH, "h": HEIGHT },
            "fieldConfig": { "defaults": { "unit": panel.unit }, "overrides": [] },
            "targets": panel.queries.iter().zip('A'..).map(|((query, legend), letter)| json!({
                "refId": letter.to_string(), "expr": query, "legendFormat": legend,
            })).collect::<Vec<_>>(),
        }));
    }
    *top += (placed.len() as u64).div_ceil(COLUMNS / WIDTH) * HEIGHT;
    let mut header = json!({
        "id": row, "type": "row", "title": title, "collapsed": is_folded,
        "gridPos": { "x": 0, "y": row_top, "w": COLUMNS, "h": 1 }, "panels": [],
    });
    if is_folded {
        // A row that is folded holds its panels, and takes one line.
        *top = row_top + 1;
        header["panels"] = placed.into();
        all.push(header);
    } else {
        all.push(header);
        all.extend(placed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All panels, those in rows too.
    fn panels() -> Vec<Value> {
        let dashboard: Value = serde_json::from_str(&text()).unwrap();
        let mut all = Vec::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            all.push(panel.clone());
            all.extend(panel["panels"].as_array().into_iter().flatten().cloned());
        }
        all
    }

    #[test]
    fn no_counter_is_missing_and_each_is_asked_for_as_it_is_exported() {
        let text = text();
        for (name, figure, ..) in Counters::default().figures() {
            let query = match figure {
                Figure::Counter => format!("rate(quoit_{name}_total{{"),
                Figure::Gauge => format!("quoit_{name}{{"),
            };
            assert!(text.contains(&query), "{query}");
        }
    }

    #[test]
    fn no_two_panels_have_an_id_or_a_place() {
        let panels = panels();
        assert!(panels.len() > 50);
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len());
        let dashboard: Value = serde_json::from_str(&text()).unwrap();
        let places: BTreeSet<String> = dashboard["panels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|panel| panel["gridPos"].to_string())
            .collect();
        assert_eq!(places.len(), dashboard["panels"].as_array().unwrap().len());
    }
}
