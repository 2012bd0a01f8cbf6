//! Two network namespaces joined by a virtual cable: a server's and its clients'.

use std::io;

use quoit_namespace::Namespace;
use quoit_skipped::skip_for;

/// Of the net that is kept for examples (RFC 5737), which no real host has.
pub(crate) const SERVER: &str = "192.0.2.1";
const CLIENT: &str = "192.0.2.2";
pub(crate) const ENTERED: &str = "a namespace of ours can be entered";

/// The cable's ends: `near` is the server's, `far` the clients'.
pub(crate) struct Cable {
    pub(crate) server: Namespace,
    pub(crate) clients: Namespace,
}

impl Cable {
    fn make() -> io::Result<Self> {
        let cable = Self {
            server: Namespace::make()?,
            clients: Namespace::make()?,
        };
        let path = cable.clients.path();
        let (server, clients) = (&cable.server, &cable.clients);
        server.run("ip link set lo up")?;
        server.run(&format!("ip link add near type veth peer name far netns {path}"))?;
        server.run(&format!("ip address add {SERVER}/24 dev near"))?;
        clients.run(&format!("ip address add {CLIENT}/24 dev far"))?;
        server.run("ip link set near up")?;
        clients.run("ip link set far up")?;
        Ok(cable)
    }

    /// The cable, or a line that says why `what` is left out.
    pub(crate) fn or_skip(what: &str) -> Option<Self> {
        Self::make()
            .inspect_err(|error| skip_for(what, error, "CAP_SYS_ADMIN, CAP_NET_ADMIN"))
            .ok()
    }
}
