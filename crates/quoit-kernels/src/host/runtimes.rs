//! Tests that need a runtime: those of the transports for Netty and Kestrel. The runtime, the tests and what they stand on lie
//! in the guest where they lie on this machine, so that every path of a class path is right there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quoit_kernels::list::{Check, Run};
use quoit_kernels::message::Program;

use crate::tools::{self, files_below};

/// A runtime, and the tests that were built for it.
pub(crate) struct Runtime {
    pub(crate) run: Run,
    /// How the tests are started, by the names that the plan has for that.
    pub(crate) programs: BTreeMap<String, Program>,
    pub(crate) files: Vec<PathBuf>,
}

/// Builds the tests of each runtime that the checks need; returns what is missing for the others, too.
pub(crate) fn build(checks: &[Check], root: &Path, work: &Path) -> (Vec<Runtime>, Vec<(Run, String)>) {
    let mut built = Vec::new();
    let mut lacking = Vec::new();
    for run in [Run::Java, Run::Dotnet] {
        let Some(check) = checks.iter().find(|check| check.run == run) else {
            continue;
        };
        let runtime = match run {
            Run::Java => java(check, root, work),
            _ => dotnet(check, root),
        };
        match runtime {
            Ok(runtime) => built.push(runtime),
            Err(why) => lacking.push((run, why)),
        }
    }
    (built, lacking)
}

/// What a JDK has beside the runtime: sources, what its compiler reads, and images for settings that nobody uses here.
fn is_only_of_the_jdk(file: &Path) -> bool {
    let names = ["src.zip", "ct.sym", "classes_"];
    names.iter().any(|name| is_named(file, name)) || file.extension() == Some(OsStr::new("jmod"))
}

fn java(check: &Check, root: &Path, work: &Path) -> Result<Runtime, String> {
    let home =
        tools::output(&mut Command::new(root.join("java/jdk"))).map_err(|_| "no JDK was found".to_owned())?;
    let home = PathBuf::from(home.trim());
    let list = work.join("class-path");
    let mut maven = Command::new(std::env::var_os("MAVEN").unwrap_or_else(|| "mvn".into()));
    maven
        .env("JAVA_HOME", &home)
        .args(["--quiet", "--batch-mode", "--no-transfer-progress", "--file"])
        .arg(root.join("java/pom.xml"))
        .args(["--activate-profiles", "kernels", "--projects", &check.package])
        .args(["test-compile", "dependency:build-classpath"])
        .arg(format!("-Dmdep.outputFile={}", list.display()));
    tools::output(&mut maven)?;
    let jars = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let folder = root.join("java").join(&check.package);
    let classes = folder.join("target/classes");
    // A folder is no multi-release jar.
    let folders = [
        folder.join("target/test-classes"),
        classes.clone(),
        classes.join("META-INF/versions/22"),
    ];
    let mut path: Vec<PathBuf> = folders.to_vec();
    // Without the logger that Netty's test suite brings: it prints every step, which takes longer than the tests.
    path.extend(std::env::split_paths(jars.trim()).filter(|jar| !is_named(jar, "logback-")));
    let mut files = files_below(&home);
    files.retain(|file| !is_only_of_the_jdk(file));
    path.iter().for_each(|entry| files.extend(files_or_it(entry)));
    // By which the tests know the checkout.
    files.push(root.join("docs/netty.md"));
    let path = std::env::join_paths(path).map_err(|error| error.to_string())?;
    let started_on = |engine: &str| {
        let arguments = [
            "--enable-native-access=ALL-UNNAMED",
            "-XX:TieredStopAtLevel=1",
            "-ea",
            &format!("-Dquoit.test.engine={engine}"),
            "-classpath",
            &path.to_string_lossy(),
            "org.junit.platform.console.ConsoleLauncher",
            "execute",
            "--disable-banner",
            "--disable-ansi-colors",
            "--details=testfeed",
        ];
        let program = Program {
            path: home.join("bin/java").to_string_lossy().into_owned(),
            arguments: arguments.map(str::to_owned).to_vec(),
            folder: folder.to_string_lossy().into_owned(),
        };
        (format!("java {} {engine}", check.package), program)
    };
    Ok(Runtime {
        run: Run::Java,
        programs: ["uring", "epoll"].map(started_on).into(),
        files,
    })
}

fn dotnet(check: &Check, root: &Path) -> Result<Runtime, String> {
    let program = std::env::var_os("DOTNET").unwrap_or_else(|| "dotnet".into());
    let dotnet = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command
            .current_dir(root)
            .env("DOTNET_NOLOGO", "1")
            .args(arguments);
        tools::output(&mut command)
    };
    let Ok(sdks) = dotnet(&["--list-sdks"]) else {
        return Err("no .NET SDK was found".to_owned());
    };
    // Such as `10.0.401 [/usr/share/dotnet/sdk]`; the last is the newest.
    let sdk = sdks.lines().last().and_then(|line| {
        let (version, folder) = line.split_once(" [")?;
        Some(Path::new(folder.strip_suffix(']')?).join(version))
    });
    let Some(sdk) = sdk else {
        return Err("no .NET SDK was found".to_owned());
    };
    let project = format!("dotnet/{}", check.package);
    let quiet = ["--nologo", "--verbosity", "quiet"];
    // A folder or feed of packages in place of the configured ones, as in the Makefile.
    let source = std::env::var("DOTNET_NUGET_OFFLINE").unwrap_or_default();
    let mut restore = [&["restore", project.as_str()][..], &quiet].concat();
    if !source.is_empty() {
        restore.extend(["--source", source.as_str()]);
    }
    dotnet(&restore)?;
    dotnet(&[&["build", project.as_str(), "--no-restore"][..], &quiet].concat())?;
    let folder = root.join("target/dotnet/bin").join(&check.package).join("Debug");
    let assembly = format!("{}.dll", check.package);
    let tests = files_below(&folder);
    let Some(assembly) = tests.iter().find(|file| file.ends_with(&assembly)).cloned() else {
        return Err(format!("{assembly} is not below {}", folder.display()));
    };
    let home = sdk.ancestors().nth(2).unwrap_or(&sdk);
    // The muxer, the runtime, and of the SDK what runs tests: its own files, and not those of its compilers.
    let mut files = vec![home.join("dotnet")];
    files.extend(files_below(&home.join("host")));
    files.extend(files_below(&home.join("shared")));
    files.extend(files_below(&sdk.join("Extensions")));
    let of_sdk = fs::read_dir(&sdk).into_iter().flatten().flatten();
    files.extend(of_sdk.map(|entry| entry.path()).filter(|path| path.is_file()));
    files.extend(tests);
    files.extend(opened_by_name(&["libssl.so.", "libcrypto.so."]));
    let program = Program {
        path: home.join("dotnet").to_string_lossy().into_owned(),
        arguments: vec![
            "exec".to_owned(),
            sdk.join("vstest.console.dll").to_string_lossy().into_owned(),
            assembly.to_string_lossy().into_owned(),
        ],
        folder: "/tmp".to_owned(),
    };
    Ok(Runtime {
        run: Run::Dotnet,
        programs: BTreeMap::from([(format!("dotnet {}", check.package), program)]),
        files,
    })
}

/// Libraries that no program is linked with, as .NET looks for OpenSSL when it runs: those that the loader knows.
fn opened_by_name(prefixes: &[&str]) -> Vec<PathBuf> {
    let known = tools::output(Command::new("/sbin/ldconfig").arg("-p")).unwrap_or_default();
    let paths = known.lines().filter_map(|line| line.split_once(" => "));
    let paths = paths.map(|(_, path)| PathBuf::from(path.trim()));
    paths
        .filter(|path| prefixes.iter().any(|prefix| is_named(path, prefix)))
        .collect()
}

fn is_named(file: &Path, prefix: &str) -> bool {
    file.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

/// What is below a folder, or the file that it is.
fn files_or_it(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        return files_below(path);
    }
    vec![path.to_owned()]
}
