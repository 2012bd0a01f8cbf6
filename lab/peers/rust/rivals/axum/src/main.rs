//! axum as its documentation starts it, on tokio's listener or on Quoit's; and on a loop and a runtime per thread.
//!
//! On tokio's runtime of many threads there is one worker, as the lab measures cost per request.

use std::io;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::http::header::{CONTENT_TYPE, HeaderName, SERVER};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, get};
use peer::{Loop, PLAINTEXT, Rival, Service};
use quoit_async::{Config, EngineChoice, EngineKind, Loops, LoopsConfig, Server, ServerConfig, TcpListener};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

fn main() -> ExitCode {
    let rival = Rival {
        name: "axum",
        framework: "axum",
        services: &[Service::Http, Service::H2c, Service::WebSocket],
        engines: &["tokio", "uring", "epoll", "uring-loops", "epoll-loops"],
    };
    peer::run(&rival, serve)
}

#[derive(Serialize)]
struct Greeting {
    message: &'static str,
}

const NAME: [(HeaderName, &str); 1] = [(SERVER, "quoit")];

async fn plaintext() -> impl IntoResponse {
    (NAME, [(CONTENT_TYPE, "text/plain")], PLAINTEXT)
}

async fn json() -> impl IntoResponse {
    let message = "Hello, World!";
    (NAME, Json(Greeting { message }))
}

/// Reads what there is of a body, and answers.
async fn hello(body: Body) -> &'static str {
    // A body that ends in the middle has nobody who waits for the answer.
    let _ = axum::body::to_bytes(body, usize::MAX).await;
    "hello"
}

/// Sends every message back.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .max_message_size(usize::MAX)
        .max_frame_size(usize::MAX)
        .on_upgrade(async |mut socket| {
            while let Some(Ok(message)) = socket.recv().await {
                let echoed = matches!(message, Message::Text(_) | Message::Binary(_));
                if echoed && socket.send(message).await.is_err() {
                    return;
                }
            }
        })
}

fn app(service: Service) -> Router {
    match service {
        Service::H2c => Router::new().fallback(any(hello)),
        Service::WebSocket => Router::new().fallback(any(echo)),
        _ => Router::new()
            .route("/plaintext", get(plaintext))
            .route("/json", get(json)),
    }
}

fn serve(share: Loop) -> io::Result<()> {
    let service = share.arguments.service;
    let engine = share.arguments.engine.unwrap_or("tokio");
    let kind = match engine {
        "epoll" | "epoll-loops" => EngineKind::Epoll,
        _ => EngineKind::Uring,
    };
    let config = Config {
        engine: EngineChoice::Require(kind),
        ..Config::default()
    };
    match engine {
        "tokio" => workers()?.block_on(async {
            share.listener.set_nonblocking(true)?;
            share.started();
            let listener = tokio::net::TcpListener::from_std(share.listener)?;
            axum::serve(listener, app(service)).await
        }),
        "uring" | "epoll" => {
            start_default_loops(LoopsConfig {
                loops: u16::try_from(share.arguments.loops).unwrap_or(u16::MAX),
                config,
                ..LoopsConfig::default()
            })?;
            workers()?.block_on(async {
                share.started();
                axum::serve(TcpListener::from_std(share.listener)?, app(service)).await
            })
        }
        _ => {
            let config = ServerConfig {
                loops: 1,
                config,
                ..ServerConfig::listen_on(share.listener.try_clone()?)?
            };
            let server = Server::start(config, move |mut context| async move {
                axum::serve(context.listener()?, app(service)).await
            })?;
            share.started();
            server.join()
        }
    }
}

/// Starts the program's loops, whichever of its listeners is the first to need them.
fn start_default_loops(config: LoopsConfig) -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*started {
        Loops::start(config)?.make_default()?;
        *started = true;
    }
    Ok(())
}

fn workers() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}
