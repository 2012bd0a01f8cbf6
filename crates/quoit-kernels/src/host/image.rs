//! The first file system of a machine: an archive that the kernel unpacks (Documentation/driver-api/early-userspace).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use cpio::newc::Builder;
use quoit_kernels::list::{Check, List, Run};
use quoit_kernels::message::{PLAN, Plan, Program};

use crate::build::Built;
use crate::tools::{self, files_below};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// What every machine has, what those with a runtime have besides, and how each program is started there.
pub(crate) struct Image {
    archive: PathBuf,
    runtimes: Vec<(Run, PathBuf)>,
    programs: BTreeMap<String, Program>,
}

/// Collects entries, parents before children, each once.
struct Writer<W: Write> {
    output: W,
    written: BTreeSet<String>,
    number: u32,
}

impl<W: Write> Writer<W> {
    fn new(output: W) -> Self {
        Self {
            output,
            written: BTreeSet::new(),
            number: 0,
        }
    }

    fn add(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.written.contains(parent)
        {
            self.add(parent, DIRECTORY, &[])?;
        }
        if !self.written.insert(path.to_owned()) {
            return Ok(());
        }
        self.number += 1;
        let mut entry = Builder::new(path).ino(self.number).mode(mode).nlink(1);
        if mode == CHARACTER_DEVICE {
            // /dev/console (devices.txt of the kernel).
            entry = entry.rdev_major(5).rdev_minor(1);
        }
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut entry = entry.write(&mut self.output, length);
        entry.write_all(content)?;
        entry.finish().map(drop)
    }

    fn end(self) -> io::Result<()> {
        cpio::newc::trailer(self.output)?.flush()
    }
}

impl Image {
    /// Packs what was built, with the libraries that it is linked with, a shell, and what the tests read.
    pub(crate) fn pack(built: &Built, list: &List, root: &Path, work: &Path) -> Result<Self, String> {
        eprintln!("packing the machines' file system");
        let stripped = work.join("stripped");
        let _absent = fs::remove_dir_all(&stripped);
        fs::create_dir_all(&stripped).map_err(|error| format!("{}: {error}", stripped.display()))?;
        let used: BTreeSet<String> = list.checks.iter().flat_map(programs_of).collect();
        let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut programs = BTreeMap::new();
        for (name, path) in built.programs.iter().filter(|(name, _)| used.contains(*name)) {
            let place = format!("/quoit/debug/deps/{}", file_name(path));
            files.insert(place.clone(), strip(path, &stripped)?);
            let program = Program {
                path: place,
                arguments: Vec::new(),
                folder: "/tmp".to_owned(),
            };
            programs.insert(name.clone(), program);
        }
        for example in &built.examples {
            let place = format!("/quoit/debug/examples/{}", file_name(example));
            files.insert(place, strip(example, &stripped)?);
        }
        files.insert(
            "/quoit/debug/deps/libquoit_capi.so".to_owned(),
            strip(&built.library, &stripped)?,
        );
        files.insert("/init".to_owned(), strip(&built.guest, &stripped)?);
        for program in files_below(&built.c_programs) {
            let below = program.strip_prefix(&built.c_programs).unwrap_or(&program);
            files.insert(format!("/quoit/c/{}", below.display()), program.clone());
        }
        for library in libraries(files.values())? {
            files.entry(library.clone()).or_insert_with(|| library.into());
        }
        files.insert("/bin/sh".to_owned(), shell()?);
        // Where the tests look for them: in the checkout.
        for file in files_below(&root.join("fuzz/corpus")) {
            files.insert(file.to_string_lossy().into_owned(), file);
        }
        let requests = root.join("fuzz/http-requests.txt");
        files.insert(requests.to_string_lossy().into_owned(), requests);
        // They name it by way of their package.
        files.insert(
            format!("{}/crates/quoit/Cargo.toml", root.display()),
            root.join("crates/quoit/Cargo.toml"),
        );
        files.insert(
            "/quoit/calls.toml".to_owned(),
            root.join("lab/kernels/calls.toml"),
        );
        let archive = work.join("machine.cpio");
        write(&archive, &files).map_err(|error| format!("{}: {error}", archive.display()))?;
        let mut runtimes = Vec::new();
        for runtime in &built.runtimes {
            let archive = work.join(format!("{:?}.cpio", runtime.run).to_lowercase());
            write_runtime(&archive, &runtime.files)?;
            runtimes.push((runtime.run, archive));
            programs.extend(runtime.programs.clone());
        }
        Ok(Self {
            archive,
            runtimes,
            programs,
        })
    }

    /// The archive of one machine: what every machine has, and its plan. `engines` are those that no test may leave out.
    pub(crate) fn with_plan(
        &self,
        checks: Vec<Check>,
        list: &List,
        engines: &[String],
        to: &Path,
    ) -> Result<(), String> {
        let needed = |run: Run| checks.iter().any(|check| check.run == run);
        let runtimes = self.runtimes.iter().filter(|(run, _)| needed(*run));
        let runtimes: Vec<_> = runtimes.map(|(_, archive)| archive).collect();
        let plan = Plan {
            checks,
            traffic: list.traffic.clone(),
            programs: self.programs.clone(),
            environment: environment(engines),
        };
        let plan = serde_json::to_vec(&plan).expect("a plan is plain data");
        let copy = || -> io::Result<()> {
            fs::copy(&self.archive, to)?;
            // A kernel unpacks archives that follow each other, too.
            let mut whole = fs::OpenOptions::new().append(true).open(to)?;
            for runtime in runtimes {
                io::copy(&mut File::open(runtime)?, &mut whole)?;
            }
            let mut writer = Writer::new(whole);
            writer.add(PLAN, FILE, &plan)?;
            writer.end()
        };
        copy().map_err(|error| format!("{}: {error}", to.display()))
    }
}

/// The names of the programs that a check runs.
fn programs_of(check: &Check) -> Vec<String> {
    let mut names = check.test_programs();
    names.extend(["quoit", "wake_latency"].map(str::to_owned));
    names
}

fn environment(engines: &[String]) -> BTreeMap<String, String> {
    let variables = [
        ("PATH", "/bin:/quoit/debug/deps"),
        ("HOME", "/tmp"),
        // Without the library of languages; and how long `dotnet` waits for the process that runs the tests, in seconds.
        ("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1"),
        ("VSTEST_CONNECTION_TIMEOUT", "300"),
        ("TMPDIR", "/tmp"),
        ("RUST_TEST_THREADS", "4"),
        ("QUOIT_LIBRARY", "/quoit/debug/deps/libquoit_capi.so"),
        ("QUOIT_C_PROGRAMS", "/quoit/c"),
        ("QUOIT_TEST_ENGINES", &engines.join(" ")),
    ];
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// What is `/bin/sh` in the machines. Tests start it, so that without it they would fail.
fn shell() -> Result<PathBuf, String> {
    ["/usr/bin/busybox", "/bin/busybox"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .ok_or_else(|| {
            "busybox is neither in /usr/bin nor in /bin (Debian: apt install busybox-static)".to_owned()
        })
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn strip(program: &Path, folder: &Path) -> Result<PathBuf, String> {
    let stripped = folder.join(file_name(program));
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(&stripped).arg(program);
    tools::output(&mut strip)?;
    Ok(stripped)
}

/// The shared libraries and the loader that programs are linked with, as ldd(1) prints them.
fn libraries<'a>(programs: impl Iterator<Item = &'a PathBuf>) -> Result<BTreeSet<String>, String> {
    let printed = Command::new("ldd")
        .args(programs)
        .output()
        .map_err(|error| format!("ldd: {error}"))?;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let words = printed.lines().filter_map(|line| {
        let line = line.trim();
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        path.strip_suffix(')')?.split(" (").next()
    });
    Ok(words
        .filter(|path| path.starts_with('/') && !path.contains("libquoit"))
        .map(str::to_owned)
        .collect())
}

/// The archive of a runtime: its files where they lie here, and the libraries that they are linked with.
fn write_runtime(archive: &Path, files: &[PathBuf]) -> Result<(), String> {
    let is_linked = |file: &&PathBuf| {
        let ending = file.extension().and_then(OsStr::to_str);
        ending == Some("so") || ending.is_none() && starts_as_a_program(file)
    };
    let mut all: BTreeSet<PathBuf> = files.iter().cloned().collect();
    let linked: Vec<_> = files.iter().filter(is_linked).collect();
    all.extend(libraries(linked.into_iter())?.into_iter().map(PathBuf::from));
    let write = || -> io::Result<()> {
        let mut writer = Writer::new(BufWriter::new(File::create(archive)?));
        for file in &all {
            writer.add(&file.to_string_lossy(), PROGRAM, &fs::read(file)?)?;
        }
        writer.end()
    };
    write().map_err(|error| format!("{}: {error}", archive.display()))
}

fn starts_as_a_program(file: &Path) -> bool {
    let mut start = [0; 4];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x7fELF"
}

fn write(archive: &Path, files: &BTreeMap<String, PathBuf>) -> io::Result<()> {
    let mut writer = Writer::new(BufWriter::new(File::create(archive)?));
    writer.add("/dev/console", CHARACTER_DEVICE, &[])?;
    for folder in ["/proc", "/sys", "/tmp", "/run", "/var/tmp"] {
        writer.add(folder, DIRECTORY, &[])?;
    }
    writer.add(
        "/etc/passwd",
        FILE,
        b"root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n",
    )?;
    writer.add("/etc/group", FILE, b"root:x:0:\nuser:x:1000:\n")?;
    writer.add("/etc/hosts", FILE, b"127.0.0.1 localhost\n::1 localhost\n")?;
    writer.add("/etc/nsswitch.conf", FILE, b"hosts: files\n")?;
    if files.contains_key("/bin/sh") {
        for tool in ["cat", "ls", "ip", "mount", "true", "sleep"] {
            writer.add(&format!("/bin/{tool}"), LINK, b"sh")?;
        }
    }
    for (place, file) in files {
        let content = fs::read(file)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
        writer.add(place, PROGRAM, &content)?;
    }
    writer.end()
}
