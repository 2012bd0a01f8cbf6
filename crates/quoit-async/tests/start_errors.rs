//! What a program is told when its loops cannot start or listen.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener as StdListener};

use quoit_async::{Config, Loops, LoopsConfig, Server, ServerConfig, TcpListener};

fn in_use() -> (StdListener, SocketAddr) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn an_address_in_use_is_told_with_the_address_in_both_ways() {
    let (_listener, address) = in_use();
    let of_server = Server::start(ServerConfig::listen(address), async |_| Ok(())).unwrap_err();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let of_listener = runtime.block_on(TcpListener::bind(address)).unwrap_err();
    // As the standard library's, and tokio's with it.
    let expected = StdListener::bind(address).unwrap_err().kind();
    assert_eq!(expected, ErrorKind::AddrInUse);
    for error in [of_server, of_listener] {
        assert_eq!(error.kind(), expected);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn a_configuration_that_cannot_be_is_invalid_input_with_the_field() {
    let config = || Config {
        receive_slots: 0,
        ..Config::default()
    };
    let of_loops = LoopsConfig {
        config: config(),
        ..LoopsConfig::default()
    };
    let of_server = ServerConfig {
        config: config(),
        ..ServerConfig::default()
    };
    for error in [
        Loops::start(of_loops).unwrap_err(),
        Server::start(of_server, async |_| Ok(())).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("receive_slots"), "{error}");
    }
}

#[test]
fn a_service_that_fails_ends_the_server_with_its_error() {
    let config = ServerConfig {
        loops: 2,
        ..ServerConfig::listen("127.0.0.1:0".parse::<SocketAddr>().unwrap())
    };
    let result = quoit_async::serve(config, |mut context| async move {
        let listener = context.listener()?;
        if context.index() == 1 {
            // There is only one.
            context.listener()?;
        }
        let draining = context.draining();
        tokio::select! {
            accepted = listener.accept() => accepted.map(drop),
            () = draining => Ok(()),
        }
    });
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("ServerConfig::listeners"), "{error}");
}
