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
	"loxilb/internal/lb/report"
)

// HandshakeReader reads the data path's counts of handshakes.
type HandshakeReader interface {
	// Handshakes appends the counters of a service's endpoints.
	Handshakes(key bpf.TcServiceKey, out []report.HandshakeRow) ([]report.HandshakeRow, error)
	// HandshakeNews calls yield with each service whose counters or endpoints may have changed
	// since the last call.
	HandshakeNews(yield func(lb.Key))
	// AwaitHandshakes returns a channel that signals new handshakes; nil if there are some
	// already, or if signals are not available.
	AwaitHandshakes() <-chan struct{}
	// JudgeConnections checks whether endpoints answer the sampled connections. It marks
	// services with findings as changed.
	JudgeConnections() error
	// TryEndpoint sends the next new connection of a service to an endpoint that is out of
	// rotation.
	TryEndpoint(key bpf.TcServiceKey, at netip.AddrPort)
	Jiffy() time.Duration
}

// Passive ejects endpoints with which clients' handshakes fail, and readmits them.
type Passive struct {
	health  *Health
	reader  HandshakeReader
	connect func(ctx context.Context, at netip.AddrPort, timeout, hold time.Duration) (failure string, undecided bool)
	log     *slog.Logger

	detector  *outlier.Detector
	services  int             // number of services
	listAgain time.Time       // when services may be listed again
	due       []lb.Key        // services to read, in the order of their changes
	isDue     map[lb.Key]bool // the services in due
	rows      []report.HandshakeRow

	failing      bool // reading failed last
	judgeFailing bool // judging failed last

	judgeNext, judgeUntil time.Time // when connections are judged next, and when that ends

	timer         *time.Timer
	news          <-chan struct{} // signals new handshakes; nil: the detector is awake
	sleepingSince time.Time       // when the sleep began

	checks   sync.WaitGroup
	suspects checkQueue
	ejected  checkQueue
	results  chan checkResult
}

// checkQueue is a queue of endpoints to check, a limited number at a time.
type checkQueue struct {
	outlier.Queue
	most, running int
}

type checkResult struct {
	queue     *checkQueue
	at        netip.AddrPort
	failure   string
	undecided bool
}

const (
	// maxEjectedChecks is the number of ejected endpoints that are checked at a time. They have
	// a limit of their own, so thousands of them do not delay the checks of suspects.
	maxEjectedChecks = 64
	// maxRead is the number of endpoints whose counters are read at a time: the others follow
	// after outlier.ReadInterval.
	maxRead = 20000
	// restPace is the interval of evaluations while nothing changes: the data path signals
	// changes.
	restPace = 5 * time.Second
	// judgePace is the interval of judging sampled connections, and judgeTime how long it
	// continues after the last change.
	judgePace, judgeTime = 500 * time.Millisecond, 5 * time.Second
	// maxIdle is the length of due up to which its memory is kept while it is empty.
	maxIdle = 1024
	// listPause is the pause after a listing of all services, as a multiple of the time that it
	// took.
	listPause = 20
)

// NewPassive returns a Passive for the services of h.
func NewPassive(h *Health, r HandshakeReader) *Passive {
	suspects := health.MaxHandshakes()
	return &Passive{
		health: h, reader: r, connect: health.Handshake, log: h.Log, detector: outlier.New(r.Jiffy()),
		isDue: map[lb.Key]bool{}, suspects: checkQueue{most: suspects}, ejected: checkQueue{most: maxEjectedChecks}, results: make(chan checkResult, suspects+maxEjectedChecks),
	}
}

// Run watches handshakes until ctx ends.
func (p *Passive) Run(ctx context.Context) {
	defer p.checks.Wait()
	p.timer = time.NewTimer(outlier.ReadInterval)
	defer p.timer.Stop()
	for {
		turn, changed, listAgain := p.timer.C, p.health.probes.ejections.changed, (<-chan time.Time)(nil)
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
			p.wake(outlier.ReadInterval)
		case r := <-p.results:
			p.handleResult(ctx, r)
		case <-p.news:
			// not at once: a handshake that has just begun is not answered yet
			p.wake(outlier.ReadInterval / 2)
		case <-turn:
			p.evaluate(ctx)
		}
	}
}

// evaluate makes the detector judge new events, and sleeps if there are none.
func (p *Passive) evaluate(ctx context.Context) {
	p.wake(outlier.ReadInterval)
	now := time.Now()
	p.judge(now)
	news := p.read()
	if news {
		p.judgeUntil = now.Add(judgeTime)
	}
	for _, at := range p.health.probes.recovered() {
		p.execute(ctx, p.detector.ProbeSucceeded(at, time.Now()))
	}
	p.execute(ctx, p.detector.Decide(time.Now()))
	p.timer.Reset(outlier.ReadInterval)
	if news || !p.detector.Idle() || now.Before(p.judgeUntil) {
		return
	}
	if p.news = p.reader.AwaitHandshakes(); p.news != nil {
		p.sleepingSince = time.Now()
		p.timer.Reset(restPace)
	}
}

// judge judges the watched connections, at most once per judgePace.
func (p *Passive) judge(now time.Time) {
	if now.After(p.judgeUntil) || now.Before(p.judgeNext) {
		return
	}
	p.judgeNext = now.Add(judgePace)
	err := p.reader.JudgeConnections()
	if err != nil && !p.judgeFailing {
		p.log.Error("connections that are watched cannot be judged", "error", err)
	}
	p.judgeFailing = err != nil
}

// wake ends a sleep: the next evaluation is due soon.
func (p *Passive) wake(d time.Duration) {
	if p.news == nil {
		return
	}
	p.news = nil
	p.detector.Skip(int(time.Since(p.sleepingSince) / outlier.ReadInterval))
	p.timer.Reset(d)
}

// list updates the detector's services. listPause limits how often while many services change.
func (p *Passive) list(ctx context.Context) {
	begun := time.Now()
	services := p.health.probes.outliers()
	p.services = len(services)
	for _, key := range p.detector.Watch(services) {
		p.enqueue(key)
	}
	p.execute(ctx, p.detector.Decide(time.Now()))
	p.listAgain = time.Now().Add(listPause * time.Since(begun))
}

// enqueue queues a service to be read.
func (p *Passive) enqueue(key lb.Key) {
	if !p.isDue[key] && p.detector.Watches(key) {
		p.isDue[key] = true
		p.due = append(p.due, key)
	}
}

// read passes new counters to the detector. It reports whether there were any.
func (p *Passive) read() (news bool) {
	p.reader.HandshakeNews(p.enqueue)
	news = len(p.due) > 0
	read, done := 0, 0
	for ; done < len(p.due) && read < maxRead; done++ {
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
	if p.due = slices.Delete(p.due, 0, done); len(p.due) == 0 && cap(p.due) > maxIdle {
		p.due, p.isDue = nil, map[lb.Key]bool{}
	}
	return news
}

func (p *Passive) execute(ctx context.Context, actions []outlier.Action) {
	for _, a := range slices.Clone(actions) {
		switch a.Kind {
		case outlier.Check:
			p.enqueueCheck(ctx, a)
		case outlier.Eject:
			p.health.markServices(p.health.probes.eject(a.At, ejection{evidence: a.Evidence, kept: a.Kept, certain: a.Certain}))
		case outlier.Return:
			p.health.markServices(p.health.probes.readmit(a.At))
		case outlier.Try:
			p.reader.TryEndpoint(compile.Key(a.Service), a.At)
		case outlier.AsymmetricReply, outlier.ReplySeen:
			p.health.recordReply(a.At, a.Kind == outlier.ReplySeen)
		}
	}
}

// enqueueCheck queues an endpoint for the daemon's own check.
func (p *Passive) enqueueCheck(ctx context.Context, a outlier.Action) {
	list := &p.suspects
	if a.Retry {
		list = &p.ejected
	}
	list.Push(a)
	p.startChecks(ctx, list)
}

// startChecks starts queued checks, up to the limit.
func (p *Passive) startChecks(ctx context.Context, list *checkQueue) {
	for list.running < list.most {
		a, ok := list.Pop()
		if !ok {
			return
		}
		list.running++
		p.checks.Go(func() {
			failure, undecided := p.connect(ctx, a.At, a.Timeout, a.Hold)
			p.results <- checkResult{list, a.At, failure, undecided}
		})
	}
}

// handleResult passes the result of a check to the detector.
func (p *Passive) handleResult(ctx context.Context, r checkResult) {
	r.queue.running--
	if r.failure != "" && !r.undecided {
		r.queue.Failed(r.at)
	}
	p.execute(ctx, p.detector.CheckEnded(r.at, r.failure, r.undecided, time.Now()))
	p.startChecks(ctx, r.queue)
}
