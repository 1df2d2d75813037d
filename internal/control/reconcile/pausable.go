package reconcile

import (
	"context"
	"sync"

	"loxilb/internal/lb/bgp"
)

// PausableSpeaker is a BGPSpeaker that maintenance can pause. During a pause, Start only records
// the configuration, for Resume.
type PausableSpeaker struct {
	BGPSpeaker

	mu     sync.Mutex
	paused bool
	wanted *bgp.Speaker // the speaker that runs, or that Resume starts; nil: none
}

// NewPausableSpeaker returns a PausableSpeaker that is paused initially if paused is set.
func NewPausableSpeaker(s BGPSpeaker, paused bool) *PausableSpeaker {
	return &PausableSpeaker{BGPSpeaker: s, paused: paused}
}

// Start starts the speaker, or during a pause makes Resume start it.
func (p *PausableSpeaker) Start(ctx context.Context, g bgp.Speaker) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = &g
	if p.paused {
		return nil
	}
	return p.BGPSpeaker.Start(ctx, g)
}

// Stop ends the speaker.
func (p *PausableSpeaker) Stop(ctx context.Context, reason string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = nil
	return p.BGPSpeaker.Stop(ctx, reason)
}

// Paused reports whether maintenance has ended the sessions.
func (p *PausableSpeaker) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused
}

// Pause ends all sessions with a reason, until Resume.
func (p *PausableSpeaker) Pause(ctx context.Context, reason string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused {
		return nil
	}
	if err := p.BGPSpeaker.Stop(ctx, reason); err != nil {
		return err
	}
	p.paused = true
	return nil
}

// Resume starts the configured speaker.
func (p *PausableSpeaker) Resume(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted != nil {
		if err := p.BGPSpeaker.Start(ctx, *p.wanted); err != nil {
			return err
		}
	}
	p.paused = false
	return nil
}
