// Package steps runs a program and counts the system calls by which it changes something. It can
// kill the program before each of them. It uses a seccomp filter, so the program is the released
// one, without hooks.
package steps

import (
	"fmt"
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Arg is the first argument that makes a test's program call Exec with the remaining arguments.
const Arg = "watched-program"

// Exec executes args[1:] in this process, and reports its steps to the Watcher that listens at the
// path args[0].
func Exec(args []string) error {
	runtime.LockOSThread() // the filter is this thread's, and exec keeps this thread
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	steps := make(chan int)
	sent := make(chan error)
	go func() { // another thread sends: this one's calls wait for the receiver of the file
		runtime.LockOSThread()
		_, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte{0}, unix.UnixRights(<-steps), nil)
		sent <- err
	}()
	fd, err := install()
	if err != nil {
		return err
	}
	steps <- fd
	if err := <-sent; err != nil {
		return fmt.Errorf("hand over the steps: %w", err)
	}
	return syscall.Exec(args[1], args[1:], syscall.Environ())
}
