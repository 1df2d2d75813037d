package netnstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Daemon is a loxilb process in a host of a lab. It has its own files, so many can run at a time.
type Daemon struct {
	*Process
	host *Host
	bin  string   // directory of loxilb and loxicmd
	dir  string   // of its state and its socket
	pins string   // directory in the BPF file system
	wrap []string // words before its command
	opts DaemonOptions
}

// DaemonOptions are the options of a daemon.
type DaemonOptions struct {
	Bin    string    // directory of loxilb and loxicmd
	Dir    string    // of its state and its socket, created if missing; "": a directory that is removed with the lab
	Args   []string  // further flags
	Detach bool      // the daemon outlives this process
	Output io.Writer // receives a copy of its log, if not nil; must be an *os.File with Detach
}

// StartDaemon starts loxilb in a host and waits until it is ready. The lab's Close stops it, and
// removes its files and pins.
func (h *Host) StartDaemon(ctx context.Context, o DaemonOptions) (*Daemon, error) {
	if o.Dir == "" {
		o.Dir = filepath.Join(daemonsDir, h.Namespace)
	}
	d := &Daemon{host: h, bin: o.Bin, dir: o.Dir, pins: PinPath(o.Dir), opts: o}
	h.lab.Cleanup(d.Remove)
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the daemon's directory: %w", err)
	}
	return d, d.Start(ctx)
}

// PinPath returns the directory in which a daemon with the given directory pins its maps and links.
func PinPath(dir string) string { return filepath.Join(pinsDir, filepath.Base(dir)) }

// Start starts the daemon again after Stop or Kill, and waits until it is ready.
func (d *Daemon) Start(ctx context.Context) (err error) {
	if err := d.Launch(); err != nil {
		return err
	}
	for {
		err := d.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.Done():
			return fmt.Errorf("loxilb ended before it answered: %w\n%s", d.Wait(), d.Log())
		case <-ctx.Done():
			return fmt.Errorf("loxilb does not answer: %w\n%s", err, d.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Launch starts the daemon again without waiting until it is ready.
func (d *Daemon) Launch() (err error) {
	d.Process, err = d.host.Start(Command{Args: d.Args(), Output: d.opts.Output, Detach: d.opts.Detach})
	return err
}

// answers returns an error unless the daemon is ready. Its API answers before programs are attached
// to interfaces.
func (d *Daemon) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:11111/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := d.host.HTTPClient(0).Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("not ready: %s", bytes.TrimSpace(text))
	}
	return errors.Join(err, resp.Body.Close())
}

// Args returns the daemon's command.
func (d *Daemon) Args() []string {
	return slices.Concat(d.wrap, []string{
		filepath.Join(d.bin, "loxilb"),
		"--state-dir", filepath.Join(d.dir, "state"),
		"--socket", filepath.Join(d.dir, "loxilb.sock"),
		"--pin-path", d.pins,
		"--metrics-detail", "endpoint",
	}, d.opts.Args)
}

// Log returns the daemon's output since the last Start.
func (d *Daemon) Log() string {
	if f, ok := d.opts.Output.(*os.File); ok && d.opts.Detach {
		b, err := os.ReadFile(f.Name())
		if err == nil {
			return string(b)
		}
	}
	return d.Output()
}

// Command runs loxicmd in the daemon's host and returns its output.
func (d *Daemon) Command(args ...string) (string, error) {
	return d.host.Run(append([]string{filepath.Join(d.bin, "loxicmd")}, args...)...)
}

// DetachAll stops the daemon and runs loxilb --detach.
func (d *Daemon) DetachAll() error {
	d.Stop()
	_, err := d.host.Run(append(d.Args(), "--detach")...)
	return err
}

// Remove stops the daemon and removes its files and pins. That also detaches its programs from
// interfaces.
func (d *Daemon) Remove() {
	if d.Process != nil {
		d.Stop()
	}
	_ = RemoveDaemonFiles(d.dir)
}

// RemoveDaemonFiles removes the files and pins of a daemon that no longer runs.
func RemoveDaemonFiles(dir string) error {
	return errors.Join(os.RemoveAll(PinPath(dir)), os.RemoveAll(dir))
}

// SetArgs replaces the further flags, from the next Start on.
func (d *Daemon) SetArgs(args ...string) { d.opts.Args = args }

// Wrap makes the next starts run loxilb by another program, such as a tracer: words precede the
// command of loxilb.
func (d *Daemon) Wrap(words ...string) { d.wrap = words }

// Dir is the daemon's directory.
func (d *Daemon) Dir() string { return d.dir }

// SetBin sets the directory of loxilb and loxicmd, from the next Start on.
func (d *Daemon) SetBin(dir string) { d.bin = dir }
