//! Addresses at which nobody is, and which nobody is given meanwhile.
#![allow(dead_code, reason = "no test program uses all of it")]

use std::net::SocketAddr;

/// A TCP port that nobody listens on and nobody can take: the socket is bound, and no listener.
pub(crate) fn nobody() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

/// The address of a UDP socket that hears itself only: whoever else sends to it is told that nobody is there, and nobody can
/// take its port.
pub(crate) fn deaf() -> (std::net::UdpSocket, SocketAddr) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    (socket, address)
}
