//! A run: from the list to the table.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use quoit_kernels::list::{Check, Kernel, List};
use quoit_kernels::page;
use quoit_kernels::results::{KernelResults, Results};

use crate::arguments::Arguments;
use crate::image::Image;
use crate::machine::{End, Machine};
use crate::progress::Progress;
use crate::{build, fetch, table, tools};

/// A kernel of this run, and its image.
struct Candidate {
    kernel: Kernel,
    image: PathBuf,
}

/// Does what the command line asks for; returns the exit status.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, String> {
    let root = root()?;
    let text = read(&root.join("lab/kernels/list.toml"))?;
    let mut list = List::read(&text).map_err(|error| format!("lab/kernels/list.toml: {error}"))?;
    if let Some(runs) = &arguments.keep {
        return keep(&root, &list, runs);
    }
    add_images(&mut list, arguments);
    let (kernels, checks) = chosen(&list, arguments)?;
    if arguments.list {
        print_list(&kernels, &checks);
        return Ok(0);
    }
    tools::require()?;
    let work = target(&root).join("kernels");
    make(&work)?;
    let out = match &arguments.out {
        Some(folder) => folder.clone(),
        None => work.join("runs").join(format!("{}", since_1970())),
    };
    make(&out)?;
    let mut lacking = Vec::new();
    let mut candidates = Vec::new();
    for kernel in kernels {
        let given = arguments.image.iter().find(|(name, _)| *name == kernel.name);
        let image = given.map_or_else(|| fetch::image(&kernel, &work), |(_, path)| Ok(path.clone()));
        match image {
            Ok(image) => candidates.push(Candidate { kernel, image }),
            Err(why) => lacking.push(format!("{}: {why}", kernel.name)),
        }
    }
    let built = build::build(&checks, &root, &work)?;
    for (run, why) in &built.lacking {
        let left_out = checks.iter().filter(|check| check.run == *run);
        lacking.extend(left_out.map(|check| format!("{}: {why}", check.name)));
    }
    let can_run = |check: &Check| !built.lacking.iter().any(|(run, _)| check.run == *run);
    list.checks = checks.into_iter().filter(can_run).collect();
    // In the run's own folder: another run of this checkout may pack other checks meanwhile.
    let packed = out.join("packed");
    make(&packed)?;
    let image = Image::pack(&built, &list, &root, &packed)?;
    let results = Mutex::new(Results {
        commit: commit(&root),
        ..Results::default()
    });
    let missed = boot_all(arguments, &list, &candidates, &image, &out, &results)?;
    lacking.extend(missed);
    fs::remove_dir_all(&packed).map_err(|error| format!("{}: {error}", packed.display()))?;
    let results = results.into_inner().map_err(|error| error.to_string())?;
    let file = out.join("results.json");
    write(&file, &results)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&results).expect("plain data"));
    } else {
        println!("{}", table::print(&list, &results));
    }
    eprintln!("logs and results: {}", out.display());
    for line in &lacking {
        eprintln!("not run: {line}");
    }
    Ok(if !results.is_well() {
        1
    } else if lacking.is_empty() {
        0
    } else {
        3
    })
}

/// Boots the kernels, some side by side; returns what could not be run, and why.
fn boot_all(
    arguments: &Arguments,
    list: &List,
    candidates: &[Candidate],
    image: &Image,
    out: &Path,
    results: &Mutex<Results>,
) -> Result<Vec<String>, String> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.map_or(processors, |jobs| jobs as usize);
    let cells = |candidate: &Candidate| {
        let checks = list
            .checks
            .iter()
            .filter(|check| check.is_for(&candidate.kernel.name));
        checks.count() * arguments.repeat as usize
    };
    let progress = Progress::new(candidates.iter().map(cells).sum::<usize>() as u64);
    let next = AtomicUsize::new(0);
    let lacking = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        while let Some(candidate) = candidates.get(next.fetch_add(1, Ordering::Relaxed)) {
            let folder = out.join(&candidate.kernel.name);
            make(&folder)?;
            for _ in 0..arguments.repeat {
                let mut kernel = KernelResults {
                    title: candidate.kernel.title.clone(),
                    version: candidate.kernel.version.clone(),
                    ..KernelResults::default()
                };
                let missed = boot(arguments, list, candidate, image, &folder, &progress, &mut kernel)?;
                lacking.lock().map_err(|error| error.to_string())?.extend(missed);
                let mut results = results.lock().map_err(|error| error.to_string())?;
                let commit = results.commit.clone();
                results.add(Results {
                    commit,
                    kernels: [(candidate.kernel.name.clone(), kernel)].into(),
                });
                // Kept as it grows: an interrupted run loses nothing.
                write(&out.join("results.json"), &results)?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| "a machine's thread panicked".to_owned())?
        })
    })?;
    lacking.into_inner().map_err(|error| error.to_string())
}

/// Runs the checks on one kernel. If the machine stops, the checks that are left run on the next one.
fn boot(
    arguments: &Arguments,
    list: &List,
    candidate: &Candidate,
    image: &Image,
    folder: &Path,
    progress: &Progress,
    results: &mut KernelResults,
) -> Result<Vec<String>, String> {
    let name = &candidate.kernel.name;
    let checks = list.checks.iter().filter(|check| check.is_for(name));
    let mut checks: Vec<Check> = checks.cloned().collect();
    let archive = folder.join("machine.cpio");
    let mut missed = Vec::new();
    while let Some(first) = checks.first().map(|check| check.run) {
        // What needs a runtime has a machine of its own.
        let is_together =
            |check: &Check| check.run == first || !(check.run.needs_runtime() || first.needs_runtime());
        let (mut together, others) = checks.into_iter().partition::<Vec<_>, _>(is_together);
        checks = others;
        while !together.is_empty() {
            image.with_plan(together.clone(), list, &candidate.kernel.engines, &archive)?;
            let machine = Machine {
                kernel: &candidate.image,
                archive: &archive,
                memory: arguments.memory,
                accelerator: &arguments.accelerator,
                logs: folder.to_owned(),
            };
            let end = machine.run(&together, results, |check, run| progress.tell(name, check, run))?;
            match end {
                End::Done => break,
                End::NotUp(why) => {
                    missed.push(format!("{name}: {why}"));
                    break;
                }
                End::Stopped(check) => {
                    progress.say(&format!(
                        "{name}: the machine stopped; it is started again for the rest"
                    ));
                    let done = together
                        .iter()
                        .position(|one| one.name == check)
                        .map_or(0, |place| place + 1);
                    if done == 0 {
                        missed.push(format!("{name}: the machine stopped between two checks"));
                        break;
                    }
                    together.drain(..done);
                }
            }
        }
    }
    fs::remove_file(&archive).map_err(|error| format!("{}: {error}", archive.display()))?;
    Ok(missed)
}

/// Adds the results of runs to those that are kept, and writes the page.
fn keep(root: &Path, list: &List, runs: &[PathBuf]) -> Result<u8, String> {
    let file = root.join("lab/kernels/results.json");
    let mut kept = match fs::read_to_string(&file) {
        Ok(text) => parse(&file, &text)?,
        Err(_) => Results::default(),
    };
    for run in runs {
        let path = run.join("results.json");
        kept.add(parse(&path, &read(&path)?)?);
    }
    kept.retain(list);
    write(&file, &kept)?;
    let page_file = root.join("docs/kernels.md");
    fs::write(&page_file, page::write(list, &kept))
        .map_err(|error| format!("{}: {error}", page_file.display()))?;
    eprintln!("wrote {} and {}", file.display(), page_file.display());
    Ok(0)
}

fn chosen(list: &List, arguments: &Arguments) -> Result<(Vec<Kernel>, Vec<Check>), String> {
    let known = |name: &String| list.kernels.iter().any(|kernel| kernel.name == *name);
    if let Some(unknown) = arguments.kernel.iter().find(|name| !known(name)) {
        return Err(format!(
            "there is no kernel {unknown}; --list prints those that there are"
        ));
    }
    let begins = |prefix: &String| {
        list.checks
            .iter()
            .any(|check| check.name.starts_with(prefix.as_str()))
    };
    if let Some(unknown) = arguments.check.iter().find(|prefix| !begins(prefix)) {
        return Err(format!(
            "there is no check {unknown}; --list prints those that there are"
        ));
    }
    let kernels = list
        .kernels
        .iter()
        .filter(|kernel| match arguments.kernel.is_empty() {
            true => !arguments.quick || kernel.quick,
            false => arguments.kernel.contains(&kernel.name),
        });
    let checks = list
        .checks
        .iter()
        .filter(|check| match arguments.check.is_empty() {
            true => !arguments.quick || check.quick,
            false => arguments
                .check
                .iter()
                .any(|prefix| check.name.starts_with(prefix.as_str())),
        });
    Ok((kernels.cloned().collect(), checks.cloned().collect()))
}

/// Kernels that the list has not.
fn add_images(list: &mut List, arguments: &Arguments) {
    for (name, path) in &arguments.image {
        if !list.kernels.iter().any(|kernel| kernel.name == *name) {
            list.kernels.push(Kernel {
                name: name.clone(),
                title: name.clone(),
                version: path.display().to_string(),
                from: None,
                sha256: None,
                by_hand: None,
                engines: Vec::new(),
                notes: Vec::new(),
                quick: false,
            });
        }
    }
}

fn print_list(kernels: &[Kernel], checks: &[Check]) {
    for kernel in kernels {
        let quick = if kernel.quick { ", quick" } else { "" };
        println!(
            "kernel {}: {}, {}{quick}",
            kernel.name, kernel.title, kernel.version
        );
    }
    for check in checks {
        let quick = if check.quick { ", quick" } else { "" };
        println!("check {}: at most {} s{quick}", check.name, check.limit);
    }
}

/// The checkout that this program was built from, or the folder that it was started in.
fn root() -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    here.ancestors()
        .find(|folder| folder.join("lab/kernels/list.toml").exists())
        .map(Path::to_owned)
        .ok_or_else(|| "run it inside a checkout: lab/kernels/list.toml was not found".to_owned())
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn commit(root: &Path) -> String {
    let mut git = Command::new("git");
    git.current_dir(root).args(["describe", "--always", "--dirty"]);
    tools::output(&mut git).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn since_1970() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(path: &Path, text: &str) -> Result<Results, String> {
    serde_json::from_str(text).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, results: &Results) -> Result<(), String> {
    let mut text = serde_json::to_string_pretty(results).expect("results are plain data");
    text.push('\n');
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
