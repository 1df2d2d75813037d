package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/bench/crr"
	"loxilb/test/netnstest"
)

// toHost is the label in tc programs that passes a packet to the host.
const toHost = "to-host"

// sink is a tc program at a host's interface that counts the generator's packets. It drops them or
// returns them to their sender; the host's own stack does not receive them.
type sink struct {
	count   *ebpf.Map
	program *ebpf.Program
	link    link.Link
}

// newSink attaches a sink to a host's eth0.
func newSink(h *netnstest.Host, echo bool) (*sink, error) {
	return attachSink(h, func(count *ebpf.Map, ifindex int) asm.Instructions { return sinkProgram(count, echo, ifindex) })
}

// newSilence attaches a program that counts and drops all IP packets.
func newSilence(h *netnstest.Host) (*sink, error) {
	return attachSink(h, func(count *ebpf.Map, _ int) asm.Instructions { return silenceProgram(count) })
}

func attachSink(h *netnstest.Host, program func(count *ebpf.Map, ifindex int) asm.Instructions) (*sink, error) {
	s := new(sink)
	err := h.Do(func() (err error) {
		dev, err := h.Netlink().LinkByName("eth0")
		if err != nil {
			return fmt.Errorf("find eth0: %w", err)
		}
		index := dev.Attrs().Index
		if s.count, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
			return fmt.Errorf("make a sink's counter: %w", err)
		}
		s.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.SchedCLS, License: "GPL", Instructions: program(s.count, index),
		})
		if err != nil {
			return fmt.Errorf("load a sink: %w", err)
		}
		s.link, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: s.program, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attach a sink: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// sinkProgram counts packets with IP identification frameMark, and passes others.
func sinkProgram(count *ebpf.Map, echo bool, ifindex int) asm.Instructions {
	p := append(packetOf(42),
		asm.LoadMem(asm.R1, asm.R7, 18, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, frameMark, toHost),
	)
	p = append(p, countOne(count)...)
	if echo {
		p = append(p, swap(0, 6, asm.Word)...) // MAC addresses
		p = append(p, swap(4, 10, asm.Half)...)
		p = append(p, swap(26, 30, asm.Word)...) // IP addresses: the sums stay right
		p = append(p, swap(34, 36, asm.Half)...) // ports
		p = append(p, asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())
	} else {
		p = append(p, asm.Mov.Imm(asm.R0, 2), asm.Return()) // TC_ACT_SHOT
	}
	return append(p, asm.Mov.Imm(asm.R0, -1).WithSymbol(toHost), asm.Return()) // TCX_NEXT
}

// silenceProgram counts and drops IP packets, and passes others.
func silenceProgram(count *ebpf.Map) asm.Instructions {
	const ip = "ip"
	p := append(packetOf(14),
		asm.LoadMem(asm.R1, asm.R7, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JEq.Imm(asm.R1, 0x0800, ip),
		asm.JNE.Imm(asm.R1, 0x86dd, toHost),
	)
	counting := countOne(count)
	counting[0] = counting[0].WithSymbol(ip)
	return append(append(p, counting...),
		asm.Mov.Imm(asm.R0, 2), asm.Return(), // TC_ACT_SHOT
		asm.Mov.Imm(asm.R0, -1).WithSymbol(toHost), asm.Return()) // TCX_NEXT
}

// countOne adds one to a counter.
func countOne(count *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.R10, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, count.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, toHost),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
	}
}

// packetOf loads the start of the packet into R7, from the context in R1, and jumps to toHost if it
// is shorter.
func packetOf(bytes int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, 76, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 80, asm.Word), // data_end
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Add.Imm(asm.R2, bytes),
		asm.JGT.Reg(asm.R2, asm.R3, toHost),
	}
}

// swap exchanges two places of the packet.
func swap(a, b int16, size asm.Size) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R7, a, size), asm.LoadMem(asm.R2, asm.R7, b, size),
		asm.StoreMem(asm.R7, a, asm.R2, size), asm.StoreMem(asm.R7, b, asm.R1, size),
	}
}

// counted returns the number of packets.
func (s *sink) counted() (n uint64, err error) {
	return n, s.count.Lookup(uint32(0), &n)
}

func (s *sink) close() error {
	var errs []error
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	if s.program != nil {
		errs = append(errs, s.program.Close())
	}
	if s.count != nil {
		errs = append(errs, s.count.Close())
	}
	return errors.Join(errs...)
}

// sinks are the sinks of several hosts.
type sinks []*sink

func newSinks(hosts []*netnstest.Host, echo bool) (out sinks, err error) {
	for _, h := range hosts {
		s, err := newSink(h, echo)
		if err != nil {
			return nil, errors.Join(err, out.close())
		}
		out = append(out, s)
	}
	return out, nil
}

func (s sinks) counted() ([]uint64, error) {
	out := make([]uint64, len(s))
	for i := range s {
		n, err := s[i].counted()
		if err != nil {
			return nil, fmt.Errorf("read a sink: %w", err)
		}
		out[i] = n
	}
	return out, nil
}

func (s sinks) close() error {
	var errs []error
	for _, one := range s {
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}

// serve is the program of an endpoint: `bench serve KIND PORT COUNTSPORT`, where KIND is http, crr,
// rr, sctp-crr, sctp-rr or echo. It reports the number of its answers by HTTP on another port.
func serve(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: bench serve http|crr|rr|sctp-crr|sctp-rr|echo PORT COUNTSPORT")
	}
	port, err := strconv.ParseUint(args[1], 10, 16)
	if err != nil {
		return fmt.Errorf("port %q is not a number from 1 to 65535", args[1])
	}
	count := new(atomic.Uint64)
	address := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port))
	failed := make(chan error, 2)
	read := count.Load
	switch args[0] {
	case "http":
		l, err := net.Listen("tcp", address.String())
		if err != nil {
			return err
		}
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			count.Add(1) // and an empty response
		})}
		go func() { failed <- s.Serve(l) }()
	case "crr", "rr", "sctp-crr", "sctp-rr":
		s := new(crr.Server)
		kind, isSCTP := strings.CutPrefix(args[0], "sctp-")
		if isSCTP {
			s.Protocol = unix.IPPROTO_SCTP
		}
		read = func() uint64 { n, _ := s.Counts(); return n }
		go func() { failed <- s.Serve(address, kind == "rr") }()
	case "echo": // any number of connections, of both families
		l, err := net.Listen("tcp", net.JoinHostPort("::", args[1]))
		if err != nil {
			return err
		}
		go func() { failed <- echo(l, count) }()
	default:
		return fmt.Errorf("%q is none of http, crr, rr, sctp-crr, sctp-rr and echo", args[0])
	}
	counts := &http.Server{Addr: ":" + args[2], ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, read()) })}
	go func() { failed <- counts.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// echo returns all received data, and counts how often.
func echo(l net.Listener, count *atomic.Uint64) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64)
			for {
				n, err := c.Read(b)
				if err != nil {
					return
				}
				if _, err := c.Write(b[:n]); err != nil {
					return
				}
				count.Add(1)
			}
		}()
	}
}
