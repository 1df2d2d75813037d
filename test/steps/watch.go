package steps

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// startPatience is how long a program may take to its first step.
const startPatience = 20 * time.Second

// Watcher follows the steps of programs, one after the other.
type Watcher struct {
	listener *net.UnixListener
	path     string
}

// Listen makes a Watcher with a socket in a folder.
func Listen(dir string) (*Watcher, error) {
	path := filepath.Join(dir, "steps.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &Watcher{l, path}, nil
}

// Close ends the Watcher.
func (w *Watcher) Close() error { return w.listener.Close() }

// Wrap returns what goes before the words of a command, so its steps are followed.
func (w *Watcher) Wrap() ([]string, error) {
	self, err := os.Executable()
	return []string{self, Arg, w.path}, err
}

// Life is the record of a program from its start to its end.
type Life struct {
	Steps int    // that it has begun, the last one included
	Last  string // the name of that
	Kill  bool   // it was killed before that was done
}

// Follow follows the next program to its end, or kills it before the step of that number; 0: never.
func (w *Watcher) Follow(kill int) (Life, error) {
	fd, pid, err := w.accept()
	if err != nil {
		return Life{}, fmt.Errorf("wait for the program: %w", err)
	}
	defer unix.Close(fd)
	var life Life
	for {
		n, err := receive(fd)
		if errors.Is(err, os.ErrProcessDone) {
			return life, nil
		}
		if err != nil {
			return life, err
		}
		if name := nameOf(n); name != "" {
			life.Steps, life.Last = life.Steps+1, name
			if life.Steps == kill {
				life.Kill = true
				return life, syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if err := release(fd, n.id); err != nil {
			return life, err
		}
	}
}

// accept gets the file of the next program's steps, and its process.
func (w *Watcher) accept() (fd, pid int, err error) {
	if err := w.listener.SetDeadline(time.Now().Add(startPatience)); err != nil {
		return 0, 0, err
	}
	conn, err := w.listener.AcceptUnix()
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return 0, 0, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil {
		return 0, 0, err
	}
	if len(messages) != 1 {
		return 0, 0, errors.New("the program has ended before its first step")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, 0, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(s uintptr) { peer, err = unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return 0, 0, controlErr
	}
	if err != nil {
		return 0, 0, err
	}
	return fds[0], int(peer.Pid), nil
}

// notice is struct seccomp_notif.
type notice struct {
	id     uint64
	thread uint32
	_      uint32
	number uint32
	_      uint32
	_      uint64
	args   [6]uint64
}

// receive waits for the next step. os.ErrProcessDone: there is none.
func receive(fd int) (notice, error) {
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return notice{}, fmt.Errorf("wait for a step: %w", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return notice{}, os.ErrProcessDone
		}
		var n notice
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR, unix.ENOENT: // the announced process was killed meanwhile
		default:
			return notice{}, fmt.Errorf("receive a step: %w", errno)
		}
	}
}

// release lets the step happen.
func release(fd int, id uint64) error {
	answer := struct {
		id    uint64
		value int64
		err   int32
		flags uint32
	}{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
	if errno != 0 && errno != unix.ENOENT { // it was killed meanwhile
		return fmt.Errorf("release a step: %w", errno)
	}
	return nil
}

// nameOf returns the name of a step; empty for a write without lasting effect, such as waking a
// thread.
func nameOf(n notice) string {
	switch n.number {
	case unix.SYS_BPF:
		return "bpf " + stepCommands()[uint32(n.args[0])]
	case unix.SYS_WRITE:
		file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.thread, int32(n.args[0])))
		if err != nil || strings.HasPrefix(file, "anon_inode:") || strings.HasPrefix(file, "pipe:") {
			return ""
		}
		if strings.HasPrefix(file, "socket:") {
			file = "socket"
		}
		return "write " + file
	}
	return stepCalls()[n.number]
}
