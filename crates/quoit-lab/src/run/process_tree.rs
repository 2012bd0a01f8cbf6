//! What a server and the processes that it has started have used.
//!
//! A server may be one process or a master with workers, and a worker may end while it is watched. The time of
//! those that run comes from their CPU clocks, to the nanosecond; the time of those that have ended and were waited
//! for is in the account of their parent (`cutime` and `cstime` of proc_pid_stat(5)), in ticks of 10 ms. A process
//! whose parent has ended before it, or ignores SIGCHLD, is lost once it ends.

use std::collections::BTreeSet;
use std::fs;

use crate::cpu;
use crate::error::{LabError, Result};

/// The name of the kernel thread that polls a submission queue (io_uring/sqpoll.c), up to its number.
const SUBMISSION_POLLER: &str = "iou-sqp-";

/// A process with all its descendants.
#[derive(Clone, Debug)]
pub(crate) struct ProcessTree {
    root: u32,
    /// The root is among them.
    members: BTreeSet<u32>,
}

/// What the processes have used since they began, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// User and kernel, all threads, ended threads and processes included.
    pub(crate) cpu_ns: f64,
    /// The parts of it in ticks: their ratio tells user from kernel.
    pub(crate) user_ticks: u64,
    pub(crate) kernel_ticks: u64,
    /// Of the threads that poll submission queues; in `cpu_ns` too.
    pub(crate) poller_ns: Option<f64>,
    pub(crate) context_switches: Option<u64>,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    /// In RAM now; pages that processes share count for each of them.
    pub(crate) resident_bytes: u64,
    /// The most that each process ever had, summed.
    pub(crate) peak_resident_bytes: Option<u64>,
}

/// The fields of `/proc/PID/stat` that are of use here.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    minor_faults: u64,
    major_faults: u64,
    user_ticks: u64,
    kernel_ticks: u64,
    /// Of children that have ended and were waited for.
    ended_ticks: [u64; 2],
    resident_pages: u64,
}

impl ProcessTree {
    pub(crate) fn of(root: u32) -> Self {
        let mut tree = Self {
            root,
            members: BTreeSet::new(),
        };
        tree.find_members();
        tree
    }

    /// Looks for processes that have come and gone.
    pub(crate) fn find_members(&mut self) {
        self.members.clear();
        let mut left = vec![self.root];
        while let Some(process) = left.pop() {
            if self.members.insert(process) {
                left.extend(children(process));
            }
        }
    }

    pub(crate) fn root(&self) -> u32 {
        self.root
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = u32> {
        self.members.iter().copied()
    }

    /// What the known members have used. `whole` also reads what takes a file a thread: context switches, polling
    /// threads and peak memory.
    ///
    /// # Errors
    /// The root has ended and was waited for.
    pub(crate) fn usage(&self, whole: bool) -> Result<Usage> {
        let mut sum = Usage::default();
        if whole {
            sum.poller_ns = Some(0.0);
            sum.context_switches = Some(0);
            sum.peak_resident_bytes = Some(0);
        }
        for process in self.members() {
            match add(&mut sum, process, whole) {
                // It has ended since it was found, and is in its parent's account.
                Err(_) if process != self.root => {}
                outcome => outcome?,
            }
        }
        Ok(sum)
    }
}

impl Usage {
    /// What was used from `before` until `self`; the memory is that of `self`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            cpu_ns: (self.cpu_ns - before.cpu_ns).max(0.0),
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            kernel_ticks: self.kernel_ticks.saturating_sub(before.kernel_ticks),
            poller_ns: self
                .poller_ns
                .zip(before.poller_ns)
                .map(|(after, before)| (after - before).max(0.0)),
            // A thread that has ended takes its count with it.
            context_switches: self
                .context_switches
                .zip(before.context_switches)
                .map(|(after, before)| after.saturating_sub(before)),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            resident_bytes: self.resident_bytes,
            peak_resident_bytes: self.peak_resident_bytes,
        }
    }

    /// The share of the CPU time that was spent in user space; `None` without a tick to judge by.
    pub(crate) fn user_share(&self) -> Option<f64> {
        let ticks = self.user_ticks + self.kernel_ticks;
        (ticks > 0).then(|| self.user_ticks as f64 / ticks as f64)
    }
}

fn add(sum: &mut Usage, process: u32, whole: bool) -> Result<()> {
    let stat = stat(process)?;
    let ended = stat.ended_ticks.iter().sum::<u64>() as f64 * nanoseconds_a_tick();
    sum.cpu_ns += cpu::cpu_time_ns(process)? as f64 + ended;
    sum.user_ticks += stat.user_ticks + stat.ended_ticks[0];
    sum.kernel_ticks += stat.kernel_ticks + stat.ended_ticks[1];
    sum.minor_faults += stat.minor_faults;
    sum.major_faults += stat.major_faults;
    sum.resident_bytes += stat.resident_pages * page_bytes();
    if whole {
        *sum.context_switches.get_or_insert_default() += cpu::context_switches(process)?;
        *sum.poller_ns.get_or_insert_default() += pollers_ns(process)? as f64;
        // A process that has ended but was not waited for has no memory any more.
        *sum.peak_resident_bytes.get_or_insert_default() += cpu::peak_resident_bytes(process).unwrap_or(0);
    }
    Ok(())
}

/// The processes that a process has started and that have not been waited for. None where the kernel was built
/// without CONFIG_PROC_CHILDREN, which distributions set.
fn children(process: u32) -> Vec<u32> {
    let threads = cpu::threads(process).unwrap_or_default();
    let lists = threads
        .iter()
        .filter_map(|thread| fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// CPU time of the threads of a process that poll submission queues.
fn pollers_ns(process: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in cpu::threads(process)? {
        let folder = format!("/proc/{process}/task/{thread}");
        // A thread may end between the listing and this.
        if fs::read_to_string(format!("{folder}/comm")).is_ok_and(|name| name.starts_with(SUBMISSION_POLLER))
        {
            let run = fs::read_to_string(format!("{folder}/schedstat")).unwrap_or_default();
            sum += run
                .split_whitespace()
                .next()
                .and_then(|time| time.parse().ok())
                .unwrap_or(0);
        }
    }
    Ok(sum)
}

fn stat(process: u32) -> Result<Stat> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).map_err(LabError::io(format!("reading {path}")))?;
    parse_stat(&text).ok_or_else(|| LabError::new(format!("{path} cannot be understood: {text}")))
}

/// The name may hold anything, a bracket too: the fields begin after the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // proc_pid_stat(5) numbers them from 1, and the name is the second.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        minor_faults: field(10)? + field(11)?,
        major_faults: field(12)? + field(13)?,
        user_ticks: field(14)?,
        kernel_ticks: field(15)?,
        ended_ticks: [field(16)?, field(17)?],
        resident_pages: field(24)?,
    })
}

/// The length of a tick, in which /proc counts time.
pub(crate) fn nanoseconds_a_tick() -> f64 {
    1e9 / rustix::param::clock_ticks_per_second() as f64
}

pub(super) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Runs a script until it prints a line; it ends with its input.
    fn started(script: &str) -> Child {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        child
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }

    const BURN: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

    #[test]
    fn children_that_have_ended_are_counted() {
        let child = started(&format!("sh -c '{BURN}'; echo ready; read -r line"));
        let usage = ProcessTree::of(child.id()).usage(true).expect("it runs");
        let own = cpu::cpu_time_ns(child.id()).expect("it runs") as f64;
        // The loop takes many ticks anywhere, the shell around it none.
        assert!(usage.cpu_ns - own >= 2e7, "{usage:?} {own}");
        assert!(usage.user_share() > Some(0.0), "{usage:?}");
        assert!(usage.peak_resident_bytes >= Some(usage.resident_bytes));
        end(child);
    }

    #[test]
    fn descendants_that_run_are_counted() {
        let child = started(&format!(
            "(sh -c '{BURN}; echo ready; read -r line'; read -r line)"
        ));
        let mut tree = ProcessTree::of(child.id());
        let usage = tree.usage(false).expect("it runs");
        let own = cpu::cpu_time_ns(child.id()).expect("it runs") as f64;
        assert!(usage.cpu_ns - own >= 2e7, "{usage:?} {own}");
        let before = tree.members().count();
        assert!(before > 1);
        end(child);
        tree.find_members();
        assert!(tree.usage(false).is_err(), "the root has ended");
    }

    #[test]
    fn names_do_not_disturb_the_fields() {
        let fields: Vec<String> = (3..53).map(|number| number.to_string()).collect();
        let line = format!("1 (a) b (c)) {}", fields.join(" "));
        assert_eq!(
            parse_stat(&line),
            Some(Stat {
                minor_faults: 21,
                major_faults: 25,
                user_ticks: 14,
                kernel_ticks: 15,
                ended_ticks: [16, 17],
                resident_pages: 24,
            })
        );
        assert_eq!(parse_stat("1 (a) S 1 2"), None);
    }

    #[test]
    fn differences_keep_the_later_memory() {
        let reading = |cpu_ns, user_ticks, resident_bytes| Usage {
            cpu_ns,
            user_ticks,
            kernel_ticks: 10,
            resident_bytes,
            ..Usage::default()
        };
        let since = reading(50.0, 7, 100).since(&reading(20.0, 4, 300));
        assert_eq!(
            (since.cpu_ns, since.user_ticks, since.resident_bytes),
            (30.0, 3, 100)
        );
        assert_eq!(since.user_share(), Some(1.0));
        assert_eq!(since.since(&since).user_share(), None);
    }
}
