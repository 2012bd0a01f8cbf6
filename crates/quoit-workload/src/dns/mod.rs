//! An authoritative responder for a few address records, without any input and output of its own: a server that
//! receives and sends gives it datagrams. `quoit serve dns` and its plain rival share it, so that only what carries the
//! datagrams differs.
//!
//! An answer is at most [`MOST_GROWTH`] bytes longer than its query, and anything but an answer never longer: who
//! spoofs the address of somebody else gains nothing.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod query;
#[cfg(test)]
mod tests;
mod zone;

use domain::base::iana::{Class, OptRcode, Rcode};
use domain::base::message_builder::StaticCompressor;
use domain::base::{Message, MessageBuilder, Ttl};
use domain::rdata::{A, Aaaa};

pub use zone::{Record, RecordError, Zone};

use query::{Query, Rejection};
use zone::{Address, Found};

/// Bytes of the longest query that is taken, and the payload that answers with EDNS announce: what fits into one packet
/// on any path, as the operators of name servers have agreed on (DNS flag day 2020).
pub const MOST_BYTES: u16 = 1232;

/// Bytes by which an answer may be longer than its query: a record with a compressed name and an address of IPv6.
pub const MOST_GROWTH: usize = 12 + 16;

/// Room for any response: a header, a question with the longest name, a record, EDNS.
const RESPONSE_ROOM: usize = 512;

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered with an address.
    Answered,
    /// The name has no record of that type: NOERROR without an answer.
    NoData,
    /// REFUSED: a name that is not served, a class other than IN, or a transfer of a zone.
    Refused,
    /// FORMERR: not a query that can be understood.
    Malformed,
    /// NOTIMP: not a query but another operation.
    NotImplemented,
    /// BADVERS: a version of EDNS other than 0.
    BadVersion,
    /// Not answered at all: too short, or itself a response, which two servers could send back and forth for ever.
    Ignored,
}

impl Outcome {
    /// All of them, in the order of [`Outcome::index`].
    pub const ALL: [Self; 7] = [
        Self::Answered,
        Self::NoData,
        Self::Refused,
        Self::Malformed,
        Self::NotImplemented,
        Self::BadVersion,
        Self::Ignored,
    ];

    /// Its place in [`Outcome::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Answers queries from a [`Zone`].
#[derive(Debug)]
pub struct Responder {
    zone: Zone,
    ttl: Ttl,
    response: Vec<u8>,
}

impl Responder {
    /// One for these records. Answers may be kept for `ttl` seconds, at most 2^31 - 1 (RFC 2181).
    #[must_use]
    pub fn new(zone: Zone, ttl: u32) -> Self {
        Self {
            zone,
            ttl: Ttl::from_secs(ttl),
            response: Vec::with_capacity(RESPONSE_ROOM),
        }
    }

    /// What to send back for a datagram, whatever it is: nothing if it is [`Outcome::Ignored`]. Allocates nothing.
    pub fn answer(&mut self, datagram: &[u8]) -> (Outcome, &[u8]) {
        let outcome = self.respond(datagram);
        match outcome {
            Outcome::Ignored => (outcome, &[]),
            _ => (outcome, &self.response),
        }
    }

    fn respond(&mut self, datagram: &[u8]) -> Outcome {
        let query = match Query::read(datagram) {
            Ok(query) => query,
            Err(Rejection::Ignore) => return Outcome::Ignored,
            Err(Rejection::Operation(message)) => {
                self.header_only(message, Rcode::NOTIMP);
                return Outcome::NotImplemented;
            }
            Err(Rejection::Format(message)) => {
                self.header_only(message, Rcode::FORMERR);
                return Outcome::Malformed;
            }
        };
        let (outcome, rcode, address) = self.decide(&query);
        self.write(&query, rcode, address)
            .expect("memory grows, and a response has fewer records than 2^16");
        outcome
    }

    fn decide(&self, query: &Query<'_>) -> (Outcome, OptRcode, Option<Address>) {
        if query.edns.is_some_and(|edns| edns.version != 0) {
            return (Outcome::BadVersion, OptRcode::BADVERS, None);
        }
        let question = &query.question;
        if question.qclass() != Class::IN {
            return (Outcome::Refused, OptRcode::REFUSED, None);
        }
        match self
            .zone
            .find(query.name(), question.qtype(), query.message.header().id())
        {
            Found::Address(address) => (Outcome::Answered, OptRcode::NOERROR, Some(address)),
            Found::OtherTypes => (Outcome::NoData, OptRcode::NOERROR, None),
            Found::Nothing => (Outcome::Refused, OptRcode::REFUSED, None),
        }
    }

    fn write(
        &mut self,
        query: &Query<'_>,
        rcode: OptRcode,
        address: Option<Address>,
    ) -> Result<(), domain::base::message_builder::PushError> {
        let Ok(builder) = MessageBuilder::from_target(StaticCompressor::new(&mut self.response));
        let mut response = builder.start_answer(query.message, rcode.rcode())?;
        let header = response.header_mut();
        header.set_aa(rcode == OptRcode::NOERROR);
        // RFC 4035, 3.1.6: copied, as everything here is unsigned.
        header.set_cd(query.message.header().cd());
        let name = query.question.qname();
        match address {
            Some(Address::V4(address)) => response.push((name, Class::IN, self.ttl, A::new(address)))?,
            Some(Address::V6(address)) => response.push((name, Class::IN, self.ttl, Aaaa::new(address)))?,
            None => {}
        }
        if let Some(edns) = query.edns {
            response.additional().opt(|opt| {
                opt.set_udp_payload_size(MOST_BYTES);
                opt.set_rcode(rcode);
                // RFC 3225, 3: copied.
                opt.set_dnssec_ok(edns.dnssec_ok);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// A response without a question, for what could not be read, or not be known.
    fn header_only(&mut self, query: &Message<[u8]>, rcode: Rcode) {
        let Ok(mut response) = MessageBuilder::from_target(&mut self.response);
        let (asked, header) = (query.header(), response.header_mut());
        header.set_id(asked.id());
        header.set_qr(true);
        header.set_opcode(asked.opcode());
        header.set_rd(asked.rd());
        header.set_rcode(rcode);
    }
}
