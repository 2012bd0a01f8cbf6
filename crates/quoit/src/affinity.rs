//! Which processors a thread runs on (`sched_setaffinity(2)`), and how it shares them (`sched(7)`).

use libc::{c_ulong, cpu_set_t};

use crate::errno::Errno;

const BITS: usize = c_ulong::BITS as usize;

/// More processors than Linux supports on any machine; ends the search for a large enough set.
const MOST_CPUS: usize = 1 << 16;

/// A set of processors as the kernel reads it: a bit each, in words. Longer than `cpu_set_t` where a machine has
/// more than its 1,024.
struct CpuSet(Vec<c_ulong>);

impl CpuSet {
    fn with_room_for(cpus: usize) -> Self {
        let words = cpus
            .div_ceil(BITS)
            .max(size_of::<cpu_set_t>() / size_of::<c_ulong>());
        Self(vec![0; words])
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

/// Binds the calling thread to the processor numbered `cpu`, as `/proc/cpuinfo` and [`available_cpus`] number
/// them. Threads that it starts later inherit this.
///
/// # Errors
/// `EINVAL` where there is no such processor, or this process's control group (cpuset) does not have it.
pub fn pin_current_thread(cpu: usize) -> Result<(), Errno> {
    if cpu >= MOST_CPUS {
        return Err(Errno::EINVAL);
    }
    let mut set = CpuSet::with_room_for(cpu + 1);
    set.0[cpu / BITS] |= 1 << (cpu % BITS);
    // SAFETY: the set has that many bytes, and 0 is the calling thread.
    Errno::check(unsafe { libc::sched_setaffinity(0, set.bytes(), set.0.as_ptr().cast()) }).map(drop)
}

/// Makes the calling thread one that does not interrupt others when it is woken (`SCHED_BATCH`, `sched(7)`).
///
/// # Errors
/// `EPERM` where a policy of the system forbids it (a seccomp filter, for instance).
pub(crate) fn schedule_as_batch() -> Result<(), Errno> {
    // The kernel's `sched_param`, and the call itself: musl has the function, but it only returns ENOSYS.
    let priority: libc::c_int = 0;
    // SAFETY: 0 is the calling thread, and the parameters are alive during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_BATCH,
            &raw const priority,
        )
    };
    Errno::check(result as libc::c_int).map(drop)
}

/// The processors that the calling thread may run on, in ascending order: those that its affinity
/// (`taskset(1)`) and its control group (cpuset) leave. A CPU quota (`cpu.max`) does not show here. Empty only
/// if the kernel does not say.
#[must_use]
pub fn available_cpus() -> Vec<usize> {
    let mut room = BITS;
    while room <= MOST_CPUS {
        let mut set = CpuSet::with_room_for(room);
        // SAFETY: the set has that many bytes, all of which may be written, and 0 is the calling thread.
        let result =
            Errno::check(unsafe { libc::sched_getaffinity(0, set.bytes(), set.0.as_mut_ptr().cast()) });
        match result {
            Ok(_) => {
                let is_in = |cpu: &usize| set.0[cpu / BITS] & (1 << (cpu % BITS)) != 0;
                return (0..set.0.len() * BITS).filter(is_in).collect();
            }
            // This machine has more processors than that.
            Err(Errno::EINVAL) => room = set.0.len() * BITS * 2,
            Err(_) => break,
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_becomes_a_batch_one() {
        std::thread::spawn(|| {
            schedule_as_batch().unwrap();
            // SAFETY: 0 is the calling thread.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_BATCH);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_is_bound_to_each_processor_in_turn() {
        // A thread of its own, as the binding lasts as long as the thread.
        std::thread::spawn(|| {
            let cpus = available_cpus();
            assert!(!cpus.is_empty() && cpus.is_sorted());
            for &cpu in &cpus {
                pin_current_thread(cpu).unwrap();
                assert_eq!(available_cpus(), [cpu]);
                // SAFETY: sched_getcpu takes nothing.
                assert_eq!(unsafe { libc::sched_getcpu() }, i32::try_from(cpu).unwrap());
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        let before = available_cpus();
        for cpu in [MOST_CPUS - 1, MOST_CPUS, usize::MAX] {
            assert_eq!(pin_current_thread(cpu), Err(Errno::EINVAL));
        }
        assert_eq!(available_cpus(), before);
    }
}
