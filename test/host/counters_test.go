package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// tally is what TCP counts on both sides.
type tally struct {
	sent  int // segments
	again int // segments that were sent again
	why   map[string]int
}

// whyNames are counters of the kernel that say why segments were sent again, and whether that was
// needed: a peer that has got a segment twice says so by DSACK.
var whyNames = []string{"TCPTimeouts", "TCPLossProbes", "TCPFastRetrans", "TCPLostRetransmit", "TCPDSACKRecv", "TCPSACKReorder", "TCPOFOQueue", "TCPSpuriousRTOs"}

func (a tally) since(b tally) tally {
	out := tally{a.sent - b.sent, a.again - b.again, map[string]int{}}
	for _, name := range whyNames {
		if n := a.why[name] - b.why[name]; n > 0 {
			out.why[name] = n
		}
	}
	return out
}

func (a tally) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%d of %d segments sent again %v", a.again, a.sent, a.why), " map[]")
}

// counters adds up both sides.
func (n *network) counters() (sum tally, err error) {
	all := map[string]int{}
	for _, h := range n.sides() {
		err = errors.Join(err, h.host.Do(func() error {
			return errors.Join(addCounters(all, "/proc/thread-self/net/snmp"), addCounters(all, "/proc/thread-self/net/netstat"))
		}))
	}
	return tally{all["OutSegs"], all["RetransSegs"], all}, err
}

// addCounters reads a file that has a line of names before each line of values.
func addCounters(all map[string]int, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if names == nil {
			names = fields
			continue
		}
		for i, f := range fields {
			if v, err := strconv.Atoi(f); err == nil {
				all[names[i]] += v
			}
		}
		names = nil
	}
	return nil
}
