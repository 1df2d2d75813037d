package faulty

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"loxilb/test/netnstest"
)

//go:generate ../../../tools/bpf accept accept.bpf.c

// Accept answers each TCP SYN that arrives at an interface over IPv4 with a SYN+ACK, for any
// address and port, without a socket. It ignores all other packets. stop ends it.
func Accept(h *netnstest.Host, name string) (stop func() error, err error) {
	at, err := ifindex(h, name)
	if err != nil {
		return nil, err
	}
	var o acceptObjects
	if err := loadAcceptObjects(&o, nil); err != nil {
		return nil, fmt.Errorf("load the program that answers SYNs: %w", err)
	}
	defer o.Close() //nolint:errcheck // the link keeps the program
	var attached link.Link
	err = h.Do(func() (err error) {
		attached, err = link.AttachTCX(link.TCXOptions{Interface: int(at), Program: o.AcceptConnection, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach the program that answers SYNs to %s: %w", name, err)
	}
	return attached.Close, nil
}
