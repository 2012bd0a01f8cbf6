//! What an API server makes of the manifests: it fills in, validates and admits, and stores. There are no nodes, so nothing runs.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::tools::{SERVERS, deploy, fetched, kustomized, printed, program, rendered, repository};

/// Only what hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// An API server with a store of its own, on this host alone; gone when dropped.
struct Cluster {
    children: Vec<Child>,
    kubectl: PathBuf,
    address: String,
    folder: tempfile::TempDir,
}

/// A port that is free now, and mostly still when it is asked for.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Cluster {
    /// None where a part is missing, which is said.
    #[track_caller]
    fn start() -> Option<Self> {
        let mut logs = String::new();
        for _ in 0..3 {
            let mut cluster = Self::begin()?;
            if cluster.becomes_ready() {
                return Some(cluster);
            }
            logs = ["etcd", "kube-apiserver"]
                .map(|name| cluster.log(name))
                .join("\n");
        }
        panic!("it ends before it is ready: {logs}");
    }

    fn begin() -> Option<Self> {
        let (etcd, server, kubectl) = (program("etcd")?, program("kube-apiserver")?, program("kubectl")?);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let key = Command::new("openssl")
            .args(["genrsa", "-out", &path("key.pem"), "2048"])
            .output();
        match key {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => {
                quoit_skipped::skip_this(format!("openssl: {error}"));
                return None;
            }
        }
        fs::write(path("tokens.csv"), "of-this-test,admin,1,system:masters\n").unwrap();
        let urls = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        let [store, peers] = &urls;
        let port = free_port();
        let mut cluster = Self {
            children: Vec::new(),
            kubectl,
            address: format!("https://127.0.0.1:{port}"),
            folder,
        };
        cluster.spawn(
            &etcd,
            &[
                ("data-dir", &path_in(&cluster, "store")),
                ("listen-client-urls", store),
                ("advertise-client-urls", store),
                ("listen-peer-urls", peers),
                ("initial-advertise-peer-urls", peers),
                ("initial-cluster", &format!("default={peers}")),
                ("unsafe-no-fsync", "true"),
            ],
        );
        let key = path_in(&cluster, "key.pem");
        cluster.spawn(
            &server,
            &[
                ("etcd-servers", store),
                ("bind-address", "127.0.0.1"),
                ("advertise-address", "127.0.0.1"),
                ("secure-port", &port.to_string()),
                ("cert-dir", &path_in(&cluster, "certificates")),
                ("token-auth-file", &path_in(&cluster, "tokens.csv")),
                ("authorization-mode", "RBAC"),
                ("service-account-issuer", "https://kubernetes.default.svc"),
                ("service-account-key-file", &key),
                ("service-account-signing-key-file", &key),
                ("service-cluster-ip-range", "10.0.0.0/24"),
                // Nobody makes the accounts that it would ask for.
                ("disable-admission-plugins", "ServiceAccount"),
            ],
        );
        Some(cluster)
    }

    /// Whether it answers in the end; not, if a part of it ends before, as for a port that somebody else has got meanwhile.
    #[track_caller]
    fn becomes_ready(&mut self) -> bool {
        let begin = Instant::now();
        while !self.kubectl(&["get", "--raw", "/readyz"], "").status.success() {
            let mut children = self.children.iter_mut();
            if children.any(|child| child.try_wait().unwrap().is_some()) {
                return false;
            }
            assert!(begin.elapsed() < PATIENCE, "the API server is not ready");
            std::thread::sleep(Duration::from_millis(100));
        }
        true
    }

    fn spawn(&mut self, program: &PathBuf, options: &[(&str, &str)]) {
        let name = program.file_name().unwrap().to_str().unwrap();
        let log = fs::File::create(path_in(self, &format!("{name}.log"))).unwrap();
        let child = Command::new(program)
            .args(options.iter().map(|(name, value)| format!("--{name}={value}")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.children.push(child);
    }

    /// What it has said last.
    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(path_in(self, &format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(&self.kubectl)
            .args(["--server", &self.address, "--token", "of-this-test"])
            .arg("--insecure-skip-tls-verify")
            .args(arguments)
            .env("HOME", self.folder.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // One that fails early reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Lets the server say what it would make of them, and then lets it keep them. Warnings are faults.
    #[track_caller]
    fn takes(&self, what: &str, namespace: &str, manifests: &str) {
        for dry in ["--dry-run=server", "--dry-run=none"] {
            let arguments = [
                "apply",
                "--server-side",
                "--validate=strict",
                dry,
                "-n",
                namespace,
                "-f",
                "-",
            ];
            let output = self.kubectl(&arguments, manifests);
            assert!(output.status.success(), "{what}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("Warning:"), "{what}: {said}");
        }
    }

    /// A resource as the server has it.
    #[track_caller]
    fn kept(&self, namespace: &str, kind: &str, name: &str) -> Value {
        let output = self.kubectl(&["get", "-n", namespace, kind, name, "-o", "json"], "");
        serde_json::from_str(&printed(output)).unwrap()
    }

    /// A namespace that admits only pods of the strictest standard, and says so of what would make others.
    #[track_caller]
    fn restricted(&self, name: &str) {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            } },
        });
        printed(self.kubectl(&["create", "-f", "-"], &namespace.to_string()));
    }
}

fn path_in(cluster: &Cluster, name: &str) -> String {
    cluster.folder.path().join(name).display().to_string()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The server first, so that it does not miss its store.
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A pod of a deployment, as its controller would make it.
fn pod_of(deployment: &Value) -> Value {
    let mut pod = deployment["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("pod");
    // Their controller fills in which version a pod is of, and the server takes no label that a pod has not.
    for constraint in pod["spec"]["topologySpreadConstraints"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        constraint.as_object_mut().unwrap().remove("matchLabelKeys");
    }
    pod
}

#[test]
fn an_api_server_takes_all_of_it() {
    let Some(monitors) = fetched("crds/monitoring.coreos.com_servicemonitors.yaml") else {
        return;
    };
    let Some(cluster) = Cluster::start() else { return };
    cluster.takes(
        "the operator's resource",
        "default",
        &fs::read_to_string(monitors).unwrap(),
    );
    let is_known = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "--all",
        "crd",
    ];
    printed(cluster.kubectl(&is_known, ""));

    for (server, values) in SERVERS {
        cluster.restricted(server);
        let name = format!("server={server}");
        let mut values = values.to_vec();
        let has_metrics = !["axum", "kestrel"].contains(&server);
        let monitored = format!("serviceMonitor.enabled={has_metrics}");
        let metric = if server == "serve" { "loops" } else { "cpu" };
        let metric = format!("autoscaling.metric={metric}");
        values.extend([
            name.as_str(),
            "autoscaling.enabled=true",
            &metric,
            &monitored,
            "seccomp.type=Localhost",
        ]);
        values.extend([
            "seccomp.localhostProfile=profiles/quoit.json",
            "supplementalGroups={1000}",
        ]);
        let Some(output) = rendered(&values) else { return };
        cluster.takes(server, server, &printed(output));
        let deployment = cluster.kept(server, "deployment", "quoit");
        let spec = &deployment["spec"]["template"]["spec"];
        assert_eq!(spec["terminationGracePeriodSeconds"], 30, "{server}");
        let container = &spec["containers"][0];
        assert_eq!(
            container["lifecycle"]["preStop"]["sleep"]["seconds"], 5,
            "{server}"
        );
        // What the server fills in: a probe is a failure after so many.
        assert_eq!(container["readinessProbe"]["successThreshold"], 1);
        // Admitted for real, in a namespace that admits only what is confined.
        let pod = pod_of(&deployment);
        printed(cluster.kubectl(&["create", "-n", server, "-f", "-"], &pod.to_string()));
        let mut loose = pod.clone();
        loose["metadata"]["name"] = json!("loose");
        loose["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        let refused = cluster.kubectl(&["create", "-n", server, "-f", "-"], &loose.to_string());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("violates PodSecurity"),
            "{said}"
        );
        // Exclusive processors are for pods of this class.
        assert_eq!(
            cluster.kept(server, "pod", "pod")["status"]["qosClass"],
            "Burstable"
        );
    }

    cluster.restricted("exclusive");
    let Some(output) = rendered(&["exclusiveCpus=true", "loops=2", "cpuMillis=2000", "pinLoops=true"]) else {
        return;
    };
    cluster.takes("exclusive", "exclusive", &printed(output));
    let pod = pod_of(&cluster.kept("exclusive", "deployment", "quoit"));
    printed(cluster.kubectl(&["create", "-n", "exclusive", "-f", "-"], &pod.to_string()));
    assert_eq!(
        cluster.kept("exclusive", "pod", "pod")["status"]["qosClass"],
        "Guaranteed"
    );

    cluster.restricted("base");
    for folder in ["base", "load"] {
        let Some(manifests) = kustomized(&deploy(folder)) else {
            return;
        };
        cluster.takes(folder, "base", &manifests);
    }
    // The overlay has a namespace of its own.
    cluster.restricted("quoit");
    let Some(manifests) = kustomized(&deploy("overlay")) else {
        return;
    };
    cluster.takes("overlay", "quoit", &manifests);
    let deployment = cluster.kept("quoit", "deployment", "quoit");
    let profile = &deployment["spec"]["template"]["spec"]["securityContext"]["seccompProfile"];
    assert_eq!(
        *profile,
        json!({ "type": "Localhost", "localhostProfile": "profiles/quoit.json" })
    );
    // A later apply takes nothing back from the autoscaler.
    let scaled = ["scale", "-n", "quoit", "deployment/quoit", "--replicas=7"];
    printed(cluster.kubectl(&scaled, ""));
    cluster.takes("overlay again", "quoit", &manifests);
    assert_eq!(
        cluster.kept("quoit", "deployment", "quoit")["spec"]["replicas"],
        7
    );

    let pod = fs::read_to_string(repository().join("deploy/seccomp/kubernetes/pod.yaml")).unwrap();
    cluster.restricted("pod");
    cluster.takes("pod.yaml", "pod", &pod);
    // What the server does not know is refused.
    let wrong = pod.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem");
    let arguments = [
        "apply",
        "--server-side",
        "--validate=strict",
        "-n",
        "base",
        "-f",
        "-",
    ];
    let output = cluster.kubectl(&arguments, &wrong);
    assert!(!output.status.success(), "{output:?}");
}
