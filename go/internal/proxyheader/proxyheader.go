// Package proxyheader reads the headers of the PROXY protocol, versions 1 and 2, by which a balancer says for whom it
// speaks. It takes and refuses what the Rust crate's quoit::proxy_protocol does, whose corpus its tests read.
package proxyheader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// MostText is the longest header of version 1, in bytes.
	MostText = 107
	// DefaultLimit is the longest header that is taken unless another limit is set, in bytes.
	DefaultLimit = 4096

	signature  = "\r\n\r\n\x00\r\nQUIT\n"
	textPrefix = "PROXY "
	fixed      = 16 // the signature, version and command, family, and the length of the rest
	unixLength = 108
	checksum   = 3 // the type of the value that is one (PP2_TYPE_CRC32C)
)

// Value is what a header of version 2 has beside the addresses.
type Value struct {
	Type  byte
	Value []byte
}

// Header is what a balancer says of a connection.
type Header struct {
	Version int
	// Source and Destination are nil where the connection's own addresses hold.
	Source, Destination net.Addr
	Values              []Value
}

var (
	errMissing  = errors.New("no header of the PROXY protocol came first; let the balancer send one, or leave the option out")
	errLine     = errors.New("the line is no header of version 1")
	errShort    = errors.New("the header is too short for its addresses")
	errPath     = errors.New("the path of a Unix socket in the header has no end")
	errValue    = errors.New("a value of the header does not fit into it")
	errChecksum = errors.New("the header's checksum is wrong")
)

func tooLong(limit int) error { return fmt.Errorf("the header is longer than %d bytes", limit) }

// Decode reads the header at the beginning of view: it, and how many bytes it has. It returns nil and no error if more bytes
// are needed; then there are fewer than limit, which counts as MostText if it is lower. What it returns refers to no
// memory of view's.
func Decode(view []byte, limit int) (*Header, int, error) {
	switch {
	case begins(view, signature):
		return decodeBinary(view, max(limit, MostText))
	case begins(view, textPrefix):
		return decodeText(view)
	}
	return nil, 0, errMissing
}

// begins is whether the view begins with a prefix, as far as it goes.
func begins(view []byte, prefix string) bool {
	common := min(len(view), len(prefix))
	return string(view[:common]) == prefix[:common]
}

func decodeText(view []byte) (*Header, int, error) {
	seen := view[:min(len(view), MostText)]
	end := bytes.IndexAny(seen, "\r\n")
	if end < 0 || seen[end] == '\r' && end+1 == len(seen) {
		if len(seen) == MostText {
			return nil, 0, tooLong(MostText)
		}
		return nil, 0, nil
	}
	// Neither end of line stands alone.
	if seen[end] == '\n' || seen[end+1] != '\n' {
		return nil, 0, errLine
	}
	header := &Header{Version: 1}
	line, _ := strings.CutPrefix(string(seen[:end]), textPrefix)
	if ignored, unknown := strings.CutPrefix(line, "UNKNOWN"); unknown {
		if ignored != "" && ignored[0] != ' ' {
			return nil, 0, errLine
		}
		return header, end + 2, nil
	}
	words := strings.Split(line, " ")
	if len(words) != 5 || words[0] != "TCP4" && words[0] != "TCP6" {
		return nil, 0, errLine
	}
	source, isSource := parseAddress(words[0], words[1], words[3])
	destination, isDestination := parseAddress(words[0], words[2], words[4])
	if !isSource || !isDestination {
		return nil, 0, errLine
	}
	header.Source, header.Destination = source, destination
	return header, end + 2, nil
}

func parseAddress(family, ip, port string) (net.Addr, bool) {
	address, err := netip.ParseAddr(ip)
	if err != nil || address.Is4() != (family == "TCP4") || address.Zone() != "" {
		return nil, false
	}
	// Without a sign, and without zeros before it.
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || len(port) > 1 && port[0] == '0' {
		return nil, false
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, uint16(number))), true
}

func decodeBinary(view []byte, limit int) (*Header, int, error) {
	// What is wrong is said as soon as it is there.
	if len(view) > 12 {
		if version := view[12] >> 4; version != 2 {
			return nil, 0, fmt.Errorf("the binary header has version %d, not 2", version)
		}
		if command := view[12] & 15; command > 1 {
			return nil, 0, fmt.Errorf("%d is not a command of the header", command)
		}
	}
	if len(view) < fixed {
		return nil, 0, nil
	}
	isLocal := view[12]&15 == 0
	family := view[13]
	length := fixed + int(binary.BigEndian.Uint16(view[14:]))
	// Of a local connection the family does not matter, nor do the addresses.
	if !isLocal && (family>>4 > 3 || family&15 > 2) {
		return nil, 0, fmt.Errorf("%#02x is not a family and protocol of the header", family)
	}
	addresses := 0
	if !isLocal {
		switch family {
		case 0x11, 0x12:
			addresses = 2*4 + 4
		case 0x21, 0x22:
			addresses = 2*16 + 4
		case 0x31, 0x32:
			addresses = 2 * unixLength
		}
	}
	switch {
	case length < fixed+addresses:
		return nil, 0, errShort
	case length > limit:
		return nil, 0, tooLong(limit)
	case len(view) < length:
		return nil, 0, nil
	}
	header := &Header{Version: 2}
	if addresses == 0 {
		return header, length, nil
	}
	there := view[fixed : fixed+addresses]
	values, err := valuesOf(view[:length], fixed+addresses)
	if err != nil {
		return nil, 0, err
	}
	switch family {
	case 0x11:
		header.Source, header.Destination = ipAddress(there[:4], there[8:]), ipAddress(there[4:8], there[10:])
	case 0x21:
		header.Source, header.Destination = ipAddress(there[:16], there[32:]), ipAddress(there[16:32], there[34:])
	case 0x31:
		if header.Source, err = unixAddress(there[:unixLength]); err == nil {
			header.Destination, err = unixAddress(there[unixLength:])
		}
		if err != nil {
			return nil, 0, err
		}
	default:
		// Datagrams have no place on a stream: as if the family were not specified.
		return header, length, nil
	}
	header.Values = values
	return header, length, nil
}

func ipAddress(ip, port []byte) net.Addr {
	address, _ := netip.AddrFromSlice(ip)
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, binary.BigEndian.Uint16(port)))
}

// unixAddress reads an address as in sun_path, filled up with zeros: where an abstract name ends cannot be told from that
// otherwise.
func unixAddress(field []byte) (net.Addr, error) {
	used := bytes.TrimRight(field, "\x00")
	switch {
	case len(used) == 0:
		return &net.UnixAddr{Net: "unix"}, nil
	case used[0] == 0:
		return &net.UnixAddr{Net: "unix", Name: "@" + string(used[1:])}, nil
	}
	path, _, ends := bytes.Cut(field, []byte{0})
	if !ends {
		return nil, errPath
	}
	return &net.UnixAddr{Net: "unix", Name: string(path)}, nil
}

// castagnoli is the polynomial of CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// valuesOf returns the values of a whole header, which begin at that place, and checks its checksum if it has one.
func valuesOf(whole []byte, begin int) ([]Value, error) {
	var values []Value
	place := 0
	for at := begin; at < len(whole); {
		if len(whole)-at < 3 {
			return nil, errValue
		}
		kind, length := whole[at], int(binary.BigEndian.Uint16(whole[at+1:]))
		at += 3
		if len(whole)-at < length {
			return nil, errValue
		}
		if kind == checksum {
			// Of two checksums each would be of a header without the other.
			if length != 4 || place > 0 {
				return nil, errValue
			}
			place = at
		}
		values = append(values, Value{Type: kind, Value: bytes.Clone(whole[at : at+length])})
		at += length
	}
	if place == 0 {
		return values, nil
	}
	sum := crc32.Update(0, castagnoli, whole[:place])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	sum = crc32.Update(sum, castagnoli, whole[place+4:])
	if sum != binary.BigEndian.Uint32(whole[place:]) {
		return nil, errChecksum
	}
	return values, nil
}
