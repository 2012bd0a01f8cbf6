//! Message sizes, slow readers, source addresses and the time over which connections are opened.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::servers::{assert_right, echo, errors, number, report, serve};

#[test]
fn messages_have_the_sizes_that_were_asked_for() {
    let received = Arc::new(Mutex::new(0));
    let count = received.clone();
    let address = serve(move |number, stream| {
        let count = count.clone();
        echo(stream, move |bytes| {
            if number > 0 {
                *count.lock().unwrap() += bytes.len();
            }
        });
    });
    let options = "--connections 3 --threads 2 --pipeline 3 --warmup 0 --requests 600";
    for (sizes, mean) in [("100..300", 200.0), ("10:3,20000:1", 5_007.5)] {
        *received.lock().unwrap() = 0;
        let (code, found) = report(&format!(
            "load echo --connect {address} {options} --sizes {sizes} --seed 4"
        ));
        assert_eq!((code, errors(&found)), (0, 0), "{found:#}");
        assert_eq!(found["requests"], 600, "{found:#}");
        assert_eq!(found["message_bytes"], mean, "{found:#}");
        assert_eq!(found["message_sizes"], sizes, "{found:#}");
        // Within a fifth of the mean: four standard errors and more; each seed gives the same sizes.
        let found = *received.lock().unwrap() as f64 / 600.0;
        assert!((found - mean).abs() < mean / 5.0, "{found} of {mean}");
    }
    assert_right(
        &format!("load echo --connect {address} --connections 2 --warmup 0 --requests 50 --sizes 1..9"),
        50,
    );
}

#[test]
fn a_corrupted_byte_is_found_whatever_the_sizes() {
    let address = serve(|number, stream| {
        let mut seen = 0;
        echo(stream, |bytes| {
            let target = 10_000;
            if number == 1 && (seen..seen + bytes.len()).contains(&target) {
                bytes[target - seen] ^= 1;
            }
            seen += bytes.len();
        });
    });
    let (code, found) = report(&format!(
        "load echo --connect {address} --connections 1 --warmup 0 --requests 400 --sizes 50..400"
    ));
    assert_eq!(code, 1, "{found:#}");
    assert_eq!(found["errors"]["wrong_content"], 1, "{found:#}");
    assert_eq!(found["requests"], 399, "{found:#}");
}

#[test]
fn slow_readers_are_apart_from_the_figures() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = seen.clone();
    let address = serve(move |number, stream| {
        let list = list.clone();
        echo(stream, move |_| {
            let mut list = list.lock().unwrap();
            if !list.contains(&number) {
                list.push(number);
            }
        });
    });
    // One byte a second: far from a reply by the end.
    let (code, found) = report(&format!(
        "load echo --connect {address} --connections 3 --slow 1:1 --warmup 0 --requests 300"
    ));
    assert_eq!((code, errors(&found)), (0, 0), "{found:#}");
    assert_eq!(found["requests"], 300, "{found:#}");
    assert_eq!(found["slow_connections"], 1, "{found:#}");
    assert_eq!(found["slow_replies"], 0, "{found:#}");
    // The slow one has sent its request: connection 0 is the check before the run.
    let seen = seen.lock().unwrap();
    assert!((0..4).all(|number| seen.contains(&number)), "{seen:?}");
}

#[test]
fn what_slow_readers_read_is_checked() {
    // Every connection changes a byte of its second message.
    let address = serve(|number, stream| {
        let mut seen = 0;
        echo(stream, |bytes| {
            if number == 1 && (seen..seen + bytes.len()).contains(&100) {
                bytes[100 - seen] ^= 1;
            }
            seen += bytes.len();
        });
    });
    // The first connection is the slow one; it has the time for a few messages.
    let (code, found) = report(&format!(
        "load echo --connect {address} --connections 2 --slow 1:10000 --warmup 0 --seconds 1"
    ));
    assert_eq!(code, 1, "{found:#}");
    assert_eq!(found["errors"]["wrong_content"], 1, "{found:#}");
    assert!(number(&found["slow_replies"]) > 0, "{found:#}");
}

#[test]
fn connections_come_from_all_sources_in_turn() {
    let peers: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
    let list = peers.clone();
    let address = serve(move |_, stream| {
        let peer = stream.peer_addr().expect("a peer has an address");
        list.lock().unwrap().push(peer.ip());
        echo(stream, |_| {});
    });
    assert_right(
        &format!(
            "load echo --connect {address} --connections 6 --threads 2 --warmup 0 --requests 60 --source \
             127.0.0.2-127.0.0.3 --source 127.0.0.7"
        ),
        60,
    );
    let mut peers: Vec<String> = peers.lock().unwrap().iter().map(ToString::to_string).collect();
    peers.sort_unstable();
    // The check before the run comes from the first.
    assert_eq!(
        peers,
        [
            "127.0.0.2",
            "127.0.0.2",
            "127.0.0.2",
            "127.0.0.3",
            "127.0.0.3",
            "127.0.0.7",
            "127.0.0.7"
        ]
    );
}

#[test]
fn connections_are_opened_evenly_over_the_ramp() {
    let accepted: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let list = accepted.clone();
    let address = serve(move |_, stream| {
        list.lock().unwrap().push(Instant::now());
        echo(stream, |_| {});
    });
    let started = Instant::now();
    assert_right(
        &format!("load echo --connect {address} --connections 5 --ramp-up 0.5 --warmup 0 --requests 50"),
        50,
    );
    // None comes before its time, however slow the machine is. The first is the check before the run.
    let accepted = accepted.lock().unwrap();
    assert_eq!(accepted.len(), 6);
    for (number, at) in accepted[1..].iter().enumerate() {
        let earliest = Duration::from_millis(100) * number as u32;
        assert!(*at - started >= earliest, "connection {number} came too early");
    }
}

#[test]
fn a_source_that_is_no_address_of_this_machine_is_named() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    // For documentation (RFC 5737).
    let output = super::servers::quoit(&format!("load echo --connect {address} --source 192.0.2.77"));
    let line = super::servers::error_line(&output);
    assert!(line.contains("--source is no address of this machine"), "{line}");
}

#[test]
fn more_connections_than_ports_are_refused_with_the_remedy() {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the kernel tells");
    let ports: Vec<u32> = range
        .split_whitespace()
        .map(|port| port.parse().unwrap())
        .collect();
    let most = ports[1] - ports[0] + 1;
    let output = super::servers::quoit(&format!(
        "load echo --connect 127.0.0.1:9 --connections {}",
        most + 1
    ));
    let line = super::servers::error_line(&output);
    // Where descriptors do not suffice either, that is found first.
    assert!(
        line.contains(&format!("the {most} of each")) || line.contains("hard limit"),
        "{line}"
    );
}
