package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"loxilb/internal/lb"
)

// Verdict is the outcome of a packet.
type Verdict string

// The verdicts.
const (
	Forwarded  Verdict = "forwarded"  // to an endpoint, or to the client
	Local      Verdict = "local"      // to a socket of this machine, as the endpoint
	Kernel     Verdict = "kernel"     // loxilb leaves it to the kernel, unchanged
	Refused    Verdict = "refused"    // dropped, and the sender is notified
	Dropped    Verdict = "dropped"    // without an answer
	Challenged Verdict = "challenged" // the client is challenged
	Redirected Verdict = "redirected" // a firewall rule sends it to another interface
	Sockets    Verdict = "sockets"    // this machine's own sockets are redirected without a packet
	Reached    Verdict = "reached"    // the client reaches the endpoint
	Unreached  Verdict = "unreached"  // it does not arrive
)

// State is the state of a step.
type State string

// The states.
const (
	OK      State = "ok"
	Warning State = "warning" // it might fail, as the text explains
	Failed  State = "failed"  // the reason why the packet does not arrive
)

// Step is one observation on the packet's path.
type Step struct {
	Stage string // interface, connection, rule, service, endpoint, source, way, ...
	State State
	Text  string // the observation and its reason
}

// Answer is the outcome of a packet.
type Answer struct {
	Question string // the packet, with defaults filled in
	Verdict  Verdict
	Summary  string // one sentence
	Reason   string // of a drop: a name of report.DropReasons
	Hint     string // the remedy
	Steps    []Step

	Service    string // key of the service; "": none
	Endpoint   netip.AddrPort
	Source     netip.AddrPort // that the endpoint sees
	Interface  string         // at which it leaves
	Gateway    netip.Addr     // the next hop
	MAC        string
	MTU        int
	Connection string // the state of the packet's connection; "": none

	Paths []Answer // for Reached and Unreached: the path by each service with the endpoint
}

func (a *Answer) add(stage string, state State, format string, args ...any) {
	a.Steps = append(a.Steps, Step{stage, state, fmt.Sprintf(format, args...)})
}

// end sets the verdict and its sentence.
func (a *Answer) end(v Verdict, format string, args ...any) *Answer {
	a.Verdict, a.Summary = v, fmt.Sprintf(format, args...)
	return a
}

// arrives reports whether no step shows that the forwarded packet is lost.
func (a *Answer) arrives() bool {
	failed := slices.ContainsFunc(a.Steps, func(s Step) bool { return s.State == Failed })
	return !failed && (a.Verdict == Forwarded || a.Verdict == Local)
}

func asField(err error, fe **lb.FieldError) bool { return errors.As(err, fe) }
