// Command mutate makes one-line mistakes in a Go package or a BPF source, one at a time and chosen
// by a seed, runs the tests, and lists the mistakes that no test caught. It changes no file of the
// tree: the compiler reads the mistakes from a temporary folder.
//
//	mutate [-n 20] [-seed 1] [-run PATTERN] internal/lb [TEST PACKAGE...]
//	mutate [-n 20] [-seed 1] [-run PATTERN] bpf/limit/limit.h [TEST PACKAGE...]
//
// It runs from the top folder. Without test packages it runs the package's own tests; for a BPF
// source, the tests that run its programs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// errSurvivors reports that tests passed with a mistake.
var errSurvivors = errors.New("tests passed with these mistakes")

func main() {
	var o options
	flag.IntVar(&o.number, "n", 20, "number of mistakes")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.StringVar(&o.run, "run", "", "run only the tests that match")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	o.target, o.tests = filepath.Clean(flag.Arg(0)), flag.Args()[1:]
	if err := o.mutate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	number int
	seed   uint64
	run    string
	target string
	tests  []string
}

func (o *options) mutate() error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var t target
	if strings.HasPrefix(o.target, "bpf/") {
		t, err = newBPF(o.target, dir)
	} else {
		t = goPackage{dir}
	}
	if err != nil {
		return err
	}
	if len(o.tests) == 0 {
		o.tests = t.tests(o.target)
	}
	all, err := mistakesIn(o.target)
	if err != nil {
		return err
	}
	began := time.Now()
	if output, err := o.test("", 10*time.Minute); err != nil {
		return fmt.Errorf("tests fail without a mistake: %w\n%s", err, output)
	}
	timeout := max(30*time.Second, 5*time.Since(began)).Round(time.Second)
	fmt.Printf("%s: %d possible mistakes, seed %d, tests %s\n", o.target, len(all), o.seed, strings.Join(o.tests, " "))
	return o.sample(t, all, timeout)
}

// sample tries mistakes at random until enough of them compiled.
func (o *options) sample(t target, all []mistake, timeout time.Duration) error {
	rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	tried, survived := 0, 0
	for _, m := range all {
		if tried == o.number {
			break
		}
		overlay, err := t.make(m)
		if err != nil {
			continue // it does not compile
		}
		output, err := o.test(overlay, timeout)
		if refused(output) {
			continue
		}
		tried++
		if err != nil {
			fmt.Printf("caught   %s:%d\n", m.file, m.line+1)
			continue
		}
		survived++
		fmt.Printf("survived %s\n", m)
	}
	fmt.Printf("%d mistakes, %d caught, %d survived\n", tried, tried-survived, survived)
	if survived > 0 {
		return errSurvivors
	}
	return nil
}

// refused reports whether the compiler or the verifier refused the mistake: no test had to catch
// it.
func refused(output string) bool {
	for _, sign := range []string{"[build failed]", "[setup failed]", ": load program: "} {
		if strings.Contains(output, sign) {
			return true
		}
	}
	return false
}

func (o *options) test(overlay string, timeout time.Duration) (output string, err error) {
	args := []string{"test", "-vet=off", "-failfast", "-count=1", "-timeout", timeout.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if o.run != "" {
		args = append(args, "-run", o.run)
	}
	for _, p := range o.tests {
		args = append(args, "./"+filepath.Clean(p))
	}
	out, err := exec.Command("tools/go", args...).CombinedOutput()
	return string(out), err
}
