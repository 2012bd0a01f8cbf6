//! tonic's server: who is at the other end of a connection.

use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::TcpStream;

impl Connected for TcpStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo {
            local_addr: self.local_addr().ok(),
            remote_addr: self.peer_addr().ok(),
        }
    }
}
