package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

type object = map[string]any

// capabilities returns the container's capabilities in docs/container.md: the first column of the
// table.
func capabilities(t testing.TB) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/container.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		list = append(list, "CAP_"+m[1])
	}
	return list
}

// container is a process with its own root file system, which runc runs in the network of a host.
type container struct {
	t       testing.TB
	host    *netnstest.Host
	bundle  string // runc's bundle directory
	id      string
	process *netnstest.Process
}

// runc returns a runc command with state of this test.
func (c *container) runc(args ...string) *exec.Cmd {
	return exec.Command("runc", append([]string{"--root", filepath.Join(c.bundle, "state")}, args...)...)
}

// newContainer creates a container. process is the process to run; mounts are added to the default
// mounts of container engines.
func newContainer(t testing.TB, host *netnstest.Host, bundle, root string, process object, mounts []object) *container {
	t.Helper()
	none := []string{}
	process["cwd"], process["terminal"], process["noNewPrivileges"] = "/", false, true
	if process["capabilities"] == nil {
		process["capabilities"] = object{"bounding": none}
	}
	config := object{
		"ociVersion": "1.0.2",
		"process":    process,
		"root":       object{"path": root, "readonly": true},
		"mounts": append([]object{
			{"destination": "/proc", "type": "proc", "source": "proc", "options": []string{"nosuid", "noexec", "nodev"}},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
			{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
		}, mounts...),
		"linux": object{
			"cgroupsPath": "/" + host.Namespace,
			"namespaces":  []object{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network", "path": host.Path()}},
			"maskedPaths": []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/sched_debug", "/proc/scsi", "/sys/firmware",
			},
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	text, err := json.Marshal(config)
	if err == nil {
		err = errors.Join(os.MkdirAll(bundle, 0o755), os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &container{t: t, host: host, bundle: bundle, id: host.Namespace}
	t.Cleanup(func() {
		if t.Failed() && c.process != nil {
			t.Logf("%s says:\n%s", c.id, c.process.Output())
		}
		c.remove()
	})
	return c
}

// start runs the container until it or the test ends.
func (c *container) start() {
	c.t.Helper()
	var err error
	if c.process, err = c.host.Start(netnstest.Command{Args: c.runc("run", "--bundle", c.bundle, c.id).Args}); err != nil {
		c.t.Fatal(err)
	}
}

// stop ends the container by a signal, as engines do, and waits for its end.
func (c *container) stop(signal syscall.Signal) {
	c.t.Helper()
	if out, err := c.runc("kill", c.id, fmt.Sprint(int(signal))).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	<-c.process.Done()
	_ = c.runc("delete", "--force", c.id).Run() // normally deleted already, unless runc was killed
}

func (c *container) remove() {
	_ = c.runc("kill", c.id, "KILL").Run()
	_ = c.runc("delete", "--force", c.id).Run()
	if c.process != nil {
		<-c.process.Done()
	}
}

// exec runs a program of the image in the container, as health checks and users do.
func (c *container) exec(args ...string) (string, error) {
	out, err := c.runc(append([]string{"exec", c.id}, args...)...).CombinedOutput()
	return string(out), err
}

func (c *container) loxicmd(line string) string {
	c.t.Helper()
	out, err := c.exec(append([]string{"loxicmd"}, strings.Fields(line)...)...)
	if err != nil {
		c.t.Fatalf("loxicmd %s: %v: %s", line, err, out)
	}
	return out
}

// healthy waits until the image's own health check succeeds.
func (c *container) healthy(check []string) {
	c.t.Helper()
	labtest.Eventually(c.t, rig.Patience, func(context.Context) error {
		select {
		case <-c.process.Done():
			c.t.Fatalf("the container has ended: %v", c.process.Wait())
		default:
		}
		if out, err := c.exec(check...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// unpack writes the image's root file system for this architecture to a directory, as container
// engines do.
func unpack(t testing.TB, dir string) {
	t.Helper()
	image := imageOf(t, whole(t, layouts()[0]), goArch)
	root := mutate.Extract(image)
	defer root.Close() //nolint:errcheck // only read
	tar := exec.Command("tar", "--extract", "--preserve-permissions", "--numeric-owner", "--directory="+dir)
	tar.Stdin = root
	var errs bytes.Buffer
	tar.Stderr = &errs
	if err := errors.Join(os.MkdirAll(dir, 0o755), tar.Run()); err != nil {
		t.Fatalf("unpack the image: %v: %s", err, &errs)
	}
}
