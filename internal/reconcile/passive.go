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
	health  *Health
	reader  HandshakeReader
	connect func(ctx context.Context, at netip.AddrPort, timeout, hold time.Duration) (failure string, undecided bool)
	log     *slog.Logger

	detector  *outlier.Detector
	services  []outlier.Service
	turn      int       // of services: where the next reading begins
	listAgain time.Time // no sooner
	rows      []lb.HandshakeRow
	failing   bool // the last reading failed

	asking   sync.WaitGroup
	suspects asks
	returns  asks
	answers  chan answer
}

// asks are endpoints that are asked, so many at a time, and those that wait for that.
type asks struct {
	outlier.Queue
	most, running int
}

type answer struct {
	asks      *asks
	at        netip.AddrPort
	failure   string
	undecided bool
}

const (
	// mostReturns is how many endpoints are asked at a time that are out. They have places of their own, so that they keep none waiting of
	// which it is not known yet: a rack that fails takes thousands along.
	mostReturns = 64
	// mostRead is of how many endpoints the counters are read at a time: where there are more, all of them take longer than a Pace.
	mostRead = 20000
	// listPause is how many times as long as it takes to list all services there is until the next time.
	listPause = 20
)

// NewPassive makes one of the services that h knows.
func NewPassive(h *Health, r HandshakeReader) *Passive {
	suspects := health.MostHandshakes()
	return &Passive{
		health: h, reader: r, connect: health.Handshake, log: h.Log, detector: outlier.New(r.Jiffy()),
		suspects: asks{most: suspects}, returns: asks{most: mostReturns}, answers: make(chan answer, suspects+mostReturns),
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
			p.heed(ctx, a)
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
			p.ask(ctx, a)
		case outlier.Eject:
			p.health.again(p.health.probes.eject(a.At, a.Evidence))
		case outlier.Return:
			p.health.again(p.health.probes.readmit(a.At))
		case outlier.Unheard, outlier.Heard:
			p.health.hear(a.At, a.Kind == outlier.Heard)
		}
	}
}

// ask has an endpoint asked when it is its turn.
func (p *Passive) ask(ctx context.Context, a outlier.Action) {
	list := &p.suspects
	if a.Again {
		list = &p.returns
	}
	list.Push(a)
	p.next(ctx, list)
}

// next asks endpoints that wait, if not too many are being asked.
func (p *Passive) next(ctx context.Context, list *asks) {
	for list.running < list.most {
		a, ok := list.Pop()
		if !ok {
			return
		}
		list.running++
		p.asking.Go(func() {
			failure, undecided := p.connect(ctx, a.At, a.Timeout, a.Hold)
			p.answers <- answer{list, a.At, failure, undecided}
		})
	}
}

// heed has the detector know how an endpoint has answered.
func (p *Passive) heed(ctx context.Context, a answer) {
	a.asks.running--
	if a.failure != "" && !a.undecided {
		a.asks.Failed(a.at)
	}
	p.do(ctx, p.detector.Answer(a.at, a.failure, a.undecided, time.Now()))
	p.next(ctx, a.asks)
}
