package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
)

// program returns the one to attach.
func (x *XDP) program() (*ebpf.Program, error) {
	switch {
	case !x.tracing:
		return x.programs.Programs[programName], nil
	case x.traced != nil:
		return x.traced, nil
	}
	var err error
	x.traced, err = x.loadTracing()
	return x.traced, err
}

func (x *XDP) loadTracing() (*ebpf.Program, error) {
	spec, err := bpf.LoadXdpTrace()
	if err != nil {
		return nil, fmt.Errorf("read the XDP object that traces: %w", err)
	}
	if x.mode.multiBuffer() {
		spec.Programs[programName].Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	return loader.LoadTwin(spec, x.programs.Maps, programName)
}

// TryTracing checks whether the kernel accepts the tracing program.
func (x *XDP) TryTracing() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.load(); err != nil {
		return err
	}
	p, err := x.loadTracing()
	return errors.Join(err, p.Close())
}

// Trace replaces the program at every interface by the tracing one, or restores it. No packet
// passes without a program.
func (x *XDP) Trace(on bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if on == x.tracing {
		return nil
	}
	x.tracing = on
	err := x.exchangeAll()
	if err != nil && on {
		x.tracing = false
		err = errors.Join(err, x.exchangeAll())
	}
	if x.traced != nil && !x.tracing {
		err = errors.Join(err, x.traced.Close())
		x.traced = nil
	}
	return err
}

// exchangeAll attaches the current program in all places.
func (x *XDP) exchangeAll() error {
	var errs []error
	for _, a := range x.attached {
		prog, err := x.program()
		if err == nil {
			err = x.exchange.Put(a, prog)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
