//! TCP: listening, connecting, accepting, and the names of both ends.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scenario;
use crate::support::{nobody, once, reset};

scenario! {
    fn both_ends_know_each_other(says) {
        let (listener, address) = listen().await;
        says.note(format!("{} {}", address.ip(), address.port() != 0));
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (one, (other, from)) = (one.unwrap(), other.unwrap());
        assert_eq!(one.peer_addr().unwrap(), address);
        assert_eq!(other.local_addr().unwrap(), address);
        assert_eq!(one.local_addr().unwrap(), from);
        assert_eq!(other.peer_addr().unwrap(), from);
    }
}

scenario! {
    fn addresses_of_ipv6(says) {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut one, (mut other, from)) = (one.unwrap(), other.unwrap());
        assert_eq!(one.local_addr().unwrap(), from);
        says.note(format!("{} {}", one.peer_addr().unwrap().ip(), other.local_addr().unwrap().ip()));
        one.write_all(b"six").await.unwrap();
        drop(one);
        let mut text = String::new();
        says.told("read", other.read_to_string(&mut text).await);
        says.note(text);
    }
}

scenario! {
    fn every_address_listens_for_ipv4_too(says) {
        let listener = TcpListener::bind("[::]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (one, other) = tokio::join!(TcpStream::connect(("127.0.0.1", port)), listener.accept());
        let (_one, (other, from)) = (one.unwrap(), other.unwrap());
        says.note(format!("{} {}", other.local_addr().unwrap().ip(), from.ip()));
        says.note(format!("{}", other.peer_addr().unwrap().ip()));
    }
}

scenario! {
    fn connecting_is_refused(says) {
        let (_bound, refuses) = nobody();
        says.told("connect", TcpStream::connect(refuses).await.map(drop));
    }
}

scenario! {
    fn the_address_that_listens_is_found_among_several(says) {
        let (listener, address) = listen().await;
        let (_bound, refuses) = nobody();
        let targets = [refuses, address, refuses];
        let (one, other) = tokio::join!(TcpStream::connect(&targets[..]), listener.accept());
        assert_eq!(one.unwrap().peer_addr().unwrap(), address);
        says.told("accepted", other.map(drop));
    }
}

scenario! {
    fn several_addresses_refuse(says) {
        let (bound, also_bound) = (nobody(), nobody());
        let targets = [bound.1, also_bound.1];
        says.told("connect", TcpStream::connect(&targets[..]).await.map(drop));
    }
}

scenario! {
    fn targets_in_every_form(says) {
        let (listener, address) = listen().await;
        let port = address.port();
        says.told("text", TcpStream::connect(address.to_string()).await.map(drop));
        says.told("slice", TcpStream::connect(&[address][..]).await.map(drop));
        says.told("pair", TcpStream::connect(("127.0.0.1", port)).await.map(drop));
        says.told("name", TcpStream::connect(("localhost", port)).await.map(drop));
        says.told("name and port", TcpStream::connect(format!("localhost:{port}")).await.map(drop));
        says.told_kind("none", TcpStream::connect(&[][..] as &[SocketAddr]).await.map(drop));
        says.told_kind("no port", TcpStream::connect("localhost").await.map(drop));
        says.told_kind("bad port", TcpStream::connect("localhost:http and more").await.map(drop));
        says.told_kind("large port", TcpStream::connect("localhost:70000").await.map(drop));
        says.told_kind("nothing", TcpStream::connect("").await.map(drop));
        says.told_kind("bind to none", TcpListener::bind(&[][..] as &[SocketAddr]).await.map(drop));
        drop(listener);
    }
}

scenario! {
    fn binding_in_use(says) {
        let (listener, address) = listen().await;
        says.told_kind("bind", TcpListener::bind(address).await.map(drop));
        let both = TcpListener::bind(&[address, "127.0.0.1:0".parse().unwrap()][..]).await;
        says.told_kind("the second of two", both.map(|listener| listener.local_addr().unwrap().port() != address.port()));
        let ours: [SocketAddr; 1] = ["192.0.2.1:0".parse().unwrap()];
        says.told_kind("not of this host", TcpListener::bind(&ours[..]).await.map(drop));
        drop(listener);
    }
}

scenario! {
    fn the_port_is_free_when_the_listener_is_dropped(says) {
        let (listener, address) = listen().await;
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        drop(listener);
        // Time and again: a loop may have closed one already.
        for _ in 0..50 {
            says.told("again", TcpListener::bind(address).await.map(drop));
        }
        drop((one, other));
    }
}

scenario! {
    /// More than a loop may have at once.
    fn many_listeners_come_and_go(says) {
        for _ in 0..200 {
            says.told_kind("bind", TcpListener::bind("127.0.0.1:0").await.map(drop));
        }
    }
}

scenario! {
    fn a_dropped_listener_resets_what_it_has_queued(says) {
        let (listener, address) = listen().await;
        let mut queued = TcpStream::connect(address).await.unwrap();
        drop(listener);
        says.told("read", queued.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn several_tasks_accept(says) {
        let (listener, address) = listen().await;
        let listener = Arc::new(listener);
        let accepting: Vec<_> = (0..4).map(|_| {
            let listener = Arc::clone(&listener);
            tokio::spawn(async move {
                let mut ports = Vec::new();
                for _ in 0..8 {
                    ports.push(listener.accept().await.unwrap().1.port());
                }
                ports
            })
        }).collect();
        let mut connected = Vec::new();
        for _ in 0..32 {
            connected.push(TcpStream::connect(address).await.unwrap());
        }
        let mut expected: Vec<_> = connected.iter().map(|one| one.local_addr().unwrap().port()).collect();
        let mut accepted = Vec::new();
        for task in accepting {
            accepted.extend(task.await.unwrap());
        }
        expected.sort_unstable();
        accepted.sort_unstable();
        assert_eq!(accepted, expected);
        says.note(accepted.len().to_string());
    }
}

scenario! {
    fn accepting_that_is_given_up_loses_nothing(says) {
        let (listener, address) = listen().await;
        let mut accepted = Vec::new();
        let mut connected = Vec::new();
        for _ in 0..20 {
            // Given up before there is anything, and at any moment of its coming.
            accepted.extend(once(listener.accept()).await);
            connected.push(TcpStream::connect(address).await.unwrap());
            for _ in 0..3 {
                accepted.extend(once(listener.accept()).await);
                tokio::task::yield_now().await;
            }
        }
        while accepted.len() < connected.len() {
            tokio::select! {
                biased;
                one = listener.accept() => accepted.push(one),
                () = tokio::task::yield_now() => {}
            }
        }
        let mut ports: Vec<_> = accepted.into_iter().map(|one| one.unwrap().1.port()).collect();
        let mut expected: Vec<_> = connected.iter().map(|one| one.local_addr().unwrap().port()).collect();
        ports.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ports, expected);
        says.told("another", once(listener.accept()).await.transpose().map(|none| none.is_none()));
    }
}

scenario! {
    fn what_waits_in_the_backlog_is_complete(says) {
        let (listener, address) = listen().await;
        let mut gone = TcpStream::connect(address).await.unwrap();
        let from = gone.local_addr().unwrap();
        gone.write_all(b"all of it").await.unwrap();
        gone.shutdown().await.unwrap();
        let (mut stream, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, from);
        let mut text = String::new();
        says.told("read", stream.read_to_string(&mut text).await);
        says.note(text);
    }
}

scenario! {
    fn what_was_reset_in_the_backlog_is_accepted(says) {
        let (listener, address) = listen().await;
        let peer = std::net::TcpStream::connect(address).unwrap();
        let from = peer.local_addr().unwrap();
        reset(peer);
        let (mut stream, told) = listener.accept().await.unwrap();
        assert_eq!(told, from);
        says.told("read", stream.read(&mut [0; 8]).await);
        says.told("read again", stream.read(&mut [0; 8]).await);
        says.note(format!("{}", stream.local_addr().unwrap() == address));
    }
}

scenario! {
    fn the_own_address_stays_known_after_a_reset(says) {
        let (mut stream, peer) = from_std().await;
        let address = peer.peer_addr().unwrap();
        reset(peer);
        says.told("read", stream.read(&mut [0; 8]).await);
        says.note(format!("{}", stream.local_addr().unwrap() == address));
    }
}

scenario! {
    fn sockets_of_the_standard_library_are_taken_over(says) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        let one = std::net::TcpStream::connect(address).unwrap();
        one.set_nonblocking(true).unwrap();
        let from = one.local_addr().unwrap();
        let mut one = TcpStream::from_std(one).unwrap();
        let (mut other, told) = listener.accept().await.unwrap();
        assert_eq!((told, one.local_addr().unwrap(), one.peer_addr().unwrap()), (from, from, address));
        one.write_all(b"taken").await.unwrap();
        one.shutdown().await.unwrap();
        let mut text = String::new();
        says.told("read", other.read_to_string(&mut text).await);
        says.note(text);
    }
}

scenario! {
    fn a_socket_with_what_came_before_it_was_taken_over(says) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        other.write_all(b"early").unwrap();
        drop(other);
        one.set_nonblocking(true).unwrap();
        let mut one = TcpStream::from_std(one).unwrap();
        let mut text = String::new();
        says.told("read", one.read_to_string(&mut text).await);
        says.note(text);
    }
}

scenario! {
    fn a_socket_that_was_reset_before_it_was_taken_over(says) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut peer = listener.accept().unwrap().0;
        peer.write_all(b"early").unwrap();
        reset(peer);
        let mut stream = TcpStream::from_std(stream).unwrap();
        for _ in 0..3 {
            says.told("read", stream.read(&mut [0; 8]).await);
        }
        says.told("write", stream.write(b"x").await);
    }
}

scenario! {
    fn options_are_set_and_read(says) {
        let (one, _other) = pair().await;
        one.set_nodelay(true).unwrap();
        says.told("nodelay", one.nodelay());
        one.set_nodelay(false).unwrap();
        says.told("nodelay", one.nodelay());
        one.set_ttl(33).unwrap();
        says.told("ttl", one.ttl());
        says.told("no error", one.take_error().map(|error| error.is_none()));
    }
}

scenario! {
    fn a_socket_with_options_first(says) {
        let (_bound, refuses) = nobody();
        let socket = TcpSocket::new_v4().unwrap();
        says.told("refused", socket.connect(refuses).await.map(drop));
        let (listener, address) = listen().await;
        let socket = TcpSocket::new_v4().unwrap();
        let (one, other) = tokio::join!(socket.connect(address), listener.accept());
        says.told("connected", one.map(drop));
        says.told("accepted", other.map(drop));
    }
}
