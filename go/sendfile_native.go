//go:build linux && !quoit_std && (amd64 || arm64)

package quoit

import (
	"io"
	"os"
	"syscall"

	"github.com/quoit-io/quoit/go/internal/native"
)

// sendFile sends what r reads, if that is a regular file, or the beginning of one, from where it is, without a copy in the
// process; it moves the file behind what it has sent. It returns 0 and no error where that is not to be: the caller copies.
func (n *netConn) sendFile(r io.Reader) (sent int64, err error) {
	loop, can := n.conn.home.(*nativeLoop)
	if !can || loop.here() {
		return 0, nil
	}
	from, most, limited := unwrapLimited(r)
	// Whatever has a descriptor, as with package net: io.Copy hides an os.File's type.
	file, can := from.(syscall.Conn)
	if !can || most <= keptSize {
		return 0, nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, nil // which the copy tells
	}
	// It fails where the file is closed, and the copy tells.
	_ = raw.Read(func(fd uintptr) bool {
		sent, err = n.sendRange(int(fd), most)
		return true
	})
	if limited != nil {
		limited.N -= sent
	}
	return sent, err
}

// unwrapLimited takes apart a reader of a part: what is read, and how much of it at most.
func unwrapLimited(r io.Reader) (from io.Reader, most int64, limited *io.LimitedReader) {
	if limited, is := r.(*io.LimitedReader); is {
		return limited.R, limited.N, limited
	}
	return r, 1<<63 - 1, nil
}

// sendRange sends at most so much of a descriptor, which stays open meanwhile, if it is a regular file's.
func (n *netConn) sendRange(fd int, most int64) (sent int64, err error) {
	var about syscall.Stat_t
	if syscall.Fstat(fd, &about) != nil || about.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return 0, nil
	}
	if !isReadable(fd) {
		return 0, syscall.EBADF
	}
	start, err := syscall.Seek(fd, 0, io.SeekCurrent)
	if err != nil || min(most, about.Size-start) <= keptSize {
		return 0, nil // A little leaves with what was written before, if it is copied.
	}
	n.writing.Lock()
	defer n.writing.Unlock()
	job := &fileJob{fd: fd, offset: start, left: most, done: n.writable}
	if _, err := n.tryFile(job); err == errClosed || err == errTimeout {
		return 0, n.opError("write", err) // as of package net's, which begins nothing then
	}
	c := n.conn
	c.mu.Lock()
	c.files.job = job
	c.ask(requestFlush)
	for {
		var over bool
		if over, err = n.tryFile(job); over || err != nil {
			break
		}
		<-n.writable
	}
	c.mu.Lock()
	c.files.job = nil
	end, unreadable := job.offset, job.err
	c.mu.Unlock()
	if _, failure := syscall.Seek(fd, end, io.SeekStart); err == nil {
		err = failure
	}
	if err == nil && unreadable != nil && !(end == start && isRefused(unreadable)) {
		err = os.NewSyscallError("sendfile", unreadable)
	}
	return end - start, err
}

// isRefused is whether the kernel does not send from such a file, as from some of its own in /proc: the caller copies.
func isRefused(err error) bool {
	return err == syscall.EINVAL || err == syscall.EOPNOTSUPP || err == syscall.ENOSYS
}

// isReadable is whether the file was opened to be read.
func isReadable(fd int) bool {
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	return errno == 0 && flags&syscall.O_ACCMODE != syscall.O_WRONLY
}

// tryFile returns whether the job has come to its end, or cannot.
func (n *netConn) tryFile(job *fileJob) (over bool, err error) {
	n.mu.Lock()
	closed, expired, failure, lost := n.closed, n.writeLimit.expired(), n.failure, n.lost
	n.mu.Unlock()
	c := n.conn
	c.mu.Lock()
	over = job.over
	state := c.state
	c.mu.Unlock()
	switch {
	case over:
		return true, nil
	case closed:
		return false, errClosed
	case expired:
		return false, errTimeout
	case failure != nil:
		return false, failure
	case state != stateOpen:
		return false, n.sendsNoMore(lost)
	}
	return false, nil
}

// askFile gives the library the next part of a file, when it has all that was written before. The lock is held.
func (l *nativeLoop) askFile(c *Conn) {
	if !c.files.waits() || c.state != stateOpen || c.out.blocked {
		return
	}
	if !c.out.empty() {
		l.hurry = l.hurry || c.out.flying > 0 // followUpSends lists it again
		return
	}
	job := c.files.job
	// No more than there is now: if a deadline comes, the part counts as written.
	var about syscall.Stat_t
	part := int64(0)
	if syscall.Fstat(job.fd, &about) == nil {
		part = min(job.left, about.Size-job.offset, int64(l.group.config.highWater))
	}
	if part <= 0 {
		l.fileOver(job)
		return
	}
	own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(job.fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		l.fileOver(job) // of descriptors there are no more; a copy needs none
		return
	}
	l.token++
	l.push(native.Command{
		Kind: native.CommandSendFile, Flags: native.FlagTellShort, Target: c.id, Token: l.token, Descriptor: int32(own),
		Offset: uint64(job.offset), Length: uint32(part),
	})
	c.files.token, c.files.of, c.files.part = l.token, job, part
	job.offset += part
	job.left -= part
}

// fileOver tells the writer that there is no more to be sent of its file. The lock is held.
func (l *nativeLoop) fileOver(job *fileJob) {
	job.over = true
	signal(job.done)
	l.wokeSomebody()
}

// fileSent notes that a part of a file is with the kernel, and sends the next one.
func (l *nativeLoop) fileSent(c *Conn, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files.token != token {
		return
	}
	c.files.token, c.files.of = 0, nil
	// If its deadline has come, the writer has gone, or it is another one.
	if job := c.files.job; job != nil && job.left == 0 {
		l.fileOver(job)
	} else if c.id != 0 {
		l.askFile(c)
	}
}

// fileShort notes that of a part of a file so many bytes are missing: the file has ended, or cannot be read.
func (l *nativeLoop) fileShort(c *Conn, token uint64, missing int64, errno syscall.Errno) {
	c.mu.Lock()
	if c.files.token != token {
		c.mu.Unlock()
		return
	}
	job := c.files.of
	here := c.files.job == job
	c.files.token, c.files.of = 0, nil
	if here {
		job.offset -= missing
		if errno != 0 {
			job.err = errno
		}
		l.fileOver(job)
	}
	open := c.state == stateOpen
	c.mu.Unlock()
	if !here && open {
		// The writer's deadline came before, and it was told that the part is on its way: what is written next would pass for it.
		c.abort(syscall.ENODATA)
	}
}

// dropCommands drops those that the library is given no more, as the loop ends: descriptors for parts of files would have been its
// to close.
func (l *nativeLoop) dropCommands() {
	for _, command := range l.commands {
		if command.Kind == native.CommandSendFile {
			_ = syscall.Close(int(command.Descriptor)) // nothing was written by it that could fail now
		}
	}
	l.commands = l.room[:0]
}

// takeBack takes back a part that the library has not taken, as it has too many pieces already: it says when it is writable.
// It returns whether that can be; not if the writer has gone, and was told that the part is on its way. The lock is held.
func (f *files) takeBack() bool {
	job := f.of
	job.offset -= f.part
	job.left += f.part
	f.token, f.of = 0, nil
	return f.job == job
}
