// Dns answers questions for the A records of a small zone, without a goroutine a question.
package main

import (
	"context"
	"net"

	quoit "github.com/quoit-io/quoit/go"
	"github.com/quoit-io/quoit/go/examples/internal/example"
	"golang.org/x/net/dns/dnsmessage"
)

func main() { example.Run(serve) }

// zone is what it knows.
var zone = map[string][4]byte{"one.example.": {192, 0, 2, 1}, "two.example.": {192, 0, 2, 2}}

type responder struct{ quoit.BaseDatagramHandler }

// OnDatagram answers each question. What makes no sense gets no answer, and an answer that finds no room is lost: the
// client asks again in both cases.
func (responder) OnDatagram(s *quoit.DatagramSocket, batch []quoit.Datagram) {
	for index := range batch {
		if reply := answer(batch[index].Bytes); reply != nil {
			_ = s.Reply(&batch[index], reply)
		}
	}
}

// answer makes the answer to one question, or none.
func answer(query []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		return nil
	}
	question, err := parser.Question()
	if err != nil {
		return nil
	}
	reply := dnsmessage.Header{ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired}
	address, known := zone[question.Name.String()]
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	builder := dnsmessage.NewBuilder(nil, reply)
	builder.EnableCompression()
	if builder.StartQuestions() != nil || builder.Question(question) != nil || builder.StartAnswers() != nil {
		return nil
	}
	if known && question.Type == dnsmessage.TypeA {
		record := dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class, TTL: 60}
		if builder.AResource(record, dnsmessage.AResource{A: address}) != nil {
			return nil
		}
	}
	message, err := builder.Finish()
	if err != nil {
		return nil
	}
	return message
}

func serve(ctx context.Context, address string, ready func(net.Addr)) error {
	// Questions are small, and their answers must leave by the address that was asked.
	server, err := quoit.StartDatagrams("udp", address, responder{}, quoit.WithMaxDatagram(4096), quoit.WithDatagramDetails())
	if err != nil {
		return err
	}
	ready(server.Addr())
	<-ctx.Done()
	return example.Drain(server.Shutdown)
}
