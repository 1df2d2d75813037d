package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// result is the result of a run of TestFailures.
type result struct {
	Date   string        `json:"date"`
	Kernel string        `json:"kernel"`
	CPUs   int           `json:"cpus"`
	Load   load          `json:"load"`
	Cases  []*caseResult `json:"cases"`
}

// write writes the result to NAME.json and NAME.txt in a directory, unless dir is empty.
func (e *experiment) write(dir, name string) {
	e.t.Helper()
	if dir == "" {
		return
	}
	var system unix.Utsname
	must(e.t, unix.Uname(&system))
	r := result{time.Now().UTC().Format("2006-01-02 15:04 UTC"), unix.ByteSliceToString(system.Release[:]), runtime.NumCPU(), e.clients.load, e.cases}
	b, err := json.MarshalIndent(r, "", "\t")
	must(e.t, err)
	must(e.t, os.WriteFile(filepath.Join(dir, name+".json"), append(b, '\n'), 0o644))
	must(e.t, os.WriteFile(filepath.Join(dir, name+".txt"), []byte(r.text()), 0o644))
}

// text returns the result as a table.
func (r *result) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `Connections of three nodes behind an ECMP router, when nodes, links and processes fail.

command   make test-cluster     nodes, three endpoints and clients in network namespaces; FRR 8.4.4 (L4 hash), eBGP, BFD 3 x 100 ms
machine   virtual machine, %d CPUs, Linux %s, %s
load      %d TCP connections and %d UDP flows that exchange a message each %v, checked at both ends; %d new TCP connections per second
          in equal parts: onearm and fullnat with source addresses of each node, default with hash, dsr with hash; IPv4 and IPv6
broken    of connections that were 10 ms old when the node fell silent; "late" are those opened through it afterwards
silence   the longest wait for an answer, of all rounds

%-43s %6s  %8s  %6s  %4s  %10s  %8s  %8s
`, r.CPUs, r.Kernel, r.Date, r.Load.TCP, r.Load.UDP, r.Load.Pace, r.Load.PerSecond, "case", "rounds", "opened", "broken", "late", "not opened", "silence", "of UDP")
	for _, c := range r.Cases {
		var sum observation
		for _, one := range c.Rounds {
			sum.Opened += one.Opened
			sum.Broken += one.Broken
			sum.Late += one.Late
			sum.NotOpened += one.NotOpened
			sum.LongestTCP, sum.LongestUDP = max(sum.LongestTCP, one.LongestTCP), max(sum.LongestUDP, one.LongestUDP)
		}
		fmt.Fprintf(&b, "%-43s %6d  %8d  %6d  %4d  %10d  %6.2f s  %6.2f s\n", c.Name, len(c.Rounds), sum.Opened, sum.Broken, sum.Late, sum.NotOpened, sum.LongestTCP, sum.LongestUDP)
		for _, name := range slices.Sorted(maps.Keys(c.Rounds[0].Numbers)) {
			least, most := c.Rounds[0].Numbers[name], c.Rounds[0].Numbers[name]
			for _, one := range c.Rounds {
				least, most = min(least, one.Numbers[name]), max(most, one.Numbers[name])
			}
			fmt.Fprintf(&b, "    %s: %.4g to %.4g\n", name, least, most)
		}
	}
	return b.String()
}
