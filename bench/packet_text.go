package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// innerSpread returns the median, and the 10th and 90th percentile in the place of least and most.
func innerSpread(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return spread{}
	}
	return spread{Median: spreadOf(v).Median, Min: v[len(v)/10], Max: v[len(v)*9/10], Rounds: len(v)}
}

// write writes packet.txt and packet.json, and shows the first.
func (res *packetResult) write(dir string) error {
	text := res.text()
	fmt.Print(text)
	b, err := json.MarshalIndent(res, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "packet.json"), append(b, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "packet.txt"), []byte(text), 0o644),
	)
}

func (res *packetResult) text() string {
	var b strings.Builder
	m := res.Machine
	fmt.Fprintf(&b, `What a packet costs in the program, beyond an empty one's time: single packets, between system calls, so that little of
what they need is in a cache. Median (10th to 90th percentile) of %d connections.

machine  %d CPUs, %s, %s; load average at the start %s
kernel   %s
commit   %s, %s
method   BPF_PROG_TEST_RUN, timed by the kernel (BPF_ENABLE_STATS); look-ups and calls of other helpers are counted by a
         copy of the program, those left out that the kernel turns into a few instructions
`, pathRuns, m.CPUs, m.CPU, m.Memory, m.Load, m.Kernel, m.Commit, m.Date)
	if len(res.Instructions) > 0 {
		b.WriteString("         instructions: the kernel's too; a guest whose clock counts them (make bench-packet)\n")
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "path\tservices\tconnections\tns\tinstructions\tlook-ups\thelpers")
	for _, c := range res.Costs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f (%.0f to %.0f)\t%s\t%d\t%d\n", c.Path, human(float64(c.Services)), human(float64(c.Connections)),
			c.Own.Median, c.Own.Min, c.Own.Max, res.instructions(c), c.Lookups, c.Helpers)
	}
	t.Flush()
	if len(res.Costs) > 0 {
		fmt.Fprintf(&b, "\nempty program: %.0f ns\n", res.Costs[0].Empty)
	}
	if len(res.Rings) > 0 {
		b.WriteString("\nEstablished packets one right after the other, each of another one of so many flows: ns beyond an empty program\n")
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, r := range res.Rings {
			fmt.Fprintf(t, "%s\t%.0f\t(empty: %.0f)\n", r.Flows, r.Own, r.Empty)
		}
		t.Flush()
		b.WriteString("\n")
	}
	if res.ConnectionSize > 0 {
		fmt.Fprintf(&b, "kernel memory of a connection: %.0f bytes\n", res.ConnectionSize)
	}
	return b.String()
}

// instructions returns those of the same path in the guest.
func (res *packetResult) instructions(c pathCost) string {
	for _, i := range res.Instructions {
		if i.Path == c.Path && i.Services == c.Services && i.Connections == c.Connections {
			return fmt.Sprintf("%.0f", i.Own.Median)
		}
	}
	return "-"
}
