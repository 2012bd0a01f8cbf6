//! The first things that a program does, in both ways and on both engines.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io;
use std::net::SocketAddr;

use quoit_async::{
    Address, Config, EngineChoice, EngineKind, Loops, LoopsConfig, Server, ServerConfig, TcpListener,
    TcpStream, UdpSocket,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn config(engine: EngineKind) -> Config {
    Config {
        engine: EngineChoice::Require(engine),
        ..Config::default()
    }
}

const ENGINES: [EngineKind; 2] = [EngineKind::Uring, EngineKind::Epoll];

fn tcp(address: &Address) -> SocketAddr {
    match address {
        Address::Tcp(address) => *address,
        other => panic!("{other}"),
    }
}

async fn echo(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(count) => stream.write_all(&buffer[..count]).await.unwrap(),
                }
            }
        });
    }
}

fn ask(address: SocketAddr) {
    use std::io::{Read, Write};
    for round in 0..20 {
        let mut client = std::net::TcpStream::connect(address).unwrap();
        let text = vec![b'a' + round; 100_000];
        let sent = text.clone();
        let mut writer = client.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert_eq!(back, text);
        thread.join().unwrap();
    }
}

/// Serves echoes with two loops, asks them at its first address, and drains it. Returns that address.
fn serve_and_ask(engine: EngineKind, listening: ServerConfig) -> SocketAddr {
    let config = ServerConfig {
        loops: 2,
        config: config(engine),
        ..listening
    };
    let server = Server::start(config, |mut context| async move {
        let draining = context.draining();
        let listener = context.listener()?;
        tokio::select! {
            result = echo(listener) => result,
            () = draining => Ok(()),
        }
    })
    .unwrap();
    assert_eq!(server.engine(), engine);
    let address = tcp(&server.addresses()[0]);
    ask(address);
    server.drainer().drain(std::time::Duration::from_secs(5));
    server.join().unwrap();
    address
}

#[test]
fn a_loop_and_a_runtime_on_each_thread() {
    for engine in ENGINES {
        let any_port = "127.0.0.1:0".parse::<SocketAddr>().unwrap();
        serve_and_ask(engine, ServerConfig::listen(any_port));
    }
}

#[test]
fn a_server_on_a_socket_that_listens_already() {
    for engine in ENGINES {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listening = ServerConfig::listen_on(socket).unwrap();
        assert_eq!(serve_and_ask(engine, listening), address);
    }
    let deaf = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let refused = ServerConfig::listen_on(deaf).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
}

#[test]
fn loops_beside_a_runtime_of_many_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    Loops::start(LoopsConfig::default())
        .unwrap()
        .make_default()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(echo(listener));
        tokio::task::spawn_blocking(move || ask(address)).await.unwrap();
        let mut stream = TcpStream::connect(("localhost", address.port())).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        stream.write_all(b"there and back").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "there and back");
        let refused = TcpStream::connect("127.0.0.1:1").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

        let one = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        other.connect(one.local_addr().unwrap()).await.unwrap();
        assert_eq!(other.send(b"ping").await.unwrap(), 4);
        let mut buffer = [0; 16];
        let (length, from) = one.recv_from(&mut buffer).await.unwrap();
        assert_eq!(
            (&buffer[..length], from),
            (&b"ping"[..], other.local_addr().unwrap())
        );
        one.send_to(b"pong", from).await.unwrap();
        assert_eq!(other.recv(&mut buffer).await.unwrap(), 4);
    });
}
