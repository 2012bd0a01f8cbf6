//! After warm-up, what a program reads and writes costs no heap allocation, in both ways and on both engines, as on tokio's
//! sockets. In processes of their own: all threads of a program are counted.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../../quoit/tests/support/counting.rs"]
mod counting;
mod support;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use support::{beside_loops, blocking, is_own_process, on_a_loop};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const CONNECTIONS: usize = 8;
const WARM_UP: usize = 300;
const ROUNDS: usize = 1000;
/// What may be allocated once meanwhile, of 8,000 requests: by a list that grows, by a thread of the runtime that ends.
const ONCE: u64 = 16;

const ASK: &[u8] = b"GET /plaintext HTTP/1.1\r\nhost: test\r\n\r\n";

/// All connections send `ask`, then all take as many bytes as the first answer has.
fn play(clients: &mut [TcpStream], rounds: usize, ask: &[u8], answer: &mut [u8]) {
    for _ in 0..rounds {
        for client in &mut *clients {
            client.write_all(ask).unwrap();
        }
        for client in &mut *clients {
            client.read_exact(answer).unwrap();
        }
    }
}

/// What the process allocates while it answers [`ROUNDS`] of requests on all connections.
fn count(address: SocketAddr, ask: &'static [u8]) -> u64 {
    let mut clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut answer = vec![0; 1024];
    clients[0].write_all(ask).unwrap();
    let length = clients[0].read(&mut answer).unwrap();
    answer.truncate(length);
    play(&mut clients, WARM_UP, ask, &mut answer);
    let before = counting::everywhere();
    play(&mut clients, ROUNDS, ask, &mut answer);
    counting::everywhere() - before
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => stream.write_all(&buffer[..count]).await.unwrap(),
        }
    }
}

async fn answer(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("Hello, World!".to_owned()))
}

async fn serve(stream: impl hyper::rt::Read + hyper::rt::Write + Unpin) {
    let connection = hyper::server::conn::http1::Builder::new();
    let _ = connection.serve_connection(stream, service_fn(answer)).await;
}

/// What is allocated for echoes, and by hyper for its requests, with the sockets of a module.
macro_rules! counted {
    ($listener:ty, $io:expr) => {{
        let mut counts = [0; 2];
        for (index, ask) in [&b"ping"[..], ASK].into_iter().enumerate() {
            let listener = <$listener>::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let counting = blocking(move || count(address, ask));
            let serving = async {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    if index == 0 {
                        tokio::spawn(echo(stream));
                    } else {
                        tokio::spawn(serve($io(stream)));
                    }
                }
            };
            counts[index] = tokio::select! {
                count = counting => count,
                () = serving => unreachable!("it accepts for ever"),
            };
        }
        counts
    }};
}

async fn on_tokio() -> [u64; 2] {
    counted!(tokio::net::TcpListener, hyper_util::rt::TokioIo::new)
}

async fn on_ours() -> [u64; 2] {
    counted!(quoit_async::TcpListener, std::convert::identity)
}

#[test]
fn a_request_costs_no_allocation_but_those_of_the_program() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_request_costs_no_allocation_but_those_of_the_program"
    )) {
        return;
    }
    let stock = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stock = stock.block_on(on_tokio());
    assert!(stock[0] <= ONCE, "tokio's echo: {stock:?}");
    on_a_loop(move |_| async move { check("a loop per thread", on_ours().await, stock) });
    beside_loops(async move { check("beside loops", on_ours().await, stock) });
}

fn check(way: &str, [echo, requests]: [u64; 2], [_, on_tokio]: [u64; 2]) {
    assert!(echo <= ONCE, "{way}: echoes allocated {echo} times");
    assert!(
        requests <= on_tokio + ONCE,
        "{way}: hyper's requests allocated {requests} times, and on tokio's sockets {on_tokio} times"
    );
}
