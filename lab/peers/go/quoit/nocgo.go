package main

// Built with CGO_ENABLED=0 it has libquoit's engines all the same.
import _ "github.com/quoit-io/quoit/go/nocgo"
