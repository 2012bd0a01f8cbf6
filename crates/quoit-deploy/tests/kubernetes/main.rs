//! `deploy/kubernetes`: the chart, what kustomize has of it, and both as an API server takes them. What they stand on is fetched by
//! `make kubernetes`; without it, tests say that they were left out.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod api;
mod chart;
mod schemas;
mod tools;
