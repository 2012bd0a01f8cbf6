//! The load: connections in a closed loop, each with one request out at a time. It warms up by itself, announces its window as
//! the lab asks for, and counts what was answered within it.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use futures_util::future::try_join_all;
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::{grpc, tls, websocket};

/// Between the announcement of the window and its opening, so that whoever watches is there.
const NOTICE: Duration = Duration::from_millis(200);

/// Makes load over TLS, gRPC or WebSockets, which `quoit load` does not speak.
#[derive(Parser)]
#[command(name = "async-services load")]
struct Arguments {
    /// What to ask with
    #[arg(value_enum)]
    what: What,
    /// The server
    #[arg(long, value_name = "HOST:PORT")]
    connect: SocketAddr,
    /// Seconds of the window
    #[arg(long, value_parser = seconds)]
    seconds: Duration,
    /// Seconds before it
    #[arg(long, value_parser = seconds, default_value = "0")]
    warm_up: Duration,
    /// Connections
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// HTTPS, on connections that are kept
    Https,
    /// HTTPS, a whole handshake for every request
    Handshakes,
    /// Calls of gRPC
    Grpc,
    /// Messages of WebSockets
    Websocket,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub(crate) fn main() -> ExitCode {
    // The first word is `load`, by which we are here.
    let arguments = Arguments::parse_from(std::env::args().skip(1));
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("async-services load: a runtime could not be made: {error}");
            return ExitCode::FAILURE;
        }
    };
    match LocalSet::new().block_on(&runtime, measure(&arguments)) {
        Ok(requests) => {
            let told = serde_json::json!({
                "requests": requests,
                "elapsed_seconds": arguments.seconds.as_secs_f64(),
                "errors": {},
            });
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("async-services load on {}: {error}", arguments.connect);
            ExitCode::FAILURE
        }
    }
}

/// When what is answered counts, in nanoseconds of CLOCK_MONOTONIC, and how often it did.
#[derive(Default)]
struct Window {
    bounds: Cell<Option<(u64, u64)>>,
    requests: Cell<u64>,
}

impl Window {
    /// Notes that something was answered. Returns false once the window has closed.
    fn count(&self) -> bool {
        let Some((opens, closes)) = self.bounds.get() else {
            return true;
        };
        let now = now();
        if (opens..closes).contains(&now) {
            self.requests.set(self.requests.get() + 1);
        }
        now < closes
    }

    /// Sets the window, and tells the lab in its words.
    fn announce(&self, lasts: Duration) {
        let opens = now() + nanoseconds(NOTICE);
        self.bounds.set(Some((opens, opens + nanoseconds(lasts))));
        eprintln!(
            "window opens_ns={opens} lasts_ns={} in_ns={}",
            nanoseconds(lasts),
            nanoseconds(NOTICE)
        );
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

enum Asking {
    /// With the state of its encryption, which is large.
    Https(Box<tls::Asking>),
    Grpc(grpc::Asking),
    Websocket(websocket::Asking),
}

async fn measure(arguments: &Arguments) -> io::Result<u64> {
    let client = tls::Client::new(arguments.what != What::Handshakes);
    let window = Rc::new(Window::default());
    // One by one, so that the server's queue of new connections is never full.
    let mut asking = Vec::new();
    for _ in 0..arguments.connections {
        let connection = match arguments.what {
            What::Handshakes => None,
            _ => Some(connect(arguments.what, arguments.connect, &client).await?),
        };
        asking.push(tokio::task::spawn_local(ask(
            connection,
            arguments.connect,
            client.clone(),
            Rc::clone(&window),
        )));
    }
    let asking = try_join_all(asking);
    tokio::pin!(asking);
    // A load that has failed warms nothing up.
    let ended = tokio::select! {
        ended = &mut asking => Some(ended),
        () = tokio::time::sleep(arguments.warm_up) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            window.announce(arguments.seconds);
            asking.await
        }
    };
    let ended = ended.map_err(io::Error::other)?;
    ended.into_iter().collect::<io::Result<()>>()?;
    Ok(window.requests.get())
}

async fn connect(what: What, to: SocketAddr, client: &tls::Client) -> io::Result<Asking> {
    if what == What::Grpc {
        return grpc::Asking::connect(to).await.map(Asking::Grpc);
    }
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    if what == What::Websocket {
        return websocket::Asking::connect(stream).await.map(Asking::Websocket);
    }
    client.connect(stream).await.map(Box::new).map(Asking::Https)
}

/// Asks until the window has closed: on a connection, or each time on a new one.
async fn ask(
    mut connection: Option<Asking>,
    to: SocketAddr,
    client: tls::Client,
    window: Rc<Window>,
) -> io::Result<()> {
    loop {
        match &mut connection {
            Some(Asking::Https(asking)) => asking.ask().await?,
            Some(Asking::Grpc(asking)) => asking.ask().await?,
            Some(Asking::Websocket(asking)) => asking.ask().await?,
            None => {
                let stream = TcpStream::connect(to).await?;
                stream.set_nodelay(true)?;
                let mut asking = client.connect(stream).await?;
                asking.ask().await?;
                asking.close().await?;
            }
        }
        if !window.count() {
            return Ok(());
        }
    }
}
