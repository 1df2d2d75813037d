package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReceiveBatch bounds the messages of one Receive.
const ReceiveBatch = 1024

// checkEvery is the time without a message after which the subscription is verified.
const checkEvery = 5 * time.Second

// ErrOverrun reports that messages were lost: the receive buffer was full.
var ErrOverrun = errors.New("messages were lost")

// Subscription receives the kernel's notifications.
type Subscription struct {
	file *os.File
	conn syscall.RawConn
	buf  []byte

	groups []int
}

// Subscribe receives the groups of rtnetlink (RTNLGRP_*) from now on. bufferBytes is the size of
// the receive buffer.
func (n *Namespace) Subscribe(bufferBytes int, groups ...int) (*Subscription, error) {
	return n.subscribe(unix.NETLINK_ROUTE, bufferBytes, groups)
}

// SubscribeGeneric receives a group of generic netlink from now on.
func (n *Namespace) SubscribeGeneric(bufferBytes, group int) (*Subscription, error) {
	return n.subscribe(unix.NETLINK_GENERIC, bufferBytes, []int{group})
}

// SubscribeIPsec receives groups of xfrm from now on. EPROTONOSUPPORT: the kernel has none.
func (n *Namespace) SubscribeIPsec(bufferBytes int, groups ...int) (*Subscription, error) {
	return n.subscribe(unix.NETLINK_XFRM, bufferBytes, groups)
}

func (n *Namespace) subscribe(family, bufferBytes int, groups []int) (*Subscription, error) {
	fd := -1
	err := n.Do(func() (err error) {
		fd, err = openSocket(family, unix.SOCK_NONBLOCK)
		return err
	})
	if err != nil {
		return nil, err
	}
	setReceiveBuffer(fd, bufferBytes)
	for _, group := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("subscribe to netlink group %d: %w", group, err)
		}
	}
	s := &Subscription{file: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, receiveBytes), groups: groups}
	if s.conn, err = s.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// Receive waits for messages and calls each for every one; it also returns after a while without
// any. ErrOverrun reports that messages were lost, and that more are lost until Drain is called.
// After any other error, the kernel no longer reports all groups.
func (s *Subscription) Receive(ctx context.Context, each func(Message)) error {
	if err := s.file.SetReadDeadline(time.Now().Add(checkEvery)); err != nil {
		return fmt.Errorf("receive from the kernel: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var failed error
	err := s.conn.Read(func(fd uintptr) bool {
		for some := range ReceiveBatch {
			n, _, err := unix.Recvfrom(int(fd), s.buf, 0)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return some > 0
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.ENOBUFS):
				failed = ErrOverrun
				return true
			case err != nil:
				failed = err
				return true
			default:
				failed = split(s.buf[:n], func(m Message) error {
					each(m)
					return nil
				})
				if failed != nil {
					return true
				}
			}
		}
		return true
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(failed, ErrOverrun):
		return failed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return s.check()
	case errors.Join(err, failed) != nil:
		return fmt.Errorf("receive from the kernel: %w", errors.Join(err, failed))
	}
	return nil
}

// Socket returns the socket, for tests.
func (s *Subscription) Socket() syscall.RawConn { return s.conn }

// check reports whether the kernel still reports all groups: a dead subscription is as silent as a
// network without changes.
func (s *Subscription) check() error {
	var failed error
	err := s.conn.Control(func(fd uintptr) {
		const most = 32 // groups are below 1,024
		var member [most]uint32
		size := uint32(unsafe.Sizeof(member))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_NETLINK, unix.NETLINK_LIST_MEMBERSHIPS,
			uintptr(unsafe.Pointer(&member)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			failed = errno
			return
		}
		for _, g := range s.groups {
			if at := g - 1; member[at/32]>>(at%32)&1 == 0 {
				failed = fmt.Errorf("the kernel no longer reports group %d", g)
			}
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("the subscription to the kernel's changes is lost: %w", err)
	}
	return nil
}

// Drain discards received messages. After an overrun the kernel sends nothing more until its queue
// was empty once, so a table must be read after Drain, not before.
func (s *Subscription) Drain() error {
	var failed error
	err := s.conn.Control(func(fd uintptr) {
		for {
			_, _, err := unix.Recvfrom(int(fd), s.buf, unix.MSG_DONTWAIT)
			switch {
			case err == nil, errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS):
			case errors.Is(err, unix.EAGAIN):
				return
			default:
				failed = err
				return
			}
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("receive from the kernel: %w", err)
	}
	return nil
}

// Close ends the subscription. It does nothing if s is nil.
func (s *Subscription) Close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}
