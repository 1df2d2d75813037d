package reconcile

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/health"
	"loxilb/internal/control/health/outlier"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// HandshakeReader is the data path, as far as it counts handshakes.
type HandshakeReader interface {
	// Handshakes appends what was counted of the endpoints of a service.
	Handshakes(key bpf.TcServiceKey, out []lb.HandshakeRow) ([]lb.HandshakeRow, error)
	// HandshakeNews calls yield with each service whose endpoints may have counted something, or be others, since the last call.
	HandshakeNews(yield func(lb.Key))
	// AwaitHandshakes tells when it has any. nil: it has, or nobody would tell.
	AwaitHandshakes() <-chan struct{}
	// JudgeConnections looks whether endpoints answer the connections that are watched. What it finds is news.
	JudgeConnections() error
	// TryEndpoint has the next new connection of a service go to one of its endpoints that is out of rotation.
	TryEndpoint(key bpf.TcServiceKey, at netip.AddrPort)
	Jiffy() time.Duration
}

// Passive takes endpoints out with which clients' handshakes fail, and has them come back.
type Passive struct {
	health  *Health
	reader  HandshakeReader
	connect func(ctx context.Context, at netip.AddrPort, timeout, hold time.Duration) (failure string, undecided bool)
	log     *slog.Logger

	detector  *outlier.Detector
	services  int             // how many there are
	listAgain time.Time       // no sooner
	due       []lb.Key        // services that are to be read, in the order in which they had news
	isDue     map[lb.Key]bool // the same
	rows      []lb.HandshakeRow
	failing   bool // the last reading failed

	judgeNext, judgeUntil time.Time // when connections are judged again, and until when any may be watched

	turn   *time.Timer
	bell   <-chan struct{} // by which the data path wakes it; nil: it is awake
	asleep time.Time       // since when it is not

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
	// mostRead is of how many endpoints the counters are read at a time: where more have news, all of them take longer than a Pace.
	mostRead = 20000
	// restPace is how often news are looked for while there are none: the data path rings.
	restPace = 5 * time.Second
	// judgePace is how often connections that are watched are judged, and judgeTime how long after the last news.
	judgePace, judgeTime = 500 * time.Millisecond, 5 * time.Second
	// mostIdle is how many services memory is kept for that are read in one turn.
	mostIdle = 1024
	// listPause is how many times as long as it takes to list all services there is until the next time.
	listPause = 20
)

// NewPassive makes one of the services that h knows.
func NewPassive(h *Health, r HandshakeReader) *Passive {
	suspects := health.MostHandshakes()
	return &Passive{
		health: h, reader: r, connect: health.Handshake, log: h.Log, detector: outlier.New(r.Jiffy()),
		isDue: map[lb.Key]bool{}, suspects: asks{most: suspects}, returns: asks{most: mostReturns}, answers: make(chan answer, suspects+mostReturns),
	}
}

// Run watches until ctx ends.
func (p *Passive) Run(ctx context.Context) {
	defer p.asking.Wait()
	p.turn = time.NewTimer(outlier.Pace)
	defer p.turn.Stop()
	for {
		turn, changed, listAgain := p.turn.C, p.health.probes.ejections.changed, (<-chan time.Time)(nil)
		if p.services == 0 {
			turn = nil
		} else if left := time.Until(p.listAgain); left > 0 {
			changed, listAgain = nil, time.After(left)
		}
		select {
		case <-ctx.Done():
			return
		case <-listAgain:
		case <-changed:
			p.list(ctx)
			p.wake(outlier.Pace)
		case a := <-p.answers:
			p.heed(ctx, a)
		case <-p.bell:
			// as late as a reading is on average that a handshake finds on its way: what has come just now is not answered yet
			p.wake(outlier.Pace / 2)
		case <-turn:
			p.takeTurn(ctx)
		}
	}
}

// takeTurn has the detector judge what has happened. If there was nothing, it sleeps then.
func (p *Passive) takeTurn(ctx context.Context) {
	p.wake(outlier.Pace)
	now := time.Now()
	p.judge(now)
	news := p.read()
	if news {
		p.judgeUntil = now.Add(judgeTime)
	}
	for _, at := range p.health.probes.well() {
		p.do(ctx, p.detector.Well(at, time.Now()))
	}
	p.do(ctx, p.detector.Decide(time.Now()))
	p.turn.Reset(outlier.Pace)
	if news || !p.detector.Rests() || now.Before(p.judgeUntil) {
		return
	}
	if p.bell = p.reader.AwaitHandshakes(); p.bell != nil {
		p.asleep = time.Now()
		p.turn.Reset(restPace)
	}
}

// judge has connections judged that are watched, if it is time.
func (p *Passive) judge(now time.Time) {
	if now.After(p.judgeUntil) || now.Before(p.judgeNext) {
		return
	}
	p.judgeNext = now.Add(judgePace)
	if err := p.reader.JudgeConnections(); err != nil {
		if !p.failing {
			p.log.Error("connections that are watched cannot be judged", "error", err)
		}
		p.failing = true
	}
}

// wake ends a sleep: there is a turn soon.
func (p *Passive) wake(soon time.Duration) {
	if p.bell == nil {
		return
	}
	p.bell = nil
	p.detector.Slept(int(time.Since(p.asleep) / outlier.Pace))
	p.turn.Reset(soon)
}

// list has the detector know which services there are. While many of them change, it is not called all the time.
func (p *Passive) list(ctx context.Context) {
	begun := time.Now()
	services := p.health.probes.outliers()
	p.services = len(services)
	for _, key := range p.detector.Watch(services) {
		p.enter(key)
	}
	p.do(ctx, p.detector.Decide(time.Now()))
	p.listAgain = time.Now().Add(listPause * time.Since(begun))
}

// enter has a service be read when it is its turn.
func (p *Passive) enter(key lb.Key) {
	if !p.isDue[key] && p.detector.Watches(key) {
		p.isDue[key] = true
		p.due = append(p.due, key)
	}
}

// read has the detector know what was counted, and tells whether there was, or is, anything.
func (p *Passive) read() (news bool) {
	p.reader.HandshakeNews(p.enter)
	news = len(p.due) > 0
	read, done := 0, 0
	for ; done < len(p.due) && read < mostRead; done++ {
		key := p.due[done]
		rows, err := p.reader.Handshakes(compile.Key(key), p.rows[:0])
		if err != nil {
			if !p.failing {
				p.log.Error("counters of handshakes cannot be read", "service", key, "error", err)
			}
			p.failing = true
			break
		}
		p.failing = false
		p.detector.Observe(key, rows)
		delete(p.isDue, key)
		p.rows, read = rows, read+len(rows)
	}
	if p.due = slices.Delete(p.due, 0, done); len(p.due) == 0 && cap(p.due) > mostIdle {
		p.due, p.isDue = nil, map[lb.Key]bool{}
	}
	return news
}

func (p *Passive) do(ctx context.Context, actions []outlier.Action) {
	for _, a := range slices.Clone(actions) {
		switch a.Kind {
		case outlier.Ask:
			p.ask(ctx, a)
		case outlier.Eject:
			p.health.again(p.health.probes.eject(a.At, a.Evidence, a.Kept))
		case outlier.Return:
			p.health.again(p.health.probes.readmit(a.At))
		case outlier.Try:
			p.reader.TryEndpoint(compile.Key(a.Of), a.At)
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
