// Package testrun runs the loaded programs on packets without a network (BPF_PROG_TEST_RUN), and
// has time pass for connections. For tests, benchmarks and explanations: nothing that carries
// packets needs it.
package testrun

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/kernel/datapath/xdp"
)

// Verdict is the program's decision.
type Verdict int32

// The verdicts, as in tc.
const (
	Next     Verdict = -1 // on to the next program and the kernel
	Shot     Verdict = 2
	Redirect Verdict = 7
)

// Input is a packet to run the program on.
type Input struct {
	Frame   []byte // from the Ethernet header on
	Ifindex int    // of the interface where it arrives, in the thread's namespace; its MAC address decides whose it is
	Layer3  bool   // run the program of interfaces without link-layer header
	GSOSize uint32
	Mark    uint32 // skb->mark
	Repeat  uint32 // 0: once
}

// Output is the result. Frame is the packet as it leaves, or as it is passed on.
type Output struct {
	Verdict  Verdict
	Frame    []byte
	Duration time.Duration // mean of a run; exact only when Repeat is large, as it includes the system call
}

// SKB is struct __sk_buff for BPF_PROG_TEST_RUN, up to gso_size.
type SKB struct {
	Len, PktType, Mark, QueueMapping, Protocol, VlanPresent, VlanTCI, VlanProto, Priority uint32
	IngressIfindex, Ifindex, TCIndex                                                      uint32
	CB                                                                                    [5]uint32
	Hash, TCClassid, Data, DataEnd, NapiID, Family, RemoteIP4, LocalIP4                   uint32
	RemoteIP6, LocalIP6                                                                   [4]uint32
	RemotePort, LocalPort, DataMeta, Pad                                                  uint32
	Tstamp                                                                                uint64
	WireLen, GSOSegs                                                                      uint32
	Sk                                                                                    uint64
	GSOSize, TstampType                                                                   uint32
	Hwtstamp                                                                              uint64
}

// Runner runs programs over the maps of a collection.
type Runner struct {
	shared *loader.Collection
	xdp    *xdp.XDP
}

// New runs the programs of c and of x.
func New(c *loader.Collection, x *xdp.XDP) *Runner { return &Runner{c, x} }

// Run runs the loaded program on a packet without a network (BPF_PROG_TEST_RUN): connections are
// made and counters count, but the packet is not sent.
func (r *Runner) Run(in Input) (Output, error) {
	prog, err := r.shared.Program(in.Layer3, false)
	if err != nil {
		return Output{}, err
	}
	frame := withoutPriorityTag(in.Frame)
	opts := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+256),
		Repeat:  in.Repeat,
		Context: SKB{Ifindex: uint32(in.Ifindex), GSOSize: in.GSOSize, Mark: in.Mark},
	}
	start := time.Now()
	ret, err := prog.Run(&opts)
	if err != nil {
		return Output{}, fmt.Errorf("run: %w", err)
	}
	took := time.Since(start) / time.Duration(max(in.Repeat, 1))
	out := Output{Verdict: Verdict(int32(ret)), Frame: opts.DataOut, Duration: took}
	if out.Verdict == Next && bytes.Equal(out.Frame, frame) {
		out.Frame = in.Frame
	}
	return out, nil
}

// withoutPriorityTag removes a VLAN tag of id 0 from a frame, as the kernel does before the hook
// and BPF_PROG_TEST_RUN does not: there it is in metadata, from where the program removes it or
// leaves it alone.
func withoutPriorityTag(frame []byte) []byte {
	const at, size, dot1q, dot1ad = 12, 4, 0x8100, 0x88a8
	if len(frame) < at+size+2 {
		return frame
	}
	kind, tag := binary.BigEndian.Uint16(frame[at:]), binary.BigEndian.Uint16(frame[at+2:])
	if kind != dot1q && kind != dot1ad || tag&0xfff != 0 {
		return frame
	}
	return append(slices.Clone(frame[:at]), frame[at+size:]...)
}

// Fill writes connections into the table: one entry for each direction.
func (r *Runner) Fill(entries []conntrack.Entry) error { return r.shared.Conntrack.Fill(entries) }

// Age makes every connection look as if it had been silent for longer by this much, so that tests
// need not wait.
func (r *Runner) Age(by time.Duration) error {
	ticks := r.shared.Jiffies(by)
	if err := r.shared.Conntrack.Age(ticks); err != nil {
		return fmt.Errorf("age connections: %w", err)
	}
	if err := r.ageReclaim(ticks); err != nil {
		return fmt.Errorf("age the pass of packets through the table: %w", err)
	}
	return errors.Join(r.ageFragments(ticks), r.ageRedials(ticks), r.agePortPressure(ticks))
}

// ageRedials ages the SYNs that wait for an answer: the time is the lower half of each word.
func (r *Runner) ageRedials(ticks uint32) error {
	var asked [bpf.TcLimitMAX_REDIALS]uint64
	v := r.shared.Variables.Redials
	if err := v.Get(&asked); err != nil {
		return fmt.Errorf("age redials: %w", err)
	}
	for i, word := range asked {
		if word != 0 {
			asked[i] = word>>32<<32 | uint64(uint32(word)-ticks)
		}
	}
	if err := v.Set(asked); err != nil {
		return fmt.Errorf("age redials: %w", err)
	}
	return nil
}

// ageReclaim makes the packets' pass through the table, in place of the sweep, begin earlier.
func (r *Runner) ageReclaim(ticks uint32) error {
	var pass bpf.TcReclaimPass
	v := r.shared.Variables.ReclaimPass
	if err := v.Get(&pass); err != nil {
		return err
	}
	pass.Began -= ticks
	pass.Last -= ticks
	return v.Set(pass)
}

// BreakPromise makes the packet path wait for no sweep, as if the daemon had been killed so many
// ticks of the kernel ago.
func (r *Runner) BreakPromise(ago uint32) error {
	now, err := loader.Now()
	if err != nil {
		return err
	}
	return r.shared.Variables.SweepDue.Set(max(now-ago, 1))
}

// PromiseAge returns for how many ticks of the kernel the promise has been broken, modulo 2^32.
func (r *Runner) PromiseAge() (uint32, error) {
	var due uint32
	now, err := loader.Now()
	if err == nil {
		err = r.shared.Variables.SweepDue.Get(&due)
	}
	return now - due, err
}

// ForgetPromise makes it rely on sweeps without a promise, as tests run them.
func (r *Runner) ForgetPromise() error { return r.shared.Variables.SweepDue.Set(uint32(0)) }

// HoldReclaim prevents packets that find no room from freeing expired connections for a second.
func (r *Runner) HoldReclaim() error {
	now, err := loader.Now()
	if err != nil {
		return err
	}
	return r.shared.Variables.ReclaimPass.Set(bpf.TcReclaimPass{Began: now, Last: now})
}

func (r *Runner) ageFragments(ticks uint32) error {
	var keys []bpf.TcFragmentKey
	var key bpf.TcFragmentKey
	var row bpf.TcFragment
	all := r.shared.Maps.Fragments.Iterate()
	for all.Next(&key, &row) {
		keys = append(keys, key)
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("age fragments: %w", err)
	}
	for _, key := range keys {
		if err := r.shared.Maps.Fragments.Lookup(key, &row); err != nil {
			return fmt.Errorf("age fragments: %w", err)
		}
		row.Since -= ticks
		if err := r.shared.Maps.Fragments.Put(key, row); err != nil {
			return fmt.Errorf("age fragments: %w", err)
		}
	}
	return nil
}

// AgePersists does the same to the records of clients.
func (r *Runner) AgePersists(by time.Duration) error {
	ticks := r.shared.Jiffies(by)
	all := map[bpf.TcPersistKey]bpf.TcPersistEntry{}
	var key bpf.TcPersistKey
	var row bpf.TcPersistEntry
	table := r.shared.Persists.Table()
	if table == nil {
		return nil
	}
	it := table.Iterate()
	for it.Next(&key, &row) {
		all[key] = row
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("age clients: %w", err)
	}
	for key, row := range all {
		row.Seen -= ticks
		if err := table.Update(key, row, ebpf.UpdateExist); err != nil {
			return fmt.Errorf("age clients: %w", err)
		}
	}
	return nil
}

// AgeKnown does the same to known clients.
func (r *Runner) AgeKnown(by time.Duration) error {
	return r.changeKnown(func(row uint64) uint64 { return row&^(1<<32-1) | uint64(uint32(row)-r.shared.Jiffies(by)) })
}

// ForgetKnown forgets all known clients.
func (r *Runner) ForgetKnown() error { return r.changeKnown(func(uint64) uint64 { return 0 }) }

func (r *Runner) changeKnown(change func(row uint64) uint64) error {
	changed := map[uint32]bpf.TcKnownSet{}
	err := rows.EachBatch(r.shared.Maps.KnownClients, rows.All, func(keys []uint32, sets []bpf.TcKnownSet) {
		for i, set := range sets {
			for j := range set.Rows {
				if set.Rows[j] != 0 {
					set.Rows[j] = change(set.Rows[j])
					changed[keys[i]] = set
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("read known clients: %w", err)
	}
	for key, set := range changed {
		if err := r.shared.Maps.KnownClients.Put(key, set); err != nil {
			return fmt.Errorf("change known clients: %w", err)
		}
	}
	return nil
}

// Secrets returns the keys of the packet path's hashes.
func (r *Runner) Secrets() (keys bpf.TcSecretKeys, err error) {
	if err := r.shared.Maps.Secrets.Lookup(uint32(0), &keys); err != nil {
		return keys, fmt.Errorf("read the keys of challenges: %w", err)
	}
	return keys, nil
}
