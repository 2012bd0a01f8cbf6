//! Questions to a loop from any thread, whose answers are waited for: socket options and names, which are rare.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::driver::Driver;
use crate::errors::Gone;
use crate::home::{self, Home};

/// How long another loop is waited for before this thread looks after its own again.
const LOOK_AFTER_OWN: Duration = Duration::from_micros(200);

/// Has `f` called on the loop's thread and waits for its result: a turn of the loop, which is microseconds unless its handler
/// is at work. A thread that has a loop of its own goes on doing what is asked of that one meanwhile, as two loops may ask each
/// other. With that loop at work further up this stack it cannot, and asks nothing.
pub(crate) fn ask<R: Send + 'static>(
    home: &Arc<Home>,
    f: impl FnOnce(&mut Driver) -> R + Send + 'static,
) -> io::Result<R> {
    if home::is_at_work() {
        return Err(io::Error::new(
            io::ErrorKind::Deadlock,
            "a closure that a loop calls, as `with_socket` has it, asked a loop, and would be waited for by its own for ever: ask \
             before or after it, and in it use the socket that it is given",
        ));
    }
    let (answer, answered) = mpsc::sync_channel(1);
    home.call(move |driver| {
        let result = f(driver);
        // Who asked waits, and has not gone.
        let _ = answer.send(result);
    })?;
    let Some(own) = home::current() else {
        return answered.recv().map_err(|_| Gone.into());
    };
    loop {
        match answered.recv_timeout(LOOK_AFTER_OWN) {
            Ok(result) => return Ok(result),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Gone.into()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                own.here(Driver::carry_out_wanted);
            }
        }
    }
}

/// As [`ask`], of what the program has to do with a socket: if that panics, so does who asks, and the loop goes on for the others
/// whose sockets it has.
pub(crate) fn ask_of_program<R: Send + 'static>(
    home: &Arc<Home>,
    f: impl FnOnce(&mut Driver) -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    // The driver is only looked at until the program's part has begun, which does not know it.
    let outcome = ask(home, move |driver| catch_unwind(AssertUnwindSafe(|| f(driver))))?;
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}
