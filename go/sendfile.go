package quoit

import (
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// files is what a connection sends of files: the library has a part at a time. Under the connection's lock.
type files struct {
	job   *fileJob // of the writer that waits; or nil
	token uint64   // of the part that the library has; 0 if it has none
	of    *fileJob // whose part that is
	part  int64    // its bytes
}

// fileJob is a copy of a file to a connection, for whose end a writer waits. Under the connection's lock.
type fileJob struct {
	fd     int           // the file's; open as long as the job is its connection's
	offset int64         // where the next part begins
	left   int64         // of what was asked for, from there on
	over   bool          // the library has had all that there is
	err    error         // what reading it failed with; set with over
	done   chan struct{} // room for one; tells the writer to look
}

// waits is whether the library is to be given a part when all that was written before is with it.
func (f *files) waits() bool { return f.job != nil && !f.job.over && f.token == 0 }

// ReadFrom is NetConn.ReadFrom.
func (n *netConn) ReadFrom(r io.Reader) (int64, error) {
	count, err := n.sendFile(r)
	fromFile := err != nil
	if err == nil {
		// The rest of a file that has only now become longer, too, and of one whose length nobody knows, as in /proc.
		buffer := keptPool.Get().(*kept)
		defer buffer.release()
		var copied int64
		// Without the method, or io.CopyBuffer would call it again.
		copied, err = io.CopyBuffer(struct{ io.Writer }{n}, struct{ io.Reader }{r}, buffer.bytes[:keptSize])
		count += copied
	}
	if err == nil {
		return count, nil
	}
	if _, isOp := err.(*net.OpError); fromFile && !isOp {
		if name, hides := hiddenFile(r); hides {
			return count, &fs.PathError{Op: "read", Path: name, Err: asCall("sendfile", err)}
		}
	}
	if strings.HasPrefix(networkOf(n.conn.socketAddr()), "tcp") {
		return count, n.opError("readfrom", err)
	}
	// A net.UnixConn has no such method, so that its Write fails.
	if _, isOp := err.(*net.OpError); fromFile && !isOp {
		err = n.opError("write", err)
	}
	return count, err
}

// hiddenFile is the name of the os.File that io.Copy hides in r, whose WriteTo it asks first: of package net's connections that
// does the copy, and an error is the file's.
func hiddenFile(r io.Reader) (name string, hides bool) {
	if _, isFile := r.(*os.File); isFile {
		return "", false
	}
	file, hides := r.(interface {
		fs.File
		syscall.Conn
		Name() string
	})
	if !hides {
		return "", false
	}
	return file.Name(), true
}
