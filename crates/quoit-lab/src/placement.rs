//! Which cores the server and the load generator run on, and in which network they meet.

mod network;
pub(crate) mod remote;
pub(crate) mod site;
mod veth;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::error::{LabError, Result};

/// The cores in this process's affinity mask, in ascending order.
pub(crate) fn allowed_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)
        .map_err(|error| LabError::io("reading this process's affinity mask")(error.into()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Binds the calling thread to some cores; threads and processes that it starts later inherit that.
///
/// # Errors
/// Those of sched_setaffinity(2): EINVAL when none of the cores is available to the process.
pub(crate) fn pin_thread(cores: &[usize]) -> io::Result<()> {
    Ok(sched_setaffinity(None, &set_of(cores))?)
}

fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    set
}

/// Makes a child run on some cores from its first instruction, and end when this process does, so that a killed
/// measurement leaves no server behind.
pub(crate) fn confine(command: &mut Command, cores: &[usize]) {
    confine_beneath(command, cores, getpid());
}

fn confine_beneath(command: &mut Command, cores: &[usize], parent: Pid) {
    let set = set_of(cores);
    let confine = move || {
        sched_setaffinity(None, &set)?;
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // A parent that was killed before this call sends no signal any more.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes three system calls; it neither allocates nor takes
    // a lock.
    unsafe { command.pre_exec(confine) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_confined_to_its_core() {
        let core = *allowed_cores()
            .expect("the mask is readable")
            .last()
            .expect("we run somewhere");
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        confine(&mut command, &[core]);
        let status = String::from_utf8(command.output().expect("cat runs").stdout).expect("text");
        assert!(
            status.contains(&format!("Cpus_allowed_list:\t{core}\n")),
            "{status}"
        );
    }

    #[test]
    fn a_child_whose_parent_has_gone_does_not_start() {
        let cores = allowed_cores().expect("the mask is readable");
        let mut command = Command::new("true");
        let another = getppid().expect("something has started this");
        confine_beneath(&mut command, &cores, another);
        let error = command.spawn().expect_err("its parent is another process");
        assert_eq!(error.raw_os_error(), Some(Errno::SRCH.raw_os_error()), "{error}");
        let mut command = Command::new("true");
        confine(&mut command, &cores);
        assert!(command.status().expect("it starts").success());
    }
}
