//! `quoit lab report` and `quoit lab compare` as their users run them, the page in a real browser.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod browser;
mod compare;
mod page;
mod pages;
mod results;
mod written;
