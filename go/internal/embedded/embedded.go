// Package embedded has the libraries that a program carries inside itself, by the modules below lib.
package embedded

import (
	"io/fs"
	"sync"
)

// Files are the names of the libraries in what a module registers, by the C library that the program runs on.
const (
	Glibc = "libquoit-glibc.so"
	Musl  = "libquoit-musl.so"
)

var (
	mu    sync.Mutex
	files fs.FS
	by    string
)

// Register makes libraries known to this program, in a folder of the given name; module is for messages. Each module does so
// when it is initialised, and a program for one architecture has one of them.
func Register(module string, libraries fs.FS, folder string) {
	mu.Lock()
	defer mu.Unlock()
	by = module
	files, _ = fs.Sub(libraries, folder) // fails for names that are no paths, and this is one
}

// Read returns a library that was registered, and the module that did; no module if none did. Any thread.
func Read(name string) (library []byte, module string, err error) {
	mu.Lock()
	defer mu.Unlock()
	if by == "" {
		return nil, "", nil
	}
	library, err = fs.ReadFile(files, name)
	return library, by, err
}
