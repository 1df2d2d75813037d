package main

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/pkt"
)

func exampleTarget(v6 bool) target {
	return target{
		from: net.HardwareAddr{2, 0, 0, 0, 0, 1}, to: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		address: floodService(v6).address(), udp: 5006,
	}
}

// TestFloodFrames runs the generator's program, and checks that each frame has correct checksums,
// its own addresses, and the expected destination.
func TestFloodFrames(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, f := range floods() {
			name := fmt.Sprintf("%s, IPv6 %v", f.name, v6)
			templates := f.packets(exampleTarget(v6))
			frames, err := runFlood(templates, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen := map[string]bool{}
			for i, b := range frames {
				p := pkt.Decode(b)
				line, quoted, _ := strings.Cut(p.String(), " / ") // in the quoted packet only the IP checksum is correct
				if strings.Contains(line, " csum") && f.name != "fragment" || strings.Contains(line+quoted, "ipcsum") {
					t.Fatalf("%s: a checksum is wrong: %s / %s", name, line, quoted)
				}
				if got := p.DstAddr().Addr(); got != exampleTarget(v6).address.Addr() {
					t.Errorf("%s: goes to %v", name, got)
				}
				from := p.SrcAddr().String()
				if len(templates) == 2 && i%2 == 1 { // the second packet of a source
					if !seen[from] {
						t.Errorf("%s: %s has no SYN before it", name, line)
					}
				} else if seen[from] {
					t.Errorf("%s: %s is repeated", name, from)
				}
				seen[from] = true
			}
		}
	}
}

// TestStandIn checks that a SYN of the flood is answered as by a listening socket, and that other
// packets pass.
func TestStandIn(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		count, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer count.Close()
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: standInProgram(count, v6, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		frames, err := runFlood(exampleTarget(v6).handshake(), 2)
		if err != nil {
			t.Fatal(err)
		}
		syn := pkt.Decode(frames[0])
		const redirected, dropped = 7, 2
		answer := make([]byte, len(frames[0]))
		if got := runOn(t, p, frames[0], answer); got != redirected {
			t.Errorf("a SYN: %d", got)
		}
		want := fmt.Sprintf("tcp %v > %v SA seq %d ack %d", syn.DstAddr(), syn.SrcAddr(), syn.Num(pkt.Seq), syn.Num(pkt.Seq)+1)
		if got := pkt.Decode(answer).String(); !strings.HasPrefix(got, want) || strings.Contains(got, "csum") {
			t.Errorf("got answer %s\nwant %s", got, want)
		}
		if got := runOn(t, p, frames[1], nil); got != dropped {
			t.Errorf("an ACK: %d", got)
		}
		client := clientAddress(v6, attemptKnown, 1)
		other, err := pkt.Parse(fmt.Sprintf("tcp %v > %v S seq 1 len 40", netip.AddrPortFrom(client, 4000), exampleTarget(v6).address))
		if err != nil {
			t.Fatal(err)
		}
		if got := runOn(t, p, other.Build(), nil); got != math.MaxUint32 {
			t.Errorf("a client's SYN: %d", got)
		}
	}
}

func runOn(t *testing.T, p *ebpf.Program, in, out []byte) uint32 {
	t.Helper()
	verdict, err := p.Run(&ebpf.RunOptions{Data: in, DataOut: out})
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

// runFlood runs the program until it has written n frames.
func runFlood(templates []template, n int) (frames [][]byte, err error) {
	next, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	defer next.Close()
	instructions, size, err := floodProgram(next, templates, 1)
	if err != nil {
		return nil, err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: instructions})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	for range n {
		out := make([]byte, size)
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, size), DataOut: out}); err != nil {
			return nil, err
		}
		frames = append(frames, slices.Clone(out))
	}
	return frames, nil
}
