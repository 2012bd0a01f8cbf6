//! Which step of a turn each instruction belongs to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::trace::{Access, Traced};

/// The bytes of a cache line.
const LINE: u64 = 64;

/// A step of a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// What handlers left behind is taken in, and goes to the engine.
    Commands,
    /// Leases that were dropped come back, and who waits for some gets them.
    Leases,
    /// Operations become entries of the submission queue, or calls.
    Submit,
    /// How long to wait, and the wait.
    Wait,
    /// What has completed is taken in.
    Completions,
    /// What other threads have posted.
    Posts,
    /// Timers.
    Timers,
    /// Events are handed out.
    Events,
    /// Counters, the clock, the owner.
    Upkeep,
    /// The C ABI: commands and events as C has them, and the fence around the call.
    Crossing,
    /// All that a bare loop does.
    Bare,
    /// The program's own: not counted.
    Handler,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commands => "commands",
            Self::Leases => "leases",
            Self::Submit => "submit",
            Self::Wait => "wait",
            Self::Completions => "completions",
            Self::Posts => "posts",
            Self::Timers => "timers",
            Self::Events => "events",
            Self::Upkeep => "upkeep",
            Self::Crossing => "C ABI",
            Self::Bare => "bare loop",
            Self::Handler => "handler",
        })
    }
}

/// Functions that are a step as a whole, wherever they are inlined.
const FUNCTIONS: &[(&str, Step)] = &[
    ("reap", Step::Completions),
    ("on_received", Step::Completions),
    ("on_sent", Step::Completions),
    ("on_released", Step::Completions),
    ("on_accepted", Step::Completions),
    ("on_datagram_received", Step::Completions),
    ("on_datagrams_filled", Step::Completions),
    ("on_datagrams_sent", Step::Completions),
    ("take_posts", Step::Posts),
    ("expire_timers", Step::Timers),
    ("finish_draining", Step::Timers),
    ("collect_leases", Step::Leases),
    ("serve_short", Step::Leases),
    ("serve_starved", Step::Leases),
    ("serve_chunk_waiters", Step::Leases),
    ("flush_dirty", Step::Commands),
    ("serve_datagrams", Step::Commands),
    ("end_promises", Step::Commands),
    ("end_reported", Step::Events),
    ("report", Step::Events),
    ("sleep_time", Step::Wait),
    ("has_work", Step::Wait),
    ("spin", Step::Wait),
    ("wait", Step::Wait),
    ("end_sleep", Step::Wait),
    ("submit", Step::Submit),
    ("note_gauges", Step::Upkeep),
    ("own", Step::Upkeep),
    ("now", Step::Upkeep),
    ("send", Step::Commands),
    ("send_datagram", Step::Commands),
    ("admit", Step::Events),
    ("drain", Step::Events),
    ("end", Step::Events),
];

/// Counts of a turn or of one of its steps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Instructions executed.
    pub(crate) instructions: u64,
    /// Distinct cache lines of code, each in the step that comes to it first.
    pub(crate) code_lines: u64,
    /// Distinct cache lines of data, the stack's among them.
    pub(crate) data_lines: u64,
}

/// The medians of the rounds.
#[derive(Clone, Default, Debug)]
pub(crate) struct Counted {
    /// The turns of a round.
    pub(crate) turns: f64,
    pub(crate) total: Counts,
    pub(crate) steps: BTreeMap<Step, Counts>,
    /// Instructions by step and function, in all rounds together.
    functions: BTreeMap<(Step, String), u64>,
    rounds: u64,
}

impl Counted {
    /// Prints the functions with the most instructions of each step.
    pub(crate) fn print_functions(&self) {
        let mut sorted: Vec<_> = self.functions.iter().collect();
        sorted.sort_by_key(|((step, _), count)| (*step, std::cmp::Reverse(**count)));
        for ((step, function), count) in sorted {
            println!("{step:12} {:8.1} {function}", *count as f64 / self.rounds as f64);
        }
    }
}

/// Where an address of code is.
#[derive(Clone, Debug)]
struct Place {
    /// `None`: of whoever calls it.
    step: Option<Step>,
    /// Whether it is in the core, and not in a library below it.
    is_core: bool,
    function: String,
}

/// Counts what was traced.
pub(crate) fn count(traced: &Traced) -> Result<Counted, String> {
    let loader = addr2line::Loader::new(&traced.program)
        .map_err(|error| format!("{}: {error}", traced.program.display()))?;
    let mut places: HashMap<u64, Place> = HashMap::new();
    let mut counted = Counted {
        turns: traced.turns,
        rounds: traced.rounds.len() as u64,
        ..Counted::default()
    };
    let mut rounds: Vec<BTreeMap<Step, Counts>> = Vec::new();
    for round in &traced.rounds {
        let mut steps: BTreeMap<Step, Counts> = BTreeMap::new();
        let mut code = HashSet::new();
        let mut data = HashSet::new();
        let mut current = Step::Upkeep;
        // What the core goes on with behind its caller's part.
        let mut core = Step::Upkeep;
        for access in round {
            match *access {
                Access::Code { address, size } => {
                    let place = places
                        .entry(address)
                        .or_insert_with(|| place_of(&loader, address.wrapping_sub(traced.bias)));
                    current = match place.step {
                        Some(step) => step,
                        None if place.is_core => core,
                        None => current,
                    };
                    if current != Step::Crossing {
                        core = current;
                    }
                    *counted
                        .functions
                        .entry((current, place.function.clone()))
                        .or_default() += 1;
                    let counts = steps.entry(current).or_default();
                    counts.instructions += 1;
                    // What the program itself comes to first is not ours.
                    for line in lines(address, u64::from(size)) {
                        counts.code_lines += u64::from(code.insert(line));
                    }
                }
                Access::Data { address, size } => {
                    let counts = steps.entry(current).or_default();
                    for line in lines(address, u64::from(size)) {
                        counts.data_lines += u64::from(data.insert(line));
                    }
                }
            }
        }
        rounds.push(steps);
    }
    let every: HashSet<Step> = rounds.iter().flat_map(|steps| steps.keys().copied()).collect();
    for step in every {
        let of_round = rounds
            .iter()
            .map(|steps| steps.get(&step).copied().unwrap_or_default());
        counted.steps.insert(step, medians(of_round));
    }
    counted.total = medians(rounds.iter().map(|steps| {
        let ours = steps.iter().filter(|(step, _)| **step != Step::Handler);
        ours.fold(Counts::default(), |sum, (_, counts)| Counts {
            instructions: sum.instructions + counts.instructions,
            code_lines: sum.code_lines + counts.code_lines,
            data_lines: sum.data_lines + counts.data_lines,
        })
    }));
    Ok(counted)
}

fn lines(address: u64, size: u64) -> impl Iterator<Item = u64> {
    address / LINE..=(address + size.max(1) - 1) / LINE
}

fn medians(counts: impl Iterator<Item = Counts>) -> Counts {
    let counts: Vec<_> = counts.collect();
    let median = |of: fn(&Counts) -> u64| {
        let mut sorted: Vec<_> = counts.iter().map(of).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    };
    Counts {
        instructions: median(|counts| counts.instructions),
        code_lines: median(|counts| counts.code_lines),
        data_lines: median(|counts| counts.data_lines),
    }
}

fn place_of(loader: &addr2line::Loader, address: u64) -> Place {
    // From the function that was inlined last to the one that the linker knows.
    let mut frames: Vec<(String, String)> = Vec::new();
    if let Ok(mut found) = loader.find_frames(address) {
        while let Ok(Some(frame)) = found.next() {
            let function = frame
                .function
                .and_then(|name| name.demangle().ok().map(|name| name.into_owned()))
                .unwrap_or_default();
            let file = frame
                .location
                .and_then(|location| location.file)
                .unwrap_or_default();
            frames.push((function, file.to_owned()));
        }
    }
    let function = match (frames.first(), frames.last()) {
        (Some((inner, _)), Some((outer, _))) if inner != outer => format!("{outer} > {inner}"),
        (Some((only, _)), _) if !only.is_empty() => only.clone(),
        _ => loader
            .find_symbol(address)
            .map_or_else(|| "outside the program".to_owned(), str::to_owned),
    };
    let mut steps = frames
        .iter()
        .rev()
        .filter_map(|(function, file)| step_of(function, file));
    // What is inlined in a handler is not the handler's.
    let step = match steps.next() {
        Some(Step::Handler) => steps.next().or(Some(Step::Handler)),
        step => step,
    };
    // The C ABI calls the core, which asks it for the next command: whose code it is, the innermost function of the two says.
    let innermost = frames
        .iter()
        .map(|(_, file)| file)
        .find(|file| is_crossing(file) || is_core(file));
    let step = if innermost.is_some_and(|file| is_crossing(file)) {
        Some(Step::Crossing)
    } else {
        step
    };
    Place {
        step,
        is_core: innermost.is_some_and(|file| is_core(file)),
        function,
    }
}

fn is_crossing(file: &str) -> bool {
    file.contains("quoit-capi/src/")
}

fn is_core(file: &str) -> bool {
    file.contains("quoit/src/")
}

/// The step that a frame decides, if it does.
fn step_of(function: &str, file: &str) -> Option<Step> {
    if file.contains("quoit-cold-turn/src/subject/bare_") {
        return Some(Step::Bare);
    }
    if file.contains("quoit-cold-turn/src/") {
        // What drives the turns only calls; a handler is the program's.
        let drives = function.contains("turn") || function.contains("::run");
        return (!drives).then_some(Step::Handler);
    }
    if !is_core(file) {
        return None;
    }
    let name = bare_name(function);
    FUNCTIONS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, step)| step)
}

/// `<quoit::Loop<E, K>>::reap` and `reap<...>` are `reap`.
fn bare_name(function: &str) -> &str {
    let mut depth = 0_i32;
    let mut start = 0;
    let mut end = function.len();
    for (at, character) in function.char_indices() {
        match character {
            '<' => {
                // Type arguments behind the name end it.
                if depth == 0 && at > start {
                    end = at;
                }
                depth += 1;
            }
            '>' => depth -= 1,
            ':' if depth == 0 => {
                start = at + 1;
                end = function.len();
            }
            _ => {}
        }
    }
    &function[start..end.max(start)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bare() {
        assert_eq!(
            bare_name("quoit::event_loop::turn::<impl quoit::Loop<E, K>>::reap"),
            "reap"
        );
        assert_eq!(bare_name("<quoit::Loop<E> as Turns>::wait<u8>"), "wait");
        assert_eq!(bare_name("spin"), "spin");
    }

    #[test]
    fn an_access_may_touch_two_lines() {
        assert_eq!(lines(63, 2).count(), 2);
        assert_eq!(lines(64, 64).count(), 1);
        assert_eq!(lines(0, 0).count(), 1);
    }
}
