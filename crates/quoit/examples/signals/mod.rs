//! SIGINT and SIGTERM, as every server here takes them: the first drains, the second ends the process at once.

use std::io;
use std::thread;
use std::time::Duration;

use quoit::Drainer;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Time for draining: what is left after it is aborted.
const WITHIN: Duration = Duration::from_secs(10);

/// Takes the signals over, from this call on. `Runtime::join` and `Loop::run` return when all has drained.
pub(crate) fn drain_on_signals(drainer: Drainer) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for (earlier, _) in signals.forever().enumerate() {
                match earlier {
                    0 => drainer.drain(WITHIN),
                    _ => std::process::exit(1),
                }
            }
        })
        .map(drop)
}
