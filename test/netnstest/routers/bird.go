package routers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"loxilb/test/netnstest"
)

// BIRD is a router in a host.
type BIRD struct {
	dir     string
	process *netnstest.Process
}

// StartBIRD runs bird with a configuration, and waits until it answers. The lab's Close ends bird
// and removes its directory.
func StartBIRD(lab *netnstest.Lab, h *netnstest.Host, config string) (*BIRD, error) {
	dir, err := os.MkdirTemp("", "bird-")
	if err != nil {
		return nil, fmt.Errorf("start BIRD in %s: %w", h.Name, err)
	}
	lab.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // in the directory of temporary files
	b := &BIRD{dir: dir}
	file := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, fmt.Errorf("start BIRD in %s: %w", h.Name, err)
	}
	args := []string{"bird", "-f", "-c", file, "-s", b.socket(), "-P", filepath.Join(dir, "bird.pid")}
	if b.process, err = h.Start(netnstest.Command{Args: args}); err != nil {
		return nil, err
	}
	if err := waitFor(b.process, b.socket()); err != nil {
		return nil, fmt.Errorf("start BIRD in %s: %w", h.Name, err)
	}
	return b, nil
}

func (b *BIRD) socket() string { return filepath.Join(b.dir, "bird.ctl") }

// Birdc runs a command and returns its output.
func (b *BIRD) Birdc(command ...string) (string, error) {
	out, err := exec.Command("birdc", append([]string{"-s", b.socket()}, command...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("birdc %q: %w: %s", command, err, out)
	}
	return string(out), nil
}

// Process returns the process of bird.
func (b *BIRD) Process() *netnstest.Process { return b.process }
