package main

import (
	"context"
	"sync"

	"loxilb/internal/control/desired"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
)

// peaks are the highest numbers of simultaneous connections since the daemon began, sampled with
// the rates: of the table, and of services with a limit.
type peaks struct {
	state *desired.State
	rates *rates.Sampler

	limited  []lb.Key
	revision uint64 // that limited is of

	mu       sync.Mutex
	table    uint64
	services map[lb.Key]uint64
}

// run follows until ctx ends.
func (p *peaks) run(ctx context.Context) {
	var seen rates.Window
	for p.rates.Wait(ctx, seen) == nil {
		var totals rates.Totals
		totals, seen = p.rates.Now()
		p.note(totals.Tracked, func(key lb.Key) uint64 { return p.rates.Service(key).Active })
	}
}

// note adds a reading.
func (p *peaks) note(tracked uint64, active func(lb.Key) uint64) {
	p.find()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table = max(p.table, tracked)
	services := make(map[lb.Key]uint64, len(p.limited)) // without deleted services
	for _, key := range p.limited {
		services[key] = max(p.services[key], active(key))
	}
	p.services = services
}

// find finds the services that have a limit.
func (p *peaks) find() {
	now := p.state.Snapshot()
	if p.revision == now.Revision() {
		return
	}
	p.revision, p.limited = now.Revision(), p.limited[:0]
	for s := range p.state.Services.EachShared(now) {
		if s.MaxConnections > 0 {
			p.limited = append(p.limited, s.Key)
		}
	}
}

// Table returns the peak of the connection table.
func (p *peaks) Table() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table
}

// Service returns the peak of a service that has a limit.
func (p *peaks) Service(key lb.Key) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.services[key]
}
