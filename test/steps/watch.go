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

// startPatience limits how long a program may take until its first step.
const startPatience = 20 * time.Second

// Watcher follows the steps of programs, one program at a time.
type Watcher struct {
	listener *net.UnixListener
	path     string
}

// Listen returns a Watcher with a socket in a directory.
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

// Wrap returns the words to put before a command, so the Watcher can follow its steps.
func (w *Watcher) Wrap() ([]string, error) {
	self, err := os.Executable()
	return []string{self, Arg, w.path}, err
}

// Record is the record of a program from its start to its end.
type Record struct {
	Steps  int    // number of steps that it has started
	Last   string // name of the last one
	Killed bool   // it was killed before the last one was done
}

// Follow follows the next program until it ends, or kills it before step number kill (0: never).
func (w *Watcher) Follow(kill int) (Record, error) {
	fd, pid, err := w.accept()
	if err != nil {
		return Record{}, fmt.Errorf("wait for the program: %w", err)
	}
	defer unix.Close(fd)
	var record Record
	for {
		n, err := receive(fd)
		if errors.Is(err, os.ErrProcessDone) {
			return record, nil
		}
		if err != nil {
			return record, err
		}
		if name := stepName(n); name != "" {
			record.Steps, record.Last = record.Steps+1, name
			if record.Steps == kill {
				record.Killed = true
				return record, syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if err := resume(fd, n.id); err != nil {
			return record, err
		}
	}
}

// accept receives the file that reports the next program's steps, and returns it with the program's
// process.
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

// notification is struct seccomp_notif.
type notification struct {
	id     uint64
	thread uint32
	_      uint32
	number uint32
	_      uint32
	_      uint64
	args   [6]uint64
}

// receive waits for the next step. It returns os.ErrProcessDone if the program has ended.
func receive(fd int) (notification, error) {
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return notification{}, fmt.Errorf("wait for a step: %w", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return notification{}, os.ErrProcessDone
		}
		var n notification
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR, unix.ENOENT: // the announced process was killed meanwhile
		default:
			return notification{}, fmt.Errorf("receive a step: %w", errno)
		}
	}
}

// resume lets the program do the step.
func resume(fd int, id uint64) error {
	answer := struct {
		id    uint64
		value int64
		err   int32
		flags uint32
	}{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
	if errno != 0 && errno != unix.ENOENT { // ENOENT: the program was killed meanwhile
		return fmt.Errorf("resume after a step: %w", errno)
	}
	return nil
}

// stepName returns the name of a step. It is empty for a write without lasting effect, such as
// waking a thread.
func stepName(n notification) string {
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
