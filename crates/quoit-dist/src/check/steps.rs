//! What somebody does with a package: installs it, runs it, builds against it, and takes it away again.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use super::distribution::Kind;
use super::kit::Kit;
use super::results::{Cell, Outcome};
use super::root::Root;
use super::traffic::{CLIENTS, Server, talk};
use crate::place::{self, Place};
use crate::tools;

/// The C program that is compiled, as the project's own tests have it.
const ECHO: &[u8] = include_bytes!("../../../quoit-capi/tests/c/echo.c");
const CHECK: &[u8] = include_bytes!("../../../quoit-capi/tests/c/check.h");

/// What a program sees of the library that it runs on.
const VERSION: &[u8] = b"\
#include <quoit.h>
#include <stdio.h>

int main(void)
{
    return quoit_abi_check(QUOIT_ABI_VERSION) != 0 || puts(quoit_version()) < 0;
}
";

const CMAKE: &str = "\
cmake_minimum_required(VERSION 3.10)
project(echo C)
find_package(quoit 0.1 REQUIRED)
add_executable(echo ../echo.c)
target_include_directories(echo PRIVATE ..)
target_link_libraries(echo quoit::quoit)
";

/// Where it is compiled.
const WORK: &str = "/tmp/quoit-c";

/// Requests of a load: enough to see that it works.
const REQUESTS: &str = "2000";

type Found = Result<Option<String>, String>;

/// Measures a step.
pub(crate) fn timed(step: impl FnOnce() -> Found) -> Cell {
    let began = Instant::now();
    let result = step();
    let seconds = began.elapsed().as_secs_f64();
    match result {
        Ok(found) => Cell {
            outcome: Outcome::Passed,
            seconds,
            found,
        },
        Err(why) => Cell {
            outcome: Outcome::Failed(why),
            seconds,
            found: None,
        },
    }
}

fn left_out(why: &str) -> Cell {
    Cell {
        outcome: Outcome::LeftOut(why.to_owned()),
        seconds: 0.0,
        found: None,
    }
}

/// All steps with one kind of package. What a failed installation leaves is taken away as well as it goes.
pub(crate) fn run(place: &Place, root: &Root, kind: Kind) -> BTreeMap<String, Cell> {
    let kit = Kit { place, root, kind };
    let mut cells = BTreeMap::new();
    let mut keep = |name: &str, cell: Cell| {
        let passed = cell.outcome == Outcome::Passed;
        cells.insert(name.to_owned(), cell);
        passed
    };
    if keep("install", timed(|| kit.install().map(|()| None))) {
        let mut uring = Err(String::new());
        keep("doctor", timed(|| doctor(&kit, &mut uring)));
        keep("epoll", timed(|| serve(&kit, "epoll")));
        match &uring {
            Ok(()) => keep("uring", timed(|| serve(&kit, "uring"))),
            Err(why) => keep("uring", left_out(why)),
        };
        let engines: &[&str] = if uring.is_ok() {
            &["epoll", "uring"]
        } else {
            &["epoll"]
        };
        if matches!(root, Root::Emulated(_)) {
            keep("pkg-config", timed(|| compiled_outside(&kit, engines)));
            for name in ["static", "cmake"] {
                keep(name, left_out("what is emulated has no compiler of its own"));
            }
        } else {
            keep("pkg-config", timed(|| compiled(&kit, engines, Linking::Shared)));
            if kit.compiler() == "cc" {
                keep("static", timed(|| compiled(&kit, engines, Linking::Static)));
                keep("cmake", timed(|| compiled(&kit, engines, Linking::Cmake)));
            } else {
                keep(
                    "static",
                    left_out("the unwinder of Debian's GCC is for glibc, and musl-gcc has no other"),
                );
                keep("cmake", left_out("CMake would take the system's own compiler"));
            }
        }
    }
    keep("uninstall", timed(|| kit.uninstall().map(|()| None)));
    cells
}

/// The program runs and is that version; what it would run on, and why not on io_uring.
fn doctor(kit: &Kit<'_>, uring: &mut Result<(), String>) -> Found {
    let program = kit.program();
    let version = tools::quiet_output(kit.root.command(&program).arg("--version"))?;
    if version.trim() != format!("quoit {}", kit.place.version) {
        return Err(format!("it says that it is {version:?}"));
    }
    let printed = tools::quiet_output(kit.root.command(&program).args(["doctor", "--json"]))?;
    let read: serde_json::Value =
        serde_json::from_str(&printed).map_err(|error| format!("doctor: {error}"))?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let engine = text(&read["engine"]);
    *uring = if read["uring"]["usable"] == true {
        Ok(())
    } else {
        Err(text(&read["reason"]))
    };
    if uring.as_ref().is_err_and(String::is_empty) {
        return Err("io_uring is not usable, and doctor does not say why".to_owned());
    }
    Ok(Some(engine))
}

fn serve(kit: &Kit<'_>, engine: &str) -> Found {
    let program = kit.program();
    let mut command = kit.root.command(&program);
    command.args(["serve", "http", "--listen", "127.0.0.1:0", "--engine", engine]);
    let server = Server::start(command)?;
    let address = server
        .said
        .split_whitespace()
        .find(|word| word.starts_with("127.0.0.1:"))
        .ok_or_else(|| format!("the server said {:?}", server.said))?;
    if !server.said.contains(&format!("engine={engine}")) {
        return Err(format!("the server said {:?}", server.said));
    }
    let mut load = kit.root.command(&program);
    load.args([
        "load",
        "http",
        "--connect",
        &format!("http://{address}/plaintext"),
    ])
    .args([
        "--connections",
        "8",
        "--requests",
        REQUESTS,
        "--warmup",
        "0",
        "--json",
        "--no-progress",
    ]);
    tools::quiet_output(&mut load)?;
    Ok(None)
}

#[derive(Clone, Copy, PartialEq)]
enum Linking {
    Shared,
    Static,
    Cmake,
}

/// Compiles the C program there, and talks with it.
fn compiled(kit: &Kit<'_>, engines: &[&str], linking: Linking) -> Found {
    kit.root.put(&format!("{WORK}/echo.c"), ECHO)?;
    kit.root.put(&format!("{WORK}/check.h"), CHECK)?;
    kit.root.put(&format!("{WORK}/version.c"), VERSION)?;
    let lib = kit.lib();
    let path = if kit.is_found() {
        String::new()
    } else {
        format!("export PKG_CONFIG_PATH={lib}/pkgconfig; ")
    };
    let cc = format!("{} -Wall -Werror -I{WORK}", kit.compiler());
    let script = match linking {
        Linking::Shared => format!(
            "{path}for name in echo version; do {cc} -o {WORK}/$name {WORK}/$name.c $(pkg-config --cflags --libs quoit); done; \
             pkg-config --modversion quoit > {WORK}/told"
        ),
        Linking::Static => format!(
            "{path}{cc} -static -o {WORK}/echo {WORK}/echo.c $(pkg-config --static --cflags --libs quoit)"
        ),
        Linking::Cmake => {
            kit.root
                .put(&format!("{WORK}/project/CMakeLists.txt"), CMAKE.as_bytes())?;
            let prefix = match kit.kind {
                _ if kit.is_found() => String::new(),
                // Whose folder for libraries Debian's CMake does not know.
                Kind::Rpm => format!("-Dquoit_DIR={lib}/cmake/quoit"),
                _ => format!("-DCMAKE_PREFIX_PATH={lib}/.."),
            };
            format!(
                "rm -rf {WORK}/build && mkdir {WORK}/build && cd {WORK}/build && cmake {prefix} ../project && make && \
                 mv echo {WORK}/echo"
            )
        }
    };
    tools::quiet_output(kit.root.command("/bin/sh").args(["-e", "-c", &script]))?;
    let run = |program: &str| {
        let mut command = kit.root.command("/usr/bin/env");
        // CMake itself names the folder in the program, unless it is one of those that it takes for the system's.
        let is_named = linking == Linking::Static || linking == Linking::Cmake && kit.kind != Kind::Rpm;
        if !is_named && !kit.is_found() {
            command.arg(format!("LD_LIBRARY_PATH={lib}"));
        }
        command.arg(format!("{WORK}/{program}"));
        command
    };
    for engine in engines {
        converse(run("echo"), engine)?;
    }
    if linking == Linking::Shared {
        let told = kit
            .root
            .folder()
            .join(format!("{}/told", WORK.trim_start_matches('/')));
        for version in [tools::quiet_output(&mut run("version"))?, place::read(&told)?] {
            if version.trim() != kit.place.version {
                return Err(format!("the library says that it is {:?}", version.trim()));
            }
        }
    }
    let _ = std::fs::remove_dir_all(kit.root.folder().join(WORK.trim_start_matches('/')));
    Ok(None)
}

/// Compiles it on this machine for the processor that is emulated.
fn compiled_outside(kit: &Kit<'_>, engines: &[&str]) -> Found {
    kit.root.put("/echo.c", ECHO)?;
    kit.root.put("/check.h", CHECK)?;
    let folder = kit.root.folder();
    let lib = folder.join(kit.lib().trim_start_matches('/'));
    let echo = folder.join("echo");
    let mut cc = Command::new(Root::cross_compiler());
    cc.args(["-Wall", "-Werror", "-o"])
        .arg(&echo)
        .arg(folder.join("echo.c"))
        .arg(format!("-I{}", folder.join("usr/include").display()))
        .arg(format!("-L{}", lib.display()))
        .arg(format!("-Wl,-rpath,{}", lib.display()))
        .arg("-lquoit");
    tools::quiet_output(&mut cc)?;
    for engine in engines {
        converse(kit.root.command("/echo"), engine)?;
    }
    Ok(Some("without pkg-config".to_owned()))
}

fn converse(mut command: Command, engine: &str) -> Result<(), String> {
    command.args([engine, "block", &CLIENTS.to_string()]);
    let server = Server::start(command)?;
    talk(&server.said)?;
    server.wait()
}
