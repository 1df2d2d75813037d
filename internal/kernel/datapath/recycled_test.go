package datapath

import (
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// TestRecycledMemory receives RSTs on a slow CPU, while another one ends their connections and
// opens new ones in the same rows. The RSTs must not be recorded in the new ones.
func TestRecycledMemory(t *testing.T) {
	t.Parallel()
	s := newStress(t)
	closing, quiet := s.services[0], s.services[2]
	if closing.Protocol != lb.TCP || quiet.Protocol != lb.UDP {
		t.Fatalf("%s, %s: want TCP and UDP", closing.Key, quiet.Key)
	}
	s.fillBut(2 * stressPorts)
	vip := netip.AddrPortFrom(closing.VIP, closing.Port)
	length := 2 * time.Second
	if *long {
		length = time.Minute
	}
	end := time.Now().Add(length)
	var slow sync.WaitGroup
	slow.Go(func() {
		for i := 0; time.Now().Before(end); i++ {
			if err := s.sendBy(s.slow, segment(s.client(i), vip, tcpRST, isn+101, 0)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	rounds, strays := 0, 0
	for ; time.Now().Before(end); rounds++ {
		for i := range stressPorts {
			if err := s.send(segment(s.client(i), vip, tcpSYN, isn, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.walkTable(); err != nil {
			t.Fatal(err)
		}
		for i := range stressPorts {
			if err := s.send(dptest.UDPFrame(s.client(i).Addr(), quiet.VIP, s.client(i).Port(), quiet.Port)); err != nil {
				t.Fatal(err)
			}
		}
		for key, row := range dptest.Connections(t, s.d.collection) {
			if key.Protocol == uint8(lb.UDP) && key.Dport != bpf.Port(fillerPort) && key.Sport != bpf.Port(fillerPort) && row.Flags&^uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0 {
				strays++
			}
		}
		if err := s.walkTable(); err != nil {
			t.Fatal(err)
		}
	}
	slow.Wait()
	if strays > 0 {
		t.Errorf("%d entries in %d rounds have flags of others", strays, rounds)
	}
}

// TestCountedFirst checks that a connection that another CPU closes as soon as it is visible is not
// counted as open, although the CPU that opens it counts it late.
func TestCountedFirst(t *testing.T) {
	t.Parallel()
	o := newOwnOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:80 max-connections=1000") // its id is 0 or 1
	slow, fast := slowProgram(t, o.d, "limit_count", 3), program(t, o.d)
	client, vip := netip.MustParseAddrPort("198.51.100.1:2000"), netip.MustParseAddrPort("10.0.0.1:80")
	run := func(p *ebpf.Program, flags byte, seq uint32) {
		if _, err := p.Run(&ebpf.RunOptions{Data: segment(client, vip, flags, seq, 0)}); err != nil {
			t.Error(err)
		}
	}
	end := time.Now().Add(2 * time.Second)
	var closing sync.WaitGroup
	closing.Go(func() {
		for time.Now().Before(end) {
			run(fast, tcpRST, isn+101)
		}
	})
	rounds := 0
	for ; time.Now().Before(end); rounds++ {
		run(slow, tcpSYN, isn)
	}
	closing.Wait()
	run(fast, tcpRST, isn+101)
	var open int64
	for id := range uint32(2) {
		var state bpf.TcServiceState
		if err := o.d.collection.Maps.ServiceStates.Lookup(id, &state); err != nil {
			t.Fatal(err)
		}
		open += state.Open
	}
	if open != 0 {
		t.Errorf("%d connections are counted as open after %d rounds, and none is", open, rounds)
	}
}

// fillerPort is the port of a service whose flows stay.
const fillerPort = 53

// fillBut opens flows until only this number of rows is free in the table's first group.
func (s *stress) fillBut(free int) {
	s.t.Helper()
	filler, err := lb.ParseService("10.0.0.9:53/udp endpoints=192.0.2.9:53")
	if err != nil {
		s.t.Fatal(err)
	}
	table := compile.Service(filler, nil, 0, nil)
	if err := s.d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		s.t.Fatal(err)
	}
	endpoint, client := filler.Endpoints[0].Addr, netip.MustParseAddr("198.51.100.2")
	buckets, err := s.d.collection.Conntrack.Buckets()
	if err != nil {
		s.t.Fatal(err)
	}
	rows := len(bpf.TcTableBucket{}.Rows) * int(buckets)
	for i := range uint16(rows-free) / 2 {
		for _, f := range [][]byte{ // with a reply, so it stays
			dptest.UDPFrame(client, filler.VIP, 2000+i, fillerPort), dptest.UDPFrame(endpoint, client, fillerPort, 2000+i),
		} {
			if err := s.send(f); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// slowProgram returns a copy of the program on the same tables that spends 20 us more before the
// body of a function with this number of arguments.
func slowProgram(t *testing.T, d *Datapath, function string, arguments asm.Register) *ebpf.Program {
	t.Helper()
	return changedProgram(t, d, func(program *ebpf.ProgramSpec) {
		at := slices.IndexFunc(program.Instructions, func(i asm.Instruction) bool { return i.Symbol() == function })
		if at < 0 {
			t.Fatalf("there is no function %s", function)
		}
		first := program.Instructions[at]
		var wait asm.Instructions
		for i := range arguments {
			wait = append(wait, asm.Mov.Reg(asm.R6+i, asm.R1+i))
		}
		wait[0].Metadata = first.Metadata // now the function's first instruction
		for range 2000 {
			wait = append(wait, asm.FnGetPrandomU32.Call())
		}
		for i := range arguments {
			wait = append(wait, asm.Mov.Reg(asm.R1+i, asm.R6+i))
		}
		program.Instructions[at] = asm.Instruction{OpCode: first.OpCode, Dst: first.Dst, Src: first.Src, Offset: first.Offset, Constant: first.Constant}.WithSource(first.Source())
		program.Instructions = slices.Insert(program.Instructions, at, wait...)
	})
}

// changedProgram returns a copy of the program at the tc hook, with the same maps and changed
// instructions.
func changedProgram(t *testing.T, d *Datapath, change func(*ebpf.ProgramSpec)) *ebpf.Program {
	t.Helper()
	const name = "loxilb_ether"
	spec, err := bpf.LoadTc()
	if err == nil {
		err = d.collection.Configure(spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	shared := map[string]*ebpf.Map{}
	have := reflect.ValueOf(d.collection.Maps)
	for i := range have.NumField() {
		if m, ok := have.Field(i).Interface().(*ebpf.Map); ok && m != nil {
			shared[have.Type().Field(i).Tag.Get("ebpf")] = m
		}
	}
	loader.ShareMaps(spec, shared)
	program := spec.Programs[name]
	spec.Programs = map[string]*ebpf.ProgramSpec{name: program}
	change(program)
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		t.Fatalf("load the changed copy: %+v", err)
	}
	defer c.Close()
	p := c.DetachProgram(name)
	t.Cleanup(func() { p.Close() })
	return p
}
