package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"loxilb/internal/lb"
)

// Verdict is what becomes of a packet.
type Verdict string

// The verdicts.
const (
	Forwarded  Verdict = "forwarded"  // to an endpoint, or to the client
	Local      Verdict = "local"      // to a socket of this machine, as the endpoint
	Kernel     Verdict = "kernel"     // loxilb leaves it to the kernel as it came
	Refused    Verdict = "refused"    // dropped, and the sender is told
	Dropped    Verdict = "dropped"    // in silence
	Challenged Verdict = "challenged" // the client is asked whether it is there
	Redirected Verdict = "redirected" // a firewall rule sends it elsewhere
	Sockets    Verdict = "sockets"    // this machine's own sockets are led without a packet
	Reached    Verdict = "reached"    // the client reaches the endpoint
	Unreached  Verdict = "unreached"  // it does not
)

// State is how a step is.
type State string

// The states.
const (
	OK      State = "ok"
	Warning State = "warning" // it works, or may not, as the text says
	Failed  State = "failed"  // this is why the packet does not get there
)

// Step is something that the packet meets, in their order.
type Step struct {
	Stage string // interface, connection, rule, service, endpoint, source, way, ...
	State State
	Text  string // what, and why
}

// Answer is what becomes of a packet.
type Answer struct {
	Question string // the packet, with what was not said
	Verdict  Verdict
	Summary  string // one sentence
	Reason   string // of a drop: a name of docs/drop-reasons.md
	Hint     string // what mends it
	Steps    []Step

	Service    string // key of the service; "": none
	Endpoint   netip.AddrPort
	Source     netip.AddrPort // that the endpoint sees
	Interface  string         // by which it leaves
	Gateway    netip.Addr     // the next hop
	MAC        string
	MTU        int
	Connection string // the state of the connection that it is of; "": none

	Paths []Answer // Reached, Unreached: by each service that has the endpoint
}

func (a *Answer) add(stage string, state State, format string, args ...any) {
	a.Steps = append(a.Steps, Step{stage, state, fmt.Sprintf(format, args...)})
}

// end sets the verdict, and the sentence that says it.
func (a *Answer) end(v Verdict, format string, args ...any) *Answer {
	a.Verdict, a.Summary = v, fmt.Sprintf(format, args...)
	return a
}

// arrives reports whether the packet gets where it is forwarded to, as far as it shows here.
func (a *Answer) arrives() bool {
	failed := slices.ContainsFunc(a.Steps, func(s Step) bool { return s.State == Failed })
	return !failed && (a.Verdict == Forwarded || a.Verdict == Local)
}

func asField(err error, fe **lb.FieldError) bool { return errors.As(err, fe) }
