//! Addresses: how they are read, and what of them the server is told.

use std::ffi::OsStr;
use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::thread;

use quoit::{Address, ListenOptions, listen};

use super::servers::{answer, assert_right, echo, plain};

/// The zone of an IPv6 address is the client's own matter. Servers refuse a Host field with one.
#[test]
fn the_host_field_has_no_zone() {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let (asked, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("accept works");
            let mut request = [0; 4096];
            let length = stream.peek(&mut request).expect("a request comes");
            // The test has ended when nobody wants it.
            let _ = asked.send(String::from_utf8_lossy(&request[..length]).into_owned());
            thread::spawn(move || answer(stream, |_| plain("hello")));
        }
    });
    // Loopback is the first interface of every network.
    for target in [format!("[::1%1]:{port}"), format!("http://[::1%1]:{port}/x")] {
        assert_right(
            &format!("load http --connect {target} --connections 1 --warmup 0 --requests 1"),
            1,
        );
        let request = requests.recv().expect("it was asked");
        assert!(
            request.contains(&format!("\r\nHost: [::1]:{port}\r\n")),
            "{request}"
        );
        // The check comes before the run.
        requests.recv().expect("it was asked");
    }
}

/// What a server says that it listens on is what the load takes.
#[test]
fn names_of_unix_sockets_are_read_as_servers_show_them() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let name = format!("quoit-load-{}\0x", std::process::id()).into_bytes();
    for address in [
        Address::UnixPath(folder.path().join("a\\b")),
        Address::UnixPath(folder.path().join(OsStr::from_bytes(b"a\xffb"))),
        Address::UnixAbstract(name.into()),
    ] {
        let socket = listen::bind(&address, &ListenOptions::default()).expect("it is free");
        let (descriptor, _file) = socket.into_parts();
        let listener = UnixListener::from(descriptor);
        listener.set_nonblocking(false).expect("it can be set");
        thread::spawn(move || {
            for stream in listener.incoming() {
                echo(stream.expect("accept works"), |_| {});
            }
        });
        let report = assert_right(
            &format!("load echo --connect {address} --connections 1 --warmup 0 --requests 1"),
            1,
        );
        assert_eq!(report["target"], address.to_string(), "{report:#}");
    }
}
