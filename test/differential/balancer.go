package differential

import (
	"errors"
	"fmt"
	"runtime"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// balancer is one of the two load balancers. Its methods must be called on the thread that has
// created it.
type balancer interface {
	network() *lab.Network
	// begin removes all connections and fragments, and configures the services of a sequence.
	begin(q *sequence) error
	// record adds the balancer's own verdict on the last packet to the outcome.
	record(o *outcome) error
	close() error
}

// worker sends sequences through a balancer, on a thread of its own and in a namespace that ends
// with this thread.
type worker struct {
	jobs    chan *sequence
	results chan workerResult
	network *lab.Network // valid after the first result
}

type workerResult struct {
	outcomes []outcome
	err      error
}

func newWorker(start func() (balancer, error)) *worker {
	l := &worker{jobs: make(chan *sequence), results: make(chan workerResult)}
	go l.serve(start)
	return l
}

func (l *worker) serve(start func() (balancer, error)) {
	runtime.LockOSThread()
	b, err := start()
	if err == nil {
		l.network = b.network()
	}
	var datagrams uint64
	for q := range l.jobs {
		var r workerResult
		if r.err = err; err == nil {
			r.outcomes, r.err = run(b, q, &datagrams)
		}
		l.results <- r
	}
	if err == nil {
		err = b.close()
	}
	l.results <- workerResult{err: err}
}

// stop ends the worker.
func (l *worker) stop() error {
	close(l.jobs)
	return (<-l.results).err
}

// pair is both balancers.
type pair struct{ ours, kernel *worker }

func newPair() *pair { return &pair{newWorker(newLoxilb), newWorker(newKernel)} }

func (p *pair) stop() error { return errors.Join(p.ours.stop(), p.kernel.stop()) }

// run sends a sequence through both balancers at the same time.
func (p *pair) run(q *sequence) (ours, kernel []outcome, err error) { return p.runTwo(q, q) }

func (p *pair) runTwo(q, r *sequence) (ours, kernel []outcome, err error) {
	p.ours.jobs <- q
	p.kernel.jobs <- r
	o, k := <-p.ours.results, <-p.kernel.results
	return o.outcomes, k.outcomes, errors.Join(o.err, k.err)
}

// run sends a sequence through a balancer. datagrams counts the fragmented datagrams and numbers
// them, since incomplete datagrams outlive a sequence.
func run(b balancer, q *sequence, datagrams *uint64) ([]outcome, error) {
	if err := b.begin(q); err != nil {
		return nil, err
	}
	view := make([]ends, len(q.flows))
	for i, f := range q.flows {
		view[i] = q.initialEnds(f)
	}
	var all []outcome
	for i, s := range q.steps {
		p := s.resolve(q.flows[s.flow], view[s.flow])
		if len(s.cuts) > 0 {
			*datagrams++
		}
		o := outcome{arrived: s.arriving(b.network(), p, 1+*datagrams%65535)}
		err := deliver(b, s, &o)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		for _, out := range o.left {
			if p := out.packet; !s.server && !s.router.IsValid() && out.link == "server" && (p.Proto == pkt.TCP || p.Proto == pkt.UDP) {
				view[s.flow] = ends{source: p.SrcAddr(), endpoint: p.DstAddr()}
			}
		}
		o.ends = view[s.flow]
		all = append(all, o)
	}
	return all, nil
}

// deliver sends a packet to the balancer, and collects the packets that leave. The kernel handles a
// packet during the write, so there is nothing to wait for.
func deliver(b balancer, s step, o *outcome) error {
	n := b.network()
	for i, p := range o.arrived {
		if err := n.Deliver(s.link(n), p.Build()); err != nil {
			return err
		}
		for _, link := range []*lab.Link{n.Client, n.Server} {
			frames, err := n.TakeSent(link)
			if err != nil {
				return err
			}
			for _, frame := range frames {
				if p := pkt.Decode(frame); !isFragmentTimeout(p) {
					o.left = append(o.left, sent{link.Name, p, i})
				}
			}
		}
		if err := b.record(o); err != nil {
			return err
		}
	}
	return nil
}

// isFragmentTimeout reports whether a packet reports the reassembly timeout of an earlier
// sequence's fragments: time exceeded, code 1.
func isFragmentTimeout(p *pkt.Packet) bool {
	kind := map[pkt.Proto]uint64{pkt.ICMP: 11, pkt.ICMP6: 3}[p.Proto]
	return kind != 0 && p.Num(pkt.Type) == kind && p.Num(pkt.Code) == 1
}

// router configures forwarding in the namespace, and adds the VIPs.
func router(more ...setting) error {
	all := append(more,
		setting{name: "net/ipv4/ip_forward", value: "1"}, setting{name: "net/ipv6/conf/all/forwarding", value: "1"},
		setting{name: "net/ipv4/conf/all/rp_filter", value: "0"}, setting{name: "net/ipv4/conf/default/rp_filter", value: "0"},
		// No rate limit of ICMP errors.
		setting{name: "net/ipv4/icmp_ratelimit", value: "0"}, setting{name: "net/ipv6/icmp/ratelimit", value: "0"},
		setting{name: "net/ipv4/icmp_msgs_per_sec", value: "1000000"}, setting{name: "net/ipv4/icmp_msgs_burst", value: "1000000"},
		setting{name: "net/ipv6/auto_flowlabels", value: "0"})
	for _, s := range all {
		if err := lab.Sysctl(s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}
