//! Methods of requests.

/// The methods that this server knows, though no resource takes the later ones (RFC 9110, section 9, and
/// RFC 5789). CONNECT is not among them: this is no proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Patch,
}

impl Method {
    /// The method of this name.
    #[inline(always)]
    pub(super) fn parse(name: &str) -> Option<Self> {
        if name == "GET" {
            return Some(Self::Get);
        }
        Self::parse_other(name)
    }

    fn parse_other(name: &str) -> Option<Self> {
        Some(match name {
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "TRACE" => Self::Trace,
            "PATCH" => Self::Patch,
            _ => return None,
        })
    }
}
