//! What C holds of a loop that others reach.

use std::sync::Arc;

use crate::leases::Leases;

/// `quoit_remote`: opaque to C, counted.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) remote: quoit::Remote,
    pub(crate) leases: Arc<Leases>,
}
