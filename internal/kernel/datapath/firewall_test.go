package datapath_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
	"loxilb/test/ruletest"
)

// inEmptyLab runs f in a new lab without services.
func inEmptyLab(t testing.TB, f func(*lab.Lab) error) {
	t.Helper()
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		l, err := lab.New(lab.Config{})
		if err == nil {
			err = errors.Join(f(l), l.Close())
		}
		errs <- err
	}()
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
}

// rulePacket returns a packet as text, or "" if no such packet exists.
func rulePacket(p *bpf.RulePacket) string {
	switch lb.Protocol(p.Protocol) {
	case lb.TCP:
		return fmt.Sprintf("tcp %s > %s S", p.Source, p.Destination)
	case lb.UDP:
		return fmt.Sprintf("udp %s > %s", p.Source, p.Destination)
	case lb.ICMP:
		if p.Source.Addr().Is4() {
			return fmt.Sprintf("icmp %s > %s echo id 1 seq 1", p.Source.Addr(), p.Destination.Addr())
		}
	}
	return ""
}

// TestRulesByProgram checks that the program finds the same rule as a linear search in order, and
// counts the packet for that rule only.
func TestRulesByProgram(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	inEmptyLab(t, func(l *lab.Lab) error {
		index := func(name string) (int, bool) {
			link, err := l.Link(name)
			if err != nil {
				return 0, false
			}
			return link.Index, true
		}
		for name, list := range ruletest.Sets(400, rng) {
			slices.SortFunc(list, func(a, b policy.Rule) int { return policy.CompareRules(&a, &b) })
			if err := l.SetRules(list); err != nil {
				return err
			}
			want, sent := make([]uint64, len(list)), 0
			for range 1500 {
				p := ruletest.Packet(&list[rng.IntN(len(list))], rng)
				link := []*lab.Link{l.Client, l.Server}[rng.IntN(2)]
				p.Interface = uint32(link.Index)
				text := rulePacket(&p)
				if text == "" {
					continue
				}
				sent++
				if err := wantVerdict(l, link, text, firstMatch(list, &p, index), list, want); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			for i := range list {
				if hits, ok := l.Datapath.RuleHits(compile.RuleIdentity(&list[i])); !ok || hits.Packets != want[i] {
					return fmt.Errorf("%s: %s has decided about %d packets, want %d", name, list[i], hits.Packets, want[i])
				}
			}
			t.Logf("%s: %d packets", name, sent)
		}
		_, err := l.Counted()
		return errors.Join(err, l.SetRules(nil))
	})
}

// firstMatch returns the index of the rule that decides, or -1.
func firstMatch(list []policy.Rule, p *bpf.RulePacket, index func(string) (int, bool)) int {
	return slices.IndexFunc(list, func(r policy.Rule) bool { return ruletest.Matches(&r, p, index) })
}

// wantVerdict sends a packet, and checks its verdict and the rule that decides.
func wantVerdict(l *lab.Lab, link *lab.Link, text string, by int, list []policy.Rule, want []uint64) error {
	p, err := pkt.Parse(text)
	if err != nil {
		return err
	}
	res, err := l.Send(link, l.Arriving(link, p).Build())
	if err != nil {
		return err
	}
	verdict := "pass"
	if by >= 0 {
		want[by]++
		if list[by].Action == policy.RuleDrop {
			verdict = "drop"
		}
	}
	if res.Verdict != verdict {
		return fmt.Errorf("%s: %s, want %s by rule %d", text, res.Verdict, verdict, by)
	}
	return nil
}

// BenchmarkRules measures packets without a connection or service, 200 at a time, with and without
// 10,000 rules: the cost of the rules for a new connection.
func BenchmarkRules(b *testing.B) {
	for _, name := range []string{"hosts", "hosts of one network", "hosts of IPv6", "ports", "mixed", "wide"} {
		b.Run(name, func(b *testing.B) {
			list := ruletest.Sets(10000, rand.New(rand.NewPCG(1, 2)))[name]
			for i := range list {
				list[i].Action = policy.RuleAllow
			}
			inEmptyLab(b, func(l *lab.Lab) error {
				rng := rand.New(rand.NewPCG(5, 6))
				var frames [][]byte
				for len(frames) < 200 {
					p := ruletest.Packet(&list[rng.IntN(len(list))], rng)
					p.Protocol = 6
					if p.Source.Port() == 0 {
						p.Source = netip.AddrPortFrom(p.Source.Addr(), 1)
					}
					q, err := pkt.Parse(rulePacket(&p))
					if err != nil {
						return err
					}
					frames = append(frames, l.Arriving(l.Client, q).Build())
				}
				run := func() (all []time.Duration, err error) {
					for _, f := range frames {
						out, err := l.Datapath.TestRun().Run(testrun.Input{Frame: f, Ifindex: l.Client.Index, Repeat: 20000})
						if err != nil {
							return nil, err
						}
						all = append(all, out.Duration)
					}
					return all, nil
				}
				for b.Loop() {
					without, err := run()
					if err != nil {
						return err
					}
					if err := l.SetRules(list); err != nil {
						return err
					}
					with, err := run()
					if err != nil {
						return err
					}
					for i := range with {
						with[i] -= without[i]
					}
					slices.Sort(with)
					sum := time.Duration(0)
					for _, d := range with {
						sum += d
					}
					b.ReportMetric(float64(sum.Nanoseconds())/float64(len(with)), "ns/packet")
					b.ReportMetric(float64(with[len(with)*99/100].Nanoseconds()), "ns/p99")
					if err := l.SetRules(nil); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// TestRuleRedirects checks that a packet leaves unchanged by the interface that a rule names, and
// is counted.
func TestRuleRedirects(t *testing.T) {
	t.Parallel()
	inEmptyLab(t, func(l *lab.Lab) error {
		rule, err := policy.ParseRule("sourceIP:7.7.7.7 redirect=server")
		if err != nil {
			return err
		}
		if err := l.PutRule(rule); err != nil {
			return err
		}
		p, err := pkt.Parse("tcp 7.7.7.7:1 > 10.9.9.9:9 S")
		if err != nil {
			return err
		}
		frame := l.Arriving(l.Client, p).Build()
		res, err := l.Send(l.Client, frame)
		if err != nil || res.Verdict != "out" || !bytes.Equal(res.Frame, frame) {
			return fmt.Errorf("%s %x, want it to leave as %x: %w", res.Verdict, res.Frame, frame, err)
		}
		if hits, _ := l.Datapath.RuleHits(compile.RuleIdentity(&rule)); hits.Packets != 1 {
			return fmt.Errorf("%d packets are counted", hits.Packets)
		}
		return l.SetRules(nil)
	})
}

// TestRuleRecords checks that packets of a recording rule are copied as they arrived, with their
// verdict. The rate of copies is limited, and omitted packets are counted. Packets of other rules
// are not copied.
func TestRuleRecords(t *testing.T) {
	t.Parallel()
	inEmptyLab(t, func(l *lab.Lab) error {
		rules := map[string]policy.RuleAction{}
		for text, action := range map[string]policy.RuleAction{
			"sourceIP:7.7.7.7 drop record": policy.RuleDrop, "sourceIP:2001:db8:7::7 trap record": policy.RuleTrap,
			"sourceIP:7.7.7.8 drop": policy.RuleDrop,
		} {
			rule, err := policy.ParseRule(text)
			if err != nil {
				return err
			}
			if err := l.PutRule(rule); err != nil {
				return err
			}
			rules[fmt.Sprint(compile.RuleIdentity(&rule))] = action
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		const many = 300
		var sent [][]byte
		var copies []report.PacketCopy
		begun := false
		err := l.Datapath.RecordRules(ctx, func(list []report.PacketCopy, untold report.Omitted) bool {
			copies = append(copies, list...)
			if begun {
				return len(copies)+int(untold.Sampled+untold.Lost) < many+2
			}
			begun = true
			for i, text := range append([]string{
				"tcp 7.7.7.7:1 > 10.9.9.9:80 S", "udp [2001:db8:7::7]:1 > [2001:db8:9::9]:80 len 1000",
				"tcp 7.7.7.8:1 > 10.9.9.9:80 S",
			}, slices.Repeat([]string{"tcp 7.7.7.7:1 > 10.9.9.9:80 S"}, many)...) {
				p, err := pkt.Parse(text)
				if err != nil {
					t.Error(err)
					return false
				}
				frame := l.Arriving(l.Client, p).Build()
				if i < 2 {
					sent = append(sent, frame)
				}
				if _, err := l.Send(l.Client, frame); err != nil {
					t.Error(err)
				}
			}
			return true
		})
		if err != nil || len(copies) < 101 || len(copies) >= many {
			return fmt.Errorf("%d copies of %d packets: %w", len(copies), many+2, errors.Join(err, ctx.Err()))
		}
		for i, frame := range sent {
			c := copies[i]
			if !bytes.Equal(c.Data, frame[:min(len(frame), int(bpf.TcRecordLimitRECORD_BYTES))]) || c.Length != len(frame) || c.Interface != l.Client.Index || c.Layer3 {
				t.Errorf("packet %d: %+v, want %x", i, c, frame)
			}
			if action, ok := rules[fmt.Sprint(c.Rule)]; !ok || action != c.Action || time.Since(c.Time).Abs() > time.Minute {
				t.Errorf("packet %d: %+v", i, c)
			}
		}
		_, err = l.Counted()
		return err
	})
}
