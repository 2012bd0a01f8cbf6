//! ntex's web server on its own runtime, on io_uring or, for comparison, on epoll.
//!
//! A server a loop as its documentation starts it, with one worker: ntex accepts on one thread and serves on another.

use std::any::Any;
use std::io;
use std::process::ExitCode;

use ntex::SharedCfg;
use ntex::http::header::SERVER;
use ntex::http::{HttpServiceConfig, KeepAlive};
use ntex::rt::{BlockFuture, Reactor, Runner, Runtime, System, polling, uring, with_reactor};
use ntex::time::Seconds;
use ntex::web::{App, HttpResponse, HttpServer, get};
use peer::{Loop, PLAINTEXT, Rival, Service};
use serde::Serialize;

/// Entries of a ring, as ntex itself takes them.
const ENTRIES: u32 = 2048;

fn main() -> ExitCode {
    let rival = Rival {
        name: "ntex",
        framework: "ntex",
        services: &[Service::Http],
        engines: &["uring", "epoll"],
    };
    peer::run(&rival, serve)
}

#[derive(Serialize)]
struct Greeting {
    message: &'static str,
}

async fn plaintext() -> HttpResponse {
    HttpResponse::Ok()
        .header(SERVER, "quoit")
        .content_type("text/plain")
        .body(PLAINTEXT)
}

async fn json() -> HttpResponse {
    HttpResponse::Ok()
        .header(SERVER, "quoit")
        .json(&Greeting { message: PLAINTEXT })
}

/// ntex's runtime on a named engine. By itself it would take epoll in silence where io_uring is denied.
#[derive(Clone, Copy)]
enum Engine {
    Uring,
    Epoll,
}

impl Engine {
    fn reactor(self) -> io::Result<Box<dyn Reactor>> {
        Ok(match self {
            Self::Uring => Box::new(uring::Reactor::new(ENTRIES)?),
            Self::Epoll => Box::new(polling::Reactor::new()?),
        })
    }
}

impl Runner for Engine {
    fn block_on(&self, future: BlockFuture) -> Result<(), Box<dyn Any + Send>> {
        let reactor = self.reactor().map_err(|error| Box::new(error) as _)?;
        with_reactor(&reactor, || {
            Runtime::new(reactor.handle()).block_on(future, &*reactor)
        });
        Ok(())
    }
}

fn serve(share: Loop) -> io::Result<()> {
    let engine = match share.arguments.engine {
        Some("epoll") => Engine::Epoll,
        _ => Engine::Uring,
    };
    // ntex panics where it cannot have it, so it is asked for once before.
    drop(engine.reactor()?);
    System::new("ntex", engine).block_on(async move {
        // No deadlines, as the other rivals have none.
        let http = HttpServiceConfig::new()
            .set_keepalive(KeepAlive::Os)
            .set_client_timeout(Seconds::ZERO);
        let server = HttpServer::new(async || {
            App::new()
                .route("/plaintext", get().to(plaintext))
                .route("/json", get().to(json))
        })
        .config(SharedCfg::new("http").add(http))
        .workers(1)
        .disable_signals()
        .listen(share.listener.try_clone()?)?
        .run();
        share.started();
        server.await
    })
}
