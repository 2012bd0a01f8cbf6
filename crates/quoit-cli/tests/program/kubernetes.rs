//! The pods of `deploy/kubernetes/base` as processes: what the kubelet and a service do to them in a roll-out.

use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::Instant;

use crate::support::{Client, PATIENCE, Pattern, Server, connect, engines, quoit};

/// Long enough that no socket buffers hold it.
const STREAM: u64 = 100_000_000;

/// The deployment, as the chart has made it.
fn deployment() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/base/server.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, deployment) = text.split_once("kind: Deployment\n").unwrap();
    deployment.to_owned()
}

/// A field that is there once.
#[track_caller]
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let mut found = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    let value = found.next().expect(name);
    assert_eq!(found.next(), None, "{name} is there twice");
    value
}

/// What a probe of the deployment asks for.
#[track_caller]
fn probed<'a>(deployment: &'a str, probe: &str) -> &'a str {
    let (_, rest) = deployment.split_once(&format!("{probe}:\n")).expect(probe);
    let (probe, _) = rest.split_once("failureThreshold").unwrap();
    assert_eq!(field(probe, "port"), "metrics");
    field(probe, "path")
}

/// A pod: the program with the deployment's arguments, at addresses of this host.
struct Pod {
    server: Server,
    metrics: String,
}

impl Pod {
    #[track_caller]
    fn start(deployment: &str, engine: &str) -> Self {
        let (_, arguments) = deployment.split_once("          args:\n").unwrap();
        let arguments: Vec<String> = arguments
            .lines()
            .map_while(|line| line.trim().strip_prefix("- "))
            .take_while(|argument| !argument.starts_with("name:"))
            .map(|argument| match argument.split_once('=') {
                Some((name @ ("--listen" | "--metrics"), _)) => format!("{name}=127.0.0.1:0"),
                Some(("--engine", _)) => format!("--engine={engine}"),
                _ => argument.to_owned(),
            })
            .collect();
        assert!(arguments.len() > 5, "{arguments:?}");
        let server = Server::start_command(quoit(&arguments.join(" ")), 1);
        assert_eq!(server.ready[0].engine, engine);
        let metrics = server.message("metrics on ");
        Self { server, metrics }
    }

    #[track_caller]
    fn probe(&self, path: &str) -> (u16, String) {
        let response = Client::<TcpStream>::new(connect(&self.metrics)).get(path);
        (response.status, response.text().to_owned())
    }
}

/// What a service sends to: each request holds it, so that whoever has changed it knows that all have learnt of that. In a cluster
/// nobody knows; the pod waits in its preStop instead.
#[derive(Default)]
struct Endpoints(RwLock<Vec<String>>);

impl Endpoints {
    fn held(&self) -> RwLockReadGuard<'_, Vec<String>> {
        self.0.read().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<String>)) {
        change(&mut self.0.write().unwrap());
    }
}

/// One request after the other, each on a connection of its own, to the endpoints in turn.
fn ask(endpoints: &Endpoints, is_over: &AtomicBool, answered: &AtomicU64) {
    for turn in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let endpoints = endpoints.held();
        let mut client = Client::<TcpStream>::new(connect(&endpoints[turn % endpoints.len()]));
        client.send("GET /bytes/100000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        Pattern::new().read(&mut client.stream, 100_000);
        client.is_ended();
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until more requests were answered.
fn goes_on(answered: &AtomicU64) {
    let (before, begin) = (answered.load(Ordering::Relaxed), Instant::now());
    while answered.load(Ordering::Relaxed) < before + 4 {
        assert!(begin.elapsed() < PATIENCE, "nobody is answered");
        std::thread::yield_now();
    }
}

/// Both pods are replaced, one after the other, under requests. None fails, and what is in flight at the end of a pod is finished.
#[test]
fn a_roll_out_fails_no_request() {
    let deployment = &deployment();
    let ready = probed(deployment, "readinessProbe");
    let live = probed(deployment, "livenessProbe");
    let replicas: usize = field(deployment, "replicas").parse().unwrap();
    assert_eq!((ready, live, replicas), ("/readyz", "/livez", 2));
    for engine in engines() {
        let mut pods: Vec<Pod> = (0..replicas).map(|_| Pod::start(deployment, engine)).collect();
        let endpoints = Endpoints::default();
        for pod in &pods {
            assert_eq!(pod.probe(ready), (200, "ok".to_owned()));
            endpoints.change(|all| all.push(pod.server.address().to_owned()));
        }
        let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| ask(&endpoints, &is_over, &answered)))
                .collect();
            for _ in 0..replicas {
                goes_on(&answered);
                // One more, before one is taken away.
                let new = Pod::start(deployment, engine);
                assert_eq!(new.probe(ready), (200, "ok".to_owned()));
                endpoints.change(|all| all.push(new.server.address().to_owned()));
                pods.push(new);
                let mut old = pods.remove(0);
                let mut busy = old.server.connect();
                busy.send(format!("GET /bytes/{STREAM} HTTP/1.1\r\nHost: x\r\n\r\n"));
                busy.head();
                let mut kept = old.server.connect();
                assert_eq!(kept.get("/plaintext").status, 200);
                // While it is in its preStop it serves as before, whoever has not heard of it yet.
                assert_eq!(old.probe(ready).0, 200);
                assert_eq!(old.server.connect().get("/plaintext").status, 200);
                endpoints.change(|all| all.retain(|address| address != old.server.address()));
                old.server.terminate();
                kept.is_ended();
                assert_eq!(old.probe(ready), (503, "draining".to_owned()));
                assert_eq!(old.probe(live), (200, "ok".to_owned()));
                goes_on(&answered);
                Pattern::new().read(&mut busy.stream, STREAM);
                busy.is_ended();
                drop((busy, kept));
                old.server.ends_with(0);
            }
            is_over.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().expect("every request was answered");
            }
        });
        assert_eq!(pods.len(), replicas);
    }
}

/// The kubelet waits for the sleep and for the drain, and for the end of the process.
#[test]
fn the_grace_period_is_longer_than_the_sleep_and_the_drain() {
    let deployment = deployment();
    let seconds = |text: &str| -> u32 { text.parse().unwrap() };
    let drain = deployment
        .lines()
        .find_map(|line| line.trim().strip_prefix("- --drain="))
        .unwrap();
    let sleep = field(&deployment, "seconds");
    let grace = field(&deployment, "terminationGracePeriodSeconds");
    assert!(
        seconds(grace) >= seconds(sleep) + seconds(drain) + 5,
        "{deployment}"
    );
}
