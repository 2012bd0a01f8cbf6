//! What the tests of the C ABI share: the library that was built, and compilers.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quoit::{Config, try_uring};
use quoit_skipped::{skip_engine, skip_this, this_test};

/// A file of this crate.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The shared library that belongs to this test binary.
pub(crate) fn library() -> PathBuf {
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libquoit_capi.so");
    assert!(library.exists(), "there is no {}", library.display());
    library
}

/// Where compiled programs are kept, if they are: for machines that have no compiler, such as those of `quoit-kernels`.
fn kept() -> Option<PathBuf> {
    std::env::var_os("QUOIT_C_PROGRAMS").map(PathBuf::from)
}

/// The compilers that are here, each with the options of its language; says which are not. One whose programs are kept
/// need not be here.
pub(crate) fn compilers() -> Vec<(&'static str, &'static [&'static str])> {
    let wanted: [(&str, &[&str]); 2] = [
        ("cc", &["-std=c11", "-pedantic"]),
        ("c++", &["-x", "c++", "-std=c++17", "-pedantic"]),
    ];
    wanted
        .into_iter()
        .filter(|(compiler, _)| {
            let here = has(compiler) || kept().is_some_and(|folder| folder.join(compiler).exists());
            if !here {
                skip_this(format_args!("{compiler} was not found"));
            }
            here
        })
        .collect()
}

/// The engines that run here; says which does not.
pub(crate) fn engines() -> Vec<&'static str> {
    match try_uring(&Config::default()) {
        Ok(_) => vec!["epoll", "uring"],
        Err(reason) => {
            skip_engine("uring", this_test(), format_args!("io_uring: {reason}"));
            vec!["epoll"]
        }
    }
}

/// Whether a program is here.
pub(crate) fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Compiles and links a C file against the shared library, warnings being errors. The library lies beside the program,
/// under its own name, as it would when installed. Where there is no compiler, the program that was kept is taken.
pub(crate) fn compile(compiler: &str, options: &[&str], source: &Path, program: &Path) {
    let kept = kept().map(|folder| folder.join(compiler));
    let name = source.file_stem().unwrap();
    let installed = program.with_file_name("libquoit.so.0");
    if !installed.exists() {
        std::os::unix::fs::symlink(library(), &installed).unwrap();
    }
    if let Some(folder) = kept.as_ref().filter(|_| !has(compiler)) {
        std::fs::copy(folder.join(name), program).unwrap();
        return;
    }
    let output = Command::new(compiler)
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-D_GNU_SOURCE",
            "-g",
            "-O1",
            "-pthread",
        ])
        .args(options)
        .arg("-I")
        .arg(file("include"))
        .arg(source)
        .args(["-x", "none"])
        .arg(installed)
        .arg("-Wl,-rpath,$ORIGIN")
        .arg("-o")
        .arg(program)
        .output()
        .unwrap();
    succeeded(&format!("{compiler} {options:?}"), &output);
    if let Some(folder) = kept {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(program, folder.join(name)).unwrap();
    }
}

/// Fails with all that a program said if it failed.
pub(crate) fn succeeded(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program's output as text, if it succeeded.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    succeeded(&format!("{command:?}"), &output);
    String::from_utf8(output.stdout).unwrap()
}
