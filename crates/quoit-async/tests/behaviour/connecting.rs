//! Connecting that is limited in time, and what else is limited.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use quoit_async::{Config, TcpListener, TcpStream, UdpSocket};

use crate::support::{beside_loops, beside_loops_of, config, is_own_process, nobody, on_a_loop_of, once};

const LONG: Duration = Duration::from_secs(3600);

fn timers(timers: u32) -> Config {
    Config {
        timers: Some(timers),
        ..config()
    }
}

/// Connects more often than there are timers, or gives up to.
async fn time_and_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..10 {
        let stream = TcpStream::connect_timeout(address, LONG).await.unwrap();
        drop((stream, listener.accept().unwrap()));
        // Given up, if it is not there at once.
        let _ = once(TcpStream::connect_timeout(address, LONG)).await;
        // On another thread than the one that began it.
        let begun = Box::pin(TcpStream::connect_timeout(address, LONG));
        let mut begun = Some(begun);
        let early = once(begun.as_mut().unwrap().as_mut()).await;
        let begun = begun.take();
        tokio::task::spawn_blocking(move || drop((early, begun)))
            .await
            .unwrap();
    }
}

#[test]
fn a_limit_that_is_not_needed_any_more_takes_no_timer() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_limit_that_is_not_needed_any_more_takes_no_timer"
    )) {
        return;
    }
    on_a_loop_of(timers(4), |_| time_and_again());
    beside_loops_of(timers(4), time_and_again());
}

async fn without_timers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    match TcpStream::connect_timeout(address, LONG).await {
        // It was there before the limit was.
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
            assert!(error.to_string().contains("Config::timers"), "{error}");
        }
    }
    TcpStream::connect(address).await.unwrap();
}

#[test]
fn for_want_of_a_timer_no_time_is_over() {
    if !is_own_process(concat!(module_path!(), "::for_want_of_a_timer_no_time_is_over")) {
        return;
    }
    on_a_loop_of(timers(0), |_| without_timers());
    beside_loops_of(timers(0), without_timers());
}

#[test]
fn limits_in_time_leave_connections_spread() {
    if !is_own_process(concat!(
        module_path!(),
        "::limits_in_time_leave_connections_spread"
    )) {
        return;
    }
    beside_loops(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(TcpStream::connect_timeout(address, LONG).await.unwrap());
        }
        let connected = || {
            quoit_async::default_counters()
                .into_iter()
                .map(|one| one.connected)
        };
        // Counters are those of a loop's last turn.
        while connected().sum::<u64>() < 20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(connected().collect::<Vec<_>>(), [10, 10]);
    });
}

/// A listener of the kernel's that takes no more, so that whoever connects waits.
async fn crowded() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let first = TcpStream::connect(address).await.unwrap();
    (listener, vec![first], address)
}

async fn the_first_is_late() {
    let (_listener, _first, late) = crowded().await;
    let (_bound, refuses) = nobody();
    let error = TcpStream::connect(&[late, refuses][..]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    let error = TcpStream::connect(&[refuses, late][..]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// The error is that of the address that the resolver prefers, also if another one has failed before it.
#[test]
fn the_error_of_the_first_address_is_told_though_it_comes_last() {
    if !is_own_process(concat!(
        module_path!(),
        "::the_error_of_the_first_address_is_told_though_it_comes_last"
    )) {
        return;
    }
    let config = || Config {
        connect_timeout: Duration::from_secs(1),
        ..config()
    };
    on_a_loop_of(config(), |_| the_first_is_late());
    beside_loops_of(config(), the_first_is_late());
}

/// Listens and binds until the loop takes no more.
async fn as_many_as_may_be() {
    let mut listeners = Vec::new();
    let listening = loop {
        match TcpListener::bind("127.0.0.1:0").await {
            Ok(listener) => listeners.push(listener),
            Err(error) => break error,
        }
    };
    assert_eq!(listening.kind(), ErrorKind::QuotaExceeded, "{listening}");
    assert!(listening.to_string().contains("`listeners`"), "{listening}");
    let mut sockets = Vec::new();
    let binding = loop {
        match UdpSocket::bind("127.0.0.1:0").await {
            Ok(socket) => sockets.push(socket),
            Err(error) => break error,
        }
    };
    assert_eq!(binding.kind(), ErrorKind::QuotaExceeded, "{binding}");
    assert!(binding.to_string().contains("`datagram_sockets`"), "{binding}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut streams = Vec::new();
    let connecting = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => streams.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(connecting.kind(), ErrorKind::QuotaExceeded, "{connecting}");
    assert!(
        connecting.to_string().contains("Config::connections"),
        "{connecting}"
    );
}

/// What a limit of the configuration keeps from being opened says which one to raise, and that nothing was wrong with what was
/// asked.
#[test]
fn a_limit_that_is_reached_is_named() {
    if !is_own_process(concat!(module_path!(), "::a_limit_that_is_reached_is_named")) {
        return;
    }
    let config = || Config {
        listeners: 3,
        datagram_sockets: 3,
        connections: 8,
        ..config()
    };
    on_a_loop_of(config(), |_| as_many_as_may_be());
    beside_loops_of(config(), as_many_as_may_be());
}
