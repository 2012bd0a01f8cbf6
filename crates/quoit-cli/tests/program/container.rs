//! The program in a container of runc's, which is what Docker, containerd and Kubernetes start: the profiles as libseccomp applies
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

use quoit_deploy::profile::Profile;
use serde_json::{Value, json};

use crate::support::{Server, engines, output, quoit};

/// A container that is about to be, with the system's folders and the program's in it, and the network of the host.
struct Container(tempfile::TempDir);

impl Container {
    fn new(profile: Option<&Value>, arguments: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = PathBuf::from(quoit("").get_program());
        let mut words = vec![program.to_str().unwrap().to_owned()];
        words.extend(arguments.split(' ').map(str::to_owned));
        let shown = [
            Path::new("/usr"),
            Path::new("/lib"),
            Path::new("/lib64"),
            program.parent().unwrap(),
        ];
        let mut mounts = vec![json!({ "destination": "/proc", "type": "proc", "source": "proc" })];
        mounts.extend(shown.iter().filter(|path| path.exists()).map(
            |path| json!({ "destination": path, "source": path, "type": "bind", "options": ["rbind", "ro"] }),
        ));
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": 65532, "gid": 65532 }, "args": words, "cwd": "/", "noNewPrivileges": true,
            },
            "root": { "path": "rootfs" },
            "mounts": mounts,
            "linux": { "namespaces": [{ "type": "pid" }, { "type": "ipc" }, { "type": "mount" }] },
        });
        if let Some(profile) = profile {
            config["linux"]["seccomp"] = profile.clone();
        }
        std::fs::create_dir(folder.path().join("rootfs")).unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        Self(folder)
    }

    /// What starts it, and goes on as long as it does.
    fn run(&self) -> Command {
        let mut command = Command::new("runc");
        let name = self.0.path().file_name().unwrap().to_str().unwrap();
        command
            .arg("--root")
            .arg(self.0.path().join("state"))
            .args(["run", "--bundle"])
            .arg(self.0.path())
            .arg(format!("quoit-test-{}", name.trim_start_matches('.')))
            .stdin(std::process::Stdio::null());
        command
    }
}

/// Whether containers can be run here at all; if not, that is said.
fn can_run() -> bool {
    let container = Container::new(None, "doctor");
    match container.run().output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            quoit_skipped::skip_this(format!(
                "a container of runc's: {}",
                said.trim().replace('\n', "; ")
            ));
            false
        }
        Err(error) => {
            quoit_skipped::skip_this(format!("runc (Debian's package runc): {error}"));
            false
        }
    }
}

/// A profile of Docker's form in that of the runtime specification, as Docker hands it to runc for a container without capabilities.
fn for_runc(profile: &str) -> Value {
    let mut profile: Value = serde_json::from_str(profile).unwrap();
    let ours = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        other => other,
    };
    let has = |condition: &Value, kind: &str, name: Option<&str>| {
        condition[kind].as_array().is_some_and(|list| {
            !list.is_empty() && name.is_none_or(|name| list.iter().any(|one| one == name))
        })
    };
    let rules = profile["syscalls"].as_array().unwrap().iter().filter(|rule| {
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        let other = has(includes, "arches", None) && !has(includes, "arches", Some(ours));
        !has(includes, "caps", None) && !other && !has(excludes, "arches", Some(ours))
    });
    let rules: Vec<Value> = rules
        .map(|rule| {
            let fields = rule.as_object().unwrap().iter();
            let known = ["names", "action", "errnoRet", "args"];
            let kept = fields.filter(|(name, value)| known.contains(&name.as_str()) && !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        })
        .collect();
    profile["syscalls"] = rules.into();
    let fields = profile.as_object_mut().unwrap();
    fields.remove("archMap");
    fields.remove("defaultErrno");
    profile
}

fn file(path: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../deploy")
            .join(path),
    )
    .unwrap()
}

/// The first line of `quoit doctor` in a container under this profile.
#[track_caller]
fn verdict(profile: &str) -> String {
    let container = Container::new(Some(&for_runc(profile)), "doctor");
    let found = output(container.run());
    assert!(found.status.success(), "{found:?}");
    let text = String::from_utf8(found.stdout).unwrap();
    text.lines().next().unwrap().to_owned()
}

#[test]
fn a_default_profile_denies_io_uring_and_with_three_calls_more_it_does_not() {
    const DEFAULT: &str = "/usr/share/containers/seccomp.json";
    if engines()[0] != "uring" || !can_run() {
        return;
    }
    let Ok(default) = std::fs::read_to_string(DEFAULT) else {
        return quoit_skipped::skip_this(format!(
            "{DEFAULT} (Debian's package golang-github-containers-common)"
        ));
    };
    let denied = verdict(&default);
    assert!(denied.starts_with("engine: epoll, because "), "{denied}");
    assert!(denied.contains("seccomp"), "{denied}");
    let made = Profile::parse(&default)
        .unwrap()
        .with_io_uring("Podman's")
        .unwrap();
    assert_eq!(verdict(&made.text()), "engine: uring (io_uring is usable here)");
}

#[test]
fn a_container_under_the_minimal_profile_serves_on_io_uring_and_drains() {
    if engines()[0] != "uring" || !can_run() {
        return;
    }
    let profile = for_runc(&file("seccomp/quoit.json"));
    let container = Container::new(
        Some(&profile),
        "serve http --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --connections 512",
    );
    let mut server = Server::start_command(container.run(), 1);
    assert_eq!(server.ready[0].engine, "uring");
    let load = format!(
        "load http --connections 4 --requests 500 --connect {}",
        server.address()
    );
    let loaded = output(quoit(&load));
    assert!(loaded.status.success(), "{loaded:?}");
    // runc passes the signal on.
    server.terminate();
    server.ends_with(0);
}
