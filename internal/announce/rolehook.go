package announce

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	runTime       = 10 * time.Second // time limit of a run
	readTime      = time.Second      // how long to wait for the rest of its output
	maxOutput     = 512              // bytes of its output that are logged
	maxBackground = 16               // ended runs whose background processes may still print
	maxRefused    = 1024             // refused names that are remembered, to log each of them once
)

// RoleChange has the arguments of a run.
type RoleChange struct{ Instance, State, VIP string }

// RoleHook runs the program, one run at a time.
type RoleHook struct {
	file     string
	optional bool // a missing program is not an error
	log      *slog.Logger
	wake     chan struct{}

	backlog atomic.Int32 // ended runs whose background processes may still print

	mu      sync.Mutex
	pending []RoleChange    // the last of each instance, in order of arrival
	refused map[string]bool // instances for which the program is not run
}

// NewRoleHook returns a hook that runs a file.
func NewRoleHook(file string, optional bool, log *slog.Logger) *RoleHook {
	return &RoleHook{file: file, optional: optional, log: log, wake: make(chan struct{}, 1)}
}

// Changed records a change, and does not wait for its run. Of several waiting changes of an
// instance, the last one counts.
func (h *RoleHook) Changed(c RoleChange) {
	if h == nil {
		return
	}
	if !isPlainName(c.Instance) {
		h.refuse(c.Instance)
		return
	}
	h.mu.Lock()
	h.pending = slices.DeleteFunc(h.pending, func(before RoleChange) bool { return before.Instance == c.Instance })
	h.pending = append(h.pending, c)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// isPlainName reports whether a name is safe in any script: any user who can set roles chooses it.
func isPlainName(name string) bool {
	return name != "" && name[0] != '-' && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// refuse logs once per name that the program is not run.
func (h *RoleHook) refuse(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused[name] || len(h.refused) == maxRefused {
		return
	}
	if h.refused == nil {
		h.refused = map[string]bool{}
	}
	h.refused[name] = true
	h.log.Error("role hook is not run: the name of the instance may have letters, digits, '.', '_' and '-', not first", "file", h.file, "instance", name)
}

// Run runs the program for each change until ctx ends.
func (h *RoleHook) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		for ctx.Err() == nil {
			c, ok := h.next()
			if !ok {
				break
			}
			h.run(ctx, c)
		}
	}
}

func (h *RoleHook) next() (c RoleChange, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == 0 {
		return c, false
	}
	c, h.pending = h.pending[0], h.pending[1:]
	return c, true
}

func (h *RoleHook) run(ctx context.Context, c RoleChange) {
	log := h.log.With("file", h.file, "instance", c.Instance, "role", c.State, "vip", c.VIP)
	program, err := resolveRootOwned(h.file)
	if err != nil {
		if !h.optional || !errors.Is(err, fs.ErrNotExist) {
			log.Error("role hook is not run", "error", err)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, c.Instance, c.State, c.VIP)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // including its children
	start := time.Now()
	output, err := h.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	log = log.With("took", time.Since(start).Round(time.Millisecond), "output", output())
	switch {
	case late:
		log.Error("role hook killed: it took too long", "limit", runTime)
	case err != nil:
		log.Error("role hook failed", "error", err)
	default:
		log.Info("role hook was run")
	}
}

// start starts a run. The returned function returns the beginning of the output after the run has
// ended. Later output of background processes is read and discarded, for at most maxBackground
// runs; processes of further runs print to /dev/null.
func (h *RoleHook) start(cmd *exec.Cmd) (output func() string, err error) {
	output = func() string { return "" }
	if h.backlog.Load() >= maxBackground {
		return output, cmd.Start()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return output, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	if err = errors.Join(err, w.Close()); err != nil {
		return output, errors.Join(err, r.Close())
	}
	var out outputHead
	end := make(chan error, 1)
	go func() {
		_, err := io.Copy(&out, r)
		end <- err
	}()
	return func() string {
		stuck := r.SetReadDeadline(time.Now().Add(readTime))
		if err := errors.Join(stuck, <-end); errors.Is(err, os.ErrDeadlineExceeded) {
			h.backlog.Add(1)
			go h.drain(r)
		} else {
			r.Close() //nolint:errcheck // no writer is left
		}
		return strings.TrimSpace(string(out))
	}, nil
}

// drain reads and discards until there is no writer left.
func (h *RoleHook) drain(r *os.File) {
	defer h.backlog.Add(-1)
	defer r.Close() //nolint:errcheck // it is only read
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r)
}

// outputHead keeps the beginning of the written text.
type outputHead []byte

func (s *outputHead) Write(p []byte) (int, error) {
	*s = append(*s, p[:min(len(p), maxOutput-len(*s))]...)
	return len(p), nil
}
