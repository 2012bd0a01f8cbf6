//! Running the same scenario on `tokio::net` and on ours, each test in processes of its own.
//!
//! The loops of a program are one set for its whole life, so each engine needs a process; what a test counts (descriptors,
//! leases) is nobody else's there either, and one that hangs is ended and told.
#![allow(dead_code, unused_imports, reason = "no file of tests uses all of it")]

pub(crate) mod bulk;
pub(crate) mod net;
pub(crate) mod nobody;

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use quoit_async::{
    Config, Context, Counters, EngineChoice, EngineKind, Loops, LoopsConfig, Server, ServerConfig,
};

pub(crate) use self::nobody::{deaf, nobody};

/// In the processes of the tests: the engine.
const ENGINE: &str = "QUOIT_TEST_ENGINE";

/// What a scenario has seen, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Says(Arc<Mutex<Vec<String>>>);

impl Says {
    /// Keeps what was seen.
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// Keeps how something ended, with what name the program would know the error by.
    pub(crate) fn told<T: Debug>(&self, what: &str, result: io::Result<T>) {
        self.note(format!("{what}: {}", told(&result)));
    }

    /// The same of an error whose number is lost to its message.
    pub(crate) fn told_kind<T: Debug>(&self, what: &str, result: io::Result<T>) {
        self.note(format!("{what}: {:?}", result.map_err(|error| error.kind())));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// What a result says to a program.
pub(crate) fn told<T: Debug>(result: &io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?} {:?}", error.kind(), error.raw_os_error()),
    }
}

/// Polls once, and drops it.
pub(crate) async fn once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Bytes that tell where they are.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at % 251) as u8).collect()
}

/// What a socket of the standard library does, on a thread where it may wait.
pub(crate) async fn blocking<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    tokio::task::spawn_blocking(f).await.unwrap()
}

/// Has a socket of the standard library reset its connection.
pub(crate) fn reset(stream: std::net::TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

/// The engine of this process.
pub(crate) fn engine() -> EngineKind {
    match std::env::var(ENGINE).unwrap().as_str() {
        "epoll" => EngineKind::Epoll,
        "uring" => EngineKind::Uring,
        other => panic!("{other}"),
    }
}

/// The configuration of the loops of this process.
pub(crate) fn config() -> Config {
    Config {
        engine: EngineChoice::Require(engine()),
        ..Config::default()
    }
}

/// Runs the test `name` in a process for each engine; in these, returns true.
pub(crate) fn is_own_process(name: &str) -> bool {
    if std::env::var_os(ENGINE).is_some() {
        return true;
    }
    let (_, name) = name.split_once("::").unwrap();
    for engine in engines() {
        run_again(name, engine);
    }
    false
}

/// The engines that run here. Where io_uring does not, says so and leaves it out.
fn engines() -> Vec<&'static str> {
    let uring = Config {
        engine: EngineChoice::Require(EngineKind::Uring),
        ..Config::default()
    };
    match quoit::Loop::new(quoit::LoopIndex::default(), uring) {
        Ok(_) => vec!["uring", "epoll"],
        Err(error) => {
            quoit_skipped::skip_engine("uring", quoit_skipped::this_test(), error);
            vec!["epoll"]
        }
    }
}

fn run_again(name: &str, engine: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ENGINE, engine)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = child.stderr.take().unwrap();
    let (done, ended) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text);
        let _ = done.send(());
        String::from_utf8_lossy(&text).into_owned()
    });
    let hangs = ended.recv_timeout(bulk::patience()).is_err();
    if hangs {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    let text = reading.join().unwrap();
    assert!(!hangs, "{name} hangs on {engine}\n{text}");
    assert!(status.success(), "{name} fails on {engine}\n{text}");
}

/// Runs `f` on a loop's thread and its runtime.
pub(crate) fn on_a_loop<F, S>(f: F)
where
    F: Fn(Context) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + 'static,
{
    on_a_loop_of(config(), f);
}

/// As [`on_a_loop`], with a configuration.
pub(crate) fn on_a_loop_of<F, S>(config: Config, f: F)
where
    F: Fn(Context) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + 'static,
{
    serve_one_loop(config, Box::new(move |context| Box::pin(f(context))));
}

/// What runs on a loop's thread, boxed, so that a server is compiled once and not for each scenario.
type Service = Box<dyn Fn(Context) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

fn serve_one_loop(config: Config, service: Service) {
    let server = ServerConfig {
        loops: 1,
        config,
        ..ServerConfig::default()
    };
    let server = Server::start(server, move |context| {
        let running = service(context);
        async {
            running.await;
            Ok(())
        }
    });
    server.unwrap().join().unwrap();
}

/// Runs `f` in a runtime of several threads, with loops on threads of their own.
pub(crate) fn beside_loops<F>(f: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    beside_loops_of(config(), f);
}

/// As [`beside_loops`], with a configuration, which is that of the process.
pub(crate) fn beside_loops_of<F>(config: Config, f: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    start_loops(config);
    spawned(Box::pin(f));
}

/// What runs on any thread, boxed for the same reason.
pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

fn start_loops(config: Config) {
    // One set for the process: the first makes them.
    let _ = Loops::start(LoopsConfig {
        loops: 2,
        config,
        ..LoopsConfig::default()
    })
    .unwrap()
    .make_default();
}

fn spawned(running: Running) {
    several_threads().block_on(async { tokio::spawn(running).await.unwrap() });
}

/// Runs `f` in both ways, with sockets of ours.
pub(crate) fn both_ways<F, S>(f: F)
where
    F: Fn() -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let on_loop = f.clone();
    on_a_loop(move |_| on_loop());
    beside_loops(f());
}

/// What the loops hold, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) connections: u64,
    pub(crate) leased: u64,
    pub(crate) copied: u64,
}

/// What these loops hold.
pub(crate) fn held(counters: &[Counters]) -> Held {
    counters.iter().fold(Held::default(), |sum, one| Held {
        connections: sum.connections + one.connections,
        leased: sum.leased + one.pool_leased,
        copied: sum.copied + one.leases_copied_now,
    })
}

/// A runtime as `#[tokio::main]` makes it.
pub(crate) fn several_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Runs a scenario on tokio's own sockets, then on ours in both ways, and compares what they have said.
pub(crate) fn compare(
    name: &str,
    config: fn() -> Config,
    stock: fn(Says) -> Running,
    ours: fn(Says) -> Running,
) {
    if !is_own_process(name) {
        return;
    }
    let says = Says::default();
    spawned(stock(says.clone()));
    let expected = says.take();
    // A scenario that tokio itself does not answer alike is none.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(stock(says.clone()));
    assert_eq!(says.take(), expected, "tokio: one thread, and several");

    let on_loop = says.clone();
    on_a_loop_of(config(), move |_| ours(on_loop.clone()));
    assert_eq!(says.take(), expected, "one loop per thread, and tokio");
    beside_loops_of(config(), ours(says.clone()));
    assert_eq!(says.take(), expected, "loops beside a runtime, and tokio");
}

/// A scenario: the same code with the sockets of tokio and with ours.
#[macro_export]
macro_rules! scenario {
    ($(#[$doc:meta])* fn $name:ident($says:ident) $body:block) => {
        $crate::scenario! { with $crate::support::config; $(#[$doc])* fn $name($says) $body }
    };
    // With another configuration of the loops.
    (with $config:path; $(#[$doc:meta])* fn $name:ident($says:ident) $body:block) => {
        $(#[$doc])*
        mod $name {
            mod stock {
                #[allow(unused_imports, reason = "no scenario needs all")]
                use {super::super::*, $crate::support::net::stock::*};

                pub(super) async fn run($says: $crate::support::Says) $body
            }
            mod ours {
                #[allow(unused_imports, reason = "no scenario needs all")]
                use {super::super::*, $crate::support::net::ours::*};

                pub(super) async fn run($says: $crate::support::Says) $body
            }

            #[test]
            fn same() {
                $crate::support::compare(
                    concat!(module_path!(), "::same"),
                    $config,
                    |says| Box::pin(stock::run(says)),
                    |says| Box::pin(ours::run(says)),
                );
            }
        }
    };
}
