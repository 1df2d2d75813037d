package ipsec

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
)

// Read lists the policies of a namespace that may match balanced packets, in the kernel's order. A
// kernel without IPsec has none.
func Read(ns *netlink.Namespace) ([]Policy, error) {
	conn, err := ns.DialIPsec()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := read(conn)
	return list, errors.Join(err, conn.Close())
}

func read(conn *netlink.Conn) (list []Policy, err error) {
	err = conn.Dump(msgGetPolicy, nil, func(m netlink.Message) {
		if m.Type != msgNewPolicy {
			return
		}
		if p, ok := parse(m.Body); ok {
			list = append(list, p)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list policies of IPsec: %w", err)
	}
	slices.Reverse(list) // of equal priority the oldest comes first, which the kernel lists last
	slices.SortStableFunc(list, func(a, b Policy) int { return cmp.Compare(a.priority, b.priority) })
	return withDefault(conn, list)
}

// withDefault adds the default for packets that match no policy. Kernels before 5.15 let them
// leave.
func withDefault(conn *netlink.Conn, list []Policy) ([]Policy, error) {
	answer, err := conn.One(netlink.NewRequest(msgGetDefault, 0, make([]byte, 4)))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return list, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the default policy of IPsec: %w", err)
	}
	if len(answer) > 2 && answer[1] == defaultBlock {
		list = append(list, everything(true)...)
	}
	if len(answer) > 2 && answer[2] == defaultBlock {
		list = append(list, everything(false)...)
	}
	return list, nil
}
