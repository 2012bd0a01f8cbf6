//! The dashboard for Grafana.

/// Its text.
#[must_use]
pub fn text() -> String {
    String::new()
}
