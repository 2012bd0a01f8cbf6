//! Which cores the server and the load generator run on, and in which network they meet.

mod network;
pub(crate) mod remote;
pub(crate) mod site;
mod veth;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::error::{LabError, Result};

/// The cores in this process's affinity mask, in ascending order.
pub(crate) fn allowed_cores() -> Result<Vec<usize>> {
    // SAFETY: cpu_set_t is plain data, for which all zeroes is the empty set; the kernel writes at most
    // the size given; CPU_ISSET is called below CPU_SETSIZE.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Err(LabError::io("reading this process's affinity mask")(
                io::Error::last_os_error(),
            ));
        }
        Ok((0..libc::CPU_SETSIZE as usize)
            .filter(|core| libc::CPU_ISSET(*core, &set))
            .collect())
    }
}

/// Binds the calling thread to some cores; threads and processes that it starts later inherit that.
///
/// # Errors
/// Those of sched_setaffinity(2): EINVAL when none of the cores is available to the process.
pub(crate) fn pin_thread(cores: &[usize]) -> io::Result<()> {
    apply(&set_of(cores))
}

fn set_of(cores: &[usize]) -> libc::cpu_set_t {
    // SAFETY: cpu_set_t is plain data, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores {
        assert!(
            *core < libc::CPU_SETSIZE as usize,
            "core {core} is beyond what cpu_set_t holds"
        );
        // SAFETY: the core lies within the set.
        unsafe { libc::CPU_SET(*core, &mut set) };
    }
    set
}

fn apply(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the set has the size that is stated, and is only read; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes a child run on some cores from its first instruction, and end when this process does, so that a killed
/// measurement leaves no server behind.
pub(crate) fn confine(command: &mut Command, cores: &[usize]) {
    let set = set_of(cores);
    let confine = move || {
        apply(&set)?;
        // SAFETY: no memory is passed.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it neither allocates nor takes
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
}
