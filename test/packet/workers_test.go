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

// lanes run scripts concurrently. A lane is a thread in its own namespace with a lab that runs one
// script after the other, and gets a new network after a script that changed it, or attached
// programs to it. Scripts with a configuration of their own share a lane of it.
type lanes struct {
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

func newLanes(t *testing.T, cfg lab.Config, scripts []script) *lanes {
	t.Helper()
	l := &lanes{cfg: cfg, jobs: map[lab.Config]chan job{}}
	count := map[lab.Config]int{}
	for _, s := range scripts {
		cfg, err := s.config(l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if count[cfg]++; l.jobs[cfg] == nil {
			l.jobs[cfg] = make(chan job)
		}
		if count[cfg]%scriptsPerLane == 1 {
			go l.serve(cfg, l.jobs[cfg])
		}
	}
	t.Cleanup(func() {
		for _, jobs := range l.jobs {
			close(jobs)
		}
	})
	return l
}

// scriptsPerLane is such that most scripts share two labs: a lab takes the verifier half a second,
// and fifty scripts take less.
const scriptsPerLane = 70

func (l *lanes) run(s script) (*rewriter, error) {
	cfg, err := s.config(l.cfg)
	if err != nil {
		return nil, err
	}
	done := make(chan result)
	l.jobs[cfg] <- job{s, done}
	r := <-done
	return r.rewriter, r.err
}

// serve runs a lane. It keeps its thread locked, so the namespace ends with it.
func (l *lanes) serve(cfg lab.Config, jobs <-chan job) {
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
			shared, err = l.newLab(cfg)
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

// newLab fails at once after an earlier failure: a program that the verifier refuses takes seconds
// each time.
func (l *lanes) newLab(cfg lab.Config) (*lab.Lab, error) {
	if err := l.broken.Load(); err != nil {
		return nil, *err
	}
	made, err := lab.New(cfg)
	if err != nil {
		l.broken.Store(&err)
	}
	return made, err
}

// has reports whether a line of the script begins with one of the verbs.
func (s script) has(verbs ...string) bool {
	return slices.ContainsFunc(s.lines, func(line string) bool {
		verb, _ := cutVerb(line)
		return slices.Contains(verbs, verb)
	})
}

// config adds the settings in the first lines of the script to cfg. Comments may precede them.
func (s script) config(cfg lab.Config) (lab.Config, error) {
	begun := false // by another step
	for _, line := range s.lines {
		verb, rest := cutVerb(line)
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
			return cfg, fmt.Errorf("%q is a setting: move it in front of the first step", line)
		}
		if _, err := fmt.Sscan(rest, into); err != nil {
			return cfg, fmt.Errorf("%s: %w", line, err)
		}
	}
	return cfg, nil
}
