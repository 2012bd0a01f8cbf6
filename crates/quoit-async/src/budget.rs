//! tokio's budget: a task to which something is always ready lets others run all the same.

use std::task::{Context, Poll};

/// Polls, unless the task has had its share of this turn of its runtime. Outside of tokio there is no budget.
#[cfg(feature = "tokio")]
pub(crate) fn within_budget<R>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
) -> Poll<R> {
    let budget = std::task::ready!(tokio::task::coop::poll_proceed(cx));
    let polled = poll(cx);
    if polled.is_ready() {
        budget.made_progress();
    }
    polled
}

#[cfg(not(feature = "tokio"))]
pub(crate) fn within_budget<R>(
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
) -> Poll<R> {
    poll(cx)
}
