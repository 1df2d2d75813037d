package datapath_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"loxilb/internal/lb"
	"loxilb/test/dptest"
	"loxilb/test/packet/lab"
)

func inLab(t *testing.T, service string, f func(*lab.Lab) error) {
	t.Helper()
	inLabWith(t, lab.Config{}, service, f)
}

// inLabWith calls f with a lab that has the service, and that earlier tests may have used.
func inLabWith(t *testing.T, cfg lab.Config, service string, f func(*lab.Lab) error) {
	t.Helper()
	w := takeIdleLab(cfg)
	if w == nil {
		w = &labWorker{jobs: make(chan func(*lab.Lab) error), errs: make(chan error)}
		go w.serve(cfg)
	}
	w.jobs <- func(l *lab.Lab) error {
		s, err := lb.ParseService(service)
		if err == nil {
			err = l.Apply(s)
		}
		if err != nil {
			return err
		}
		return f(l)
	}
	if err := <-w.errs; err != nil {
		close(w.jobs)
		closeErr := <-w.errs
		if errors.Is(err, dptest.ErrGrown) {
			err = nil // the test has passed
		}
		if err := errors.Join(err, closeErr); err != nil {
			t.Fatal(err)
		}
		return
	}
	idleLabs.mu.Lock()
	defer idleLabs.mu.Unlock()
	idleLabs.list[cfg] = append(idleLabs.list[cfg], w)
}

// labWorker runs tests in its lab, one after another.
type labWorker struct {
	jobs chan func(*lab.Lab) error
	errs chan error // of each job, and at the end
}

// idleLabs has the labs that no test uses.
var idleLabs = struct {
	mu   sync.Mutex
	list map[lab.Config][]*labWorker
}{list: map[lab.Config][]*labWorker{}}

// takeIdleLab returns an idle lab with this configuration, or nil.
func takeIdleLab(cfg lab.Config) *labWorker {
	idleLabs.mu.Lock()
	defer idleLabs.mu.Unlock()
	list := idleLabs.list[cfg]
	if len(list) == 0 {
		return nil
	}
	idleLabs.list[cfg] = list[:len(list)-1]
	return list[len(list)-1]
}

// serve runs jobs. It keeps its thread locked, so the namespace ends with it.
func (w *labWorker) serve(cfg lab.Config) {
	runtime.LockOSThread()
	var clean *dptest.State
	l, err := lab.New(cfg)
	if err == nil {
		clean, err = dptest.NewState(l.Datapath.TestRun().Collection)
	}
	for job := range w.jobs {
		if err == nil {
			if err = job(l); err == nil {
				err = resetLab(l, clean)
			}
		}
		w.errs <- err
	}
	if l != nil {
		err = l.Close()
	}
	w.errs <- err
}

// resetLab restores the state of a new lab.
func resetLab(l *lab.Lab, clean *dptest.State) error {
	c := l.Datapath.TestRun().Collection
	err := dptest.Empty(c.Maps.Fragments) // Reset changes its rows, which would evict others from a full map
	if err == nil {
		err = l.Reset()
	}
	if err == nil {
		err = clean.Restore(c)
	}
	if err == nil {
		err = l.Reset() // reads counters again
	}
	if err != nil {
		return fmt.Errorf("clean up after the test: %w", err)
	}
	for _, c := range l.Datapath.Audit(false) {
		if len(c.Differences) > 0 {
			return fmt.Errorf("clean up after the test: %s differs: %v", c.Table, c.Differences)
		}
	}
	return nil
}
