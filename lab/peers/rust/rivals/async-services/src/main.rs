//! What async Rust puts between its sockets and its programs: TLS by rustls, gRPC by tonic, WebSockets by tungstenite. Each on
//! tokio's sockets, and on Quoit's with a loop and a runtime per thread.
//!
//! `async-services load` is the load for them.

mod grpc;
mod interop;
mod load;
mod tls;
mod websocket;

use std::io;
use std::process::ExitCode;

use axum::serve::Listener;
use peer::{Loop, Rival, Service};
use quoit_async::{Config, EngineChoice, EngineKind, Server, ServerConfig};
use tokio::runtime::Builder;
use tonic::transport::server::Connected;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("load") {
        return load::main();
    }
    let rival = Rival {
        name: "async-services",
        framework: "tokio",
        services: &[
            Service::Https,
            Service::Grpc,
            Service::GrpcInterop,
            Service::WebSocket,
        ],
        engines: &["tokio", "uring", "epoll"],
    };
    peer::run(&rival, serve)
}

fn serve(share: Loop) -> io::Result<()> {
    let service = share.arguments.service;
    let kind = match share.arguments.engine {
        Some("uring") => EngineKind::Uring,
        Some("epoll") => EngineKind::Epoll,
        _ => {
            return Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(async {
                    share.listener.set_nonblocking(true)?;
                    share.started();
                    accept(tokio::net::TcpListener::from_std(share.listener)?, service).await
                });
        }
    };
    let config = ServerConfig {
        loops: 1,
        config: Config {
            engine: EngineChoice::Require(kind),
            ..Config::default()
        },
        ..ServerConfig::listen_on(share.listener.try_clone()?)?
    };
    let server = Server::start(config, move |mut context| async move {
        accept(context.listener()?, service).await
    })?;
    share.started();
    server.join()
}

async fn accept<L>(listener: L, service: Service) -> io::Result<()>
where
    L: Listener,
    L::Io: Connected,
{
    match service {
        Service::Https => tls::serve(listener).await,
        Service::Grpc => grpc::serve(listener, grpc::Numbers).await,
        Service::GrpcInterop => grpc::serve(listener, interop::TestService).await,
        _ => websocket::serve(listener).await,
    }
}
