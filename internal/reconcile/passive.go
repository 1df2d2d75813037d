package reconcile

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/compile"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/health"
	"loxilb/internal/health/outlier"
	"loxilb/internal/lb"
)

// HandshakeReader is the data path, as far as it counts handshakes.
type HandshakeReader interface {
	// Handshakes appends what was counted of the endpoints of a service.
	Handshakes(key bpf.TcServiceKey, out []lb.HandshakeRow) ([]lb.HandshakeRow, error)
	Jiffy() time.Duration
}

// Passive takes endpoints out with which clients' handshakes fail, and has them come back.
type Passive struct {
	health *Health
	reader HandshakeReader
	ask    func(ctx context.Context, at netip.AddrPort, timeout, hold time.Duration) (failure string, undecided bool)
	log    *slog.Logger

	detector  *outlier.Detector
	services  []outlier.Service
	turn      int       // of services: where the next reading begins
	listAgain time.Time // no sooner
	rows      []lb.HandshakeRow
	failing   bool // the last reading failed

	asking  sync.WaitGroup
	asked   int // that have not answered
	answers chan answer
}

type answer struct {
	at        netip.AddrPort
	failure   string
	undecided bool
}

const (
	// mostAsked is how many endpoints are asked at a time. Others wait for their turn.
	mostAsked = 64
	// mostRead is of how many endpoints the counters are read at a time: where there are more, all of them take longer than a Pace.
	mostRead = 20000
	// listPause is how many times as long as it takes to list all services there is until the next time.
	listPause = 20
)

// NewPassive makes one of the services that h knows.
func NewPassive(h *Health, r HandshakeReader) *Passive {
	return &Passive{
		health: h, reader: r, ask: health.Handshake, log: h.Log, detector: outlier.New(r.Jiffy()), answers: make(chan answer, mostAsked),
	}
}

// Run watches until ctx ends.
func (p *Passive) Run(ctx context.Context) {
	defer p.asking.Wait()
	ticker := time.NewTicker(outlier.Pace)
	defer ticker.Stop()
	for {
		tick, changed := ticker.C, p.health.probes.ejections.changed
		if len(p.services) == 0 {
			tick = nil
		} else if time.Now().Before(p.listAgain) {
			changed = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			p.list(ctx)
		case a := <-p.answers:
			p.asked--
			p.do(ctx, p.detector.Answer(a.at, a.failure, a.undecided, time.Now()))
		case <-tick:
			p.read()
			for _, at := range p.health.probes.well() {
				p.do(ctx, p.detector.Well(at, time.Now()))
			}
			p.do(ctx, p.detector.Decide(time.Now()))
		}
	}
}

// list has the detector know which services there are. While many of them change, it is not called all the time.
func (p *Passive) list(ctx context.Context) {
	begun := time.Now()
	p.services = p.health.probes.outliers()
	p.detector.Watch(p.services)
	p.do(ctx, p.detector.Decide(time.Now()))
	p.listAgain = time.Now().Add(listPause * time.Since(begun))
}

// read has the detector know what was counted.
func (p *Passive) read() {
	for read, n := 0, 0; n < len(p.services) && read < mostRead; n++ {
		p.turn = (p.turn + 1) % len(p.services)
		key := p.services[p.turn].Key
		rows, err := p.reader.Handshakes(compile.Key(key), p.rows[:0])
		if err != nil {
			if !p.failing {
				p.log.Error("counters of handshakes cannot be read", "service", key, "error", err)
			}
			p.failing = true
			return
		}
		p.detector.Observe(key, rows)
		p.rows, read = rows, read+len(rows)
	}
	p.failing = false
}

func (p *Passive) do(ctx context.Context, actions []outlier.Action) {
	for _, a := range slices.Clone(actions) {
		switch a.Kind {
		case outlier.Ask:
			p.begin(ctx, a)
		case outlier.Eject:
			p.health.again(p.health.probes.eject(a.At, a.Evidence))
		case outlier.Return:
			p.health.again(p.health.probes.readmit(a.At))
		}
	}
}

// begin asks an endpoint, if not too many are being asked.
func (p *Passive) begin(ctx context.Context, a outlier.Action) {
	if p.asked == mostAsked {
		p.detector.Answer(a.At, "", true, time.Now())
		return
	}
	p.asked++
	p.asking.Go(func() {
		failure, undecided := p.ask(ctx, a.At, a.Timeout, a.Hold)
		p.answers <- answer{a.At, failure, undecided}
	})
}
