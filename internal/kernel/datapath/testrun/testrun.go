// Package testrun runs the loaded programs on packets without a network (BPF_PROG_TEST_RUN). It
// serves trials, explanations and tests; forwarding packets does not need it.
package testrun

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/loader"
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
	Ifindex int    // the interface of arrival, in the thread's namespace; a packet to its MAC address is for this machine
	Layer3  bool   // run the program of interfaces without link-layer header
	GSOSize uint32
	Mark    uint32 // skb->mark
	Repeat  uint32 // 0: once
}

// Output is the result. Frame is the packet after the program.
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

// EmptyFrame returns a frame for programs that do not read it. The kernel refuses frames without
// bytes after the Ethernet header.
func EmptyFrame() []byte { return make([]byte, 16) }

// Runner runs programs over the maps of a collection.
type Runner struct {
	Collection *loader.Collection
}

// Run runs the loaded program on a packet without a network (BPF_PROG_TEST_RUN): connections are
// made and counters count, but the packet is not sent.
func (r Runner) Run(in Input) (Output, error) {
	prog, err := r.Collection.Program(in.Layer3, false)
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

// withoutPriorityTag removes a VLAN tag of id 0 from a frame. The kernel moves it to metadata
// before the hook, but BPF_PROG_TEST_RUN does not.
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
