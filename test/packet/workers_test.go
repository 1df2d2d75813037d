package packet

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// workers run scripts concurrently. A worker is a thread in a namespace of its own with a lab. It
// runs one script after the other, and gets a new network after a script that has changed the
// network, or attached programs to it. Each lab configuration has its own workers.
type workers struct {
	cfg    lab.Config
	jobs   map[lab.Config]chan job
	broken atomic.Pointer[error] // why no lab can be created
}

type job struct {
	script script
	done   chan<- result
}

type result struct {
	*rewriter
	err error
}

func newWorkers(t *testing.T, cfg lab.Config, scripts []script) *workers {
	t.Helper()
	w := &workers{cfg: cfg, jobs: map[lab.Config]chan job{}}
	count := map[lab.Config]int{}
	for _, s := range scripts {
		cfg, err := s.config(w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if count[cfg]++; w.jobs[cfg] == nil {
			w.jobs[cfg] = make(chan job)
		}
		if count[cfg]%scriptsPerWorker == 1 {
			go w.serve(cfg, w.jobs[cfg])
		}
	}
	t.Cleanup(func() {
		for _, jobs := range w.jobs {
			close(jobs)
		}
	})
	return w
}

// scriptsPerWorker makes most scripts share two labs: loading a lab's programs takes half a second,
// longer than fifty scripts.
const scriptsPerWorker = 70

func (w *workers) run(s script) (*rewriter, error) {
	cfg, err := s.config(w.cfg)
	if err != nil {
		return nil, err
	}
	done := make(chan result)
	w.jobs[cfg] <- job{s, done}
	r := <-done
	return r.rewriter, r.err
}

// serve runs a worker. It keeps its thread locked, so the namespace ends with it.
func (w *workers) serve(cfg lab.Config, jobs <-chan job) {
	runtime.LockOSThread()
	var shared *lab.Lab
	defer func() {
		if shared != nil {
			_ = shared.Close()
		}
	}()
	for j := range jobs {
		var err error
		if shared == nil {
			shared, err = w.newLab(cfg)
		} else {
			err = shared.Reset()
		}
		r := &runner{rewriter: &rewriter{}, s: j.script, lab: shared, vars: pkt.Vars{}}
		if err == nil {
			err = r.run()
		}
		if shared != nil && j.script.has("ip", "live", "sysctl") { // after a failure, too: other scripts follow
			err = errors.Join(err, shared.RenewNetwork())
		}
		j.done <- result{r.rewriter, err}
	}
}

// newLab fails immediately after an earlier failure: a program that the verifier refuses takes
// seconds each time.
func (w *workers) newLab(cfg lab.Config) (*lab.Lab, error) {
	if err := w.broken.Load(); err != nil {
		return nil, *err
	}
	made, err := lab.New(cfg)
	if err != nil {
		w.broken.Store(&err)
	}
	return made, err
}

// has reports whether a line of the script begins with one of the verbs.
func (s script) has(verbs ...string) bool {
	return slices.ContainsFunc(s.lines, func(line string) bool {
		verb, _ := splitVerb(line)
		return slices.Contains(verbs, verb)
	})
}

// config adds the settings in the first lines of the script to cfg. Comments may precede them.
func (s script) config(cfg lab.Config) (lab.Config, error) {
	begun := false // a step precedes this line
	for _, line := range s.lines {
		verb, rest := splitVerb(line)
		var into *int
		switch {
		case verb == "size":
			into = &cfg.Connections
		case verb == "half-open":
			into = &cfg.HalfOpen
		default:
			begun = begun || verb != "" && !strings.HasPrefix(verb, "#")
			continue
		}
		if begun {
			return cfg, fmt.Errorf("%q is a setting: move it before the first step", line)
		}
		if _, err := fmt.Sscan(rest, into); err != nil {
			return cfg, fmt.Errorf("%s: %w", line, err)
		}
	}
	return cfg, nil
}
