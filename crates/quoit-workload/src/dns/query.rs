//! Reading a datagram as a query.

use domain::base::iana::{Opcode, Rtype};
use domain::base::name::ToLabelIter;
use domain::base::opt::Opt;
use domain::base::wire::ParseError;
use domain::base::{Message, ParsedName, ParsedRecord, Question};

use super::MOST_BYTES;

/// Where the question begins: behind the header.
const QUESTION: usize = 12;
/// Its type and class.
const QUESTION_END: usize = 4;

/// A query that can be answered.
pub(super) struct Query<'a> {
    pub(super) message: &'a Message<[u8]>,
    pub(super) question: Question<ParsedName<&'a [u8]>>,
    pub(super) edns: Option<Edns>,
}

/// What a query says by EDNS (RFC 6891).
#[derive(Clone, Copy)]
pub(super) struct Edns {
    pub(super) version: u8,
    pub(super) dnssec_ok: bool,
}

/// Why a datagram is no such query.
pub(super) enum Rejection<'a> {
    Ignore,
    /// An operation other than a query.
    Operation(&'a Message<[u8]>),
    Format(&'a Message<[u8]>),
}

impl<'a> Query<'a> {
    pub(super) fn read(datagram: &'a [u8]) -> Result<Self, Rejection<'a>> {
        let message = Message::from_slice(datagram).map_err(|_| Rejection::Ignore)?;
        if message.header().qr() {
            return Err(Rejection::Ignore);
        }
        if message.header().opcode() != Opcode::QUERY {
            return Err(Rejection::Operation(message));
        }
        Self::of(message).map_err(|_| Rejection::Format(message))
    }

    fn of(message: &'a Message<[u8]>) -> Result<Self, ParseError> {
        let counts = message.header_counts();
        let is_query = counts.qdcount() == 1 && counts.ancount() == 0 && !message.header().tc();
        require(is_query && message.as_slice().len() <= usize::from(MOST_BYTES))?;
        let mut section = message.question();
        let question = section.next().ok_or(ParseError::ShortInput)??;
        // A compressed name would be longer in the response. It has nothing to point to but the header.
        let length = usize::from(question.qname().compose_len()) + QUESTION_END;
        require(section.pos() == QUESTION + length)?;
        let mut authority = section.answer()?.next_section()?.ok_or(ParseError::ShortInput)?;
        for record in &mut authority {
            require(record?.rtype() != Rtype::OPT)?;
        }
        let mut additional = authority.next_section()?.ok_or(ParseError::ShortInput)?;
        let mut edns = None;
        for record in &mut additional {
            let record = record?;
            if record.rtype() == Rtype::OPT {
                require(edns.is_none())?;
                edns = Some(Edns::of(&record)?);
            }
        }
        require(additional.pos() == message.as_slice().len())?;
        Ok(Self {
            message,
            question,
            edns,
        })
    }

    /// The name that is asked for, as it stands in the query: labels with their lengths.
    pub(super) fn name(&self) -> &'a [u8] {
        let length = usize::from(self.question.qname().compose_len());
        &self.message.as_slice()[QUESTION..QUESTION + length]
    }
}

impl Edns {
    fn of(record: &ParsedRecord<'_, [u8]>) -> Result<Self, ParseError> {
        require(record.owner().is_root())?;
        // Its options are read for their lengths alone.
        record.to_record::<Opt<_>>()?.ok_or(ParseError::ShortInput)?;
        let [_, version, flags, _] = record.ttl().as_secs().to_be_bytes();
        Ok(Self {
            version,
            dnssec_ok: flags & 0x80 != 0,
        })
    }
}

fn require(condition: bool) -> Result<(), ParseError> {
    match condition {
        true => Ok(()),
        false => Err(ParseError::form_error("not a query")),
    }
}
