// Package packet runs the scripts in testdata with the real program. Packets enter by
// BPF_PROG_TEST_RUN, and tests compare the results byte by byte, including checksums. `go test
// ./test/packet -update` writes the results into the scripts; review the difference.
package packet

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/pkt"
	"loxilb/test/dptest"
	"loxilb/test/packet/lab"
)

func TestScripts(t *testing.T) {
	if !updating() { // the other tests read the files that this one updates
		t.Parallel()
	}
	runScripts(t, "testdata", lab.Config{}, updating())
}

// TestScriptsOnOldKernels runs the same scripts with the variant of the program for older kernels.
// In this test, each packet first goes through the address filter: if the filter lacks a bit, the
// packet passes to the kernel, and its script fails.
func TestScriptsOnOldKernels(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata", lab.Config{OldKernel: true, ForeignFirst: true}, false)
}

// TestScriptsWithXDP runs the scripts, and first sends each packet through the XDP program. A
// packet that XDP forwards must equal the result of the program at the tc hook, and a packet that
// XDP passes must be unchanged.
func TestScriptsWithXDP(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata", lab.Config{XDP: true}, false)
}

// TestScriptsWithDryRun runs the scripts, and first makes a dry run of each packet. The dry run
// must predict the result and the drop reason, and must not affect later packets.
func TestScriptsWithDryRun(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata", lab.Config{Dry: true}, false)
}

// TestFloodScripts runs scripts during a simulated flood, in which the program challenges SYNs
// before it looks up their connections.
func TestFloodScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/flood", lab.Config{ChallengeFirst: true}, updating())
}

// TestFloodScriptsWithXDP is TestFloodScripts with the XDP program, as in TestScriptsWithXDP.
func TestFloodScriptsWithXDP(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/flood", lab.Config{ChallengeFirst: true, XDP: true}, false)
}

func runScripts(t *testing.T, dir string, cfg lab.Config, update bool) {
	scripts := readScripts(t, dir)
	lanes := newWorkers(t, cfg, scripts)
	for _, s := range scripts {
		name := s.name
		if _, left := unpredictable()[filepath.Base(name)]; left && cfg.Dry {
			continue
		}
		if strings.HasPrefix(filepath.Base(name), "n3") && (cfg.OldKernel || !dptest.HasTCX()) { // a service with select=n3 needs tcx
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			began := challengePeriod(t)
			r, err := lanes.run(s)
			if err == nil && len(r.failures) > 0 && challengePeriod(t) != began {
				r, err = lanes.run(s) // a new period of challenge numbers has begun during the script
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !update {
				for _, f := range r.failures {
					t.Errorf("%s %s", filepath.Base(name), f)
				}
				return
			}
			if err := os.WriteFile(name, []byte(strings.Join(r.out, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// challengePeriod returns the period of jiffies in which numbers of challenges stay the same
// (CHALLENGE_PERIOD_SHIFT).
func challengePeriod(t testing.TB) uint32 { return dptest.Jiffies(t) >> 14 }

// unpredictable returns the scripts that a dry run cannot predict, with the reason.
func unpredictable() map[string]string {
	const live = "its packets go through the kernel"
	const room = "expired connections make room, and a dry run has a table of its own"
	return map[string]string{
		"attached-live.txt": live, "proxy-live.txt": live, "challenge-live.txt": live, "live.txt": live, "nat64-live.txt": live, "priority-tag.txt": live,
		"half-open-others.txt": room, "reclaim.txt": room,
		"next-hops.txt": "it changes a neighbor without notifying the daemon, and a dry run looks up the next hop again",
	}
}

func scriptFiles(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(dir + "/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scripts in %s: %v", dir, err)
	}
	return names
}

// readScripts reads all scripts in a directory.
func readScripts(t testing.TB, dir string) (scripts []script) {
	t.Helper()
	for _, name := range scriptFiles(t, dir) {
		scripts = append(scripts, readScript(t, name))
	}
	return scripts
}

func readScript(t testing.TB, name string) script {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return script{name, strings.Split(strings.TrimRight(string(text), "\n"), "\n")}
}

// updating reports whether -update was given. It looks the flag up to avoid a global variable.
func updating() bool { return flag.Lookup("update").Value.String() == "true" }

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write what happened into the scripts")
	os.Exit(m.Run())
}

// runner holds the state of a running script.
type runner struct {
	*rewriter
	s    script
	lab  *lab.Lab
	vars pkt.Vars
	live bool
	// proof is the balancer's last HEARTBEAT chunk without its type, in hexadecimal digits.
	proof string
}

func (r *runner) run() (err error) {
	for i := 0; i < len(r.s.lines); {
		if i, err = r.line(i); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	counted, err := r.lab.Counted()
	if counted != "" {
		r.fail(len(r.s.lines)-1, "counted although nothing was dropped: %s", counted)
	}
	return err
}

// line runs the line at index i, and returns the index of the next one, or of the line with an
// error.
func (r *runner) line(i int) (next int, err error) {
	verb, rest := splitVerb(r.s.lines[i])
	switch verb {
	case "conntrack":
		got, err := r.lab.DumpConnections()
		return r.compareState(r.s, i, got), err
	case "stats":
		got, err := r.lab.DumpStats()
		return r.compareState(r.s, i, got), err
	case "handshakes":
		got, err := r.lab.DumpHandshakes()
		return r.compareState(r.s, i, got), err
	case "lifetimes":
		got, err := r.lab.DumpLifetimes()
		return r.compareState(r.s, i, got), err
	case "pressure":
		got, err := r.lab.DumpPressure()
		return r.compareState(r.s, i, got), err
	case "policers":
		got, err := r.lab.DumpPolicers()
		return r.compareState(r.s, i, got), err
	case "mirrors":
		got, err := r.lab.DumpMirrors()
		return r.compareState(r.s, i, got), err
	case "rules":
		got := r.lab.DumpRules()
		return r.compareState(r.s, i, got), nil
	case "in", "pass", "drop":
		return r.step(i)
	case "out":
		r.fail(i, "out without in")
		return i + 1, nil
	}
	r.write(r.s.lines[i])
	if err := r.command(verb, rest); err != nil {
		return i, err
	}
	return i + 1, nil
}

func (r *runner) command(verb, rest string) error {
	switch verb {
	case "", "size", "half-open":
		return nil
	case "xdp":
		return r.lab.CheckXDP(rest)
	case "live":
		r.live = true
		return r.lab.Attach()
	case "service":
		svc, err := lb.ParseService(rest)
		if err != nil {
			return err
		}
		return r.lab.Apply(svc)
	case "rule":
		rule, err := policy.ParseRule(rest)
		if err != nil {
			return err
		}
		return r.lab.PutRule(rule)
	case "unrule":
		rule, err := policy.ParseRuleKey(rest)
		if err != nil {
			return err
		}
		return r.lab.DeleteRule(rule)
	case "delete":
		key, err := lb.ParseKey(rest)
		if err != nil {
			return err
		}
		return r.lab.Delete(key)
	case "down", "up":
		endpoint, err := netip.ParseAddrPort(rest)
		if err != nil {
			return err
		}
		return r.lab.SetDown(endpoint, verb == "down")
	case "advance":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return err
		}
		return r.lab.Advance(d)
	case "policer":
		return r.lab.SetPolicer(rest)
	case "mirror":
		return r.lab.SetMirror(rest)
	case "mark":
		mark, err := lb.ParseMark(rest)
		r.lab.Mark(mark)
		return err
	case "away":
		return r.lab.StopSweeping()
	case "ports":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		return r.lab.LimitPorts(n)
	case "sweep":
		return r.lab.Sweep()
	case "next-hops":
		switch rest {
		case "":
			return r.lab.BumpNextHops()
		case "shared", "each":
			return errors.Join(r.lab.ShareNextHops(rest == "shared"), r.lab.BumpNextHops())
		case "stay":
			return r.lab.KeepNextHops()
		}
		return fmt.Errorf("next-hops %q is not empty, shared, each or stay", rest)
	case "neighbours":
		return r.lab.BumpNeighbours()
	case "ip":
		out, err := exec.Command("ip", strings.Fields(rest)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", rest, err, out)
		}
		return nil
	case "sysctl":
		name, value := splitVerb(rest)
		return lab.Sysctl(strings.ReplaceAll(name, ".", "/"), value)
	}
	if strings.HasPrefix(verb, "#") {
		return nil
	}
	return fmt.Errorf("%q is not a verb of packet scripts", verb)
}

// step sends one packet and compares the result.
func (r *runner) step(i int) (int, error) {
	st := parseStep(r.s, i)
	link, err := r.lab.Link(st.link)
	if err != nil {
		return i, err
	}
	p, err := pkt.Parse(strings.Replace(st.packet, "data proof", "data 05"+r.proof, 1))
	if err != nil {
		return i, err
	}
	if p, err = p.Resolve(r.vars); err != nil {
		return i, err
	}
	p = r.lab.Arriving(link, p)
	res, err := r.send(link, p)
	if err != nil {
		return i, fmt.Errorf("send %s: %w", p, err)
	}
	got := r.describe(p, res)
	if failure := r.compare(st, p, res, got); failure != "" {
		r.fail(i, "%s\nhappened: %s\n%s", strings.Join(r.s.lines[st.first:st.next], "\n\t"),
			strings.Join(st.format(got), "\n\t"), failure)
		r.write(st.format(got)...)
	} else {
		r.write(r.s.lines[st.first:st.next]...)
	}
	return st.next, nil
}

func (r *runner) send(link *lab.Link, p *pkt.Packet) (lab.Result, error) {
	if r.live {
		return r.lab.SendLive(link, p)
	}
	return r.lab.Send(link, p.Build())
}

// describe returns the result in the syntax of a script.
func (r *runner) describe(p *pkt.Packet, res lab.Result) expectation {
	got := expectation{verb: res.Verdict, reason: res.Reason}
	if res.Verdict != "out" {
		return got
	}
	link := r.lab.LinkOf(res.Frame)
	if link == nil {
		got.link, got.packet = "?", pkt.Decode(res.Frame).String()
		return got
	}
	q := pkt.Decode(res.Frame)
	got.link, got.packet = link.Name, r.lab.Changes(p, q, link).String()
	return got
}

// compare returns the differences from the expectation, or "".
func (r *runner) compare(st step, p *pkt.Packet, res lab.Result, got expectation) string {
	switch {
	case st.want.verb == "":
		return "the script does not say what should happen: out, pass or drop"
	case got.verb != st.want.verb || got.reason != st.want.reason:
		return "another verdict"
	case got.verb == "drop":
		return ""
	case got.verb == "pass":
		if in := p.Build(); !r.live && !bytes.Equal(in, res.Frame) {
			return "the packet was changed\n" + pkt.Diff(pkt.Decode(in), pkt.Decode(res.Frame), r.vars)
		}
		return ""
	case got.link != st.want.link:
		return "another link"
	}
	return r.compareFrame(st.want.packet, p, res.Frame)
}

// compareFrame compares a sent frame with the received packet after the changes that the script
// lists.
func (r *runner) compareFrame(line string, p *pkt.Packet, frame []byte) string {
	const prefix, hash = "000014000100106c786c62", 16
	link, q := r.lab.LinkOf(frame), pkt.Decode(frame)
	if _, proof, ok := strings.Cut(q.String(), "data 04"+prefix); ok && len(proof) >= hash {
		r.proof = prefix + proof[:hash]
		line = strings.Replace(line, "data proof", "data 04"+r.proof, 1)
	}
	pattern, err := pkt.Parse(line)
	if err != nil {
		return err.Error()
	}
	want, err := r.lab.Leaving(link, p, pattern, q, r.vars)
	if err != nil {
		return err.Error()
	}
	if !bytes.Equal(want.Build(), frame) {
		return pkt.Diff(pkt.Decode(want.Build()), q, r.vars) + fmt.Sprintf("bytes: want %x\n       got  %x\n", want.Build(), frame)
	}
	return ""
}
