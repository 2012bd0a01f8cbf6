//! The threads of a run, whatever they send: they are started, watched and joined alike.

use std::sync::mpsc::Sender;
use std::time::Duration;

use super::control::Message;
use super::error::LoadError;

/// Between two looks at the order to stop, and two reports of progress.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Lets each of `workers` do its `work` on a thread of its own, and `conduct` watch over them on this one. A thread that
/// ends tells `messages`, whose senders are all gone once all threads have ended. Returns what `conduct` does, and what
/// the threads found, in the order of `workers`.
///
/// # Errors
/// That of the first thread that failed, or that of `conduct`.
pub(super) fn run_together<W: Send, T: Send, C>(
    workers: Vec<W>,
    messages: Sender<Message>,
    work: impl Fn(W) -> Result<T, LoadError> + Sync,
    conduct: impl FnOnce() -> Result<C, LoadError>,
) -> Result<(C, Vec<T>), LoadError> {
    let (conducted, results) = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let messages = messages.clone();
                scope.spawn(move || {
                    let result = work(worker);
                    // The receiver ends first only when the run was given up, and then nobody asks.
                    drop(messages.send(Message::Ended));
                    result
                })
            })
            .collect();
        // Only those of the threads remain.
        drop(messages);
        let conducted = conduct();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        (conducted, results)
    });
    let found = results
        .into_iter()
        .map(|result| result.map_err(|_| LoadError::new("a load thread panicked".to_owned()))?)
        .collect::<Result<Vec<_>, _>>()?;
    Ok((conducted?, found))
}
