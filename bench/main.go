// Command bench compares loxilb with its rivals, each configured for real in the standard topology
// of network namespaces. `make bench` builds and runs it; docs/benchmark.md explains the output.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// options are the flags: what to measure, and where to write results.
type options struct {
	setting
	name   string // of the result's files
	out    string // directory for them
	check  string // file of an earlier result to compare with; "": none
	json   bool   // write the result to standard output only, as JSON
	commit string
	clock  string // what the machine's clock counts, such as instructions; "": time

	bin   string // directory of this program, loxilb and loxicmd
	cpus  layout
	netns [][2]string // settings of every namespace
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := dispatch(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// dispatch runs the subcommand: the benchmark, its load, its servers, or tools for results.
func dispatch(ctx context.Context, args []string) error {
	what := ""
	if len(args) > 0 {
		what = args[0]
	}
	switch what {
	case "serve":
		return serve(ctx, args[1:])
	case "crr":
		return crrMain(args[1:])
	case "clients":
		return clientsMain(ctx, args[1:])
	case "profile":
		return profileMain(args[1:])
	case "protocols":
		return protocolsMain(args[1:])
	case "quic":
		return quicMain(ctx, args[1:])
	case "packet":
		return packetMain(args[1:])
	case "control":
		return controlMain(ctx, args[1:])
	case "docs":
		return docs(args[1:])
	case "render":
		return render(args[1:])
	case "check":
		return checkMain(args[1:])
	}
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	return benchmark(ctx, o)
}

func parseOptions(args []string) (options, error) {
	o := options{netns: hostSettings()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	workloads := flags.String("works", "", "what to measure: names or groups such as \"rps cps crr\"; all by default")
	contenders := flags.String("contenders", "", "which contenders: names such as \"routing loxilb nft\"; by default, all that are installed")
	flags.IntVar(&o.Rounds, "rounds", 5, "number of rounds")
	flags.Float64Var(&o.Seconds, "seconds", 3, "seconds of each measurement; wrk and iperf3 round up to whole seconds")
	flags.Float64Var(&o.Warmup, "warmup", 1, "seconds of load before each measurement")
	flags.IntVar(&o.MTU, "mtu", 1500, "MTU of every link")
	flags.StringVar(&o.Layout, "layout", "one", "one: all share the CPUs; pinned: client, balancer and endpoints have their own")
	flags.StringVar(&o.Wrk, "wrk", "-t2 -c100", "threads and connections of wrk")
	flags.IntVar(&o.Table, "table", 0, "size of loxilb's connection table, in connections; a small one fills soon; 0: the default size")
	flags.StringVar(&o.name, "name", "", "name of the result's files (default net-LAYOUT-MTU; flood for floods)")
	flags.StringVar(&o.out, "out", "bench/results", "directory for NAME.txt, NAME.json and NAME.svg")
	flags.StringVar(&o.check, "check", "", "fail if the result is worse than this earlier one (a JSON file)")
	flags.BoolVar(&o.json, "json", false, "print the result as JSON and write no files")
	flags.StringVar(&o.commit, "commit", commitHere(), "commit to name in the result")
	flags.StringVar(&o.clock, "clock", "", "what the clock counts, such as instructions, if not time")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if o.Table < 0 {
		return o, fmt.Errorf("table %d is negative", o.Table)
	}
	if o.Rounds < 1 || o.Seconds < 0.1 || o.Warmup < 0 || o.MTU < 1280 {
		return o, fmt.Errorf("rounds %d, seconds %v, warmup %v, mtu %d: at least 1, 0.1, 0 and 1280 are needed", o.Rounds, o.Seconds, o.Warmup, o.MTU)
	}
	o.Works, o.Contenders = strings.Fields(*workloads), strings.Fields(*contenders)
	if o.name == "" {
		o.name = resultName(o.setting)
	}
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	o.bin = filepath.Dir(self)
	o.cpus, err = layoutNamed(o.Layout, runtime.NumCPU())
	return o, err
}

// resultName returns the default name of the result's files.
func resultName(s setting) string {
	only := func(group string) bool {
		return len(s.Works) > 0 && !slices.ContainsFunc(s.Works, func(n string) bool {
			of, _, _ := strings.Cut(n, "-")
			return of != group
		})
	}
	switch {
	case only("protocol"):
		return "net-protocols"
	case !only("flood"):
		return fmt.Sprintf("net-%s-%d", s.Layout, s.MTU)
	case slices.Equal(s.Works, []string{"flood-honest"}):
		return "flood-honest"
	}
	return "flood"
}

// commitHere returns the commit of the working directory, or "" if git does not know it.
func commitHere() string {
	b, _ := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	return strings.TrimSpace(string(b))
}

func benchmark(ctx context.Context, o options) error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and BPF need root")
	}
	var earlier *result
	if o.check != "" {
		var err error
		if earlier, err = readResult(o.check); err != nil {
			return err
		}
	}
	res, err := measureAll(ctx, o, os.Stderr)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(res)
	}
	if err := res.write(o.out); err != nil {
		return err
	}
	if err := writeText(os.Stdout, res); err != nil {
		return err
	}
	if earlier != nil {
		return reportCheck(os.Stdout, earlier, res)
	}
	return nil
}

// write writes a result's files: JSON, text, and a chart if there is something to draw.
func (r *result) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := func(suffix string) string { return filepath.Join(dir, r.Name+suffix) }
	b, err := json.MarshalIndent(r, "", "\t")
	if err == nil {
		err = os.WriteFile(path(".json"), append(b, '\n'), 0o644)
	}
	if err != nil {
		return err
	}
	var t, c strings.Builder
	if err := errors.Join(writeText(&t, r), chart(&c, r)); err != nil {
		return err
	}
	if err := os.WriteFile(path(".txt"), []byte(t.String()), 0o644); err != nil || len(drawn(r)) == 0 {
		return err
	}
	return os.WriteFile(path(".svg"), []byte(c.String()), 0o644)
}

// render rewrites the files of results: `bench render FILE.json...`.
func render(files []string) error {
	for _, f := range files {
		r, err := readResult(f)
		if err != nil {
			return err
		}
		if err := r.write(filepath.Dir(f)); err != nil {
			return err
		}
	}
	return nil
}
