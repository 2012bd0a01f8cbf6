//! The first process of a virtual machine: it sets the machine up, runs the checks of its plan, tells the host about
//! them over the second serial port, and switches the machine off.

use std::process::Command;

mod check;
mod context;
mod programs;
mod reporter;
mod stacks;
mod system;
mod traffic;

/// The argument that makes this program the runner of checks, a child of the first process.
const RUNNER: &str = "run-checks";

fn main() {
    if std::env::args().nth(1).as_deref() == Some(RUNNER) {
        check::run_all();
        return;
    }
    assert_eq!(
        std::process::id(),
        1,
        "this program is the first process of a virtual machine, which `quoit-kernels` starts"
    );
    system::set_up();
    // The first process inherits every orphan; the runner is a child of it, so that it can wait for its own.
    match Command::new("/init").arg(RUNNER).spawn() {
        Ok(runner) => system::wait_for(runner.id()),
        Err(error) => eprintln!("guest: the runner cannot be started: {error}"),
    }
    system::power_off();
}
