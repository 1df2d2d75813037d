package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"loxilb/test/netnstest"
)

// Observation times around a flood.
const (
	floodBefore = 1500 * time.Millisecond         // to see that clients are served
	floodQuiet  = 2*time.Second + connectPatience // without a failure: everything is as before
	floodLimit  = 40 * time.Second                // give up waiting for service to recover
)

// floodWorkloads returns a workload for each kind of flood and IP version, and one without a flood.
func floodWorkloads() (out []workload) {
	for _, v6 := range []bool{false, true} {
		suffix, family := "", "IPv4"
		if v6 {
			suffix, family = "6", "IPv6"
		}
		for _, f := range floods() {
			out = append(out, workload{
				name: "flood-" + f.name + suffix, title: f.title + " from random addresses, " + family + ": new connections of others",
				unit: "% made", onRequest: true, sparesCPU: true, defaults: []string{baseline, "loxilb-one", "nft-one", "nft-synproxy", "haproxy-one"},
				columns: floodColumns(f), service: floodService(v6), run: runUnderFlood(f),
			})
		}
	}
	return append(out, honestWorkload())
}

// floodService is a TCP and a UDP service. They do not translate ports: dsr cannot.
func floodService(v6 bool) service {
	return service{name: "echo", protocol: "tcp", port: 5005, target: 5005, udp: 5006, v6: v6, serve: func(ctx context.Context, r *rig, h *netnstest.Host) error {
		if err := h.ServeUDPEcho(":5006"); err != nil {
			return err
		}
		return r.serve(ctx, h, "echo", 5005)
	}}
}

// spareCPU keeps clients and endpoints off the generator's CPU, so only the balancer can make
// them fail.
func spareCPU(l layout) layout {
	if l.steered || runtime.NumCPU() < 2 {
		return l
	}
	var rest []int
	for cpu := range runtime.NumCPU() {
		if cpu != l.generator() {
			rest = append(rest, cpu)
		}
	}
	return layout{client: rest, endpoints: rest}
}

// runUnderFlood runs clients before, during and after a flood.
func runUnderFlood(f flood) run {
	return func(ctx context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
		t, err := r.attacker.target(r.service, to)
		if err != nil {
			return nil, err
		}
		g, err := newFloodGenerator(r.attacker.Host, "eth0", r.cpus.generator(), f.packets(t))
		if err != nil {
			return nil, err
		}
		defer g.close()
		for _, h := range r.serving {
			s, err := newStandIn(h, r.service.v6)
			if err != nil {
				return nil, err
			}
			defer s.close()
		}
		w, err := r.watch(ctx, r.observe)
		if err != nil {
			return nil, err
		}
		args := []string{to.String()}
		if f.large {
			args = []string{"-udp", strconv.Itoa(r.service.udp), to.String()}
		}
		seen, err := r.underFlood(ctx, g, w, s, args...)
		details, failed := w.end()
		if err != nil {
			return nil, err
		}
		if failed != nil {
			return nil, failed
		}
		return []sample{seen.sample(details)}, nil
	}
}

// floodResult is what clients experienced before, during and after a flood.
type floodResult struct {
	attempts   []attempt
	start, end time.Time     // of the flood
	sent       float64       // packets per second
	received   float64       // packets per second that reached the balancer
	recovery   time.Duration // from the end of the flood until service was normal
	cost       float64       // of a packet in the program, ns; 0: unknown
}

// underFlood runs clients with arguments, starts the flood, and waits until clients are served as
// before.
func (r *rig) underFlood(ctx context.Context, g *generator, w *watch, s setting, args ...string) (st floodResult, err error) {
	p, err := r.start(r.Client, append([]string{filepath.Join(r.bin, "bench"), "clients"}, args...)...)
	if err != nil {
		return st, err
	}
	defer p.Stop()
	if err := r.served(ctx, p, time.Now()); err != nil {
		return st, err
	}
	st.start = time.Now()
	if err := st.flood(r, g, s); err != nil {
		return st, err
	}
	st.end = time.Now()
	if err := st.recover(ctx, p, w); err != nil {
		return st, err
	}
	p.Stop()
	st.attempts, err = parseAttempts(p.Output())
	return st, err
}

// recover waits until clients have been served as before for a while.
func (st *floodResult) recover(ctx context.Context, p *netnstest.Process, w *watch) (err error) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if st.attempts, err = parseAttempts(p.Output()); err != nil {
			return err
		}
		since := time.Since(st.end)
		st.recovery = max(recoveryAfter(st.attempts, st.end), w.lastFull(st.end).Sub(st.end))
		if since > floodLimit {
			st.recovery = floodLimit
			return nil
		}
		if since > st.recovery+floodQuiet {
			return nil
		}
	}
}

// served waits until clients have been served for a while; it fails if some were not.
func (r *rig) served(ctx context.Context, p *netnstest.Process, start time.Time) error {
	for {
		select {
		case <-p.Done():
			return fmt.Errorf("the clients ended: %s", lastLine(p.Output()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		all, err := parseAttempts(p.Output())
		if err != nil {
			return err
		}
		if sinceFirst(all, time.Now()) < floodBefore {
			continue
		}
		for _, kind := range []string{attemptKnown, attemptFirst} {
			if c := countConnects(attemptsBetween(all, kind, start, time.Now())); !c.served() {
				return fmt.Errorf("before the flood %d of %d connections failed: %v", c.Tried-c.OK, c.Tried, c.Failed)
			}
		}
		return nil
	}
}

// sample returns the share of new connections that succeeded during the flood, and the other
// measurements as details.
func (st floodResult) sample(details map[string]float64) sample {
	known := countConnects(attemptsBetween(st.attempts, attemptKnown, st.start, st.end))
	first := countConnects(attemptsBetween(st.attempts, attemptFirst, st.start, st.end))
	late, broken := countExchanges(attemptsBetween(st.attempts, attemptHeld, st.start, time.Now()))
	details["taken"], details["sent"] = st.received, st.sent
	details["held_late"], details["held_broken"] = float64(late), float64(broken)
	details["back_s"] = st.recovery.Seconds()
	if st.cost > 0 {
		details["program_ns"] = st.cost
	}
	for name, c := range map[string]connects{attemptKnown: known, attemptFirst: first} {
		details[name+"_percent"] = c.percent()
		if c.OK > 0 {
			details[name+"_min_us"], details[name+"_p50_us"], details[name+"_p99_us"] = micros(c.Min), micros(c.P50), micros(c.P99)
		}
	}
	if large := countConnects(attemptsBetween(st.attempts, attemptLarge, st.start, st.end)); large.Tried > 0 {
		details[attemptLarge+"_percent"] = large.percent()
	}
	both := connects{Tried: known.Tried + first.Tried, OK: known.OK + first.OK}
	out := sample{Value: both.percent(), Details: details}
	if both.Tried == 0 {
		out.Invalid = "no client tried to connect during the flood"
	}
	return out
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// newStandIn attaches a tc program that replaces an endpoint's stack for the flood's packets: it
// answers SYNs like an endpoint with SYN cookies and drops the rest. Real endpoints run on other
// machines; here, their stack would take several times the balancer's CPU time and slow the flood.
func newStandIn(h *netnstest.Host, v6 bool) (*sink, error) {
	return attachSink(h, func(count *ebpf.Map, ifindex int) asm.Instructions { return standInProgram(count, v6, ifindex) })
}

// standInProgram recognizes the flood by its addresses (target.source).
func standInProgram(count *ebpf.Map, v6 bool, ifindex int) asm.Instructions {
	const drop = "drop"
	l4, protocol, etherType := int16(34), int16(23), int32(0x0800)
	addresses := swap(26, 30, asm.Word)
	ours := asm.Instructions{
		asm.LoadMem(asm.R1, asm.R7, 26, asm.Byte),
		asm.And.Imm(asm.R1, 0xc0),
		asm.JNE.Imm(asm.R1, 0x80, toHost),
	}
	if v6 {
		l4, protocol, etherType, addresses = 54, 20, 0x86dd, nil
		for at := int16(0); at < 16; at += 4 {
			addresses = append(addresses, swap(22+at, 38+at, asm.Word)...)
		}
		ours = asm.Instructions{
			asm.LoadMem(asm.R1, asm.R7, 22, asm.Half),
			asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.JNE.Imm(asm.R1, 0x2a00, toHost),
		}
	}
	flags, sum := l4+13, l4+16
	p := append(packetOf(int32(l4+20)),
		asm.LoadMem(asm.R1, asm.R7, 12, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, etherType, toHost),
	)
	p = append(p, ours...)
	p = append(p, countOne(count)...)
	p = append(p,
		asm.LoadMem(asm.R1, asm.R7, protocol, asm.Byte),
		asm.JNE.Imm(asm.R1, 6, drop),
		asm.LoadMem(asm.R1, asm.R7, flags, asm.Byte),
		asm.JNE.Imm(asm.R1, 2, drop), // SYN
		asm.StoreImm(asm.R7, flags, 0x12, asm.Byte),
		asm.LoadMem(asm.R1, asm.R7, l4+4, asm.Word), // acknowledges the SYN; the own sequence number is the SYN's, already in place
		asm.HostTo(asm.BE, asm.R1, asm.Word),
		asm.Add.Imm32(asm.R1, 1),
		asm.HostTo(asm.BE, asm.R1, asm.Word),
		asm.StoreMem(asm.R7, l4+8, asm.R1, asm.Word),
	)
	p = append(p, swap(0, 6, asm.Word)...)
	p = append(p, swap(4, 10, asm.Half)...)
	p = append(p, addresses...)
	p = append(p, swap(l4, l4+2, asm.Half)...)
	p = append(p, // added to the checksum: the ACK flag, and the number that was zero
		asm.LoadMem(asm.R2, asm.R7, sum, asm.Half), asm.Xor.Imm(asm.R2, 0xffff),
		asm.Add.Imm(asm.R2, 0x1000),
		asm.LoadMem(asm.R1, asm.R7, l4+8, asm.Half), asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R1, asm.R7, l4+10, asm.Half), asm.Add.Reg(asm.R2, asm.R1),
	)
	p = append(p, storeSum(sum)...)
	return append(p,
		asm.Mov.Imm(asm.R1, int32(ifindex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol(drop), asm.Return(), // TC_ACT_SHOT
		asm.Mov.Imm(asm.R0, -1).WithSymbol(toHost), asm.Return()) // TCX_NEXT
}
