//! Loops that share a listener, where not all accept.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use quoit_async::{Address, Context, Server, ServerConfig, Spread, TcpListener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::support::{blocking, config, is_own_process, several_threads};

/// Echoes what comes to this loop, and counts the connections.
async fn echo(listener: TcpListener, served: Arc<AtomicUsize>) -> std::io::Result<()> {
    loop {
        let mut stream = listener.accept().await?.0;
        served.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let mut text = [0; 4];
            while stream.read_exact(&mut text).await.is_ok() {
                stream.write_all(&text).await.unwrap();
            }
        });
    }
}

/// A server of two loops, and where it listens.
fn start<S: Future<Output = std::io::Result<()>> + 'static>(
    spread: Spread,
    service: impl Fn(Context) -> S + Send + Sync + 'static,
) -> (Server, SocketAddr) {
    let config = ServerConfig {
        loops: 2,
        spread,
        config: quoit_async::Config {
            close_deadline: Duration::from_millis(20),
            ..config()
        },
        ..ServerConfig::listen("127.0.0.1:0".parse::<SocketAddr>().unwrap())
    };
    let server = Server::start(config, service).unwrap();
    let Address::Tcp(address) = server.addresses()[0] else {
        unreachable!("as it was asked for")
    };
    (server, address)
}

/// Connects this often, with something done after each, and expects an echo on every connection then.
fn all_are_served(address: SocketAddr, connected: impl Fn(usize)) {
    let mut peers = Vec::new();
    for count in 1..=MANY {
        let mut peer = std::net::TcpStream::connect(address).unwrap();
        peer.write_all(b"ping").unwrap();
        peers.push(peer);
        connected(count);
    }
    for peer in &mut peers {
        let mut text = [0; 4];
        peer.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"ping");
    }
}

/// So many that a listener would be paused for a half of them that nobody accepts.
const MANY: usize = 400;
/// What waits for one who accepts, at most.
const WAITING: usize = 128;

#[test]
fn a_loop_that_accepts_nothing_is_in_nobodys_way() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_loop_that_accepts_nothing_is_in_nobodys_way"
    )) {
        return;
    }
    // A listener of tokio's that two tasks share, of which one never looks.
    several_threads().block_on(async {
        let listener = Arc::new(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let kept = Arc::clone(&listener);
        let idle = tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(kept)
        });
        let echoing = tokio::spawn(async move {
            loop {
                let mut stream = listener.accept().await.unwrap().0;
                tokio::spawn(async move {
                    let mut text = [0; 4];
                    stream.read_exact(&mut text).await.unwrap();
                    stream.write_all(&text).await.unwrap();
                });
            }
        });
        blocking(move || all_are_served(address, |_| {})).await;
        idle.abort();
        echoing.abort();
    });
    for spread in [Spread::HandOver, Spread::Shared, Spread::ReusePort] {
        for accepts in 0..2 {
            for keeps in [true, false] {
                let (server, address) = start(spread, move |mut context| async move {
                    if context.index() == accepts {
                        return echo(context.listener()?, Arc::default()).await;
                    }
                    let kept = keeps.then_some(context);
                    std::future::pending::<()>().await;
                    drop(kept);
                    Ok(())
                });
                all_are_served(address, |_| {});
                drop(server);
            }
        }
    }
}

#[test]
fn a_listener_that_is_held_up_stops_nobody_and_leaves_what_waits_to_the_others() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_listener_that_is_held_up_stops_nobody_and_leaves_what_waits_to_the_others"
    )) {
        return;
    }
    for spread in [Spread::HandOver, Spread::Shared, Spread::ReusePort] {
        let (enough, served) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (told, counted) = (Arc::clone(&enough), Arc::clone(&served));
        // As long as one alone accepts, all is for that one.
        let both = Arc::new(Barrier::new(3));
        let taken = Arc::clone(&both);
        let (server, address) = start(spread, move |mut context| {
            let (told, counted) = (Arc::clone(&told), Arc::clone(&counted));
            let taken = Arc::clone(&taken);
            async move {
                let listener = context.listener()?;
                taken.wait();
                if context.index() == 0 {
                    return echo(listener, counted).await;
                }
                told.notified().await;
                drop(listener);
                std::future::pending().await
            }
        });
        both.wait();
        all_are_served(address, |count| {
            // One after the other, so that no more than these wait.
            while served.load(Ordering::Relaxed) + WAITING < count {
                std::thread::yield_now();
            }
            if count == MANY {
                enough.notify_one();
            }
        });
        assert_eq!(served.load(Ordering::Relaxed), MANY);
        drop(server);
    }
}
