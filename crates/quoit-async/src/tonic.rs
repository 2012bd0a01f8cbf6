//! tonic's server: who is at the other end of a connection.

use quoit::Address;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::{PeerCredentials, TcpStream, UnixStream};

impl Connected for TcpStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo {
            local_addr: self.local_addr().ok(),
            remote_addr: self.peer_addr().ok(),
        }
    }
}

/// What a request over a Unix connection has among its extensions, in place of tonic's `UdsConnectInfo`, whose types of tokio
/// cannot be made from outside: `request.extensions().get::<UnixConnectInfo>()`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnixConnectInfo {
    /// The address of the peer, which mostly has no name.
    pub peer_addr: Option<Address>,
    /// Who the peer is. None: it was gone before it was asked for.
    pub peer_cred: Option<PeerCredentials>,
}

impl Connected for UnixStream {
    type ConnectInfo = UnixConnectInfo;

    fn connect_info(&self) -> UnixConnectInfo {
        UnixConnectInfo {
            peer_addr: self.peer_addr().ok(),
            peer_cred: self.peer_cred().ok(),
        }
    }
}
