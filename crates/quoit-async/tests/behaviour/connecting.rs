//! Connecting that is limited in time.

use std::io::ErrorKind;
use std::time::Duration;

use quoit_async::{Config, TcpStream};

use crate::support::{beside_loops, beside_loops_of, config, is_own_process, on_a_loop_of, once};

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
