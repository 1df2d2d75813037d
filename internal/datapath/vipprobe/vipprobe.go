// Package vipprobe leads probes of endpoints in mode dsr to the VIP, as bpf/probe.bpf.c does it.
package vipprobe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/datapath/attach"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/links"
	"loxilb/internal/lb"
)

const (
	// fresh is how long the interfaces that loxilb is attached to are taken to be the same ones.
	fresh = 100 * time.Millisecond
	// unused is after which time without probes the programs are taken away.
	unused = time.Minute
)

// Probes are the programs for such probes. They are at interfaces while there are any, and nothing of them is pinned. Methods are safe for
// concurrent use.
type Probes struct {
	hooks *attach.Hooks
	log   *slog.Logger

	mu       sync.Mutex
	objects  *bpf.ProbeObjects        // nil: not loaded yet
	at       map[int]links.Attachment // by interface index
	followed time.Time                // when the interfaces of hooks were looked at
	used     time.Time                // when a socket was led last
}

// New attaches nothing yet.
func New(h *attach.Hooks, log *slog.Logger) *Probes {
	return &Probes{hooks: h, log: log, at: map[int]links.Attachment{}}
}

// LeadProbe has what a socket sends to an address, by this interface, go to the VIP there, and what comes back from the VIP come from
// that address. To be called before the socket sends.
func (p *Probes) LeadProbe(fd int, out attach.Interface, vip netip.Addr, t lb.Tunnel) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.used = now
	if err := p.load(); err != nil {
		return err
	}
	if err := p.attach(out); err != nil {
		return err
	}
	if now.Sub(p.followed) > fresh {
		p.followed = now
		p.follow()
	}
	way := bpf.ProbeProbeWay{Vip: bpf.ProbeIpAddr(bpf.Addr(vip)), Tunnel: tunnel(t)}
	if err := p.objects.ProbeWays.Put(int32(fd), way); err != nil {
		return fmt.Errorf("lead a probe to %s: %w", vip, err)
	}
	return nil
}

func tunnel(t lb.Tunnel) uint32 {
	switch t {
	case lb.TunnelIPIP:
		return uint32(bpf.ProbeProbeTunnelPROBE_IPIP)
	case lb.TunnelGUE:
		return uint32(bpf.ProbeProbeTunnelPROBE_GUE)
	}
	return uint32(bpf.ProbeProbeTunnelPROBE_NO_TUNNEL)
}

func (p *Probes) load() error {
	if p.objects != nil {
		return nil
	}
	var o bpf.ProbeObjects
	if err := bpf.LoadProbeObjects(&o, nil); err != nil {
		return fmt.Errorf("load the programs of probes: %w", err)
	}
	p.objects = &o
	return nil
}

// attach puts the programs at an interface, once.
func (p *Probes) attach(i attach.Interface) error {
	if p.at[i.Index] != nil {
		return nil
	}
	in, out := p.objects.LoxilbProbeIn, p.objects.LoxilbProbeOut
	if i.Layer3 {
		in, out = p.objects.LoxilbProbeIn3, p.objects.LoxilbProbeOut3
	}
	a, err := attach.Probes(i, p.hooks.Hook(), in, out)
	if err != nil {
		return fmt.Errorf("attach the programs of probes to %s: %w", i.Name, err)
	}
	p.at[i.Index] = a
	return nil
}

// follow attaches them wherever packets of clients come in: answers may come by another interface than the one by which probes leave.
func (p *Probes) follow() {
	for _, i := range p.hooks.Attached() {
		if err := p.attach(i); err != nil {
			p.log.Debug("answers to probes may be missed", "error", err)
		}
	}
}

// KeepProbes takes the programs away when there are no probes for them, and forgets interfaces that are gone, until ctx ends.
func (p *Probes) KeepProbes(ctx context.Context) {
	if err := attach.DetachProbes(p.hooks.Hook()); err != nil {
		p.log.Warn("what an earlier process has left for probes stays", "error", err)
	}
	every := time.NewTicker(unused / 4)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-every.C:
			p.tidy(now)
		}
	}
}

func (p *Probes) tidy(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for index := range p.at {
		_, err := net.InterfaceByIndex(index)
		if err == nil && now.Sub(p.used) < unused {
			continue
		}
		_ = p.detach(index) // one that is gone has no programs
	}
}

func (p *Probes) detach(index int) error {
	a := p.at[index]
	delete(p.at, index)
	return errors.Join(a.Detach(), a.Close())
}

// Close takes the programs away.
func (p *Probes) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for index := range p.at {
		_ = p.detach(index) // as above
	}
	if p.objects == nil {
		return nil
	}
	return p.objects.Close()
}
