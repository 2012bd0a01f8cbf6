//! hyper on Quoit under tokio: a loop and a current-thread runtime on each thread.

use std::io;
use std::process::ExitCode;

use hyper::service::service_fn;
use peer::{ECHO_BYTES, Loop, Rival, Service};
use quoit_async::{Config, EngineChoice, EngineKind, Server, ServerConfig, TcpListener, TcpStream};
use rival_hyper::{http, respond};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() -> ExitCode {
    let rival = Rival {
        name: "quoit-async",
        framework: "hyper",
        services: &[Service::Echo, Service::Http],
        engines: &["uring", "epoll"],
    };
    peer::run(&rival, serve)
}

fn serve(share: Loop) -> io::Result<()> {
    let engine = match share.arguments.engine {
        Some("epoll") => EngineKind::Epoll,
        _ => EngineKind::Uring,
    };
    let service = share.arguments.service;
    let config = ServerConfig {
        loops: 1,
        config: Config {
            connections: 32_768,
            engine: EngineChoice::Require(engine),
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

async fn accept(listener: TcpListener, service: Service) -> io::Result<()> {
    let http = http();
    loop {
        let (stream, _) = listener.accept().await?;
        // A connection that breaks ends alone; its peer knows.
        match service {
            Service::Echo => drop(tokio::spawn(echo(stream))),
            // HTTP: what else there is, the command line refuses.
            _ => drop(tokio::spawn(http.serve_connection(stream, service_fn(respond)))),
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; ECHO_BYTES];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}
