// Package steps runs a program, counts its system calls that have lasting effects, and can kill it
// before each of them. It uses a seccomp filter, so the program needs no hooks.
package steps

import (
	"fmt"
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Arg is the first argument of a test binary that runs another program: it then must call Exec with
// the remaining arguments.
const Arg = "watched-program"

// Exec executes args[1:] in this process, and reports its steps to the Watcher that listens at the
// path args[0].
func Exec(args []string) error {
	runtime.LockOSThread() // only this thread gets the filter, and exec keeps only this thread
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	steps := make(chan int)
	sent := make(chan error)
	go func() { // on another thread: calls of this one wait until the watcher has received the file
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
		return fmt.Errorf("send the file of steps: %w", err)
	}
	return syscall.Exec(args[1], args[1:], syscall.Environ())
}
