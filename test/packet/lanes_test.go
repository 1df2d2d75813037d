package packet

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// lanes run scripts concurrently. A lane is a thread in its own namespace with a lab that runs one
// script after the other; a script that changes the network or the program's configuration gets a
// new lab.
type lanes struct {
	cfg    lab.Config
	jobs   chan job
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

func newLanes(t *testing.T, cfg lab.Config) *lanes {
	t.Helper()
	l := &lanes{cfg: cfg, jobs: make(chan job)}
	for range 4 { // lanes mostly wait for the kernel to free maps and namespaces
		go l.serve()
	}
	t.Cleanup(func() { close(l.jobs) })
	return l
}

func (l *lanes) run(s script) (*rewriter, error) {
	done := make(chan result)
	l.jobs <- job{s, done}
	r := <-done
	return r.rewriter, r.err
}

// serve runs a lane. It keeps its thread locked, so the namespace ends with it.
func (l *lanes) serve() {
	runtime.LockOSThread()
	var shared *lab.Lab
	defer func() {
		if shared != nil {
			_ = shared.Close()
		}
	}()
	for j := range l.jobs {
		if j.script.needsOwnLab() {
			go l.alone(j)
			continue
		}
		var err error
		if shared == nil {
			shared, err = l.newLab(l.cfg)
		} else {
			err = shared.Reset()
		}
		r := &runner{rewriter: &rewriter{}, s: j.script, lab: shared, vars: pkt.Vars{}}
		if err == nil {
			err = r.run()
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

// alone runs a script in its own lab.
func (l *lanes) alone(j job) {
	runtime.LockOSThread()
	r := &runner{rewriter: &rewriter{}, s: j.script, vars: pkt.Vars{}}
	err := func() (err error) {
		cfg, err := j.script.config(l.cfg)
		if err != nil {
			return err
		}
		if r.lab, err = l.newLab(cfg); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.lab.Close()) }()
		return r.run()
	}()
	j.done <- result{r.rewriter, err}
}

// needsOwnLab reports whether the script leaves traces that Reset does not remove.
func (s script) needsOwnLab() bool {
	for _, line := range s.lines {
		switch verb, _ := cutVerb(line); verb {
		case "ip", "sysctl", "size", "half-open", "live":
			return true
		}
	}
	return false
}

// config adds the settings in the first lines of the script to cfg.
func (s script) config(cfg lab.Config) (lab.Config, error) {
	for _, line := range s.lines {
		verb, rest := cutVerb(line)
		var into *int
		switch verb {
		case "size":
			into = &cfg.Connections
		case "half-open":
			into = &cfg.HalfOpen
		default:
			return cfg, nil
		}
		if _, err := fmt.Sscan(rest, into); err != nil {
			return cfg, fmt.Errorf("%s: %w", line, err)
		}
	}
	return cfg, nil
}
