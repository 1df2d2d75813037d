package netnstest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// stopPatience is how long a process may take to end after SIGTERM.
const stopPatience = 5 * time.Second

// Command describes a command to run in a host.
type Command struct {
	Args   []string
	Env    []string  // added to this process's
	Dir    string    // "": this process's
	Input  *os.File  // standard input, or nil
	Output io.Writer // receives a copy of its output, if not nil
	Detach bool      // the process outlives this one and its terminal, but not Lab.Close
}

// Process is a program that runs in a host.
type Process struct {
	cmd    *exec.Cmd
	output lockedBuffer
	done   chan struct{}
	err    error // of Wait; valid once done is closed
}

// Start starts a program in the host. The kernel kills it when this process ends, unless it is
// detached.
func (h *Host) Start(c Command) (*Process, error) {
	p := &Process{cmd: exec.Command(c.Args[0], c.Args[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Dir = c.Dir
	if c.Input != nil {
		p.cmd.Stdin = c.Input
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only this process, which then stops the others
	switch {
	case c.Detach:
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if f, ok := c.Output.(*os.File); ok { // a pipe would break when this process ends
			p.cmd.Stdout, p.cmd.Stderr = f, f
		}
	case c.Output != nil:
		w := io.MultiWriter(&p.output, c.Output)
		p.cmd.Stdout, p.cmd.Stderr = w, w
	default:
		p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	}
	if !c.Detach {
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := h.start(p); err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", c.Args[0], h.Name, err)
	}
	h.lab.mu.Lock()
	h.lab.processes = append(h.lab.processes, p)
	h.lab.mu.Unlock()
	return p, nil
}

// start starts a process on a thread that waits until the process has ended. Linux would kill the
// process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG), and locked threads of
// tests end early.
func (h *Host) start(p *Process) error {
	started := make(chan error, 2)
	go func() {
		err := h.Do(func() error {
			if err := p.cmd.Start(); err != nil {
				return err
			}
			started <- nil
			p.err = p.cmd.Wait()
			close(p.done)
			return nil
		})
		started <- err
	}()
	return <-started
}

// Run runs a program in the host, waits for its end, and returns its standard output and error.
func (h *Host) Run(args ...string) (string, error) {
	p, err := h.Start(Command{Args: args})
	if err != nil {
		return "", err
	}
	if err := p.Wait(); err != nil {
		return p.Output(), fmt.Errorf("run %q in %s: %w: %s", args, h.Name, err, p.Output())
	}
	return p.Output(), nil
}

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output returns the process's standard output and error so far; nothing if it is detached.
func (p *Process) Output() string { return p.output.String() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process. It returns an *exec.ExitError unless the exit code is 0.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends a signal to the process if it still runs.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends the process by SIGKILL, and waits for its end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop ends the process by SIGTERM, or by SIGKILL after stopPatience, and waits for its end.
func (p *Process) Stop() {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		p.Kill()
	}
}

// lockedBuffer is a bytes.Buffer that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
