package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const (
	vip  = "20.20.20.1"
	vip6 = "2001:db8:20::1"
)

// TestContainer runs the image on a host with pods, and a client elsewhere.
//
// P72 The container image runs with a read-only root and the documented capabilities only, and its
// restart under load loses no connection and no request
func TestContainer(t *testing.T) {
	needImage(t)
	s := labtest.Standard(t, netnstest.Options{})
	for _, h := range s.Endpoints {
		startPod(t, h)
	}
	c, check := balancer(t, s.LB, root())
	c.start()
	c.healthy(check)
	c.loxicmd("create lb " + vip + " --tcp=80:80 --endpoints=31.31.31.1:1,32.32.32.1:1,17.17.17.1:1 --monitor --probetype=tcp --probeport=80")
	c.loxicmd("create lb " + vip6 + " --tcp=80:80 --endpoints=[2001:db8:31::1]:1,[2001:db8:32::1]:1,[2001:db8:17::1]:1")
	if out := c.loxicmd("get status --failed -o json"); !strings.Contains(out, "[]") {
		t.Errorf("objects that failed: %s", out)
	}
	for _, address := range []string{"31.31.31.1", "32.32.32.1", "17.17.17.1"} {
		labtest.Eventually(t, rig.Patience, func(context.Context) error { // the pods start with a delay
			_, err := (&browsers{client: s.LB, address: rig.Join(address, 80)}).askOnce()
			return err
		})
	}
	b, six := startBrowsers(t, s.Client, rig.Join(vip, 80), 10, 2), startBrowsers(t, s.Client, rig.Join(vip6, 80), 10, 2)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		b.awaitAnswers(t)
		c.stop(signal)
		if _, err := c.exec(check...); err == nil {
			t.Error("the container is healthy without a process")
		}
		b.awaitAnswers(t)
		six.awaitAnswers(t)
		c.start()
		c.healthy(check)
	}
	b.awaitAnswers(t)
	for _, err := range []error{b.finish(), six.finish()} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, h := range s.Endpoints {
		if b.from[h.Name] == 0 {
			t.Errorf("pod %s has answered no request: %v", h.Name, b.from)
		}
	}
	t.Logf("%d requests were answered by %v, %d by %v", b.answered, b.from, six.answered, six.from)
	answersPods(t, s)
	c.detaches(s, root())
}

// TestAnotherUser runs the image as a user other than root, with capabilities that engines can give
// to such users.
func TestAnotherUser(t *testing.T) {
	needImage(t)
	s := labtest.Standard(t, netnstest.Options{})
	startPod(t, s.Endpoints[0])
	u := user{id: 65532, pins: filepath.Join("/sys/fs/bpf", s.LB.Namespace)}
	if err := errors.Join(os.Mkdir(u.pins, 0o700), os.Chown(u.pins, u.id, u.id)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(u.pins) })
	c, check := balancer(t, s.LB, u)
	c.start()
	c.healthy(check)
	c.loxicmd("create lb " + vip + " --tcp=80:80 --endpoints=31.31.31.1:1")
	c.loxicmd("create lb " + vip6 + " --tcp=80:80 --endpoints=[2001:db8:31::1]:1")
	if out := c.loxicmd("get status --failed -o json"); !strings.Contains(out, "[]") {
		t.Errorf("objects that failed: %s", out)
	}
	for _, address := range []string{vip, vip6} {
		labtest.Eventually(t, rig.Patience, func(context.Context) error { // the pod starts with a delay
			_, err := (&browsers{client: s.Client, address: rig.Join(address, 80)}).askOnce()
			return err
		})
	}
	c.detaches(s, u)
}

// user is the user that runs the image, and the folder of its pins.
type user struct {
	id   int
	pins string
}

func root() user { return user{0, "/sys/fs/bpf"} }

// balancer returns a container of the image that is configured as in docs/container.md, and its
// health check.
func balancer(t testing.TB, host *netnstest.Host, u user, more ...string) (c *container, check []string) {
	t.Helper()
	config, err := imageOf(t, whole(t, layouts()[0]), goArch).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	bundle := t.TempDir()
	root, state := filepath.Join(bundle, "root"), filepath.Join(bundle, "var")
	unpack(t, root)
	if err := errors.Join(os.Mkdir(state, 0o700), os.Chown(state, u.id, u.id)); err != nil {
		t.Fatal(err)
	}
	given := object{}
	for _, set := range []string{"bounding", "effective", "permitted", "inheritable", "ambient"} {
		if u.id != 0 || set[0] != 'i' && set[0] != 'a' {
			given[set] = capabilities(t)
		}
	}
	own := fmt.Sprintf("uid=%d,gid=%d", u.id, u.id)
	c = newContainer(t, host, bundle, root, object{
		"args":         append(config.Config.Entrypoint, more...),
		"env":          config.Config.Env,
		"user":         object{"uid": u.id, "gid": u.id},
		"capabilities": given,
	}, []object{
		{"destination": "/sys/fs/bpf", "type": "bind", "source": u.pins, "options": []string{"rbind", "rw"}},
		{"destination": "/var/lib/loxilb", "type": "bind", "source": state, "options": []string{"rbind", "rw"}},
		{"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "nodev", "mode=755", own}},
	})
	return c, config.Config.Healthcheck.Test[1:]
}

// answersPods checks that pods of the host reach the VIP, too.
func answersPods(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	for _, h := range s.Endpoints {
		b := &browsers{client: h, address: rig.Join(vip, 80)}
		for range 3 { // one of them reaches itself
			if _, err := b.askOnce(); err != nil {
				t.Errorf("pod %s: %v", h.Name, err)
			}
		}
	}
}

// detaches stops the container, and checks that loxilb --detach in another one removes everything.
func (c *container) detaches(s *netnstest.Standard, u user) {
	c.t.Helper()
	c.stop(syscall.SIGTERM)
	d, _ := balancer(c.t, s.LB, u, "--detach")
	d.start()
	if err := d.process.Wait(); err != nil {
		c.t.Errorf("detach: %v: %s", err, d.process.Output())
	}
	if out, err := s.LB.Run("ip", "address", "show", "dev", "lo"); err != nil || strings.Contains(out, vip) {
		c.t.Errorf("the VIP still exists: %s: %v", out, err)
	}
}
