package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/test/dptest"
)

// TestRateAhead checks that a packet gets no token if it started a tick before the packet that took
// the last one. Otherwise each tick would fill the bucket when two CPUs have packets of one
// service.
func TestRateAhead(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp max-rate=10 refuse=drop endpoints=192.0.2.1:8080")
	states, id := o.d.collection.Maps.ServiceStates, serviceID(t, o)
	ahead := dptest.Jiffies(t) + o.d.collection.Jiffies(time.Second)/2
	if err := states.Put(id, bpf.TcServiceState{Opens: bpf.TcTokenBucket{Since: ahead}}); err != nil {
		t.Fatal(err)
	}
	o.open(0)
	var state bpf.TcServiceState
	if err := states.Lookup(id, &state); err != nil {
		t.Fatal(err)
	}
	if len(dptest.Connections(t, o.d.collection)) > 0 {
		t.Errorf("a connection is opened without a token: %+v", state.Opens)
	}
	if state.Opens.Since != ahead {
		t.Errorf("the bucket's time is %d; it was %d", state.Opens.Since, ahead)
	}
}

// TestRateAtWrap checks that a new client has tokens when the 32-bit clock wraps, five minutes
// after the machine's start and weeks later.
func TestRateAtWrap(t *testing.T) {
	t.Parallel()
	for _, now := range []int32{-1, 0, 1} {
		t.Run(fmt.Sprint(now), func(t *testing.T) {
			o := newOpener(t, "10.0.0.1:80/tcp max-rate=2 client-rate=2 refuse=drop endpoints=192.0.2.1:8080")
			p := changedProgram(t, o.d, func(program *ebpf.ProgramSpec) {
				for i := range program.Instructions {
					if ins := &program.Instructions[i]; ins.IsBuiltinCall() && ins.Constant == int64(asm.FnJiffies64) {
						ins.OpCode, ins.Src, ins.Constant = asm.Mov.Op32(asm.ImmSource), 0, int64(now)
					}
				}
			})
			for port := range uint16(3) {
				frame := dptest.TCPFrame(netip.MustParseAddr("198.51.100.1"), o.service.VIP, 1024+port, o.service.Port)
				frame[14+20+13] = tcpSYN
				if _, err := p.Run(&ebpf.RunOptions{Data: frame}); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(dptest.Connections(t, o.d.collection)) / 2; n != 2 {
				t.Errorf("at %d jiffies, %d of 3 connections are opened at a rate of 2", now, n)
			}
		})
	}
}

// serviceID returns the number of the opener's service.
func serviceID(t testing.TB, o *opener) uint32 {
	t.Helper()
	var row bpf.TcService
	if err := o.d.collection.Maps.Services.Lookup(compile.Key(o.service.Key), &row); err != nil {
		t.Fatal(err)
	}
	return row.Id
}
