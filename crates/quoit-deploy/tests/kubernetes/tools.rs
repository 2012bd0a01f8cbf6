//! The programs that know Kubernetes, and the files that are read by them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The servers that the chart knows, with what each needs to be rendered.
pub(crate) const SERVERS: [(&str, &[&str]); 5] = [
    ("serve", &[]),
    ("axum", &["image.repository=example.test/axum"]),
    ("go", &["image.repository=example.test/go"]),
    ("kestrel", &["image.repository=example.test/kestrel"]),
    ("netty", &["image.repository=example.test/netty"]),
];

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn deploy(path: &str) -> PathBuf {
    repository().join("deploy/kubernetes").join(path)
}

/// What `make kubernetes` has fetched; `None` if it has not, which is said.
pub(crate) fn fetched(path: &str) -> Option<PathBuf> {
    let found = repository().join("target/kubernetes").join(path);
    if found.exists() {
        return Some(found.canonicalize().unwrap());
    }
    quoit_skipped::skip_this(format!("target/kubernetes/{path} (`make kubernetes` fetches it)"));
    None
}

pub(crate) fn program(name: &str) -> Option<PathBuf> {
    fetched(&format!("bin/{name}"))
}

/// `helm template` of the chart with these values; `None` without helm.
pub(crate) fn rendered(values: &[&str]) -> Option<Output> {
    let mut helm = Command::new(program("helm")?);
    helm.args(["template", "quoit"])
        .arg(deploy("chart"))
        .args(["--kube-version", "1.36.0"]);
    for value in values {
        helm.args(["--set", value]);
    }
    Some(helm.output().unwrap())
}

/// What it prints, as it succeeds.
#[track_caller]
pub(crate) fn printed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `kubectl kustomize` of a folder; `None` without kubectl.
#[track_caller]
pub(crate) fn kustomized(folder: &Path) -> Option<String> {
    let output = Command::new(program("kubectl")?)
        .arg("kustomize")
        .arg(folder)
        .output()
        .unwrap();
    Some(printed(output))
}
