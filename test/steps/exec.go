// Package steps runs a program and counts the system calls by which it changes something, from
// outside, by a seccomp filter: the program is the one that users have, without any hook. It can be
// killed before each of them.
package steps

import (
	"fmt"
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Arg as the first argument makes a test's program call Exec with the others.
const Arg = "watched-program"

// Exec becomes the program of args[1:], whose steps the Watcher that listens at the path args[0] is
// told of.
func Exec(args []string) error {
	runtime.LockOSThread() // the filter is this thread's, and exec keeps this thread
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	steps := make(chan int)
	sent := make(chan error)
	go func() { // another thread sends: this one would wait for who has not got the file yet
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
