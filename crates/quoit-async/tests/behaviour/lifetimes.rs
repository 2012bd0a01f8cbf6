//! Sockets and what they have brought may outlive their loop, its runtime and its thread, and be dropped anywhere.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use quoit_async::{
    Address, Config, Counters, Lease, Loops, LoopsConfig, Server, ServerConfig, TcpListener, TcpStream,
    UdpSocket, UnixStream,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    Held, beside_loops, both_ways, bulk, config, held, is_own_process, on_a_loop, once, several_threads,
};

/// All that a loop can leave behind.
struct Left {
    stream: TcpStream,
    read_before: TcpStream,
    waiting: TcpStream,
    unix: UnixStream,
    lease: Lease,
    listener: TcpListener,
    socket: UdpSocket,
    peers: Vec<std::net::TcpStream>,
}

async fn open() -> Left {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut streams = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut peer = std::net::TcpStream::connect(address).unwrap();
        peer.write_all(b"leased and read").unwrap();
        streams.push(listener.accept().await.unwrap().0);
        peers.push(peer);
    }
    let mut stream = streams.pop().unwrap();
    let lease = stream.recv().await.unwrap().unwrap();
    let read_before = streams.pop().unwrap();
    read_before.readable().await.unwrap();
    let mut waiting = streams.pop().unwrap();
    waiting.read_exact(&mut [0; 15]).await.unwrap();
    Left {
        stream,
        read_before,
        waiting,
        unix: UnixStream::pair().unwrap().0,
        lease,
        listener,
        socket: UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        peers,
    }
}

/// A server of one loop whose service hands out what it has opened and ends as `end` says.
fn serve_and_leave(
    end: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> (Server, mpsc::Receiver<Left>) {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let end = Arc::new(end);
    let server = ServerConfig {
        loops: 1,
        config: Config {
            // Nobody is waited for who keeps what the loop has left.
            close_deadline: Duration::from_millis(20),
            ..config()
        },
        ..ServerConfig::default()
    };
    let server = Server::start(server, move |_| {
        let tell = tell.lock().unwrap().clone();
        let end = Arc::clone(&end);
        async move {
            tell.send(open().await).unwrap();
            end()
        }
    });
    (server.unwrap(), told)
}

/// Uses all of it, when the loop is gone.
async fn use_what_is_left(mut left: Left) {
    assert_eq!(&left.lease[..], b"leased and read");
    let mut buffer = [0; 64];
    // What has come before is still there.
    assert_eq!(left.read_before.read(&mut buffer).await.unwrap(), 15);
    for mut stream in [left.stream, left.read_before, left.waiting] {
        let told = stream.read(&mut buffer).await;
        assert!(matches!(told, Err(_) | Ok(0)), "{told:?}");
        stream.write(b"x").await.unwrap_err();
        assert!(matches!(stream.read(&mut buffer).await, Err(_) | Ok(0)));
        stream.readable().await.unwrap();
        stream.writable().await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = stream.flushed().await.unwrap_err();
        let _ = stream.nodelay().unwrap_err();
        let (mut reader, writer) = stream.into_split();
        assert!(matches!(reader.read(&mut buffer).await, Err(_) | Ok(0)));
        drop((reader, writer));
    }
    let _ = left.unix.write(b"x").await.unwrap_err();
    let _ = left.unix.peer_cred().unwrap_err();
    left.listener.accept().await.unwrap_err();
    left.listener.accept().await.unwrap_err();
    let told: Vec<_> = left.listener.incoming().take(2).collect().await;
    assert!(matches!(&told[..], [Err(_)]), "{told:?}");
    let at = left.socket.local_addr().unwrap();
    left.socket.send_to(b"x", at).await.unwrap_err();
    left.socket.recv(&mut buffer).await.unwrap_err();
    left.socket.connect(at).await.unwrap_err();
    drop(left.lease);
    drop(left.peers);
}

#[test]
fn all_that_a_loop_has_left_is_an_error() {
    if !is_own_process(concat!(module_path!(), "::all_that_a_loop_has_left_is_an_error")) {
        return;
    }
    let (server, told) = serve_and_leave(|| Ok(()));
    let left = told.recv().unwrap();
    server.join().unwrap();
    several_threads().block_on(use_what_is_left(left));
}

#[test]
fn a_service_that_fails_ends_the_server() {
    if !is_own_process(concat!(module_path!(), "::a_service_that_fails_ends_the_server")) {
        return;
    }
    let (server, told) = serve_and_leave(|| Err(io::Error::other("no more")));
    let left = told.recv().unwrap();
    assert_eq!(server.join().unwrap_err().to_string(), "no more");
    several_threads().block_on(use_what_is_left(left));
}

#[test]
fn a_service_that_panics_ends_the_server() {
    if !is_own_process(concat!(module_path!(), "::a_service_that_panics_ends_the_server")) {
        return;
    }
    let (server, told) = serve_and_leave(|| panic!("as it is meant to"));
    let left = told.recv().unwrap();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.join())).unwrap_err();
    several_threads().block_on(use_what_is_left(left));
}

#[test]
fn who_waits_is_told_that_the_loop_has_ended() {
    if !is_own_process(concat!(
        module_path!(),
        "::who_waits_is_told_that_the_loop_has_ended"
    )) {
        return;
    }
    for panics in [false, true] {
        let (go, gone) = mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let (server, told) = serve_and_leave(move || {
            // Kept from ending until others wait.
            let _ = gone.lock().unwrap().recv();
            assert!(!panics, "as it is meant to");
            Ok(())
        });
        let Left {
            mut waiting,
            listener,
            socket,
            ..
        } = told.recv().unwrap();
        let runtime = several_threads();
        let (begun, begins) = mpsc::channel();
        let tasks = [
            runtime.spawn({
                let begun = begun.clone();
                async move {
                    assert!(once(waiting.read(&mut [0; 1])).await.is_none());
                    begun.send(()).unwrap();
                    let _ = waiting.read(&mut [0; 1]).await;
                }
            }),
            runtime.spawn({
                let begun = begun.clone();
                async move {
                    assert!(once(listener.accept()).await.is_none());
                    begun.send(()).unwrap();
                    listener.accept().await.unwrap_err();
                }
            }),
            runtime.spawn(async move {
                assert!(once(socket.recv(&mut [0; 1])).await.is_none());
                begun.send(()).unwrap();
                socket.recv(&mut [0; 1]).await.unwrap_err();
            }),
        ];
        begins.iter().take(3).for_each(drop);
        go.send(()).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.join()));
        assert_eq!(result.is_err(), panics);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    }
}

#[test]
fn a_drain_carries_out_what_other_threads_do() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_drain_carries_out_what_other_threads_do"
    )) {
        return;
    }
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let server = ServerConfig {
        loops: 1,
        config: Config {
            // Longer than the test may take: nothing here waits for it to pass.
            close_deadline: Duration::from_secs(3600),
            ..config()
        },
        ..ServerConfig::default()
    };
    let server = Server::start(server, move |_| {
        let tell = tell.lock().unwrap().clone();
        async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            tell.send((listener.accept().await.unwrap().0, peer)).unwrap();
            Ok(())
        }
    });
    let server = server.unwrap();
    let (mut stream, mut peer) = told.recv().unwrap();
    let runtime = several_threads();
    runtime.block_on(async {
        for _ in 0..50 {
            stream.write_all(b"while it drains").await.unwrap();
            let mut buffer = [0; 15];
            peer.read_exact(&mut buffer).unwrap();
        }
    });
    drop(stream);
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    drop(peer);
    server.join().unwrap();
}

#[test]
fn draining_waits_for_connections_that_are_open() {
    if !is_own_process(concat!(
        module_path!(),
        "::draining_waits_for_connections_that_are_open"
    )) {
        return;
    }
    let server = ServerConfig {
        loops: 2,
        config: config(),
        ..ServerConfig::listen("127.0.0.1:0".parse::<SocketAddr>().unwrap())
    };
    let server = Server::start(server, |mut context| async move {
        let listener = context.listener()?;
        let mut serving = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let mut stream = accepted?.0;
                    serving.spawn(async move {
                        let mut text = String::new();
                        stream.write_all(b"ready").await?;
                        stream.read_to_string(&mut text).await?;
                        stream.write_all(text.as_bytes()).await
                    });
                }
                () = context.draining() => break,
            }
        }
        drop(listener);
        while let Some(served) = serving.join_next().await {
            // One that only asked whether the listener is still there may end with a reset.
            let _ = served.unwrap();
        }
        Ok(())
    });
    let server = server.unwrap();
    let Address::Tcp(address) = server.addresses()[0].clone() else {
        unreachable!("as it was asked for")
    };
    let mut peers: Vec<_> = (0..8)
        .map(|_| {
            let mut peer = std::net::TcpStream::connect(address).unwrap();
            peer.read_exact(&mut [0; 5]).unwrap();
            peer
        })
        .collect();
    server.drainer().drain(Duration::from_secs(3600));
    // Refused once the listener is gone; those that were there are served to their end.
    while std::net::TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    for peer in &mut peers {
        peer.write_all(b"to the end").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "to the end");
    }
    drop(peers);
    server.join().unwrap();
}

thread_local! {
    static KEPT: RefCell<Vec<TcpStream>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn streams_are_dropped_anywhere() {
    if !is_own_process(concat!(module_path!(), "::streams_are_dropped_anywhere")) {
        return;
    }
    both_ways(|| async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for place in 0..4 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let mut peer = listener.accept().unwrap().0;
            stream.write_all(b"last").await.unwrap();
            let elsewhere = std::thread::spawn(move || match place {
                0 => drop(stream),
                // In a destructor of a thread local, when the thread has ended.
                1 => KEPT.with_borrow_mut(|kept| kept.push(stream)),
                // In a task of another runtime, which is dropped before it is done.
                2 => {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.spawn(async move {
                        let mut stream = stream;
                        stream.read(&mut [0; 1]).await
                    });
                    runtime.block_on(tokio::task::yield_now());
                }
                // On the thread of another loop.
                _ => {
                    let stream = Mutex::new(Some(stream));
                    on_a_loop(move |_| {
                        let stream = stream.lock().unwrap().take();
                        async { drop(stream) }
                    });
                }
            });
            let text = tokio::task::spawn_blocking(move || {
                let mut text = String::new();
                peer.read_to_string(&mut text).unwrap();
                text
            });
            assert_eq!(text.await.unwrap(), "last");
            tokio::task::spawn_blocking(|| elsewhere.join().unwrap())
                .await
                .unwrap();
        }
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn come_and_go(counters: impl Fn() -> Vec<Counters> + Send) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let mut ends = tokio::task::JoinSet::new();
        for at in 0..bulk::connections() {
            let (mut stream, _) = listener.accept().await.unwrap();
            let task = ends.spawn(async move {
                let mut buffer = [0; 8];
                stream.read_exact(&mut buffer).await.unwrap();
                stream.write_all(&buffer).await.unwrap();
                stream.read(&mut buffer).await
            });
            // Some are ended in the middle of a read.
            if at % 3 == 0 {
                tokio::task::yield_now().await;
                task.abort();
            }
        }
        while let Some(ended) = ends.join_next().await {
            let _ = ended;
        }
    });
    let before = descriptors();
    for at in 0..bulk::connections() {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"12345678").await.unwrap();
        match at % 4 {
            0 => drop(stream),
            1 => stream.abort(),
            2 => {
                let _ = stream.read(&mut [0; 3]).await;
            }
            _ => {
                let (mut reader, writer) = stream.into_split();
                drop(writer);
                let _ = reader.read(&mut [0; 8]).await;
            }
        }
    }
    serving.await.unwrap();
    // All of it ends without anybody's doing: the limit is that of the process.
    while held(&counters()) != Held::default() || descriptors() + 1 > before {
        tokio::task::yield_now().await;
        // Something to do for each loop, whose counters are those of its last turn.
        drop(TcpStream::connect(address).await);
    }
}

#[test]
fn connections_come_and_go_and_nothing_is_left() {
    if !is_own_process(concat!(
        module_path!(),
        "::connections_come_and_go_and_nothing_is_left"
    )) {
        return;
    }
    on_a_loop(|context| come_and_go(move || vec![context.counters()]));
    beside_loops(come_and_go(quoit_async::default_counters));
}

#[test]
fn loops_that_have_drained_leave_no_descriptor() {
    if !is_own_process(concat!(
        module_path!(),
        "::loops_that_have_drained_leave_no_descriptor"
    )) {
        return;
    }
    let come_and_go = || {
        let loops = LoopsConfig {
            loops: 2,
            config: config(),
            ..LoopsConfig::default()
        };
        Loops::start(loops).unwrap().drain(Duration::ZERO).unwrap();
        on_a_loop(|_| async {
            drop(TcpListener::bind("127.0.0.1:0").await.unwrap());
        });
    };
    // What the process makes once is there from the first on.
    come_and_go();
    let before = descriptors();
    (0..5).for_each(|_| come_and_go());
    assert_eq!(descriptors(), before);
}
